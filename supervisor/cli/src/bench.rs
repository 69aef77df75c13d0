//! `offload bench`: `compare` shows offloading beside the ways to do the same work on the event loop; `pool` shows the
//! pool beside what the machine allows (see `bench/pool.rs`). This file is about `compare`.
//!
//! ```text
//!   prober, a thread               event loop                        threads, or workers, for two of the strategies
//!   one probe per millisecond  --> reply; its delay is recorded
//!                                  jobs, one after another  <-- or -->  jobs, one in each worker
//! ```
//!
//! | read | for |
//! |---|---|
//! | `bench/comparison.rs` | **start here**: the rounds, and how their samples come together |
//! | `bench/strategy.rs` | the strategies, and how a sample of one is taken |
//! | `bench/statistics.rs` | what several samples say, and when a difference is one |
//! | `bench/jobs.rs` | runs one job after another until the time is up, and checks each answer |
//! | `bench/workload.rs`, `bench/array.rs` | what a job computes: at once, in steps, or by a worker |
//! | `bench/prober.rs` | measures how long other users of the loop wait meanwhile |
//! | `bench/machine.rs` | the cores, and what else they do meanwhile |
//! | `bench/report.rs` | the result, as a table and as a JSON document |

mod array;
mod comparison;
mod jobs;
mod machine;
pub(crate) mod pool;
mod prober;
mod report;
mod seeds;
mod statistics;
mod strategy;
mod workload;

use super::failure::{Failure, OK, VerbResult};
use super::flags::Globals;
use super::output::{print, print_line, say};
use crate::configuration::Settings;
use crate::configuration::arguments::{KeyFlags, NumberOfWorkers};
use crate::limits::{BENCH_TIME_MAX, BENCH_TIME_MIN};
use clap::{Args, Subcommand, ValueEnum};
use comparison::{Comparison, Plan, Summary};
use jobs::Exercise;
use offload_supervisor::units::{parse_duration, show_duration};
use offload_supervisor::{PoolConfig, Program};
use report::BenchReport;
use std::io::{IsTerminal, stderr};
use std::rc::Rc;
use std::time::Duration;
use strategy::{Setup, Strategy};
use workload::{Documents, Numbers, OnePiece, PrimesUpTo, Workload};

const EXAMPLES: &str = "\
Examples:
  offload bench compare                                  each job does a million additions
  offload bench compare --task json --size 100000        each job measures an array of 100,000 elements
  offload bench compare --size 1000,10000,100000 --json
  offload bench compare --strategies threads,offloaded   the second beside the first
  offload bench compare --strategies inline,inline       the same beside itself: how sure is this machine?";

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
    Seeds(seeds::Seeds),
}

/// Run the same jobs inline, partitioned and offloaded, and measure how late the event loop answers meanwhile
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct Compare {
    /// What a job computes
    #[arg(long, value_enum, default_value_t = BenchTask::Average)]
    task: BenchTask,

    /// Sizes of a job, a report for each [default: 1000000 for average, 20000 for json, 1000000 for primes, 2000 for pbkdf2,
    /// 100000 for regex, 256 for thumbnail]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    size: Vec<u64>,

    /// How long to measure each strategy, all rounds together: seconds such as 0.5, or a duration such as 500ms; from 10ms
    /// to 10m
    #[arg(long, value_name = "D", value_parser = parse_seconds, default_value = "4")]
    seconds: Duration,

    /// Take turns so often; from 6 on the report says how sure a difference is
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Only these, in this order; the others are compared with the first. One may be there twice
    #[arg(long, value_name = "S,S", value_enum, value_delimiter = ',', default_values_t = Strategy::ALL)]
    strategies: Vec<Strategy>,

    #[command(flatten)]
    workers: KeyFlags<NumberOfWorkers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchTask {
    /// Add up the numbers 1 to N: a step is one addition
    Average,
    /// Measure a JSON document, an array of N elements: a step is one element
    Json,
    /// Count the primes up to N: a step is 65,536 numbers
    Primes,
    /// Derive a key with N iterations, in one piece
    Pbkdf2,
    /// Look for a pattern in a text of N bytes, in one piece
    Regex,
    /// Shrink a picture of N x N pixels, in one piece
    Thumbnail,
}

impl BenchTask {
    fn usual_size(self) -> u64 {
        match self {
            BenchTask::Average | BenchTask::Primes => 1_000_000,
            BenchTask::Json => 20_000,
            BenchTask::Pbkdf2 => 2_000,
            BenchTask::Regex => 100_000,
            BenchTask::Thumbnail => 256,
        }
    }
}

impl Bench {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match self.verb {
            Verb::Compare(compare) => compare.run(globals),
            Verb::Pool(pool) => pool.run(globals),
            Verb::Seeds(seeds) => seeds.run(globals),
        }
    }
}

impl Compare {
    fn run(self, globals: &Globals) -> VerbResult {
        let settings = globals.settings(self.workers.layer())?;
        let sizes = if self.size.is_empty() { &[self.task.usual_size()][..] } else { &self.size };
        for (at, size) in sizes.iter().enumerate() {
            let report = self.compare_size(*size, &settings, globals)?;
            match globals.json {
                true => print_line(report.json())?,
                false => print(format!("{}{}", if at > 0 { "\n" } else { "" }, report.text()).as_bytes())?,
            }
        }
        Ok(OK)
    }

    fn compare_size(
        &self,
        size: u64,
        settings: &Settings,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        match self.task {
            BenchTask::Average => self.compare(Numbers::new(size)?, settings, globals),
            BenchTask::Json => self.compare(Documents::new(size)?, settings, globals),
            BenchTask::Primes => self.compare(PrimesUpTo::new(size)?, settings, globals),
            BenchTask::Pbkdf2 => self.compare(OnePiece::pbkdf2(size)?, settings, globals),
            BenchTask::Regex => self.compare(OnePiece::regex(size)?, settings, globals),
            BenchTask::Thumbnail => self.compare(OnePiece::thumbnail(size)?, settings, globals),
        }
    }

    fn compare<W: Workload>(
        &self,
        workload: W,
        settings: &Settings,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        let (task, size) = (workload.task(), workload.size());
        let is_possible = |strategy: &&Strategy| W::HAS_STEPS || !strategy.needs_steps();
        let strategies: Vec<Strategy> = self.strategies.iter().filter(is_possible).copied().collect();
        if strategies.is_empty() {
            let message = format!("--strategies: {task} computes in one piece, so it cannot be partitioned");
            return Err(Failure::Usage(message));
        }
        let left_out = self.strategies.iter().filter(|strategy| !is_possible(strategy));
        let left_out = left_out.map(|strategy| strategy.name()).collect();
        let setup = Setup { window: self.window(), pool: pool_config(&workload, settings, globals) };
        let (seconds, workers) = (self.seconds.as_secs_f64(), setup.pool.core.workers);
        let plan = Plan { strategies, rounds: self.rounds, setup };
        let exercise = Rc::new(Exercise::new(workload)?);
        let found = comparison::compare(&plan, &exercise, |round| self.tell(round, globals))?;
        if !globals.quiet {
            self.warnings(&found).iter().for_each(|warning| say(warning));
        }
        Ok(BenchReport {
            left_out,
            ..BenchReport::new((task, size), (seconds, self.rounds, workers), &found)
        })
    }

    /// How long a sample takes.
    fn window(&self) -> Duration {
        (self.seconds / self.rounds).max(BENCH_TIME_MIN)
    }

    /// Says how far it is, because nothing else is printed until all is measured, which may take minutes.
    fn tell(&self, round: u32, globals: &Globals) {
        if !globals.quiet && stderr().is_terminal() {
            let (rounds, window) = (self.rounds, show_duration(self.window()));
            say(&format!(
                "round {round} of {rounds}: {window} for each of {} strategies",
                self.strategies.len()
            ));
        }
    }

    /// What makes the figures worth less.
    fn warnings(&self, found: &Comparison) -> Vec<String> {
        let few = |row: &&Summary| row.jobs < u64::from(self.rounds) * JOBS_OF_A_SAMPLE;
        let few: Vec<&str> = found.rows.iter().filter(few).map(|row| row.strategy.name()).collect();
        let few = (!few.is_empty()).then(|| {
            let (names, window) = (few.join(", "), show_duration(self.window()));
            format!("{names}: hardly a job ends in {window}, so the figures are rough; more --seconds help")
        });
        few.into_iter().chain(found.noise.warning()).collect()
    }
}

/// Fewer jobs than that in a sample, and its rate depends on where the window happened to end.
const JOBS_OF_A_SAMPLE: u64 = 5;

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
