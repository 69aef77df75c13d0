//! P6 and P12: what the death of a worker costs.
//!
//! ```text
//!   P6    hold runs in one worker -> n jobs are queued -> SIGKILL
//!                                                          |--> its job is told                    told   (ours)
//!                                                          |--> a process that had no job so far starts one   serves_ms
//!                                                          `--> all n are done, beside n x 1 ms / workers     all_done_of_ideal
//!   P12   jobs all the time; first without deaths, then a busy worker is killed every 50 ms
//!         ours = jobs/s with deaths / jobs/s without; a killed job is tried again, and each has to come out right, once
//! ```
//!
//! The limit of P6 is starting a child. That of P12 is `1 - kills/s x (time to start a child + half a job) / workers`:
//! what is lost if a slot is empty from a death until another child has started. A spare worker can beat it.

use super::super::super::failure::Failure;
use super::super::strategy::broken;
use super::compute::run_for;
use super::rig::{Exercise, Rig, any, expect_ok, json_job};
use super::sample::{Sample, SamplePlan, Times};
use super::starting::usual_time_to_start;
use offload_event_loop::RunMode;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, Context, Finished};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two deaths in P12.
const KILL_EVERY: Duration = Duration::from_millis(50);

/// Jobs that are under way or queued at any time in P12.
const CROWD: u64 = 64;

/// Longest wait for a state of the workers.
const PATIENCE: Duration = Duration::from_secs(20);

/// P6, ours: the medians of several deaths.
pub(super) fn one_death(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut rig = Rig::burning(plan.workers)?;
    let exercise = rig.calibrate(1_000)?;
    rig.burst(8 * plan.workers as u64, |_| exercise.job(), any)?;
    let deaths: Result<Vec<Death>, Failure> =
        (0..plan.pick(1, 5)).map(|_| die_once(&mut rig, exercise, plan)).collect();
    let deaths = deaths?;
    let median = |time: fn(&Death) -> Option<Duration>| {
        let times: Vec<Duration> = deaths.iter().filter_map(time).collect();
        (!times.is_empty()).then(|| Times::of(times))
    };
    let told = median(|death| Some(death.told)).unwrap_or_default();
    let done = median(|death| Some(death.all_done)).unwrap_or_default();
    let ideal = exercise.cost.as_secs_f64() * plan.size as f64 / plan.workers as f64;
    Ok(Sample::of(told.ms(0.5))
        .with("max_ms", told.ms(1.0))
        .with_some("serves_ms", median(|death| death.serves).map(|times| times.ms(0.5)))
        .with("all_done_ms", done.ms(0.5))
        .with("all_done_of_ideal", done.at(0.5).as_secs_f64() / ideal)
        .with("ok", plan.size as f64)
        .with("failed", 0.0))
}

/// What was seen of one death, as times since the kill.
struct Death {
    told: Duration,
    /// None if all jobs were done before.
    serves: Option<Duration>,
    all_done: Duration,
}

fn die_once(rig: &mut Rig, exercise: Exercise, plan: &SamplePlan) -> Result<Death, Failure> {
    wait_until(rig, "a spare worker", |pool| pool.workers().iter().any(|worker| worker.state == "spare"))?;
    let told = hold_a_worker(rig)?;
    let holds = |pool: &ComputePool| process_running(pool, "hold").is_some();
    wait_until(rig, "a worker with a job", holds)?;
    let victim =
        process_running(&rig.pool, "hold").ok_or_else(|| Failure::Internal("it ended".to_owned()))?;
    let before: BTreeSet<u32> = rig
        .pool
        .workers()
        .iter()
        .filter(|worker| worker.state != "spare")
        .filter_map(|worker| worker.pid)
        .collect();
    let starts = Rc::new(RefCell::new(Vec::new()));
    let left = Rc::new(Cell::new(plan.size));
    for _ in 0..plan.size {
        submit_noted(rig, exercise, &starts, &left);
    }
    let killed = Instant::now();
    kill(victim);
    while left.get() > 0 || told.get().is_none() {
        rig.event_loop.run_mode(RunMode::Once).map_err(broken)?;
    }
    let starts = starts.take().into_iter().collect::<Result<Vec<Start>, Failure>>()?;
    Ok(Death {
        told: told.get().unwrap_or(killed).duration_since(killed),
        serves: first_on_a_new_process(&starts, &before)
            .map(|moment| moment.saturating_duration_since(killed)),
        all_done: starts.iter().map(|start| start.end).max().unwrap_or(killed).duration_since(killed),
    })
}

/// Gives a worker a job that lasts until the worker is killed. Returns where the moment is noted when that is told.
fn hold_a_worker(rig: &Rig) -> Result<Rc<Cell<Option<Instant>>>, Failure> {
    let told = Rc::new(Cell::new(None));
    let note = Rc::clone(&told);
    let job = json_job("hold", PATIENCE.as_millis().to_string()).attempts(1);
    rig.pool.submit(job, move |finished, _cx| {
        if finished.report.outcome == OutcomeCode::WorkerCrashed {
            note.set(Some(Instant::now()));
        }
    });
    Ok(told)
}

/// When and where a job started.
struct Start {
    process: u32,
    begin: Instant,
    end: Instant,
}

fn submit_noted(
    rig: &Rig,
    exercise: Exercise,
    starts: &Rc<RefCell<Vec<Result<Start, Failure>>>>,
    left: &Rc<Cell<u64>>,
) {
    let (starts, left) = (Rc::clone(starts), Rc::clone(left));
    rig.pool.submit(exercise.job(), move |finished, _cx| {
        starts.borrow_mut().push(expect_ok(&finished).map(|()| start_of(&finished)));
        left.set(left.get() - 1);
    });
}

/// The receipt says how long the task ran and how long the answer was on its way.
fn start_of(finished: &Finished) -> Start {
    let (receipt, end) = (&finished.report.receipt, Instant::now());
    let since = Duration::from_micros(receipt.run_us + receipt.returned_us);
    Start { process: receipt.worker_pid, begin: end.checked_sub(since).unwrap_or(end), end }
}

fn first_on_a_new_process(starts: &[Start], before: &BTreeSet<u32>) -> Option<Instant> {
    starts.iter().filter(|start| !before.contains(&start.process)).map(|start| start.begin).min()
}

fn process_running(pool: &ComputePool, task: &str) -> Option<u32> {
    pool.workers().iter().find(|worker| worker.task.as_deref() == Some(task))?.pid
}

fn kill(process: u32) {
    // If it has ended by itself, the sample shows a death all the same.
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.map(|process| kill_process(process, Signal::KILL));
}

/// Runs the loop until the pool is in some state.
fn wait_until(rig: &mut Rig, what: &str, is_so: impl Fn(&ComputePool) -> bool) -> Result<(), Failure> {
    let give_up_at = Instant::now() + PATIENCE;
    while !is_so(&rig.pool) {
        if Instant::now() >= give_up_at {
            return Err(Failure::Internal(format!("waited in vain for {what}")));
        }
        run_for(rig, Duration::from_millis(1))?;
    }
    Ok(())
}

/// P12, limit.
pub(super) fn many_deaths_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let start = usual_time_to_start(plan)?.as_secs_f64();
    let lost = start + plan.size as f64 / 1e6 / 2.0;
    let predicted = 1.0 - lost / KILL_EVERY.as_secs_f64() / plan.workers as f64;
    Ok(Sample::of(predicted.max(0.0)).with("start_ms", start * 1e3))
}

/// P12, ours.
pub(super) fn many_deaths(plan: &SamplePlan) -> Result<Sample, Failure> {
    let seconds = Duration::from_secs;
    let time = plan.share_of_round(seconds(1), seconds(10), seconds(60));
    let mut rig = Rig::burning(plan.workers)?;
    let exercise = rig.calibrate(plan.size)?;
    rig.burst(60, |_| exercise.job(), any)?;
    let calm = churn(&mut rig, exercise, time / 4, None)?;
    let deaths = churn(&mut rig, exercise, time, Some(KILL_EVERY))?;
    let share = deaths.jobs_per_second() / calm.jobs_per_second();
    Ok(Sample::of(share)
        .with("calm_jobs_per_s", calm.jobs_per_second())
        .with("jobs", deaths.submitted as f64)
        .with("retried", deaths.retried as f64)
        .with("kills", deaths.kills as f64)
        .with("lost", (deaths.submitted - deaths.ended) as f64))
}

/// Jobs that follow each other for some time.
struct Churn {
    pool: ComputePool,
    exercise: Exercise,
    begin: Instant,
    end: Instant,
    counts: RefCell<Counts>,
}

#[derive(Default)]
struct Counts {
    submitted: u64,
    ended: u64,
    /// Ended before the time was up.
    in_time: u64,
    retried: u64,
    kills: u64,
    time: Duration,
    failure: Option<Failure>,
}

impl Counts {
    fn jobs_per_second(&self) -> f64 {
        self.in_time as f64 / self.time.as_secs_f64()
    }
}

/// Keeps [`CROWD`] jobs under way for so long, or until as many have ended on a machine that is busy, and kills a busy worker now and then.
fn churn(
    rig: &mut Rig,
    exercise: Exercise,
    time: Duration,
    kill_every: Option<Duration>,
) -> Result<Counts, Failure> {
    let counts = RefCell::new(Counts { time, ..Counts::default() });
    let begin = Instant::now();
    let churn = Rc::new(Churn { pool: rig.pool.clone(), exercise, begin, end: begin + time, counts });
    (0..CROWD).for_each(|_| churn.submit());
    let killer = kill_every.map(|period| {
        let churn = Rc::clone(&churn);
        rig.event_loop.set_interval(period, move |_cx| churn.kill_one())
    });
    rig.event_loop.run().map_err(broken)?;
    killer.map(|killer| rig.event_loop.clear(killer));
    let mut counts = churn.counts.take();
    counts.failure.take().map_or(Ok(counts), Err)
}

impl Churn {
    fn submit(self: &Rc<Churn>) {
        self.counts.borrow_mut().submitted += 1;
        let churn = Rc::clone(self);
        // As many attempts as there can be: every death is ours, and no job is to blame.
        let job = self.exercise.job().attempts(offload_core::limits::ATTEMPTS_MAX);
        self.pool.submit(job, move |finished, cx| churn.note(&finished, cx));
    }

    fn note(self: &Rc<Churn>, finished: &Finished, cx: &mut Context) {
        let now = Instant::now();
        let mut counts = self.counts.borrow_mut();
        let is_in_time = now < self.end || counts.in_time < CROWD;
        if is_in_time {
            counts.time = counts.time.max(now - self.begin);
        }
        counts.ended += 1;
        counts.in_time += u64::from(is_in_time);
        counts.retried += u64::from(finished.report.attempts > 1);
        if let Err(failure) = expect_ok(finished) {
            counts.failure.get_or_insert(failure);
        }
        let is_last = counts.ended == counts.submitted;
        drop(counts);
        if is_in_time {
            self.submit();
        } else if is_last {
            // The interval of the killer would keep the loop going.
            cx.stop();
        }
    }

    /// Kills a busy worker, a different one each time.
    fn kill_one(&self) {
        if Instant::now() >= self.end {
            return;
        }
        let workers = self.pool.workers();
        let busy: Vec<u32> =
            workers.iter().filter(|worker| worker.state == "busy").filter_map(|worker| worker.pid).collect();
        let mut counts = self.counts.borrow_mut();
        if !busy.is_empty() {
            kill(busy[counts.kills as usize % busy.len()]);
            counts.kills += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_was_not_there_before_serves_anew() {
        let now = Instant::now();
        let start = |process, ms| Start { process, begin: now + Duration::from_millis(ms), end: now };
        let starts = [start(1, 0), start(3, 7), start(3, 5), start(2, 1)];
        let before = BTreeSet::from([1, 2]);
        assert_eq!(first_on_a_new_process(&starts, &before), Some(now + Duration::from_millis(5)));
        assert_eq!(first_on_a_new_process(&starts[..1], &before), None);
    }
}
