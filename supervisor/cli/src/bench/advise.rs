//! `offload bench advise`: from which size on a task is better offloaded, on this machine. `bench/advice.rs` says what the samples
//! mean; this file takes them.

use super::super::doctor::cgroup::Limits;
use super::super::failure::{Failure, OK, VerbResult};
use super::super::flags::Globals;
use super::super::output::{print, print_line, say};
use super::super::output_file::OutputFile;
use super::super::table::Table;
use super::super::text;
use super::advice::{self, Crossing, Point, median};
use super::bench_task::BenchTask;
use super::compare::{parse_seconds, pool_config};
use super::conditions::ConditionsMeter;
use super::jobs::Exercise;
use super::machine::{Machine, NoiseMeter, cores};
use super::memory::Memory;
use super::page::{self, Page};
use super::strategy::{Setup, Strategy, measure};
use super::synthetic::Synthetic;
use super::workload::{Cut, Documents, Numbers, OnePiece, PrimesUpTo, Workload};
use crate::configuration::Settings;
use crate::configuration::arguments::{KeyFlags, NumberOfWorkers};
use crate::limits::{BENCH_STEP_BUDGET, BENCH_TIME_MIN, BENCH_WORKERS_MAX};
use clap::Args;
use offload_supervisor::units::{parse_time_limit, show_duration};
use offload_supervisor::{Policy, TaskPolicy};
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  offload bench advise                                   from which n on should `average` be offloaded?
  offload bench advise --task json --lag-slo 2ms         and from which size on would it make the loop late by 2 ms?
  offload bench advise --report page.html                and a plot of it, for a browser
  offload bench advise --task primes --write policy.json keep the advice; `ComputePool::auto` of the library follows it";

/// Say from which size on a task is better offloaded, and how many workers pay off on this machine
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Advise {
    /// The task
    #[arg(long, value_enum, default_value_t = BenchTask::Average)]
    task: BenchTask,

    /// How late the event loop may be, at most
    #[arg(long, value_name = "D", value_parser = parse_time_limit, default_value = "5ms")]
    lag_slo: Duration,

    /// About how long to measure, everything together: seconds such as 0.5, or a duration such as 500ms; from 10ms to 10m
    #[arg(long, value_name = "D", value_parser = parse_seconds, default_value = "20")]
    seconds: Duration,

    /// Write the advice to this file, for programs; what it says of other tasks stays
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Write the result to this file as a page with a plot, for a browser. It needs nothing else, so it can be sent to others
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Measure a task of which is known that workers do more jobs from this size on: is that found?
    #[arg(long, value_name = "SIZE", hide = true, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    synthetic: Option<u64>,

    #[command(flatten)]
    workers: KeyFlags<NumberOfWorkers>,
}

/// About so many samples are taken: with the sizes that a sweep usually has.
const SAMPLES: u32 = 300;

/// In how many rounds numbers of workers are compared.
const WORKER_ROUNDS: u32 = 10;

/// A job that takes longer than this is large enough, whatever was found.
const LARGE_US: f64 = 50_000.0;

/// The result. Its field names are a contract with users.
#[derive(Debug, Serialize)]
struct Advice {
    task: &'static str,
    workers: usize,
    lag_slo_us: u64,
    /// From which size on workers do more jobs than the loop.
    crossover: Crossing,
    /// From which size on a whole job makes the loop later than it may be.
    too_late: Crossing,
    /// How much to do on the loop at a time; none if the task computes in one piece.
    slice: Option<Slice>,
    /// From which size on to offload: for a task in one piece already if the loop would be too late; null: never.
    offload_from: Option<u64>,
    worker_counts: WorkerCounts,
    sizes: Vec<SizeRow>,
    foreign: f64,
    stolen: f64,
    /// What makes the figures worth less, in sentences.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Slice {
    us: u64,
    /// About how much of a size fits into it.
    size: u64,
}

#[derive(Debug, Serialize)]
struct WorkerCounts {
    pay_off: usize,
    /// Cores that we may use.
    cores: usize,
    /// Cores that the control group allows; none if it does not say.
    quota: Option<f64>,
    memory: Memory,
    /// Jobs per second of one worker, of two and so on: medians.
    jobs_per_s: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct SizeRow {
    size: u64,
    on_loop_us: f64,
    offloaded_us: f64,
    lag_us: f64,
}

impl Advise {
    /// Runs the verb.
    pub(super) fn run(self, globals: &Globals) -> VerbResult {
        let settings = globals.settings(self.workers.layer())?;
        let policy = self.write.as_deref().map(policy_to_change).transpose()?;
        let output = self.write.as_deref().map(OutputFile::open).transpose()?;
        let page = self.report.as_deref().map(OutputFile::open).transpose()?;
        let (noise, conditions, begun) = (NoiseMeter::start(), ConditionsMeter::start(), Instant::now());
        let mut advice = Measurer::new(&self, &settings, globals).advice()?;
        let noise = noise.stop();
        (advice.foreign, advice.stolen) = (noise.foreign(), noise.stolen());
        advice.warnings.extend(noise.warning());
        advice.warnings.extend(conditions.stop(begun.elapsed()).warnings());
        if !globals.quiet {
            advice.warnings.iter().for_each(|warning| say(warning));
        }
        if let (Some(mut policy), Some(output)) = (policy, output) {
            policy.tasks.insert(advice.task.to_owned(), advice.policy());
            let text =
                serde_json::to_string_pretty(&policy).expect("numbers and names can always be written");
            output.write(format!("{text}\n").as_bytes())?;
        }
        match globals.json {
            true => print_line(serde_json::to_string(&advice).expect("numbers and names can be written"))?,
            false => print(advice.text().as_bytes())?,
        }
        page.map_or(Ok(()), |page| page.write(advice.page().as_bytes()))?;
        Ok(OK)
    }
}

/// The policy in the file, if there is one already.
fn policy_to_change(file: &Path) -> Result<Policy, Failure> {
    match Policy::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Policy::default()),
        Err(error) => Err(Failure::Usage(format!("--write: {} is no policy: {error}", file.display()))),
        Ok(policy) => Ok(policy),
    }
}

/// Takes the samples.
struct Measurer<'a> {
    verb: &'a Advise,
    settings: &'a Settings,
    globals: &'a Globals,
    window: Duration,
    give_up_at: Instant,
}

impl Measurer<'_> {
    fn new<'a>(verb: &'a Advise, settings: &'a Settings, globals: &'a Globals) -> Measurer<'a> {
        let window = (verb.seconds / SAMPLES).max(BENCH_TIME_MIN);
        Measurer { verb, settings, globals, window, give_up_at: Instant::now() + verb.seconds * 2 }
    }

    fn advice(&self) -> Result<Advice, Failure> {
        let slo_us = self.verb.lag_slo.as_micros() as f64;
        let synthetic = |from: u64| (from / 16, from * 64, Cut::OnePiece);
        let (first, last, cut) = self.verb.synthetic.map_or_else(|| self.verb.task.sizes(), synthetic);
        let is_enough = |point: &Point| {
            let (on_loop, lag) = (median(&point.on_loop_us), median(&point.lag_us));
            let is_decided = on_loop > 2.0 * median(&point.offloaded_us) || on_loop > LARGE_US;
            lag > 2.0 * slo_us && is_decided
        };
        let points = advice::sweep((first, last), is_enough, |size, rounds| self.point(size, rounds))?;
        let largest = points.last().map_or(first, |point| point.size);
        let (crossover, too_late) = (advice::throughput(&points), advice::lateness(&points, slo_us));
        let wins = [Some(crossover), (cut != Cut::Steps).then_some(too_late)].into_iter().flatten();
        Ok(Advice {
            task: self.verb.task.name(),
            workers: self.settings.pool_config(Vec::new()).core.workers,
            lag_slo_us: slo_us as u64,
            crossover,
            too_late,
            slice: (cut == Cut::Steps).then(|| slice(&points, slo_us)),
            offload_from: wins.filter_map(Crossing::size).min(),
            worker_counts: self.worker_counts(largest)?,
            sizes: points.iter().map(SizeRow::of).collect(),
            foreign: 0.0,
            stolen: 0.0,
            warnings: Vec::new(),
        })
    }

    /// None if there is no time left.
    fn point(&self, size: u64, rounds: u32) -> Result<Option<Point>, Failure> {
        if Instant::now() >= self.give_up_at {
            return Ok(None);
        }
        if let Some(from) = self.verb.synthetic {
            return self.synthetic_point(from, size, rounds).map(Some);
        }
        match self.verb.task {
            BenchTask::Average => self.point_of(Numbers::new(size)?, rounds),
            BenchTask::Json => self.point_of(Documents::new(size)?, rounds),
            BenchTask::Primes => self.point_of(PrimesUpTo::new(size)?, rounds),
            BenchTask::Pbkdf2 => self.point_of(OnePiece::pbkdf2(size)?, rounds),
            BenchTask::Regex => self.point_of(OnePiece::regex(size)?, rounds),
            BenchTask::Thumbnail => self.point_of(OnePiece::thumbnail(size)?, rounds),
        }
        .map(Some)
    }

    fn point_of<W: Workload>(&self, workload: W, rounds: u32) -> Result<Point, Failure> {
        let setup = self.setup(&workload);
        let mut point = Point { size: workload.size().unwrap_or(0), ..Point::default() };
        let exercise = Rc::new(Exercise::new(workload)?);
        for _ in 0..rounds {
            let inline = measure(Strategy::Inline, &exercise, &setup)?;
            let on_loop = match W::CUT {
                Cut::Steps => &measure(Strategy::PartitionedBudget, &exercise, &setup)?,
                _ => &inline,
            };
            let offloaded = measure(Strategy::Offloaded, &exercise, &setup)?;
            point.on_loop_us.push(1e6 / on_loop.jobs_per_s);
            point.offloaded_us.push(1e6 / offloaded.jobs_per_s);
            point.lag_us.push(inline.loop_lag_us.map_or(0, |lag| lag.p99) as f64);
        }
        Ok(point)
    }

    /// Both kinds of jobs are done in this process, and each takes as long as it says.
    fn synthetic_point(&self, from: u64, size: u64, rounds: u32) -> Result<Point, Failure> {
        let [on_loop, offloaded] = Synthetic::both(from, size);
        let setup = self.setup(&on_loop);
        let (on_loop, offloaded) = (Rc::new(Exercise::new(on_loop)?), Rc::new(Exercise::new(offloaded)?));
        let mut point = Point { size, ..Point::default() };
        for _ in 0..rounds {
            let inline = measure(Strategy::Inline, &on_loop, &setup)?;
            let elsewhere = measure(Strategy::Inline, &offloaded, &setup)?;
            point.on_loop_us.push(1e6 / inline.jobs_per_s);
            point.offloaded_us.push(1e6 / elsewhere.jobs_per_s);
            point.lag_us.push(inline.loop_lag_us.map_or(0, |lag| lag.p99) as f64);
        }
        Ok(point)
    }

    fn setup(&self, workload: &impl Workload) -> Setup {
        Setup::new(self.window, pool_config(workload, self.settings, self.globals))
    }

    /// One worker, two and so on, until there is one more than cores.
    fn worker_counts(&self, size: u64) -> Result<WorkerCounts, Failure> {
        let quota = Limits::of_this_process().cores;
        let cores = cores().len();
        let most = (quota.map_or(cores, |quota| cores.min(quota.ceil() as usize)) + 1).min(BENCH_WORKERS_MAX);
        let rates = match self.verb.task {
            BenchTask::Average => self.rates_of(Numbers::new(size)?, most),
            BenchTask::Json => self.rates_of(Documents::new(size)?, most),
            BenchTask::Primes => self.rates_of(PrimesUpTo::new(size)?, most),
            BenchTask::Pbkdf2 => self.rates_of(OnePiece::pbkdf2(size)?, most),
            BenchTask::Regex => self.rates_of(OnePiece::regex(size)?, most),
            BenchTask::Thumbnail => self.rates_of(OnePiece::thumbnail(size)?, most),
        }?;
        let (memory, jobs_per_s) = (Memory::now(), rates.iter().map(|rates| median(rates)));
        let pay_off = advice::workers_that_pay(&rates).min(memory.workers().max(1));
        Ok(WorkerCounts { pay_off, cores, quota, memory, jobs_per_s: jobs_per_s.collect() })
    }

    fn rates_of<W: Workload>(&self, workload: W, most: usize) -> Result<Vec<Vec<f64>>, Failure> {
        let mut setup = self.setup(&workload);
        setup.pool.core.short_slots = Some(0);
        let exercise = Rc::new(Exercise::new(workload)?);
        let mut rates = vec![Vec::new(); most];
        for _ in 0..WORKER_ROUNDS {
            for (count, rates) in rates.iter_mut().enumerate() {
                setup.pool.core.workers = count + 1;
                rates.push(measure(Strategy::Offloaded, &exercise, &setup)?.jobs_per_s);
            }
        }
        Ok(rates)
    }
}

/// Half of what the loop may be late, and at most the budget with which it was measured.
fn slice(points: &[Point], slo_us: f64) -> Slice {
    let us = (slo_us / 2.0).min(BENCH_STEP_BUDGET.as_micros() as f64).max(1.0);
    let size = points.last().map_or(0.0, |point| us * point.size as f64 / median(&point.on_loop_us));
    Slice { us: us as u64, size: size as u64 }
}

impl SizeRow {
    fn of(point: &Point) -> SizeRow {
        SizeRow {
            size: point.size,
            on_loop_us: median(&point.on_loop_us),
            offloaded_us: median(&point.offloaded_us),
            lag_us: median(&point.lag_us),
        }
    }

    fn cells(&self) -> [String; 5] {
        let time = |microseconds: f64| text::time(microseconds.round() as u64);
        [
            self.size.to_string(),
            time(self.on_loop_us),
            time(self.offloaded_us),
            format!("{:.2}", self.on_loop_us / self.offloaded_us),
            time(self.lag_us),
        ]
    }
}

impl Advice {
    /// For programs.
    fn policy(&self) -> TaskPolicy {
        let budget = BENCH_STEP_BUDGET.as_micros() as u64;
        TaskPolicy {
            offload_from: self.offload_from,
            slice_us: self.slice.as_ref().map_or(budget, |slice| slice.us),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["#SIZE", "#ON THE LOOP", "#OFFLOADED", "#GAIN", "#LAG IF WHOLE"]);
        self.sizes.iter().for_each(|row| table.row(row.cells()));
        let (task, workers) = (self.task, text::count(self.workers as u64, "worker"));
        format!(
            "{task}, {workers}; the times are those of a job\n\n{}\n{}\n",
            table.render(),
            self.sentences().join("\n")
        )
    }

    fn sentences(&self) -> [String; 4] {
        [self.where_to_offload(), self.below_that(), self.how_late(), self.how_many()]
    }

    /// With the plot, for a browser.
    fn page(&self) -> String {
        #[derive(Serialize)]
        struct Content<'a> {
            advice: &'a Advice,
            sentences: [String; 4],
        }
        let page = Page {
            title: format!("From which size on should {} be offloaded?", self.task),
            about: format!("{}.", page::measured_with(&Machine::describe().line())),
            warnings: &self.warnings,
            content: Content { advice: self, sentences: self.sentences() },
            text: self.text(),
        };
        page.html()
    }

    fn where_to_offload(&self) -> String {
        match self.crossover {
            Crossing::At { size, low, high } => {
                format!(
                    "Offload {} from size {size} on ({low} to {high} with 95 % certainty): then workers do more jobs.",
                    self.task
                )
            }
            Crossing::FromTheSmallest { size } => {
                format!("Offload it at any size: workers do more jobs from {size} on.")
            }
            Crossing::Never { size } => {
                format!(
                    "Up to size {size} workers do no more jobs than the loop: offload only to keep the loop free."
                )
            }
        }
    }

    fn below_that(&self) -> String {
        match &self.slice {
            Some(Slice { us, size }) => {
                format!(
                    "On the loop, partition it: {} at a time, which is a size of about {size}.",
                    text::time(*us)
                )
            }
            None => "It computes in one piece, so it cannot be partitioned.".to_owned(),
        }
    }

    fn how_late(&self) -> String {
        let limit = show_duration(Duration::from_micros(self.lag_slo_us));
        match self.too_late {
            Crossing::At { size, low, high } => {
                format!(
                    "In one piece, it makes the loop late by more than {limit} from size {size} on ({low} to {high})."
                )
            }
            Crossing::FromTheSmallest { .. } => {
                format!("In one piece, it makes the loop late by more than {limit} at any size.")
            }
            Crossing::Never { size } => {
                format!("Up to size {size} the loop is never late by more than {limit}.")
            }
        }
    }

    fn how_many(&self) -> String {
        let WorkerCounts { pay_off, cores, quota, memory, jobs_per_s } = &self.worker_counts;
        let rates = jobs_per_s.iter().enumerate().map(|(at, rate)| format!("{} {rate:.0}", at + 1));
        let rates = rates.collect::<Vec<_>>().join(", ");
        let quota =
            quota.map_or_else(String::new, |quota| format!(" of which the control group allows {quota:.1}"));
        let (workers, cores) = (text::count(*pay_off as u64, "worker"), text::count(*cores as u64, "core"));
        let memory = memory.words();
        let pay_off = if *pay_off == 1 { "pays off" } else { "pay off" };
        format!("{workers} {pay_off} on {cores}{quota}; jobs/s by the number of workers: {rates}; {memory}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(crossover: Crossing, cut: Cut) -> Advice {
        let too_late = Crossing::Never { size: 4000 };
        Advice {
            task: "average",
            workers: 2,
            lag_slo_us: 5000,
            crossover,
            too_late,
            slice: (cut == Cut::Steps).then_some(Slice { us: 1000, size: 370_000 }),
            offload_from: crossover.size(),
            worker_counts: WorkerCounts {
                pay_off: 2,
                cores: 2,
                quota: Some(1.5),
                memory: Memory { available_bytes: 100 << 20, worker_bytes: 10 << 20 },
                jobs_per_s: vec![10.0, 19.0, 18.0],
            },
            sizes: vec![SizeRow { size: 1000, on_loop_us: 50.0, offloaded_us: 25.0, lag_us: 60.0 }],
            foreign: 0.0,
            stolen: 0.0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_advice_says_where_it_is_sure_and_where_not() {
        let at = advice(Crossing::At { size: 900, low: 800, high: 1000 }, Cut::Steps);
        let text = at.text();
        assert!(text.contains("from size 900 on (800 to 1000 with 95 % certainty)"), "{text}");
        assert!(text.contains("1.0 ms at a time, which is a size of about 370000"), "{text}");
        assert!(text.contains("never late by more than 5ms") && text.contains("2.00"), "{text}");
        assert!(
            text.contains("2 workers pay off on 2 cores of which the control group allows 1.5"),
            "{text}"
        );
        assert_eq!(at.policy(), TaskPolicy { offload_from: Some(900), slice_us: 1000 });
        let never = advice(Crossing::Never { size: 4000 }, Cut::OnePiece);
        assert!(
            never.text().contains("offload only to keep the loop free") && never.text().contains("one piece")
        );
        assert_eq!(never.policy().offload_from, None);
    }
}
