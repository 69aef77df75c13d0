//! The end of a supervisor beside requests that it has begun to answer.

use offload_core::event::{Event, JobRequest};
use offload_protocol::nouns::OutcomeCode::{Cancelled, Unavailable};
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const LIMIT: Duration = Duration::from_secs(10);

fn of_request(request: &mut JobRequest) {
    request.of_request = true;
}

fn drain(pool: &mut PoolUnderTest, limit: Option<Duration>) {
    pool.event(Event::RequestsInFlight { some: true });
    pool.event(Event::Drain { limit });
}

#[test]
fn a_request_that_was_accepted_before_a_drain_gets_its_jobs_done_one_after_another() {
    let mut pool = PoolUnderTest::slots(1);
    drain(&mut pool, None);
    assert!(!pool.is_over, "the request may still need a worker");
    for _ in 0..3 {
        assert_eq!(pool.refusal("sum").code, Unavailable, "of a client that came later");
        let job = pool.submit_with("sum", of_request);
        pool.run(job);
        assert!(!pool.is_over);
    }
    pool.event(Event::RequestsInFlight { some: false });
    assert!(pool.is_over);
}

#[test]
fn a_crash_meanwhile_is_made_good_as_at_any_time() {
    let mut pool = PoolUnderTest::slots(1);
    drain(&mut pool, None);
    let job = pool.submit_with("sum", |request| {
        of_request(request);
        request.attempts = Some(2);
    });
    pool.start(job);
    pool.crash_the_worker_running(job);
    pool.wait(Duration::from_secs(1));
    pool.run(job);
    pool.event(Event::RequestsInFlight { some: false });
    assert!(pool.is_over);
}

#[test]
fn a_job_that_such_a_request_left_is_finished() {
    let mut pool = PoolUnderTest::slots(1);
    drain(&mut pool, None);
    let job = pool.submit_with("sum", of_request);
    pool.start(job);
    pool.event(Event::RequestsInFlight { some: false });
    assert!(!pool.is_over);
    assert_eq!(pool.refusal_with("sum", of_request).code, Unavailable, "it is answered, and asks for more");
    pool.finish(job);
    assert!(pool.is_over);
}

#[test]
fn a_request_does_not_hold_up_the_end_for_longer_than_its_limit() {
    let mut pool = PoolUnderTest::slots(1);
    drain(&mut pool, Some(LIMIT));
    let job = pool.submit_with("sum", of_request);
    pool.start(job);
    pool.wait(LIMIT);
    assert_eq!(pool.outcome(job), Some(Cancelled));
    assert_eq!(pool.refusal_with("sum", of_request).code, Unavailable);
    pool.wait(pool.core.config().kill_grace);
    assert!(pool.is_over);
}

#[test]
fn a_stop_waits_for_no_request() {
    let mut pool = PoolUnderTest::slots(1);
    drain(&mut pool, None);
    pool.event(Event::Stop);
    assert!(pool.is_over);
}
