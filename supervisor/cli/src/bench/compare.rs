//! `offload bench compare`: what is compared, as it was typed.
//!
//! ```text
//!   --task average --size N      a built-in task, which this process can do too      every strategy that its cut allows
//!   --worker CMD --task T        work that only its workers know                     one worker beside all of them
//!     --input @FILE...
//! ```

use super::super::exec::{ExecFlags, adapter};
use super::super::failure::{Failure, OK, VerbResult};
use super::super::flags::{Globals, PoolFlags};
use super::super::input::Input;
use super::super::output::{print, print_line, say};
use super::super::output_file::OutputFile;
use super::baseline::{Baseline, Judge};
use super::bench_task::BenchTask;
use super::comparison::{self, Comparison, Plan, Summary};
use super::jobs::Exercise;
use super::own_work::OwnWork;
use super::peers::{self, Peer, Runtime, Work};
use super::report::{self, BenchReport, Measured, Missing, Subject};
use super::strategy::{Setup, Strategy};
use super::workload::{Documents, Numbers, OnePiece, PrimesUpTo, Workload};
use crate::configuration::Settings;
use crate::limits::{BENCH_TIME_MAX, BENCH_TIME_MIN};
use clap::Args;
use offload_supervisor::units::{parse_duration, show_duration};
use offload_supervisor::{Policy, PoolConfig, Program};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  offload bench compare                                  each job does a million additions
  offload bench compare --task json --size 100000        each job measures an array of 100,000 elements
  offload bench compare --size 1000,10000,100000 --json
  offload bench compare --strategies threads,offloaded   the second beside the first
  offload bench compare --strategies inline,inline       the same beside itself: how sure is this machine?
  offload bench compare --with-node --with-python        beside Node.js and Python, in the same rounds
  offload bench compare --report page.html               and plots of it, for a browser
  offload bench compare --json > before.json             keep it, and after a change:
  offload bench compare --baseline before.json           exit code 1 if anything became slower

Work of your own, with any kind of worker; what each input gives first is compared with what it gives later:
  offload bench compare --worker 'python3 worker.py' --task py.sum --input '[1, 2]' '[3, 4]'
  offload bench compare --worker-http 'uvicorn app:app --uds {socket}' --tasks extract --task extract --input @a.pdf
  offload bench compare --exec 'gzip -9' --input @book.txt";

/// Run the same jobs inline, partitioned and offloaded, and measure how late the event loop answers meanwhile
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Compare {
    /// What a job computes: average, json, primes, pbkdf2, regex or thumbnail; with --worker... or --input a task of those
    /// workers [default: average]
    #[arg(long, value_name = "TASK", conflicts_with = "exec")]
    task: Option<String>,

    /// Sizes of a job, a report for each [default: 1000000 for average, 20000 for json, 1000000 for primes, 2000 for pbkdf2,
    /// 100000 for regex, 256 for thumbnail]
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with_all = ["exec", "worker", "worker-jsonl", "worker-http", "input"])]
    size: Vec<u64>,

    /// Inputs of your own, which the jobs take in turn: a text, @FILE for the content of a file, - for standard input
    #[arg(long, value_name = "INPUT", num_args = 1.., value_parser = Input::parser(), allow_negative_numbers = true)]
    input: Vec<Input>,

    /// How long to measure each strategy, all rounds together: seconds such as 0.5, or a duration such as 500ms; from 10ms
    /// to 10m
    #[arg(long, value_name = "D", value_parser = parse_seconds, default_value = "4")]
    seconds: Duration,

    /// Take turns so often; from 6 on the report says how sure a difference is. Workers are started anew for each turn
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Only these, in this order; the others are compared with the first. One may be there twice [default: all that are
    /// possible; one_worker only for work of your own, auto with --policy]
    #[arg(long, value_name = "S,S", value_enum, value_delimiter = ',')]
    strategies: Vec<Strategy>,

    /// Write the result to this file as a page with plots, for a browser. It needs nothing else, so it can be sent to others
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Measure the same jobs in Node.js, too: on its loop, in steps between immediates, and in threads of piscina if it is
    /// installed; for average, json, primes and pbkdf2
    #[arg(long, conflicts_with_all = ["exec", "worker", "worker-jsonl", "worker-http", "input"])]
    with_node: bool,

    /// Measure the same jobs in Python, too: on the loop of asyncio, and in a ProcessPoolExecutor; for average, json, primes and
    /// pbkdf2
    #[arg(long, conflicts_with_all = ["exec", "worker", "worker-jsonl", "worker-http", "input"])]
    with_python: bool,

    /// Add the strategy `auto`: each job is done where this file says, as `ComputePool::auto` does it (`bench advise --write`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exec", "worker", "worker-jsonl", "worker-http", "input"])]
    policy: Option<PathBuf>,

    /// Let the last strategy, which must be inline, take so many percent longer for each job: is that found?
    #[arg(long, value_name = "N", hide = true, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    handicap: u32,

    /// A report of an earlier run (--json): exit with 1 if a strategy does fewer jobs a second than it, by more than the noise of
    /// both runs, and by more than --tolerance plus what others use of the machine meanwhile
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// How many percent slower than the baseline is still no difference: two runs of one program differ by as much
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=90), requires = "baseline")]
    tolerance: u32,

    #[command(flatten)]
    exec: ExecFlags,

    #[command(flatten)]
    pool: PoolFlags,
}

impl Compare {
    /// Runs the verb.
    pub(super) fn run(mut self, globals: &Globals) -> VerbResult {
        let settings = globals.settings(self.pool.layer())?;
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        let judge = Judge { baseline, tolerance: f64::from(self.tolerance) / 100.0 };
        let page = self.report.as_deref().map(OutputFile::open).transpose()?;
        let mut reports = Vec::new();
        if self.is_own_work() {
            reports.push(self.compare_own_work(&settings, &judge, globals)?);
            print_report(&reports[0], true, globals)?;
        } else {
            let task = self.task.as_deref().map_or(Ok(BenchTask::Average), BenchTask::named)?;
            let sizes = if self.size.is_empty() { vec![task.usual_size()] } else { self.size.clone() };
            for size in sizes {
                reports.push(self.compare_size(task, size, &settings, &judge, globals)?);
                print_report(&reports[reports.len() - 1], reports.len() == 1, globals)?;
            }
        }
        page.map_or(Ok(()), |page| page.write(report::page(&reports).as_bytes()))?;
        Ok(exit_code(reports.iter().any(BenchReport::is_slower)))
    }

    /// Whether the jobs are somebody's own, so that nothing but a worker can do them.
    fn is_own_work(&self) -> bool {
        self.exec.given().is_some() || self.pool.names_programs() || !self.input.is_empty()
    }

    fn compare_own_work(
        &mut self,
        settings: &Settings,
        judge: &Judge,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        let mut pool = self.pool.embedded(settings, globals)?;
        let exec = self.exec.task()?;
        let task = match (&exec, &self.task) {
            (Some(exec), _) => exec.name.clone(),
            (None, Some(task)) => task.clone(),
            (None, None) => return Err(Failure::Usage("--task: which task of these workers?".to_owned())),
        };
        let inputs = std::mem::take(&mut self.input);
        let work = OwnWork::load(task, inputs, exec.as_ref(), pool.core.max_payload)?;
        pool.programs = exec.map_or(pool.programs, |exec| vec![adapter(&[exec])]);
        pool.core.max_bytes = pool.core.max_bytes.max(work.inputs().bytes);
        pool.core.max_jobs = pool.core.max_jobs.max(work.inputs().count);
        self.check_strategies(&work)?;
        judge.check(&Subject::new(&work, pool.core.workers))?;
        let outputs = work.first_outputs(&pool)?;
        self.compare(Exercise::with_answers(work, outputs), pool, &[], judge, globals)
    }

    fn compare_size(
        &self,
        task: BenchTask,
        size: u64,
        settings: &Settings,
        judge: &Judge,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        match task {
            BenchTask::Average => self.compare_builtin(Numbers::new(size)?, settings, judge, globals),
            BenchTask::Json => self.compare_builtin(Documents::new(size)?, settings, judge, globals),
            BenchTask::Primes => self.compare_builtin(PrimesUpTo::new(size)?, settings, judge, globals),
            BenchTask::Pbkdf2 => self.compare_builtin(OnePiece::pbkdf2(size)?, settings, judge, globals),
            BenchTask::Regex => self.compare_builtin(OnePiece::regex(size)?, settings, judge, globals),
            BenchTask::Thumbnail => {
                self.compare_builtin(OnePiece::thumbnail(size)?, settings, judge, globals)
            }
        }
    }

    fn compare_builtin<W: Workload>(
        &self,
        workload: W,
        settings: &Settings,
        judge: &Judge,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        self.check_strategies(&workload)?;
        let pool = pool_config(&workload, settings, globals);
        judge.check(&Subject::new(&workload, pool.core.workers))?;
        let runtimes = [(self.with_node, Runtime::Node), (self.with_python, Runtime::Python)];
        let runtimes = runtimes.into_iter().filter_map(|(is_wanted, runtime)| is_wanted.then_some(runtime));
        let runtimes: Vec<Runtime> = runtimes.collect();
        runtimes.iter().try_for_each(|runtime| runtime.check(workload.task()))?;
        self.compare(Exercise::new(workload)?, pool, &runtimes, judge, globals)
    }

    fn compare<W: Workload>(
        &self,
        exercise: Exercise<W>,
        pool: PoolConfig,
        runtimes: &[Runtime],
        judge: &Judge,
        globals: &Globals,
    ) -> Result<BenchReport, Failure> {
        let (strategies, left_out) = self.strategies_for::<W>();
        let mut setup = Setup::new(self.window(), pool);
        setup.policy = Rc::new(self.policy()?);
        let plan =
            Plan { strategies, rounds: self.rounds, setup, handicap: f64::from(self.handicap) / 100.0 };
        let exercise = Rc::new(exercise);
        let (peers, missing) = start_peers(runtimes, &exercise, plan.setup.pool.core.workers)?;
        let count = plan.strategies.len() + peers.len();
        let found = comparison::compare(&plan, &exercise, peers, |round| self.tell(round, count, globals))?;
        let warnings = self.warnings(&found);
        if !globals.quiet {
            warnings.iter().for_each(|warning| say(warning));
        }
        let workload = &*exercise.workload;
        let left_out = left_out.iter().map(|strategy| strategy.name()).collect();
        let measured = Measured {
            subject: Subject::new(workload, plan.setup.pool.core.workers),
            seconds: self.seconds.as_secs_f64(),
            rounds: self.rounds,
            left_out: (left_out, W::CUT.why_not(workload.task())),
            missing,
            warnings,
        };
        let mut report = BenchReport::new(measured, &found);
        judge.judge(&mut report);
        Ok(report)
    }

    /// Those that are possible for such a workload, and those that are not.
    fn strategies_for<W: Workload>(&self) -> (Vec<Strategy>, Vec<Strategy>) {
        let wanted = match self.strategies.is_empty() {
            true => Strategy::usual(W::CUT, self.policy.is_some()),
            false => self.strategies.clone(),
        };
        wanted.into_iter().partition(|strategy| strategy.is_possible(W::CUT))
    }

    fn policy(&self) -> Result<Policy, Failure> {
        let Some(file) = &self.policy else { return Ok(Policy::default()) };
        Policy::read(file).map_err(|error| {
            Failure::Unreadable(format!("--policy: cannot read {}: {error}", file.display()))
        })
    }

    fn check_strategies<W: Workload>(&self, workload: &W) -> Result<(), Failure> {
        if self.strategies.contains(&Strategy::Auto) && self.policy.is_none() {
            return Err(Failure::Usage("--strategies: auto needs --policy FILE".to_owned()));
        }
        if self.handicap > 0 && self.strategies.last() != Some(&Strategy::Inline) {
            return Err(Failure::Usage("--handicap: the last strategy must be inline".to_owned()));
        }
        self.policy()?;
        match self.strategies_for::<W>().0.is_empty() {
            true => {
                let why = W::CUT.why_not(workload.task());
                Err(Failure::Usage(format!("--strategies: none of them is possible, because {why}")))
            }
            false => Ok(()),
        }
    }

    /// How long a sample takes.
    fn window(&self) -> Duration {
        (self.seconds / self.rounds).max(BENCH_TIME_MIN)
    }

    /// Says how far it is, because nothing else is printed until all is measured, which may take minutes.
    fn tell(&self, round: u32, count: usize, globals: &Globals) {
        if !globals.quiet && stderr().is_terminal() {
            let (rounds, window) = (self.rounds, show_duration(self.window()));
            say(&format!("round {round} of {rounds}: {window} for each of {count} strategies"));
        }
    }

    /// What makes the figures worth less.
    fn warnings(&self, found: &Comparison) -> Vec<String> {
        let few = |row: &&Summary| row.jobs < u64::from(self.rounds) * JOBS_OF_A_SAMPLE;
        let few: Vec<&str> = found.rows.iter().filter(few).map(|row| row.strategy).collect();
        let few = (!few.is_empty()).then(|| {
            let (names, window) = (few.join(", "), show_duration(self.window()));
            format!("{names}: hardly a job ends in {window}, so the figures are rough; more --seconds help")
        });
        few.into_iter().chain(found.noise.warning()).chain(found.conditions.warnings()).collect()
    }
}

fn start_peers<W: Workload>(
    runtimes: &[Runtime],
    exercise: &Exercise<W>,
    workers: usize,
) -> Result<(Vec<Peer>, Vec<Missing>), Failure> {
    let workload = &exercise.workload;
    let input = workload.input(0);
    let work = Work { task: workload.task(), input: &input, output: exercise.output(), workers };
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for runtime in runtimes {
        let (started, absent) = peers::start(*runtime, &work)?;
        peers.extend(started);
        missing.extend(absent);
    }
    Ok((peers, missing))
}

fn exit_code(is_slower: bool) -> ExitCode {
    if is_slower { ExitCode::FAILURE } else { OK }
}

fn print_report(report: &BenchReport, is_first: bool, globals: &Globals) -> Result<(), Failure> {
    report.complaint().iter().for_each(|complaint| say(complaint));
    match globals.json {
        true => print_line(report.json()),
        false => print(format!("{}{}", if is_first { "" } else { "\n" }, report.text()).as_bytes()),
    }
}

/// Fewer jobs than that in a sample, and its rate depends on where the window happened to end.
const JOBS_OF_A_SAMPLE: u64 = 5;

/// The pool always has the built-in workers, because their answers are known, and no spare, because no worker should
/// crash.
pub(super) fn pool_config(workload: &impl Workload, settings: &Settings, globals: &Globals) -> PoolConfig {
    let mut config = settings.pool_config(vec![Program::builtin(false)]);
    let core = &mut config.core;
    let in_flight = (workload.inputs().bytes).saturating_mul(core.workers as u64);
    core.max_bytes = core.max_bytes.max(in_flight);
    core.spares = 0;
    PoolConfig { log: globals.log_level(), ..config }
}

/// A bare number is in seconds; anything else is a duration as in other flags.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
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
