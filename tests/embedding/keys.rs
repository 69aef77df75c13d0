//! Callers that submit a job under one idempotency key: whoever gives it up leaves alone.

use super::runtimes::block_on;
use super::{Running, config, end_of, endless, outcome_of};
use offload_supervisor::limits::SUBSCRIBERS_MAX;
use offload_supervisor::protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::{ComputePool, EventLoop, HandleLimits, Job, Level, PoolConfig};
use std::cell::Cell;
use std::rc::Rc;

/// It waits behind the job of [`in_front`], so it has not ended when somebody gives it up.
fn keyed() -> Job {
    Job::new("echo").input("the same").client("me").idempotency_key("key")
}

fn in_front() -> Job {
    Job::new("sleep").input("50").client("me")
}

#[test]
fn a_call_that_is_dropped_leaves_the_job_of_its_key_to_the_others() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let front = pool.call(in_front());
    let [first, second] = [pool.call(keyed()), pool.call(keyed())];
    let reached_end = Rc::new(Cell::new(false));
    let reached = Rc::clone(&reached_end);
    drop(event_loop.spawn(async move {
        drop(first);
        assert_eq!(front.await.report.outcome, OutcomeCode::Ok);
        let second = second.await;
        assert_eq!((second.report.outcome, &*second.output), (OutcomeCode::Ok, &b"the same"[..]));
        let third = pool.call(keyed()).await;
        assert_eq!(third, second, "a key gives the same job and the same result");
        reached.set(true);
    }));
    event_loop.run().unwrap();
    assert!(reached_end.get());
}

/// Nobody waits for it any more, and it is not poisoned for whoever comes next.
#[test]
fn a_job_with_a_key_goes_on_without_its_only_caller_and_one_without_does_not() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    drop(pool.call(in_front()));
    drop(pool.call(keyed()));
    event_loop.run().unwrap();
    let status = pool.status();
    assert_eq!((status.jobs["cancelled"], status.jobs["ok"]), (1, 1), "{:?}", status.jobs);
}

#[test]
fn callers_that_have_left_take_no_room_of_those_that_wait() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(PoolConfig { log: Level::Quiet, ..config(1) }, &event_loop).unwrap();
    let front = pool.call(in_front());
    for _ in 0..=SUBSCRIBERS_MAX {
        drop(pool.call(keyed()));
    }
    let outcome = Rc::new(Cell::new(OutcomeCode::Cancelled));
    let told = Rc::clone(&outcome);
    pool.submit(keyed(), move |finished, _| told.set(finished.report.outcome));
    drop(event_loop.spawn(front));
    event_loop.run().unwrap();
    assert_eq!(outcome.get(), OutcomeCode::Ok);
}

/// There are five places: with two jobs of its own and one of another client, it has to wait for a third.
#[test]
fn a_pending_job_that_is_dropped_leaves_the_job_of_its_key_to_the_others_and_its_place_is_free() {
    let running = Running::with(config(1), Some(HandleLimits { jobs: 5, bytes: 1 << 20 }));
    let handle = running.handle.client("me");
    let front = running.handle.submit(endless());
    let [first, second] = [handle.submit(keyed()), handle.submit(keyed())];
    // When this one is refused, the pool has the others.
    assert_eq!(outcome_of(running.handle.submit(Job::new("no_such_task"))), OutcomeCode::UnknownTask);
    drop(first);
    let third = block_on(handle.reserve()).expect("the pool is there").submit(keyed());
    drop(front);
    let [second, third] = [second, third].map(end_of);
    assert_eq!((second.report.outcome, &*second.output), (OutcomeCode::Ok, &b"the same"[..]));
    assert_eq!(third, second, "a key gives the same job and the same result");
    drop(handle);
    running.ends_by_itself();
}

/// The other setters may come in any order, too.
#[test]
fn a_key_before_the_input_tells_inputs_apart_and_is_the_same_as_one_behind_it() {
    let running = Running::with_workers(1);
    let submit = |job: Job| end_of(running.handle.submit(job.client("me")));
    let before = |input: &str| Job::new("echo").idempotency_key("key").input(input.to_owned());
    let first = submit(before("one"));
    assert_eq!(first.output, "one");
    assert_eq!(submit(before("two")).report.outcome, OutcomeCode::Conflict);
    assert_eq!(submit(Job::new("echo").input("one").idempotency_key("key")), first);
    let other_type = before("one").media_type(MediaType::JSON);
    assert_eq!(submit(other_type).report.outcome, OutcomeCode::Conflict);
    running.ends_by_itself();
}
