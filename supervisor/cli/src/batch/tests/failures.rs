//! Tests of jobs that are tried again, and of batches that end because too many have failed.

use super::*;

/// A batch of `count` jobs that are all running, with retries.
fn retried(count: usize, most: u32) -> Batch {
    let retries = Retries { most, pause: Duration::from_millis(100) };
    let mut batch = Batch::new("task", BatchLimits { retries, ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(count), true);
    assert_eq!(steps(&mut batch).len(), count);
    batch
}

fn ended(code: OutcomeCode) -> Finished {
    let mut finished = failed(code);
    finished.report.attempts = 1;
    finished
}

#[test]
fn an_error_of_the_task_is_tried_again_after_pauses_and_each_attempt_is_in_the_result() {
    let mut batch = retried(2, 2);
    batch.on_finished(0, ended(OutcomeCode::AppError));
    assert_eq!(steps(&mut batch), ["rest 0 for 100 ms"]);
    batch.on_finished(1, ended(OutcomeCode::WorkerCrashed));
    assert!(steps(&mut batch).is_empty(), "nobody tries that again, and it waits for the first");
    batch.on_rested(0);
    assert_eq!(steps(&mut batch), ["submit 0"]);
    batch.on_finished(0, ended(OutcomeCode::AppError));
    assert_eq!(steps(&mut batch), ["rest 0 for 200 ms"]);
    batch.on_rested(0);
    steps(&mut batch);
    batch.on_finished(0, ended(OutcomeCode::AppError));
    let Some(BatchStep::Write(results)) = batch.next_step() else { panic!("that was its last attempt") };
    assert_eq!((results[0].finished.report.attempts, results[0].notes.earlier.len()), (3, 2));
    assert_eq!((results[1].finished.report.attempts, results[1].notes.earlier.len()), (1, 0));
}

#[test]
fn a_batch_that_ends_early_tries_nothing_again() {
    let mut batch = retried(2, 5);
    batch.on_finished(0, ended(OutcomeCode::AppError));
    assert_eq!(steps(&mut batch), ["rest 0 for 100 ms"]);
    batch.end_early(CancelledJobs::AreCounted, "interrupted");
    batch.on_rested(0);
    batch.on_finished(1, ended(OutcomeCode::AppError));
    assert_eq!(steps(&mut batch), ["write 0 1"]);
    batch.on_written();
    assert!(batch.is_complete());
}

#[test]
fn a_halt_counts_failures_in_whatever_order_they_come_and_is_asked_for_once() {
    let halt = Some(Halt { failures: 2, is_now: false });
    let mut batch = Batch::new("task", BatchLimits { halt, ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(4), false);
    steps(&mut batch);
    batch.on_finished(3, ended(OutcomeCode::AppError));
    assert!(steps(&mut batch).is_empty());
    batch.on_finished(2, ended(OutcomeCode::Timeout));
    assert_eq!(steps(&mut batch), ["halt now: false"]);
    batch.end_early(CancelledJobs::AreCounted, "interrupted");
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0"]);
    batch.on_written();
    batch.on_finished(1, ok("b"));
    assert_eq!(steps(&mut batch), ["write 1 2 3"]);
    batch.on_written();
    assert!(batch.is_complete());
    assert_eq!((batch.halted_after(), batch.tally().ok), (Some(2), 2));
}

#[test]
fn no_more_than_at_once_are_with_the_workers() {
    let mut batch = Batch::new("task", BatchLimits { at_once: 2, ..LIMITS });
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(literals(4), true);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1"]);
    batch.on_finished(1, ok("b"));
    assert_eq!(steps(&mut batch), ["submit 2"]);
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0 1", "submit 3"]);
}

#[test]
fn before_a_halt_soon_no_worker_has_a_second_job() {
    let halt = |is_now| Some(Halt { failures: 1, is_now });
    assert_eq!(jobs_at_once(halt(false), 3), 3);
    assert!(jobs_at_once(halt(true), 3) > 3 && jobs_at_once(None, 3) > 3);
}
