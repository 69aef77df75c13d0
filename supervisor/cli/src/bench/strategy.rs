//! The strategies, and how one is measured: on a loop of its own, with a steady supply of jobs and a prober.

use super::super::embedded::{new_event_loop, not_started};
use super::super::failure::Failure;
use super::jobs::{Exercise, Sent, StrategyJobs, WorkDone};
use super::lag::{LagTimer, TimerLag};
use super::prober::{PERIOD, Prober, Waits};
use super::workload::{Cut, Workload};
use crate::limits::{BENCH_READY_TIMEOUT, BENCH_STEP_BUDGET, BENCH_TIME_MAX};
use clap::ValueEnum;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use offload_event_loop::io_pool::{IoHandle, IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, LoopError, LoopHandle, RunMode};
use offload_supervisor::views::Percentiles;
use offload_supervisor::{ComputePool, Job, Place, Policy, PoolConfig};
use offload_worker::TaskError;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A way to do jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Strategy {
    /// A whole job in one callback.
    Inline,
    /// One step per turn of the loop.
    PartitionedStep,
    /// As many steps per turn as fit into a millisecond.
    PartitionedBudget,
    /// On threads of this process, one job on each.
    Threads,
    /// In one worker process, one job after another.
    OneWorker,
    /// In worker processes, one job in each.
    Offloaded,
    /// Where the policy of --policy says: on the loop in steps, or in worker processes.
    Auto,
}

impl Strategy {
    /// All of them, in the order of the report.
    const ALL: [Strategy; 7] = [
        Strategy::Inline,
        Strategy::PartitionedStep,
        Strategy::PartitionedBudget,
        Strategy::Threads,
        Strategy::OneWorker,
        Strategy::Offloaded,
        Strategy::Auto,
    ];

    /// Those that people want to see of a workload, whether they are possible or not. Where only workers can do the work, they are
    /// all that can be compared: one of them beside all.
    pub(super) fn usual(cut: Cut, has_policy: bool) -> Vec<Strategy> {
        let is_usual = |strategy: &Strategy| match strategy {
            Strategy::OneWorker => cut == Cut::WorkersOnly,
            Strategy::Auto => has_policy,
            _ => true,
        };
        Strategy::ALL.into_iter().filter(is_usual).collect()
    }

    /// Whether such a workload can be done so.
    pub(super) fn is_possible(self, cut: Cut) -> bool {
        match self {
            Strategy::PartitionedStep | Strategy::PartitionedBudget | Strategy::Auto => cut == Cut::Steps,
            Strategy::Inline | Strategy::Threads => cut != Cut::WorkersOnly,
            Strategy::OneWorker | Strategy::Offloaded => true,
        }
    }

    /// Its name in tables and documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Strategy::Inline => "inline",
            Strategy::PartitionedStep => "partitioned_step",
            Strategy::PartitionedBudget => "partitioned_budget",
            Strategy::Threads => "threads",
            Strategy::OneWorker => "one_worker",
            Strategy::Offloaded => "offloaded",
            Strategy::Auto => "auto",
        }
    }
}

/// The settings that are the same for all strategies.
pub(super) struct Setup {
    /// How long a sample takes, rounded down to a multiple of [`PERIOD`].
    pub(super) window: Duration,
    /// The workers of the offloading strategy. There are as many threads.
    pub(super) pool: PoolConfig,
    /// What [`Strategy::Auto`] follows.
    pub(super) policy: Rc<Policy>,
    /// How much longer [`Strategy::Inline`] takes for each job, as a share of it: to see whether that is found.
    pub(super) handicap: f64,
}

impl Setup {
    /// With nothing but workers.
    pub(super) fn new(window: Duration, pool: PoolConfig) -> Setup {
        Setup { window, pool, policy: Rc::default(), handicap: 0.0 }
    }

    /// The same for another time.
    pub(super) fn within(&self, window: Duration) -> Setup {
        let (pool, policy) = (self.pool.clone(), Rc::clone(&self.policy));
        Setup { window, pool, policy, handicap: self.handicap }
    }
}

/// What was seen of one strategy in one window.
#[derive(Debug)]
pub(super) struct Sample {
    /// Jobs that were done.
    pub(super) jobs: u64,
    /// Finished jobs per second.
    pub(super) jobs_per_s: f64,
    /// Replies to the prober, and how late they came.
    pub(super) probed: Waits,
    /// How long the loop was busy without a break; none if it is not ours.
    pub(super) loop_lag_us: Option<Percentiles>,
    /// How late an interval timer of the loop was.
    pub(super) timer_lag: TimerLag,
    /// CPU time of this process, the prober included, and of the workers, in seconds.
    pub(super) cpu_s: f64,
    /// How long that was measured.
    pub(super) seconds: f64,
    /// What went to another process and back.
    pub(super) sent: Sent,
    /// Jobs with another answer than that which was seen first.
    pub(super) differing: u64,
}

/// Takes a sample of one strategy.
///
/// # Errors
/// A job failed, an answer was wrong, or the system ran out of some resource.
pub(super) fn measure<W: Workload>(
    strategy: Strategy,
    exercise: &Rc<Exercise<W>>,
    setup: &Setup,
) -> Result<Sample, Failure> {
    let mut event_loop = new_event_loop()?;
    let place = StrategyRunner::prepare(strategy, setup, &mut event_loop)?;
    let jobs = StrategyJobs::new(exercise);

    let meter = Meter::start(&event_loop, &place, setup.window)?;
    place.start(&jobs, &event_loop);
    let (end, least) = (Rc::clone(&jobs), place.width());
    let prober = start_prober(&event_loop, setup.window, move |cx| end.end(least, cx))?;
    event_loop.run().map_err(broken)?;
    let measured = meter.read(&event_loop, &place)?;

    place.close(&mut event_loop)?;
    Ok(sample(jobs.finish()?, measured, prober.finish()))
}

/// Takes a sample of a loop that has nothing to do but to answer the prober: what the measurement itself costs.
///
/// # Errors
/// As [`measure`].
pub(super) fn measure_nothing(window: Duration) -> Result<Sample, Failure> {
    let mut event_loop = new_event_loop()?;
    let place = StrategyRunner::LoopInline(0.0);
    let meter = Meter::start(&event_loop, &place, window)?;
    let prober = start_prober(&event_loop, window, |cx| cx.stop())?;
    event_loop.run().map_err(broken)?;
    let measured = meter.read(&event_loop, &place)?;
    Ok(sample(WorkDone::default(), measured, prober.finish()))
}

fn start_prober(
    handle: &LoopHandle,
    window: Duration,
    done: impl FnOnce(&mut Context) + 'static,
) -> Result<Prober, Failure> {
    Prober::start(handle, probes(window), done)
        .map_err(|error| Failure::internal("cannot start the prober", error))
}

fn probes(window: Duration) -> u32 {
    u32::try_from(window.as_millis() / PERIOD.as_millis()).unwrap_or(u32::MAX)
}

/// The failure for an event loop that cannot go on.
pub(super) fn broken(error: LoopError) -> Failure {
    Failure::internal("the event loop is broken", error)
}

/// A strategy with everything it needs to run jobs.
enum StrategyRunner {
    /// With this handicap.
    LoopInline(f64),
    LoopByStep,
    LoopByBudget,
    Threads(IoPool, usize),
    /// With so many jobs at a time.
    Workers(ComputePool, usize),
    Auto(ComputePool, Rc<Policy>, usize),
}

impl StrategyRunner {
    fn prepare(
        strategy: Strategy,
        setup: &Setup,
        event_loop: &mut EventLoop,
    ) -> Result<StrategyRunner, Failure> {
        Ok(match strategy {
            Strategy::Inline => StrategyRunner::LoopInline(setup.handicap),
            Strategy::PartitionedStep => StrategyRunner::LoopByStep,
            Strategy::PartitionedBudget => StrategyRunner::LoopByBudget,
            Strategy::Threads => {
                let threads = setup.pool.core.workers;
                let config = IoPoolConfig { threads, deadline: BENCH_TIME_MAX, ..IoPoolConfig::default() };
                let pool = IoPool::new(event_loop, config)
                    .map_err(|error| Failure::internal("cannot start the threads", error))?;
                StrategyRunner::Threads(pool, threads)
            }
            Strategy::OneWorker => {
                StrategyRunner::Workers(start_workers(one_worker(&setup.pool), event_loop)?, 1)
            }
            Strategy::Offloaded => {
                let pool = setup.pool.clone();
                let width = pool.core.workers;
                StrategyRunner::Workers(start_workers(pool, event_loop)?, width)
            }
            Strategy::Auto => {
                let (pool, width) = (setup.pool.clone(), setup.pool.core.workers);
                StrategyRunner::Auto(start_workers(pool, event_loop)?, Rc::clone(&setup.policy), width)
            }
        })
    }

    fn start<W: Workload>(&self, jobs: &Rc<StrategyJobs<W>>, handle: &LoopHandle) {
        match self {
            StrategyRunner::LoopInline(handicap) => inline(Rc::clone(jobs), *handicap, handle),
            StrategyRunner::LoopByStep => partitioned_step(Rc::clone(jobs), handle),
            StrategyRunner::LoopByBudget => partitioned_budget(Rc::clone(jobs), handle),
            StrategyRunner::Threads(pool, count) => {
                (0..*count).for_each(|_| threaded(Rc::clone(jobs), pool.handle()));
            }
            StrategyRunner::Workers(pool, width) => {
                (0..*width).for_each(|_| offloaded(Rc::clone(jobs), pool.clone()));
            }
            StrategyRunner::Auto(pool, policy, width) => {
                let at_a_time =
                    if place_of(jobs.workload(), policy) == Place::Offloaded { *width } else { 1 };
                (0..at_a_time).for_each(|_| auto(Rc::clone(jobs), pool.clone(), Rc::clone(policy)));
            }
        }
    }

    /// How many jobs are done at a time.
    fn width(&self) -> u64 {
        match self {
            StrategyRunner::LoopInline(_)
            | StrategyRunner::LoopByStep
            | StrategyRunner::LoopByBudget
            | StrategyRunner::Auto(..) => 1,
            StrategyRunner::Threads(_, count) | StrategyRunner::Workers(_, count) => *count as u64,
        }
    }

    fn cpu_time_of_workers(&self) -> Duration {
        match self {
            StrategyRunner::Workers(pool, _) | StrategyRunner::Auto(pool, ..) => pool.cpu_time(),
            // Threads are part of this process.
            StrategyRunner::LoopInline(_)
            | StrategyRunner::LoopByStep
            | StrategyRunner::LoopByBudget
            | StrategyRunner::Threads(..) => Duration::ZERO,
        }
    }

    /// Lets jobs in flight finish, so that no worker has to be killed.
    fn close(&self, event_loop: &mut EventLoop) -> Result<(), Failure> {
        if let StrategyRunner::Workers(pool, _) | StrategyRunner::Auto(pool, ..) = self {
            pool.drain(|cx| cx.stop());
            event_loop.run().map_err(broken)?;
        }
        Ok(())
    }
}

fn start_workers(config: PoolConfig, event_loop: &mut EventLoop) -> Result<ComputePool, Failure> {
    let pool = ComputePool::start(config, event_loop).map_err(not_started)?;
    await_workers(&pool, event_loop)?;
    Ok(pool)
}

/// The same pool with one worker, or as many as it has programs.
fn one_worker(pool: &PoolConfig) -> PoolConfig {
    let mut one = pool.clone();
    one.core.workers = one.programs.len();
    one.core.short_slots = Some(0);
    one
}

/// Waits until all workers are ready, so that their start is not part of the measurement.
pub(super) fn await_workers(pool: &ComputePool, event_loop: &mut EventLoop) -> Result<(), Failure> {
    let give_up_at = Instant::now() + BENCH_READY_TIMEOUT;
    let look_again = event_loop.set_interval(Duration::from_millis(1), |_cx| {});
    while pool.status().workers.ready < pool.worker_count() {
        if Instant::now() >= give_up_at {
            let limit = BENCH_READY_TIMEOUT.as_secs();
            return Err(Failure::Internal(format!("the workers are not ready after {limit} s")));
        }
        event_loop.run_mode(RunMode::Once).map_err(broken)?;
    }
    event_loop.clear(look_again);
    Ok(())
}

fn inline<W: Workload>(jobs: Rc<StrategyJobs<W>>, handicap: f64, handle: &LoopHandle) {
    handle.set_immediate(move |cx| {
        if jobs.are_going_on() {
            let begun = Instant::now();
            let answer = jobs.workload().in_one_go();
            let longer = begun.elapsed().mul_f64(1.0 + handicap);
            while begun.elapsed() < longer {}
            jobs.on_answer(answer, cx);
            inline(jobs, handicap, cx);
        }
    });
}

fn place_of(workload: &impl Workload, policy: &Policy) -> Place {
    policy.place(workload.task(), workload.size().unwrap_or(u64::MAX))
}

fn auto<W: Workload>(jobs: Rc<StrategyJobs<W>>, pool: ComputePool, policy: Rc<Policy>) {
    let workload = jobs.workload();
    let size = workload.size().unwrap_or(u64::MAX);
    let sent = if place_of(workload, &policy) == Place::Offloaded { workload.inputs().bytes } else { 0 };
    let (job, begin) = (job(workload, 0), Rc::clone(&jobs));
    let step = |steps: &mut W::Steps| {
        let output = |answer: Result<W::Answer, TaskError>| answer.map(|answer| W::output(&answer));
        W::step(steps).map_break(|answer| output(answer).map_err(|error| error.to_string()))
    };
    pool.clone().auto(
        &policy.clone(),
        size,
        job,
        move || begin.workload().in_steps(),
        step,
        move |output, cx| {
            let came = output.as_ref().map_or(0, |output| output.len() as u64);
            jobs.on_output(output, if sent > 0 { sent + came } else { 0 }, cx);
            if jobs.are_going_on() {
                auto(jobs, pool, policy);
            }
        },
    );
}

fn partitioned_step<W: Workload>(jobs: Rc<StrategyJobs<W>>, handle: &LoopHandle) {
    handle.partition(jobs.workload().in_steps(), W::step, move |cx, answer| {
        jobs.on_answer(answer, cx);
        partitioned_step(jobs, cx);
    });
}

fn partitioned_budget<W: Workload>(jobs: Rc<StrategyJobs<W>>, handle: &LoopHandle) {
    handle.partition_within(BENCH_STEP_BUDGET, jobs.workload().in_steps(), W::step, move |cx, answer| {
        jobs.on_answer(answer, cx);
        partitioned_budget(jobs, cx);
    });
}

fn threaded<W: Workload>(jobs: Rc<StrategyJobs<W>>, pool: IoHandle) {
    let workload = jobs.shared_workload();
    pool.clone().submit(
        move || workload.in_one_go(),
        move |cx, answer| {
            let answer = answer.unwrap_or_else(|error| Err(TaskError::new(error)));
            jobs.on_answer(answer, cx);
            if jobs.are_going_on() {
                threaded(jobs, pool);
            }
        },
    );
}

fn offloaded<W: Workload>(jobs: Rc<StrategyJobs<W>>, pool: ComputePool) {
    let input = jobs.next_input();
    let submitted = Instant::now();
    pool.clone().submit(job(jobs.workload(), input), move |finished, cx| {
        jobs.on_finished(&finished, input, submitted, cx);
        if jobs.are_going_on() {
            offloaded(jobs, pool);
        }
    });
}

/// The job for workers with the input of this number.
pub(super) fn job(workload: &impl Workload, input: usize) -> Job {
    Job::new(workload.task()).input(workload.input(input)).media_type(workload.media_type(input))
}

/// Clock and CPU time at the start of the measured time, and a timer that is late when the loop is.
struct Meter {
    start: Instant,
    cpu_time: Duration,
    timer: LagTimer,
}

struct Measured {
    start: Instant,
    time: Duration,
    cpu_time: Duration,
    loop_lag_us: Percentiles,
    timer_lag: TimerLag,
}

impl Meter {
    fn start(event_loop: &EventLoop, place: &StrategyRunner, window: Duration) -> Result<Meter, Failure> {
        event_loop.reset_metrics();
        let timer = LagTimer::start(event_loop, window);
        Ok(Meter { start: Instant::now(), cpu_time: cpu_time(place)?, timer })
    }

    fn read(&self, event_loop: &EventLoop, place: &StrategyRunner) -> Result<Measured, Failure> {
        let cpu_time = cpu_time(place)?.saturating_sub(self.cpu_time);
        let lag = event_loop.metrics().lag;
        let loop_lag_us = Percentiles { p50: lag.p50_us, p99: lag.p99_us, max: lag.max_us };
        let (start, time) = (self.start, self.start.elapsed());
        Ok(Measured { start, time, cpu_time, loop_lag_us, timer_lag: self.timer.stop(event_loop) })
    }
}

/// CPU time of this process (the prober included) and of the workers.
fn cpu_time(place: &StrategyRunner) -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)
        .map_err(|error| Failure::internal("cannot read the CPU time of this process", error))?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let own = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    Ok(own + place.cpu_time_of_workers())
}

fn sample(done: WorkDone, measured: Measured, probed: Waits) -> Sample {
    // Only up to the end of the last job: time spent on an unfinished job would count as lost.
    let seconds = done.last_end.map_or(0.0, |end| end.duration_since(measured.start).as_secs_f64());
    Sample {
        jobs: done.jobs,
        jobs_per_s: if seconds > 0.0 { done.jobs as f64 / seconds } else { 0.0 },
        probed,
        loop_lag_us: Some(measured.loop_lag_us),
        timer_lag: measured.timer_lag,
        cpu_s: measured.cpu_time.as_secs_f64(),
        seconds: measured.time.as_secs_f64(),
        sent: done.sent,
        differing: done.differing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Documents, Numbers};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs jobs with one strategy until three of them have given the right answer.
    fn three_jobs<W: Workload>(strategy: Strategy, setup: &Setup, workload: W) {
        let mut event_loop = EventLoop::new().unwrap();
        let place = StrategyRunner::prepare(strategy, setup, &mut event_loop).unwrap();
        let exercise = Rc::new(Exercise::new(workload).unwrap());
        let jobs = StrategyJobs::new(&exercise);
        place.start(&jobs, &event_loop);
        let give_up_at = Instant::now() + PATIENCE;
        while jobs.done() < 3 && jobs.are_going_on() {
            assert!(Instant::now() < give_up_at, "the jobs do not go on");
            event_loop.run_mode(RunMode::NoWait).unwrap();
        }
        assert!(jobs.finish().unwrap().jobs >= 3);
    }

    #[test]
    fn in_this_process_job_follows_job_with_right_answers_in_every_way() {
        let setup = Setup::new(Duration::from_millis(30), PoolConfig::default());
        let with_workers = [Strategy::OneWorker, Strategy::Offloaded, Strategy::Auto];
        let works_here = |strategy: &Strategy| !with_workers.contains(strategy);
        for strategy in Strategy::ALL.into_iter().filter(works_here) {
            three_jobs(strategy, &setup, Numbers::new(10).unwrap());
            three_jobs(strategy, &setup, Documents::new(10).unwrap());
        }
    }

    #[test]
    fn each_millisecond_of_the_window_has_a_probe() {
        let setup = Setup::new(Duration::from_millis(30), PoolConfig::default());
        let exercise = Rc::new(Exercise::new(Numbers::new(10).unwrap()).unwrap());
        let sample = measure(Strategy::PartitionedBudget, &exercise, &setup).unwrap();
        assert_eq!((sample.probed.count(), sample.sent.bytes), (30, 0));
        let nothing = measure_nothing(setup.window).unwrap();
        assert_eq!((nothing.probed.count(), nothing.jobs), (30, 0));
    }
}
