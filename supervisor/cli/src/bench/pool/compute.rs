//! P4 and P5: jobs that compute for a given time, all submitted at once. How much of the workers' time they compute,
//! and how late the event loop is meanwhile. Both are seen in the same burst; each workload shows one of them and has the
//! other beside it.
//!
//! `efficiency = jobs x time of one job / workers / time on the wall`, where the time of one job is the fastest of many
//! tries in a worker. If there are fewer cores than workers, the cores count.
//!
//! The limit of P4 is the same for children that are told once how many jobs to do, and do them without another word.
//! That of P5 is a thread that only sleeps for 1 ms again and again while such children compute on all cores.

use super::super::super::failure::Failure;
use super::super::machine::cores;
use super::super::strategy::broken;
use super::burn;
use super::children::Child;
use super::rig::{Exercise, Rig, any};
use super::sample::{Sample, SamplePlan, Times};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The period of the interval whose lateness is measured.
const PERIOD: Duration = Duration::from_millis(1);

/// The time that all jobs take together on one core.
const WORK: Duration = Duration::from_secs(1);
const WORK_QUICK: Duration = Duration::from_millis(100);

/// P4, ours.
pub(super) fn efficiency(plan: &SamplePlan) -> Result<Sample, Failure> {
    let seen = burst(plan)?;
    let Burst { efficiency, jobs, lag } = seen;
    Ok(Sample::of(efficiency)
        .with("p99_ms", lag.ms(0.99))
        .with("max_ms", lag.ms(1.0))
        .with("jobs", jobs as f64))
}

/// P5, ours.
pub(super) fn lag(plan: &SamplePlan) -> Result<Sample, Failure> {
    let seen = burst(plan)?;
    Ok(lag_sample(&seen.lag).with("efficiency", seen.efficiency).with("jobs", seen.jobs as f64))
}

fn lag_sample(lag: &Times) -> Sample {
    Sample::of(lag.ms(0.99))
        .with("p50_ms", lag.ms(0.5))
        .with("max_ms", lag.ms(1.0))
        .with("intervals", lag.count())
}

/// What was seen of one burst.
struct Burst {
    efficiency: f64,
    jobs: u64,
    lag: Times,
}

fn burst(plan: &SamplePlan) -> Result<Burst, Failure> {
    let mut rig = Rig::burning(plan.workers)?;
    let exercise = rig.calibrate(plan.size)?;
    let jobs = jobs(plan);
    // Until the pool knows how long these jobs take.
    rig.burst(jobs.min(60), |_| exercise.job(), any)?;
    let (took, lag) = burst_beside_an_interval(&mut rig, exercise, jobs)?;
    Ok(Burst { efficiency: share_of_workers(jobs, exercise.cost, plan.workers, took), jobs, lag })
}

/// As many jobs as take the intended time together.
fn jobs(plan: &SamplePlan) -> u64 {
    let work = plan.pick(WORK_QUICK, WORK);
    u64::try_from(work.as_micros()).unwrap_or(u64::MAX) / plan.size.max(1)
}

/// Runs so many jobs at once, and an interval of [`PERIOD`] beside them. Returns the time on the wall and how late the
/// interval was each time.
///
/// # Errors
/// If a job fails.
pub(super) fn burst_beside_an_interval(
    rig: &mut Rig,
    exercise: Exercise,
    jobs: u64,
) -> Result<(Duration, Times), Failure> {
    let lags = Rc::new(RefCell::new(Lateness::new()));
    let note = Rc::clone(&lags);
    let interval = rig.event_loop.set_interval(PERIOD, move |_cx| note.borrow_mut().note());
    let took = rig.burst(jobs, |_| exercise.job(), any)?;
    rig.event_loop.clear(interval);
    let lags = std::mem::take(&mut lags.borrow_mut().lags);
    Ok((took, Times::of(lags)))
}

/// How much later than [`PERIOD`] after the time before something happened.
struct Lateness {
    last: Instant,
    lags: Vec<Duration>,
}

impl Lateness {
    fn new() -> Lateness {
        Lateness { last: Instant::now(), lags: Vec::new() }
    }

    fn note(&mut self) {
        let now = Instant::now();
        self.lags.push(now.duration_since(self.last).saturating_sub(PERIOD));
        self.last = now;
    }
}

/// Which share of the time of the workers the jobs were computing.
pub(super) fn share_of_workers(jobs: u64, cost: Duration, workers: usize, took: Duration) -> f64 {
    let usable = workers.min(cores().len()) as f64;
    jobs as f64 * cost.as_secs_f64() / usable / took.as_secs_f64()
}

/// P4, limit.
pub(super) fn efficiency_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut crowd = Crowd::start(plan)?;
    let start = Instant::now();
    let jobs = crowd.begin(jobs(plan))?;
    crowd.wait()?;
    Ok(Sample::of(share_of_workers(jobs, crowd.cost, plan.workers, start.elapsed()))
        .with("jobs", jobs as f64))
}

/// P5, limit.
pub(super) fn lag_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut crowd = Crowd::start(plan)?;
    crowd.begin(jobs(plan))?;
    let work = plan.pick(WORK_QUICK, WORK) / u32::try_from(plan.workers).unwrap_or(1);
    let end = Instant::now() + work;
    let mut lateness = Lateness::new();
    while Instant::now() < end {
        std::thread::sleep(PERIOD);
        lateness.note();
    }
    crowd.wait()?;
    Ok(lag_sample(&Times::of(lateness.lags)))
}

/// Children that compute without being asked in between.
struct Crowd {
    children: Vec<Child>,
    rounds: u64,
    cost: Duration,
}

impl Crowd {
    /// Starts as many as there are workers, and lets one of them find out what a job costs.
    fn start(plan: &SamplePlan) -> Result<Crowd, Failure> {
        let rounds = burn::rounds_for(plan.size);
        let children: Result<Vec<Child>, Failure> =
            (0..plan.workers).map(|_| Child::start(&["burn"])).collect();
        let mut crowd = Crowd { children: children?, rounds, cost: Duration::ZERO };
        for child in &mut crowd.children {
            child.order(rounds, burn::tries_for(plan.size).into())?;
            crowd.cost = child.wait_for_work()?;
        }
        Ok(crowd)
    }

    /// Divides the jobs among them. Returns how many they do together.
    fn begin(&mut self, jobs: u64) -> Result<u64, Failure> {
        let each = (jobs / self.children.len().max(1) as u64).max(1);
        self.children.iter_mut().try_for_each(|child| child.order(self.rounds, each))?;
        Ok(each * self.children.len() as u64)
    }

    fn wait(&mut self) -> Result<(), Failure> {
        self.children.iter_mut().try_for_each(|child| child.wait_for_work().map(drop))
    }
}

/// Lets the loop of a rig run for so long.
///
/// # Errors
/// If the loop is broken.
pub(super) fn run_for(rig: &mut Rig, time: Duration) -> Result<(), Failure> {
    rig.event_loop.set_timeout(time, |cx| cx.stop());
    rig.event_loop.run().map(drop).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Effort;
    use super::*;
    use offload_core::limits::JOBS_QUEUED_MAX_DEFAULT;

    #[test]
    fn all_sizes_take_the_same_time_together() {
        let plan = |size| SamplePlan { size, workers: 2, effort: Effort::Normal, rounds: 1 };
        let all = [100, 1_000, 10_000].map(|size| jobs(&plan(size)));
        assert_eq!(all, [10_000, 1_000, 100]);
        assert!(all.iter().all(|jobs| *jobs <= JOBS_QUEUED_MAX_DEFAULT as u64), "they fit into the queue");
    }

    #[test]
    fn what_was_computed_is_compared_with_what_could_have_been() {
        let (cost, took) = (Duration::from_millis(1), Duration::from_millis(10));
        assert_eq!(share_of_workers(5, cost, 1, took), 0.5);
        assert_eq!(share_of_workers(10, cost, 1, took), 1.0);
    }
}
