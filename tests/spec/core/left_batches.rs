//! Jobs that run together, of which one is cancelled or late: what that costs the others, and who pays for it.

use super::batches::{MS, given, of_client, pool, the_worker, tiles, work_off};
use offload_core::action::Kill;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

/// A batch of so many jobs that has begun.
fn begun(pool: &mut PoolUnderTest, count: usize) -> (WorkerId, Vec<JobId>) {
    let jobs = tiles(pool, count);
    pool.wait(2 * MS);
    (pool.start(jobs[0]), jobs)
}

#[test]
fn a_cancelled_job_that_does_not_return_holds_up_those_with_it_for_no_longer_than_the_grace() {
    for left in 0..4 {
        let mut pool = pool(1);
        let (worker, jobs) = begun(&mut pool, 4);
        pool.workers_ignore_term();
        pool.event(Event::Cancel { job: jobs[left] });
        assert_eq!(pool.cancelled, [(worker, jobs[left])], "its worker is told");
        pool.wait(99 * MS);
        assert!(pool.workers[&worker].signals.is_empty(), "it has a grace");
        pool.wait(MS);
        assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
        pool.wait(500 * MS);
        let others: Vec<JobId> = jobs.iter().copied().filter(|job| *job != jobs[left]).collect();
        assert_eq!(given(&pool, the_worker(&pool)), others[..2], "they are the first again, in halves");
        assert_eq!(work_off(&mut pool, &[]), 0);
        for job in others {
            let ended = &pool.ended[&job];
            assert_eq!((ended.outcome, ended.attempts, ended.lost.len()), (Ok, 1, 1), "{job}");
            assert!(ended.lost.iter().all(|lost| !lost.is_blamed), "{job}");
        }
        assert_eq!(pool.outcome(jobs[left]), Some(Cancelled));
    }
}

#[test]
fn a_worker_that_answers_who_was_cancelled_in_time_goes_on_with_the_others() {
    let mut pool = pool(1);
    let (worker, jobs) = begun(&mut pool, 3);
    for job in &jobs[..2] {
        pool.event(Event::Cancel { job: *job });
        pool.wait(99 * MS);
        pool.finish(*job);
    }
    pool.wait(Duration::from_secs(60));
    assert!(pool.workers[&worker].signals.is_empty());
    pool.finish(jobs[2]);
    assert_eq!((pool.outcome(jobs[2]), pool.ended[&jobs[2]].lost.len()), (Some(Ok), 0));
}

/// The worker answers all of them together, when all are done.
#[test]
fn a_batch_of_which_one_is_cancelled_has_the_time_that_such_jobs_take() {
    const RUN: Duration = Duration::from_secs(1);
    let mut pool = pool(1);
    let (_, learned) = begun(&mut pool, 4);
    pool.wait(RUN);
    learned.iter().for_each(|job| pool.finish_after(*job, RUN));
    let (worker, jobs) = begun(&mut pool, 4);
    pool.wait(RUN / 5);
    pool.event(Event::Cancel { job: jobs[1] });
    pool.wait(RUN * 4 / 5);
    assert!(pool.workers[&worker].signals.is_empty());
    jobs.iter().for_each(|job| pool.finish(*job));
    for job in [jobs[0], jobs[2], jobs[3]] {
        assert_eq!((pool.outcome(job), pool.ended[&job].lost.len()), (Some(Ok), 0));
    }
}

/// Nothing is known of such jobs.
#[test]
fn a_batch_of_which_one_is_cancelled_has_as_long_again_as_it_has_run() {
    let mut pool = pool(1);
    let (worker, jobs) = begun(&mut pool, 4);
    pool.workers_ignore_term();
    pool.wait(Duration::from_secs(2));
    pool.event(Event::Cancel { job: jobs[1] });
    pool.wait(Duration::from_millis(1990));
    assert!(pool.workers[&worker].signals.is_empty());
    pool.wait(10 * MS);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
}

#[test]
fn one_after_another_who_leaves_does_not_prolong_the_grace() {
    let mut pool = pool(1);
    let (worker, jobs) = begun(&mut pool, 4);
    pool.workers_ignore_term();
    pool.event(Event::Cancel { job: jobs[3] });
    pool.wait(60 * MS);
    pool.event(Event::ClientGone { job: jobs[0] });
    pool.wait(39 * MS);
    assert!(pool.workers[&worker].signals.is_empty());
    pool.wait(MS);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
}

#[test]
fn who_was_cancelled_before_its_batch_began_has_the_grace_from_then_on() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 3);
    pool.wait(2 * MS);
    pool.workers_ignore_term();
    pool.event(Event::Cancel { job: jobs[1] });
    pool.wait(50 * MS);
    let worker = pool.start(jobs[0]);
    pool.wait(99 * MS);
    assert!(pool.workers[&worker].signals.is_empty());
    pool.wait(MS);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
}

#[test]
fn however_often_others_leave_its_batches_a_job_loses_no_more_runs_than_there_are_halvings() {
    let mut pool = pool(1);
    let victim = pool.submit("tile");
    let others = tiles(&mut pool, 7);
    let mut lost = 0;
    loop {
        let batch = given(&pool, the_worker(&pool));
        assert!(batch.contains(&victim), "the oldest one is among the first: {batch:?}");
        pool.start(batch[0]);
        let Some(leaver) = batch.iter().find(|job| others.contains(job)) else { break };
        lost += 1;
        pool.event(Event::Cancel { job: *leaver });
        pool.wait(200 * MS);
    }
    assert_eq!(lost, 3, "log2(8)");
    pool.finish(victim);
    assert_eq!((pool.outcome(victim), pool.ended[&victim].attempts), (Some(Ok), 1));
}

#[test]
fn who_leaves_pays_for_the_worker_unless_that_lives_on() {
    for lives_on in [false, true] {
        let mut pool = pool(1);
        let used = |pool: &PoolUnderTest| pool.core.clients().find("a").map(|account| account.used).unwrap();
        let leaver = of_client(&mut pool, "a");
        let _other = of_client(&mut pool, "b");
        pool.wait(2 * MS);
        pool.start(leaver);
        let before = used(&pool);
        pool.event(Event::Cancel { job: leaver });
        let paid = used(&pool) - before;
        assert!(paid > 0, "in advance");
        if lives_on {
            pool.finish(leaver);
        }
        pool.wait(200 * MS);
        assert_eq!(used(&pool) < before + paid, lives_on);
    }
}

#[test]
fn a_job_that_is_late_and_does_not_return_holds_up_the_others_no_longer_than_the_grace() {
    let mut pool = pool(1);
    let hasty = pool.submit_with("tile", |request| request.deadline = Some(30 * MS));
    let other = pool.submit("tile");
    pool.wait(2 * MS);
    let worker = pool.start(hasty);
    pool.wait(28 * MS);
    assert_eq!(pool.outcome(hasty), Some(Timeout));
    pool.wait(99 * MS);
    assert!(pool.workers.contains_key(&worker));
    pool.wait(2 * MS);
    assert!(!pool.workers.contains_key(&worker));
    pool.run(other);
    assert_eq!((pool.outcome(other), pool.ended[&other].attempts), (Some(Ok), 1));
}
