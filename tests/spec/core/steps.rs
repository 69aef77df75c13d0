//! Jobs that are done in steps: other jobs between the steps, checkpoints, and giving the worker to another job.

use offload_core::action::{Action, Kill};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::limits::CHECKPOINT_MAX;
use offload_protocol::nouns::{OutcomeCode::*, Usage};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// One slot, in which `sum` is known to be short.
fn pool() -> PoolUnderTest {
    let config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    for task in ["sum", "charge"] {
        for _ in 0..3 {
            let job = pool.submit(task);
            pool.start(job);
            pool.finish_after(job, MS);
        }
    }
    pool
}

fn started(pool: &mut PoolUnderTest, task: &str) -> (JobId, WorkerId) {
    let job = pool.submit(task);
    (job, pool.start(job))
}

#[test]
fn a_short_job_is_run_between_the_steps_of_a_long_one() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    let short = pool.submit("sum");
    assert_eq!(pool.worker_with(short), Some(worker));
    pool.run(short);
    assert_eq!(pool.outcome(short), Some(Ok));
    pool.finish(long);
    assert_eq!(pool.outcome(long), Some(Ok));
}

#[test]
fn a_job_that_must_not_be_lost_with_the_long_one_waits() {
    let mut pool = pool();
    started(&mut pool, "climb");
    let charge = pool.submit("charge");
    assert_eq!(pool.worker_with(charge), None);
}

#[test]
fn nothing_is_run_beside_a_job_that_does_not_work_in_steps() {
    let mut pool = pool();
    started(&mut pool, "sum");
    let other = pool.submit("sum");
    assert_eq!(pool.worker_with(other), None);
}

#[test]
fn the_clocks_of_a_suspended_job_stand_still() {
    let mut pool = pool();
    let long = pool.submit_with("climb", |request| request.timeout = Some(2 * SECOND));
    let worker = pool.start(long);
    let short = pool.submit_with("sum", |request| request.timeout = Some(10 * SECOND));
    pool.start(short);
    pool.wait(5 * SECOND);
    assert_eq!(pool.outcome(long), None, "it has not run for five seconds, the other one has");
    pool.finish(short);
    pool.wait(SECOND);
    pool.event(Event::Progress { worker, job: long, attempt: 1, done: 1, total: 2 });
    pool.wait(999 * MS);
    assert_eq!(pool.outcome(long), None);
    pool.wait(2 * MS);
    assert_eq!(pool.outcome(long), Some(Timeout));
}

#[test]
fn a_long_job_whose_worker_a_short_one_ended_is_not_to_blame() {
    let mut pool = pool();
    let (long, _) = started(&mut pool, "climb");
    let short = pool.submit("sum");
    let worker = pool.start(short);
    pool.exit(worker, Exit::Signal(11));
    pool.start(long);
    assert_eq!(pool.worker_with(short), None, "jobs that were lost together are left alone");
    let another = pool.submit("sum");
    assert_eq!(pool.worker_with(another), None, "and nobody else is let in");
    pool.finish(long);
    assert_eq!(pool.outcome(long), Some(Ok));
    for _ in 0..2 {
        let worker = pool.start(short);
        pool.exit(worker, Exit::Signal(11));
    }
    assert_eq!(pool.outcome(short), Some(Poison));
    assert!(pool.ended[&long].lost.iter().all(|lost| !lost.is_blamed));
    assert!(pool.ended[&short].lost.iter().filter(|lost| lost.is_blamed).count() == 3);
}

#[test]
fn a_job_whose_worker_ended_goes_on_from_its_last_checkpoint() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    pool.event(Event::Checkpoint { worker, job: long, attempt: 1, bytes: 100 });
    assert_eq!(pool.kept[&long], 1);
    assert_eq!(pool.core.jobs().held_bytes(), 110);
    pool.exit(worker, Exit::Signal(9));
    let other = pool.worker_with(long).expect("it is given to another one");
    assert_eq!(pool.workers[&other].resumed, [long]);
    pool.run(long);
    assert_eq!(pool.ended[&long].attempts, 2);
    assert_eq!(pool.core.jobs().held_bytes(), 0);
}

#[test]
fn a_checkpoint_over_the_limit_ends_its_worker() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    let bytes = CHECKPOINT_MAX as u64 + 1;
    pool.event(Event::Checkpoint { worker, job: long, attempt: 1, bytes });
    assert!(!pool.workers.contains_key(&worker));
    assert!(pool.kept.is_empty());
}

#[test]
fn a_job_that_does_not_say_how_far_it_is_as_it_promised_is_ended_and_tried_again() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    for done in 1..=5 {
        pool.wait(SECOND);
        pool.event(Event::Progress { worker, job: long, attempt: 1, done, total: 9 });
    }
    assert!(pool.workers.contains_key(&worker));
    let hang_timeout = pool.core.config().hang_timeout;
    pool.wait(SECOND + hang_timeout);
    assert!(!pool.workers.contains_key(&worker));
    assert!(pool.worker_with(long).is_some_and(|other| other != worker));
    pool.run(long);
    assert_eq!(pool.ended[&long].lost[0].code, Timeout);
}

/// A worker that has done as many jobs as it may is replaced: the long job on it is asked to go on elsewhere.
#[test]
fn a_worker_that_is_to_be_replaced_gives_its_long_job_back_and_nothing_is_counted_against_that() {
    let config =
        CoreConfig { workers: 1, spares: 1, max_rss: Some(1000), max_attempts: 1, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let (long, worker) = started(&mut pool, "climb");
    pool.event(Event::Measured { worker, resident_bytes: 1001 });
    assert_eq!(pool.asked_to_yield, [(worker, long)]);
    pool.now = pool.now + 700 * MS;
    let given = &mut pool.workers.get_mut(&worker).unwrap().given;
    given.clear();
    pool.event(Event::Yielded { worker, job: long, attempt: 1, run: 700 * MS, bytes: 50 });
    let other = pool.worker_with(long).expect("it goes on elsewhere");
    assert_ne!(other, worker);
    assert_eq!(pool.workers[&other].resumed, [long]);
    assert!(!pool.workers.contains_key(&worker), "it was dismissed");
    pool.start(long);
    pool.finish_after(long, 300 * MS);
    let ended = &pool.ended[&long];
    assert_eq!((ended.outcome, ended.attempts, ended.run), (Ok, 2, 1000 * MS));
}

#[test]
fn yielding_unasked_is_against_the_rules() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    pool.event(Event::Yielded { worker, job: long, attempt: 1, run: MS, bytes: 50 });
    assert!(!pool.workers.contains_key(&worker));
}

#[test]
fn a_suspended_job_can_be_cancelled_without_harm_to_the_one_that_runs() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    let short = pool.submit("sum");
    pool.start(short);
    pool.event(Event::Cancel { job: long });
    assert_eq!(pool.outcome(long), Some(Cancelled));
    pool.wait(10 * MS);
    pool.finish(short);
    assert_eq!(pool.outcome(short), Some(Ok));
    let usage = Usage::default();
    pool.event(Event::Finished { worker, job: long, attempt: 1, run: MS, usage, output_bytes: 0 });
    let next = pool.submit("charge");
    assert_eq!(pool.worker_with(next), Some(worker));
}

/// The actions of one event are what the shell does, in order: the checkpoint must be known before its job is run.
#[test]
fn a_resumed_run_says_that_it_is_one() {
    let mut pool = pool();
    let (long, worker) = started(&mut pool, "climb");
    pool.event(Event::Checkpoint { worker, job: long, attempt: 1, bytes: 1 });
    let mut actions = Vec::new();
    let exit = Exit::Signal(9);
    pool.core.handle(
        pool.now,
        Event::Exited { worker, exit, last_lines: Vec::new(), usage: None },
        &mut actions,
    );
    let spawned = actions.iter().find_map(|action| match action {
        Action::Spawn { worker, .. } => Some(*worker),
        _ => None,
    });
    actions.clear();
    let hello =
        Event::Hello { worker: spawned.unwrap(), tasks: tests::pool_under_test::offers(), takes_files: true };
    pool.core.handle(pool.now, hello, &mut actions);
    let is_resumed =
        |action: &Action| matches!(action, Action::Run { job, attempt: 2, resume: true, .. } if *job == long);
    assert!(actions.iter().any(is_resumed), "{actions:?}");
}

#[test]
fn nothing_waits_behind_a_job_with_steps_however_short_it_should_be() {
    let mut pool = pool();
    for task in ["climb", "charge"] {
        for _ in 0..60 {
            let job = pool.submit(task);
            pool.start(job);
            pool.finish_after(job, Duration::from_micros(1));
        }
    }
    started(&mut pool, "climb");
    let charge = pool.submit("charge");
    assert_eq!(pool.worker_with(charge), None, "it would be started between the steps, and must not be lost");
}

#[test]
fn a_job_that_asks_for_one_attempt_lets_nothing_in() {
    let mut pool = pool();
    let long = pool.submit_with("climb", |request| request.attempts = Some(1));
    pool.start(long);
    let short = pool.submit("sum");
    assert_eq!(pool.worker_with(short), None, "if it ended the worker, the other one would be lost");
}

#[test]
fn a_job_is_not_blamed_for_what_its_worker_does_when_that_is_ended_because_of_another() {
    let mut pool = pool();
    pool.workers_ignore_term();
    let (long, worker) = started(&mut pool, "climb");
    let short = pool.submit_with("sum", |request| request.timeout = Some(2 * MS));
    pool.start(short);
    pool.wait(3 * MS);
    assert_eq!(pool.outcome(short), Some(Timeout));
    pool.event(Event::Violation { worker, message: "not a frame".to_owned() });
    assert!(!pool.workers.contains_key(&worker), "it is not waited for any more");
    pool.start(long);
    pool.finish(long);
    assert_eq!(pool.outcome(long), Some(Ok));
    assert_eq!(pool.ended[&long].lost.len(), 1);
    assert!(!pool.ended[&long].lost[0].is_blamed);
}

#[test]
fn a_deadline_that_passes_while_a_job_runs_names_the_attempt() {
    let mut pool = pool();
    let late = pool.submit_with("charge", |request| request.deadline = Some(SECOND));
    pool.start(late);
    pool.wait(2 * SECOND);
    let ended = &pool.ended[&late];
    let lost: Vec<_> = ended.lost.iter().map(|lost| (lost.attempt, lost.code, lost.is_blamed)).collect();
    assert_eq!((ended.outcome, lost), (Timeout, vec![(1, Timeout, true)]));
    assert_eq!(ended.lost[0].place, ended.place);
}

#[test]
fn a_deadline_that_passes_while_a_job_is_suspended_names_the_attempt_and_blames_it_for_nothing() {
    let mut pool = pool();
    let late = pool.submit_with("climb", |request| request.deadline = Some(SECOND));
    pool.start(late);
    let short = pool.submit("sum");
    pool.start(short);
    pool.wait(2 * SECOND);
    let ended = &pool.ended[&late];
    let lost: Vec<_> = ended.lost.iter().map(|lost| (lost.attempt, lost.code, lost.is_blamed)).collect();
    assert_eq!((ended.outcome, lost), (Timeout, vec![(1, Timeout, false)]));
}

#[test]
fn a_job_that_is_cancelled_while_it_is_suspended_has_a_moment_to_end_when_it_goes_on() {
    let mut pool = pool();
    pool.workers_ignore_term();
    let (long, worker) = started(&mut pool, "climb");
    let short = pool.submit("sum");
    pool.start(short);
    pool.wait(5 * SECOND);
    pool.event(Event::Cancel { job: long });
    pool.wait(SECOND);
    pool.finish(short);
    let grace = pool.core.config().cancel_grace;
    pool.wait(grace - MS);
    assert!(pool.workers[&worker].signals.is_empty());
    pool.wait(2 * MS);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
}
