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
fn where_nobody_runs_jobs_any_more_nothing_is_tried_again_and_no_room_is_waited_for() {
    let mut batch = retried(2, 5);
    batch.on_finished(0, ended(OutcomeCode::AppError));
    batch.on_finished(1, refused_for(OutcomeCode::Overloaded, None));
    assert_eq!(steps(&mut batch), ["pause 0 of 50 ms", "rest 0 for 100 ms"]);
    batch.on_lost();
    assert_eq!(steps(&mut batch), ["write 0", "submit 1"]);
    batch.on_written();
    batch.on_finished(1, ended(OutcomeCode::Unavailable));
    assert_eq!(steps(&mut batch), ["write 1"]);
    batch.on_written();
    assert!(batch.is_complete());
}

/// The number of each result that is written, its attempts, and how it ended.
fn written(batch: &mut Batch) -> Vec<(u64, u32, OutcomeCode)> {
    let mut written = Vec::new();
    while let Some(step) = batch.next_step() {
        let BatchStep::Write(results) = step else { panic!("it only writes: {step:?}") };
        let about = |result: &NumberedResult| {
            (result.index, result.finished.report.attempts, result.finished.report.outcome)
        };
        written.extend(results.iter().map(about));
        batch.on_written();
    }
    written
}

#[test]
fn what_was_to_be_tried_again_at_an_early_end_has_its_last_result_wherever_it_waits() {
    let retries = Retries { most: 5, pause: Duration::ZERO };
    let mut batch = Batch::new("task", BatchLimits { retries, jobs: 7, at_once: 6, ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(7), false);
    assert_eq!(steps(&mut batch).len(), 6);
    for index in 0..5 {
        batch.on_finished(index, ended(OutcomeCode::AppError));
    }
    // Job 5 runs, and 6 too from now on; the others rest.
    assert_eq!(steps(&mut batch).len(), 6);
    batch.on_rested(0);
    assert_eq!(steps(&mut batch), ["submit 0"]);
    batch.on_rested(1);
    batch.on_rested(2);
    assert_eq!(steps(&mut batch), ["submit 1", "submit 2"]);
    batch.on_finished(1, refused_for(OutcomeCode::Overloaded, None));
    batch.on_rested(3);
    assert_eq!(batch.unwritten(), 7, "0, 2, 5 and 6 run, 1 and 3 can be submitted, 4 rests");
    // Such a file is opened anew, which takes its time.
    let loaded = batch.loaded.remove(&3);
    batch.waiting.push_front((3, Input::File("x".into())));
    assert_eq!((loaded.is_some(), batch.unwritten()), (true, 7));
    let Some(BatchStep::Pause { .. }) = batch.next_step() else { panic!("there was no room") };
    assert_eq!((steps(&mut batch), batch.unwritten()), (vec!["load 3".to_owned()], 7));
    batch.end_early(CancelledJobs::AreCounted, "interrupted");
    batch.on_loaded(3, Err(Unreadable { code: OutcomeCode::IoError, message: "no".to_owned() }));
    batch.on_finished(0, refused_for(OutcomeCode::Quota, None));
    batch.on_finished(2, ended(OutcomeCode::AppError));
    batch.on_finished(5, ended(OutcomeCode::Cancelled));
    batch.on_finished(6, refused_for(OutcomeCode::Quota, None));
    let failed = |index, attempts| (index, attempts, OutcomeCode::AppError);
    assert_eq!(written(&mut batch), [failed(0, 1), failed(1, 1), failed(2, 2), failed(3, 1), failed(4, 1)]);
    assert!(batch.is_complete() && batch.notes.is_empty());
    let not_done = NotDone { cancelled: 1, unknown: 0, not_submitted: 1, is_partly_read: true };
    assert_eq!(batch.not_done(), not_done);
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
