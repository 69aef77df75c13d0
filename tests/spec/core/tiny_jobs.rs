//! Tiny jobs may join others at a busy worker. What that must not cost the jobs that wait for an idle one.

use offload_core::ids::{JobId, WorkerId};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

/// What a tiny job says that it has run, and for how long it keeps its worker besides: the way there and back.
const TINY: Duration = Duration::from_micros(3);
const WAY: Duration = Duration::from_micros(87);

/// One client always has more tiny jobs than all workers take together.
struct Flood {
    pool: PoolUnderTest,
    /// The jobs of the other client, and how long they run.
    others: BTreeSet<JobId>,
    run: Duration,
    /// Jobs in steps that run until the end of the test.
    running: BTreeSet<JobId>,
    /// For how long the workers were kept by tiny jobs, and by those of the other client.
    kept: [Duration; 2],
}

impl Flood {
    /// `charge` is known to be tiny, and `sum` to run for so long.
    fn of(workers: usize, run: Duration) -> Flood {
        let mut pool = PoolUnderTest::slots(workers);
        for (task, run) in [("charge", TINY), ("sum", run)] {
            for _ in 0..8 {
                let job = pool.submit(task);
                pool.start(job);
                pool.finish_after(job, run);
            }
        }
        let mut flood =
            Flood { pool, others: BTreeSet::new(), run, running: BTreeSet::new(), kept: [Duration::ZERO; 2] };
        (0..workers * 100).for_each(|_| flood.submit_tiny());
        flood
    }

    fn submit_tiny(&mut self) {
        self.pool.submit_with("charge", |request| request.client = "many".into());
    }

    fn submit_other(&mut self) -> JobId {
        let job = self.pool.submit_with("sum", |request| request.client = "other".into());
        self.others.insert(job);
        job
    }

    fn given(&self, worker: WorkerId) -> Vec<JobId> {
        self.pool.workers[&worker].given.iter().map(|(job, _)| *job).collect()
    }

    /// Takes steps until the job is with a worker, or has been. False if it is not after 200.
    fn give(&mut self, job: JobId) -> bool {
        let is_given =
            |flood: &Flood| flood.pool.worker_with(job).is_some() || flood.pool.outcome(job).is_some();
        (0..200).any(|_| {
            self.step();
            is_given(self)
        })
    }

    /// The job begins, if a worker has it, and goes on until the end of the test.
    fn go_on(&mut self, job: JobId) {
        if self.running.contains(&job) || self.pool.worker_with(job).is_none() {
            return;
        }
        self.pool.start(job);
        self.running.insert(job);
    }

    /// Each worker does the job that is its next one, whose client submits another one.
    fn step(&mut self) {
        let workers: Vec<WorkerId> = self.pool.workers.keys().copied().collect();
        for worker in workers {
            let given = self.given(worker);
            let Some(&job) = given.iter().find(|job| !self.running.contains(job)) else { continue };
            self.pool.start(job);
            if self.others.remove(&job) {
                self.pool.finish_after(job, self.run);
                self.kept[1] += self.run;
                self.submit_other();
            } else {
                self.pool.now = self.pool.now + WAY;
                self.pool.finish_after(job, TINY);
                self.kept[0] += WAY + TINY;
                self.submit_tiny();
            }
        }
    }
}

#[test]
fn a_job_that_is_not_tiny_has_its_turn_although_tiny_ones_could_join_each_worker() {
    for (workers, run) in [(1, 5 * MS), (2, 5 * MS), (1, 300 * MS), (2, 300 * MS), (4, 300 * MS)] {
        let mut flood = Flood::of(workers, run);
        (0..1000).for_each(|_| flood.step());
        let job = flood.submit_other();
        assert!(flood.give(job), "with {workers} workers, tiny jobs are always before one of {run:?}");
    }
}

#[test]
fn tiny_jobs_still_join_each_other_where_the_job_that_waits_may_not_be() {
    let mut flood = Flood::of(2, 300 * MS);
    (0..100).for_each(|_| flood.step());
    // The slot that is not reserved is taken, and another one waits for it.
    let running = flood.submit_other();
    assert!(flood.give(running));
    flood.submit_other();
    let worker = flood.pool.worker_with(running).expect("it was given to one");
    let reserved = *flood.pool.workers.keys().find(|other| **other != worker).expect("there are two");
    for _ in 0..100 {
        let next = flood.given(reserved)[0];
        flood.pool.start(next);
        flood.pool.finish_after(next, TINY);
        flood.submit_tiny();
        assert!(flood.given(reserved).len() > 1, "they come one by one");
    }
    assert_eq!(flood.pool.worker_with(running), Some(worker));
}

#[test]
fn a_client_with_tiny_jobs_keeps_the_worker_for_no_longer_than_its_share() {
    let mut flood = Flood::of(1, 30 * MS);
    (0..2).for_each(|_| {
        flood.submit_other();
    });
    while flood.kept.iter().sum::<Duration>() < 3000 * MS {
        flood.step();
    }
    let [tiny, other] = flood.kept;
    assert!(tiny.abs_diff(other) <= 300 * MS, "tiny jobs kept it for {tiny:?}, the others for {other:?}");
}

/// Short jobs can run between the steps of such a job. That is no reason to take the worker from them.
#[test]
fn a_reserved_worker_stays_with_tiny_jobs_while_jobs_in_steps_wait() {
    let mut flood = Flood::of(4, 300 * MS);
    (0..100).for_each(|_| flood.step());
    let long: Vec<JobId> =
        (0..8).map(|_| flood.pool.submit_with("climb", |request| request.client = "other".into())).collect();
    for _ in 0..500 {
        for job in &long {
            flood.go_on(*job);
        }
        flood.step();
    }
    let running = long.iter().filter(|job| flood.pool.worker_with(**job).is_some()).count();
    assert_eq!(running, 3, "of 4 workers one is reserved");
}

/// A tiny job that is given between two steps waits for a step first. That is not what such jobs cost.
#[test]
fn a_tiny_job_between_the_steps_of_another_makes_the_others_cost_no_more() {
    let mut pool = PoolUnderTest::slots(1);
    let submit = |pool: &mut PoolUnderTest| pool.submit_with("sum", |request| request.client = "many".into());
    for _ in 0..8 {
        let job = submit(&mut pool);
        pool.start(job);
        pool.finish_after(job, TINY);
    }
    let long = pool.submit("climb");
    pool.start(long);
    for _ in 0..200 {
        let job = submit(&mut pool);
        pool.now = pool.now + 10 * MS;
        pool.start(job);
        pool.finish_after(job, TINY);
    }
    pool.finish(long);
    let used = |pool: &PoolUnderTest| pool.core.clients().find("many").map_or(0, |account| account.used);
    let [job, keeps_account] = [0; 2].map(|_| submit(&mut pool));
    let before = used(&pool);
    pool.start(job);
    pool.finish_after(job, TINY);
    assert!(used(&pool) - before < 1_000_000, "{} ns for {TINY:?}", used(&pool) - before);
    assert!(pool.outcome(keeps_account).is_none());
}
