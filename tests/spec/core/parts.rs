//! Outputs in parts: who gets them, when a worker may send more, and that a job whose parts were delivered is not run again.

use offload_core::config::CoreConfig;
use offload_core::event::{Event, Key};
use offload_core::exit::Exit;
use offload_core::ids::JobId;
use offload_core::ledger::Holding;
use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::{FakeParts, PoolUnderTest, Start};

const PART: u64 = PART_MAX as u64;
const MS: Duration = Duration::from_millis(1);

/// A pool with one worker, which runs a job of this task whose output is a stream.
fn streaming(task: &str) -> (PoolUnderTest, JobId) {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with(task, |request| request.stream = true);
    pool.start(job);
    (pool, job)
}

fn take(pool: &mut PoolUnderTest, job: JobId, bytes: u64) {
    pool.event(Event::Delivered { job, bytes });
}

fn outgoing(pool: &PoolUnderTest) -> u64 {
    pool.core.ledger().all().of(Holding::Outgoing)
}

#[test]
fn parts_for_one_answer_are_collected_and_their_credit_comes_back_at_once() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    pool.start(job);
    (0..100).for_each(|_| pool.part(job, PART));
    let parts = pool.parts[&job];
    assert_eq!((parts.collected, parts.passed_on), (100, 0));
    assert!(parts.credit + PARTS_CREDIT >= 100 * PART);
    assert_eq!(outgoing(&pool), 100 * PART);
    pool.finish_with(job, MS, 7);
    assert_eq!(pool.outcome(job), Some(Ok));
    assert_eq!(outgoing(&pool), 100 * PART + 7, "until the shell has delivered all of it");
}

#[test]
fn parts_that_are_too_long_for_one_answer_end_the_job_and_its_worker_lives() {
    let config = CoreConfig { workers: 1, spares: 0, max_payload: 2 * PART, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let job = pool.submit("charge");
    let worker = pool.start(job);
    pool.part(job, PART);
    pool.part(job, PART);
    assert_eq!(pool.outcome(job), None);
    pool.part(job, 1);
    assert_eq!(pool.outcome(job), Some(AppError));
    assert!(pool.message(job).contains("more than 131072 bytes"), "{}", pool.message(job));
    pool.finish(job);
    assert!(pool.workers[&worker].signals.is_empty());

    let job = pool.submit("charge");
    pool.start(job);
    pool.part(job, PART);
    pool.finish_with(job, MS, PART + 1);
    assert_eq!(pool.outcome(job), Some(AppError), "what it returns counts too");
}

#[test]
fn a_reader_that_takes_nothing_stops_its_task_and_one_that_takes_half_lets_it_go_on() {
    let (mut pool, job) = streaming("charge");
    (0..4).for_each(|_| pool.part(job, PART));
    assert_eq!(pool.parts[&job], FakeParts { passed_on: 4, ..FakeParts::default() });
    take(&mut pool, job, PART);
    assert_eq!(pool.parts[&job].credit, 0, "credit is given in halves");
    take(&mut pool, job, PART);
    assert_eq!(pool.parts[&job].credit, 2 * PART);
    take(&mut pool, job, 1000 * PART);
    assert_eq!(pool.parts[&job].credit, 4 * PART, "nobody takes more than was sent");
}

#[test]
fn a_worker_that_sends_more_than_its_credit_or_a_part_of_a_wrong_length_is_killed() {
    for parts in [&[PART, PART, PART, PART, 1][..], &[0], &[PART + 1]] {
        let (mut pool, job) = streaming("charge");
        parts.iter().for_each(|bytes| pool.part(job, *bytes));
        assert_eq!(pool.outcome(job), Some(WorkerProtocol), "{parts:?}");
    }
    let (mut pool, job) = streaming("climb");
    let worker = pool.worker_with(job).unwrap();
    pool.part(job, 1);
    assert!(!pool.workers.contains_key(&worker), "a task in steps has no parts");
}

#[test]
fn a_part_of_a_job_that_does_not_run_is_a_violation() {
    let mut pool = PoolUnderTest::slots(1);
    let (job, other) = (pool.submit("sum"), pool.submit("sum"));
    let worker = pool.start(job);
    pool.event(Event::Part { worker, job: other, attempt: 1, bytes: 1 });
    assert_ne!(pool.worker_with(job), Some(worker));
    let worker = pool.start(job);
    pool.finish(job);
    pool.event(Event::Part { worker, job, attempt: 2, bytes: 1 });
    assert!(!pool.workers.contains_key(&worker));
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn a_job_whose_parts_were_only_collected_is_run_again_without_them() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    let worker = pool.start(job);
    pool.part(job, 5);
    pool.exit(worker, Exit::Signal(11));
    assert_eq!((pool.outcome(job), pool.parts[&job].dropped), (None, 1));
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn a_stream_of_which_nothing_was_taken_is_run_again_and_one_that_was_read_is_not() {
    let (mut pool, job) = streaming("sum");
    pool.part(job, 5);
    let worker = pool.worker_with(job).unwrap();
    pool.exit(worker, Exit::Signal(11));
    assert_eq!((pool.outcome(job), pool.parts[&job].dropped), (None, 1));
    let worker = pool.start(job);
    pool.part(job, 5);
    take(&mut pool, job, 5);
    pool.exit(worker, Exit::Signal(11));
    assert_eq!(pool.outcome(job), Some(WorkerCrashed));
    let message = "signal 11 (SIGSEGV) in attempt 2 of 2; it is not run again, because parts of its output were delivered";
    assert_eq!(pool.message(job), message);
    assert_eq!(pool.parts[&job].dropped, 1, "the reader gets what it has not taken");
}

#[test]
fn a_stream_that_was_read_is_not_run_again_either_if_its_worker_is_ended_for_another_reason() {
    let (mut pool, job) = streaming("sum");
    pool.part(job, 5);
    take(&mut pool, job, 1);
    let worker = pool.worker_with(job).unwrap();
    pool.event(Event::Garbled { worker, message: "nonsense".to_owned() });
    assert_eq!(pool.outcome(job), Some(WorkerProtocol));
}

#[test]
fn the_run_timeout_goes_on_while_a_task_waits_for_its_reader() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with("sum", |request| {
        (request.stream, request.timeout) = (true, Some(Duration::from_secs(1)));
    });
    pool.start(job);
    (0..4).for_each(|_| pool.part(job, PART));
    pool.wait(999 * MS);
    assert_eq!(pool.outcome(job), None);
    pool.wait(MS);
    assert_eq!(pool.outcome(job), Some(Timeout));
}

#[test]
fn when_the_reader_leaves_the_task_goes_on_and_what_it_sends_is_thrown_away() {
    let (mut pool, job) = streaming("charge");
    (0..4).for_each(|_| pool.part(job, PART));
    pool.event(Event::Abandoned { job });
    assert_eq!(pool.parts[&job].credit, 4 * PART);
    let (held, passed_on) = (outgoing(&pool), pool.parts[&job].passed_on);
    (0..100).for_each(|_| pool.part(job, PART));
    assert_eq!((outgoing(&pool), pool.parts[&job].passed_on), (held, passed_on));
    pool.finish(job);
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn parts_of_a_cancelled_job_are_dropped_and_no_credit_is_given_for_them() {
    let (mut pool, job) = streaming("charge");
    let worker = pool.worker_with(job).unwrap();
    pool.event(Event::Cancel { job });
    (0..4).for_each(|_| pool.event(Event::Part { worker, job, attempt: 1, bytes: PART }));
    assert!(!pool.parts.contains_key(&job));
    assert_eq!(outgoing(&pool), 0);
    pool.event(Event::Part { worker, job, attempt: 1, bytes: 1 });
    assert!(!pool.workers.contains_key(&worker), "its credit is used up");
}

#[test]
fn nothing_waits_behind_a_stream_and_it_teaches_nothing_about_its_task() {
    let mut pool = PoolUnderTest::slots(1);
    for _ in 0..20 {
        let tiny = pool.submit("sum");
        pool.start(tiny);
        pool.finish_after(tiny, Duration::from_micros(1));
    }
    let stream = pool.submit_with("sum", |request| request.stream = true);
    let other = pool.submit("sum");
    assert_eq!(pool.worker_with(other), None, "a tiny job would be given to the same worker");
    pool.start(stream);
    pool.part(stream, 1);
    pool.finish_after(stream, Duration::from_secs(10));
    let (first, second) = (other, pool.submit("sum"));
    assert!(pool.worker_with(first).is_some() && pool.worker_with(second).is_some(), "it is tiny as before");
}

#[test]
fn a_stream_is_neither_kept_nor_has_it_a_key() {
    let mut pool = PoolUnderTest::slots(1);
    let kept = pool.refusal_with("sum", |request| (request.stream, request.keeps_output) = (true, true));
    let key = Some(Key { name: "k".to_owned(), digest: 1 });
    let named = pool.refusal_with("sum", |request| (request.stream, request.key) = (true, key));
    assert_eq!((kept.code, named.code), (BadRequest, BadRequest));
}
