//! What is learned from runs, and what is foretold of jobs that wait.

use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::registry::Class;
use offload_protocol::nouns::{FailureKind, Usage};
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn fail_after(pool: &mut PoolUnderTest, task: &str, run: Duration) {
    let job = pool.submit(task);
    let worker = pool.start(job);
    let (_, attempt) = pool.workers.get_mut(&worker).unwrap().given.pop_front().unwrap();
    pool.now = pool.now + run;
    let (kind, message, usage) = (FailureKind::AppError, "no".to_owned(), Usage::default());
    pool.event(Event::Failed { worker, job, attempt, run, kind, message, usage });
}

fn run_for(pool: &mut PoolUnderTest, task: &str, run: Duration) {
    let job = pool.submit(task);
    pool.start(job);
    pool.finish_after(job, run);
}

fn expected_wait(pool: &PoolUnderTest, job: JobId) -> Duration {
    pool.core.explain(pool.now, job).unwrap().waiting.unwrap().expected.unwrap()
}

/// How long such a job is expected to run, and its class.
fn expected_run(pool: &mut PoolUnderTest, task: &str) -> (Option<Duration>, Class) {
    let job = pool.submit(task);
    let told = pool.core.explain(pool.now, job).unwrap();
    pool.start(job);
    let worker = pool.worker_with(job).unwrap();
    pool.exit(worker, offload_core::exit::Exit::Signal(9));
    pool.wait(S);
    (told.expected_run, told.class)
}

fn of_client(pool: &mut PoolUnderTest, client: &str) -> JobId {
    pool.submit_with("charge", |request| request.client = client.into())
}

#[test]
fn a_job_waits_for_the_turns_of_the_clients_before_its_own_and_no_others() {
    let mut pool = PoolUnderTest::slots(1);
    run_for(&mut pool, "charge", 5 * S);
    let running = of_client(&mut pool, "r");
    pool.start(running);
    pool.now = pool.now + 2 * S;
    let first: Vec<JobId> = ["a", "b", "c"].map(|client| of_client(&mut pool, client)).into();
    let waits: Vec<Duration> = first.iter().map(|job| expected_wait(&pool, *job)).collect();
    assert_eq!(waits, [3 * S, 8 * S, 13 * S]);
    let second = of_client(&mut pool, "a");
    assert_eq!(expected_wait(&pool, second), 18 * S);
    let waiting = pool.core.explain(pool.now, first[1]).unwrap().waiting.unwrap();
    assert_eq!((waiting.clients, waiting.clients_before, waiting.ahead_of_its_own), (3, 1, 0));
    assert_eq!(waiting.holders, [(running, 2 * S)]);
    let mut runs = running;
    for next in first {
        pool.finish_after(runs, S);
        pool.start(next);
        runs = next;
    }
}

#[test]
fn a_run_that_failed_says_only_how_long_such_a_run_takes_at_least() {
    let mut pool = PoolUnderTest::slots(1);
    for _ in 0..10 {
        fail_after(&mut pool, "charge", MS / 2);
    }
    assert_eq!(expected_run(&mut pool, "charge"), (None, Class::Long), "none has shown how long it takes");
    run_for(&mut pool, "charge", 15 * S);
    for _ in 0..10 {
        fail_after(&mut pool, "charge", MS / 2);
    }
    assert_eq!(expected_run(&mut pool, "charge"), (Some(15 * S), Class::Long));
    fail_after(&mut pool, "charge", 31 * S);
    assert_eq!(expected_run(&mut pool, "charge").0, Some(23 * S));
}

/// Others would wait behind the next one that does not fail.
#[test]
fn a_task_that_fails_at_once_is_not_tiny() {
    let mut pool = PoolUnderTest::slots(1);
    run_for(&mut pool, "charge", 10 * S);
    for _ in 0..300 {
        fail_after(&mut pool, "charge", Duration::from_micros(3));
    }
    let [first, second] = [0; 2].map(|_| pool.submit("charge"));
    assert!(pool.worker_with(first).is_some() && pool.worker_with(second).is_none());
}

#[test]
fn the_first_job_of_a_task_runs_between_the_steps_of_a_long_one() {
    let mut pool = PoolUnderTest::slots(1);
    let long = pool.submit("climb");
    let worker = pool.start(long);
    let [first, second] = [0; 2].map(|_| pool.submit("sum"));
    let must_not_be_lost = pool.submit("charge");
    assert_eq!(pool.worker_with(first), Some(worker));
    pool.start(first);
    pool.finish_after(first, MS);
    // It was queued as one of which nothing is known.
    assert_eq!(pool.worker_with(second), Some(worker), "now such jobs are known to be short");
    pool.start(second);
    pool.finish_after(second, MS);
    assert_eq!(pool.worker_with(must_not_be_lost), None, "it would be, if the long one ended the worker");
}

#[test]
fn of_a_task_that_has_never_run_one_job_at_a_time_runs_between_steps() {
    let mut pool = PoolUnderTest::slots(2);
    for _ in 0..2 {
        let long = pool.submit("climb");
        pool.start(long);
    }
    let [first, second] = [0; 2].map(|_| pool.submit("sum"));
    assert!(pool.worker_with(first).is_some() && pool.worker_with(second).is_none());
    pool.start(first);
    pool.finish_after(first, S);
    assert_eq!(pool.worker_with(second), None, "such jobs are known to be long");
    let another_long_one = pool.submit("climb");
    assert_eq!(pool.worker_with(another_long_one), None, "one of its task runs");
}
