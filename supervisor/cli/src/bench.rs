//! `offload bench`: `compare` shows offloading beside the ways to do the same work on the event loop; `pool` shows the
//! pool beside what the machine allows (see `bench/pool.rs`). This file is about `compare`.
//!
//! ```text
//!   prober, a thread               event loop                        workers, for one of the four strategies
//!   one probe per millisecond  --> reply; its delay is recorded
//!                                  jobs, one after another  <-- or -->  jobs, one in each worker
//! ```
//!
//! | read | for |
//! |---|---|
//! | `bench/strategy.rs` | **start here**: the four strategies, and how one is measured |
//! | `bench/jobs.rs` | runs one job after another until the time is up, and checks each answer |
//! | `bench/workload.rs`, `bench/array.rs` | what a job computes: at once, in steps, or by a worker |
//! | `bench/prober.rs` | measures how long other users of the loop wait meanwhile |
//! | `bench/report.rs` | the result, as a table and as a JSON document |

mod array;
mod jobs;
pub(crate) mod pool;
mod prober;
mod report;
mod strategy;
mod workload;

use super::failure::{Failure, OK, VerbResult};
use super::flags::Globals;
use super::output::{print, print_line, say};
use crate::configuration::Settings;
use crate::configuration::arguments::{KeyFlags, NumberOfWorkers};
use crate::limits::{BENCH_TIME_MAX, BENCH_TIME_MIN};
use clap::{Args, Subcommand, ValueEnum};
use jobs::Exercise;
use offload_supervisor::units::{parse_duration, show_duration};
use offload_supervisor::{PoolConfig, Program};
use report::{BenchReport, Row};
use std::io::{IsTerminal, stderr};
use std::rc::Rc;
use std::time::Duration;
use strategy::{Setup, Strategy, measure};
use workload::{Documents, Numbers, Workload};

const EXAMPLES: &str = "\
Examples:
  offload bench compare                                  each job does a million additions
  offload bench compare --task json --size 100000        each job measures an array of 100,000 elements
  offload bench compare --size 20000 --seconds 500ms --json";

/// Compare offloading with doing the work on the event loop, or the pool with the limits of the machine
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Compare(Compare),
    Pool(pool::PoolBench),
}

/// Run the same jobs inline, partitioned and offloaded, and measure how late the event loop answers meanwhile
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct Compare {
    /// What a job computes
    #[arg(long, value_enum, default_value_t = BenchTask::Average)]
    task: BenchTask,

    /// Size of a job: the N of average, the number of array elements of json [default: 1000000 for average, 20000 for
    /// json]
    #[arg(long, value_name = "N")]
    size: Option<u64>,

    /// How long to measure each strategy: seconds such as 0.5, or a duration such as 500ms; from 10ms to 10m
    #[arg(long, value_name = "D", value_parser = parse_seconds, default_value = "2")]
    seconds: Duration,

    #[command(flatten)]
    workers: KeyFlags<NumberOfWorkers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchTask {
    /// Add up the numbers 1 to N: a step is one addition
    Average,
    /// Measure a JSON document, an array of N elements: a step is one element
    Json,
}

impl Bench {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match self.verb {
            Verb::Compare(compare) => compare.run(globals),
            Verb::Pool(pool) => pool.run(globals),
        }
    }
}

impl Compare {
    fn run(self, globals: &Globals) -> VerbResult {
        let settings = globals.settings(self.workers.layer())?;
        let report = match self.task {
            BenchTask::Average => {
                self.compare(Numbers::new(self.size.unwrap_or(1_000_000))?, &settings, globals)
            }
            BenchTask::Json => self.compare(Documents::new(self.size.unwrap_or(20_000))?, &settings, globals),
        }?;
        match globals.json {
            true => print_line(report.json())?,
            false => print(report.text().as_bytes())?,
        }
        Ok(OK)
    }

    fn compare<W: Workload>(
        &self,
        workload: W,
        settings: &Settings,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        let size = workload.size();
        let setup = Setup { window: self.seconds, pool: pool_config(&workload, settings, globals) };
        let exercise = Rc::new(Exercise::new(workload)?);
        let mut strategies = Vec::new();
        for strategy in Strategy::ALL {
            self.tell(strategy, globals);
            let row = measure(strategy, &exercise, &setup)?;
            self.warn(&row, globals);
            strategies.push(row);
        }
        let (seconds, workers) = (self.seconds.as_secs_f64(), setup.pool.core.workers);
        Ok(BenchReport { task: W::TASK, size, seconds, workers, strategies })
    }

    /// Says what happens next, because nothing else is printed until all is measured, which may take minutes.
    fn tell(&self, strategy: Strategy, globals: &Globals) {
        if !globals.quiet && stderr().is_terminal() {
            say(&format!("measuring {} for {}", strategy.name(), show_duration(self.seconds)));
        }
    }

    /// Warns of a strategy that finished no job: zero jobs per second does not say how slow it is.
    fn warn(&self, row: &Row, globals: &Globals) {
        if row.jobs == 0 && !globals.quiet {
            let time = show_duration(self.seconds);
            say(&format!("{} ended no job in {time}; --seconds gives it more time", row.strategy));
        }
    }
}

/// The pool always has the built-in workers, because their answers are known, and no spare, because no worker should
/// crash.
fn pool_config(workload: &impl Workload, settings: &Settings, globals: &Globals) -> PoolConfig {
    let mut config = settings.pool_config(vec![Program::builtin(false)]);
    let core = &mut config.core;
    let in_flight = (workload.input().len() as u64).saturating_mul(core.workers as u64);
    core.max_bytes = core.max_bytes.max(in_flight);
    core.spares = 0;
    PoolConfig { log: globals.log_level(), ..config }
}

/// A bare number is in seconds; anything else is a duration as in other flags.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => parse_duration(text)?,
    };
    match (BENCH_TIME_MIN..=BENCH_TIME_MAX).contains(&duration) {
        true => Ok(duration),
        false => {
            Err(format!("it must be {} to {}", show_duration(BENCH_TIME_MIN), show_duration(BENCH_TIME_MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_seconds_or_a_duration() {
        for (text, milliseconds) in
            [("2", 2000), ("0.3", 300), ("500ms", 500), ("10s", 10_000), ("10m", 600_000)]
        {
            assert_eq!(parse_seconds(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_measured_is_refused() {
        for text in ["", "0", "-1", "nan", "inf", "1e300", "0.001", "601", "11m", "soon"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
