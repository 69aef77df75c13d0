//! A job whose time is up ends at its limit. Its worker is asked, and ended if it does not answer.

use offload_core::action::Kill;
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_run_that_takes_too_long_is_answered_at_its_limit_and_its_worker_is_asked_and_then_ended() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_ignore_term();
    let job = pool.submit_with("sum", |request| request.timeout = Some(300 * MS));
    let worker = pool.start(job);
    pool.wait(299 * MS);
    assert_eq!(pool.outcome(job), None);
    pool.wait(MS);
    assert_eq!(pool.outcome(job), Some(Timeout));
    assert_eq!(pool.message(job), "ran longer than 300 ms");
    assert_eq!(
        (pool.cancelled.as_slice(), pool.workers[&worker].signals.as_slice()),
        (&[(worker, job)][..], &[][..])
    );
    pool.wait(pool.core.config().cancel_grace);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
    pool.wait(pool.core.config().kill_grace);
    assert!(!pool.workers.contains_key(&worker), "it was killed after the grace");
}

/// A task that is told in time that nobody wants its output any more need not cost its worker.
#[test]
fn a_worker_whose_job_ends_soon_after_its_time_is_up_lives_on() {
    for limit in ["timeout", "deadline"] {
        let mut pool = PoolUnderTest::slots(1);
        let job = pool.submit_with("sum", |request| match limit {
            "timeout" => request.timeout = Some(300 * MS),
            _ => request.deadline = Some(300 * MS),
        });
        let worker = pool.start(job);
        pool.wait(300 * MS);
        assert_eq!(pool.outcome(job), Some(Timeout));
        assert_eq!(pool.cancelled, [(worker, job)]);
        pool.wait(pool.core.config().cancel_grace - MS);
        pool.finish(job);
        pool.wait(1000 * MS);
        assert_eq!(pool.workers[&worker].signals, []);
        let next = pool.submit("sum");
        assert_eq!(pool.start(next), worker);
    }
}

#[test]
fn the_run_time_does_not_count_while_a_job_waits() {
    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("sum");
    let second = pool.submit_with("sum", |request| request.timeout = Some(10 * MS));
    pool.start(first);
    pool.wait(1000 * MS);
    pool.finish(first);
    pool.run(second);
    assert_eq!(pool.outcome(second), Some(Ok));
}

#[test]
fn a_deadline_counts_the_waiting_and_an_expired_job_is_never_started() {
    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("sum");
    let second = pool.submit_with("sum", |request| request.deadline = Some(10 * MS));
    pool.start(first);
    pool.wait(20 * MS);
    assert_eq!(pool.outcome(second), Some(Timeout));
    assert_eq!(pool.ended[&second].attempts, 0);
    pool.finish(first);
    assert_eq!(pool.worker_with(second), None);
}

#[test]
fn the_result_of_a_job_that_was_given_up_is_not_delivered() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_ignore_term();
    let job = pool.submit_with("sum", |request| request.timeout = Some(MS));
    pool.start(job);
    pool.wait(2 * MS);
    pool.finish(job);
    assert_eq!(pool.outcome(job), Some(Timeout));
}
