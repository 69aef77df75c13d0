//! Pauses, as the core decides about them: of a paused task nothing starts, whatever had been prepared for it.

use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, TaskIndex};
use offload_core::jobs::JobState;
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

fn task(pool: &PoolUnderTest, name: &str) -> Option<TaskIndex> {
    pool.core.registry().find(name)
}

fn pause(pool: &mut PoolUnderTest, name: &str) {
    let task = task(pool, name);
    pool.event(Event::Pause { task });
}

fn resume(pool: &mut PoolUnderTest, name: &str) {
    let task = task(pool, name);
    pool.event(Event::Resume { task });
}

fn waits(pool: &PoolUnderTest, job: JobId) -> bool {
    pool.core.jobs().get(job).is_some_and(|job| matches!(job.state, JobState::Queued | JobState::Paused))
}

#[test]
fn of_a_paused_task_nothing_starts_and_another_task_has_its_worker() {
    let mut pool = PoolUnderTest::slots(1);
    pause(&mut pool, "sum");
    let paused = pool.submit("sum");
    let other = pool.submit("charge");
    assert!(waits(&pool, paused) && pool.worker_with(other).is_some());
    pool.run(other);
    assert!(waits(&pool, paused), "its worker is idle");
    resume(&mut pool, "sum");
    pool.run(paused);
    assert_eq!(pool.outcome(paused), Some(OutcomeCode::Ok));
}

#[test]
fn whoever_is_refused_because_of_paused_jobs_is_not_told_to_ask_again_at_once() {
    let config = CoreConfig { workers: 1, max_jobs: 3, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pause(&mut pool, "sum");
    while pool.accepts("sum", |_| ()) {}
    assert_eq!(pool.rejected.last().and_then(|error| error.retry_after_ms), Some(10_000));
}

#[test]
fn a_job_that_was_lost_with_its_worker_waits_for_the_end_of_the_pause() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    pool.start(job);
    pool.event(Event::Pause { task: None });
    pool.crash_the_worker_running(job);
    pool.wait(60 * 1000 * MS);
    assert!(waits(&pool, job), "a worker is there again");
    // All are paused, so one alone stays so.
    resume(&mut pool, "sum");
    assert!(waits(&pool, job));
    pool.event(Event::Resume { task: None });
    assert!(pool.worker_with(job).is_some());
}

#[test]
fn what_lies_in_a_tray_is_taken_back() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_have_trays();
    let first = pool.submit("sum");
    pool.start(first);
    pool.finish_after(first, MS);
    let (running, next) = (pool.submit("sum"), pool.submit("sum"));
    pool.start(running);
    assert!(pool.tray_with(next).is_some(), "it is prefetched");
    pause(&mut pool, "sum");
    assert!(pool.tray_with(next).is_none() && waits(&pool, next));
    pool.finish_after(running, MS);
    assert!(waits(&pool, next));
    resume(&mut pool, "sum");
    assert!(pool.worker_with(next).is_some());
}

#[test]
fn a_deadline_passes_during_a_pause_and_a_task_that_does_not_exist_is_no_pause() {
    let mut pool = PoolUnderTest::slots(1);
    pause(&mut pool, "sum");
    let job = pool.submit_with("sum", |request| request.deadline = Some(5 * MS));
    pool.wait(6 * MS);
    assert_eq!(pool.outcome(job), Some(OutcomeCode::Timeout));
    pool.event(Event::Pause { task: Some(1000) });
    assert_eq!(pool.core.pauses().names().count(), 1);
}

/// The only worker ends, and the next one offers these tasks.
fn replaced_by_one_that_offers(pool: &mut PoolUnderTest, tasks: &[&str]) {
    pool.workers_start_with(Start::Wait);
    let old = *pool.workers.keys().next().unwrap();
    pool.exit(old, Exit::Signal(9));
    pool.wait(Duration::from_secs(1));
    let worker = *pool.workers.keys().next().unwrap();
    let tasks = offers().into_iter().filter(|offer| tasks.contains(&&*offer.name)).collect();
    pool.event(Event::Hello { worker, tasks, takes_files: true });
}

#[test]
fn a_pause_goes_on_while_nobody_offers_the_task_and_when_somebody_does_again() {
    let mut pool = PoolUnderTest::slots(1);
    let waiting = pool.submit("sum");
    pause(&mut pool, "sum");
    let before = task(&pool, "sum");
    replaced_by_one_that_offers(&mut pool, &["charge"]);
    assert_eq!(task(&pool, "sum"), None);
    assert_eq!(pool.outcome(waiting), Some(OutcomeCode::Unavailable), "as if there were no pause");
    replaced_by_one_that_offers(&mut pool, &["sum", "charge"]);
    assert_eq!(task(&pool, "sum"), before, "it is the same task");
    let new = pool.submit("sum");
    assert!(waits(&pool, new));
    resume(&mut pool, "sum");
    pool.run(new);
}
