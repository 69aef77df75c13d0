//! Tests of small batches, and of random ones against the invariants of all batches.

use super::room::CALM_RESULTS;
use super::*;
use crate::keeper::Printed;
use bytes::Bytes;
use offload_protocol::nouns::MediaType;
use proptest::prelude::*;

const LIMITS: BatchLimits = BatchLimits {
    jobs: 4,
    at_once: 1000,
    at_first: 1000,
    bytes: 1000,
    payload: 100,
    payload_setting: "--max-payload",
    failures: None,
    kept: Kept { in_files: false, in_log: false },
    retries: Retries { most: 0, pause: Duration::ZERO },
    halt: None,
};

fn literals(count: usize) -> Vec<BatchInput> {
    vec![Input::Literal(b"0123456789".to_vec()).into(); count]
}

fn ok(output: &'static str) -> Finished {
    let mut finished = refused("task", OutcomeCode::Ok, String::new());
    finished.output = Bytes::from_static(output.as_bytes());
    finished
}

fn failed(code: OutcomeCode) -> Finished {
    refused("task", code, String::new())
}

/// Takes all steps there are and says them briefly.
fn steps(batch: &mut Batch) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(step) = batch.next_step() {
        said.push(match step {
            BatchStep::Read { most } => format!("read {most}"),
            BatchStep::Load { index, .. } => format!("load {index}"),
            BatchStep::Submit { index, .. } => format!("submit {index}"),
            BatchStep::Rest { index, pause } => format!("rest {index} for {} ms", pause.as_millis()),
            BatchStep::Halt { is_now } => format!("halt now: {is_now}"),
            BatchStep::Keep(results) => {
                let indices = results.iter().map(|numbered| numbered.index.to_string());
                format!("keep {}", indices.collect::<Vec<_>>().join(" "))
            }
            BatchStep::Write(results) => {
                let indices = results.iter().map(|numbered| numbered.index.to_string());
                format!("write {}", indices.collect::<Vec<_>>().join(" "))
            }
            BatchStep::Pause { at_least, number, .. } => {
                format!("pause {number} of {} ms", at_least.as_millis())
            }
        });
    }
    said
}

#[test]
fn results_are_written_in_input_order_as_soon_as_the_first_ones_are_there() {
    let mut batch = Batch::new("task", LIMITS);
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(literals(3), true);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1", "submit 2"]);
    batch.on_finished(2, ok("c"));
    batch.on_finished(1, ok("b"));
    assert!(steps(&mut batch).is_empty());
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0 1 2"]);
    assert!(!batch.is_complete());
    batch.on_written();
    assert!(batch.is_complete());
    assert_eq!(batch.tally(), BatchTally { ok: 3, failed: 0, first_failure: None, run_us: 0 });
}

#[test]
fn an_empty_source_is_complete_at_once() {
    let mut batch = Batch::new("task", LIMITS);
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(Vec::new(), true);
    assert!(steps(&mut batch).is_empty() && batch.is_complete());
}

#[test]
fn no_more_inputs_are_taken_than_the_window_holds() {
    let mut batch = Batch::new("task", LIMITS);
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(literals(3), false);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1", "submit 2", "read 1"]);
    batch.on_read(literals(1), false);
    assert_eq!(steps(&mut batch), ["submit 3"]);
    batch.on_finished(1, ok("b"));
    assert!(steps(&mut batch).is_empty(), "the slow first job holds up the rest");
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0 1", "read 2"]);
}

#[test]
fn only_as_many_bytes_run_as_the_limit_says_but_always_one_job() {
    let limits = BatchLimits { bytes: 25, ..LIMITS };
    let mut batch = Batch::new("task", limits);
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(literals(3), true);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1"]);
    batch.on_finished(0, ok("an output so long that nothing fits beside it any more"));
    assert_eq!(steps(&mut batch), ["write 0"]);
    batch.on_finished(1, ok("b"));
    assert_eq!(steps(&mut batch), ["submit 2"]);
}

#[test]
fn before_a_length_is_known_few_jobs_run_and_each_output_allows_one_more() {
    let limits = BatchLimits { jobs: 100, at_first: 2, bytes: 100, ..LIMITS };
    let mut batch = Batch::new("task", limits);
    assert_eq!(steps(&mut batch), ["read 100"]);
    batch.on_read(literals(20), true);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1"]);
    batch.on_finished(1, failed(OutcomeCode::AppError));
    assert_eq!(steps(&mut batch), ["submit 2"], "how long an output would have been is not known of it");
    batch.on_finished(2, ok(""));
    assert_eq!(steps(&mut batch), ["submit 3", "submit 4"]);
    batch.on_finished(3, ok("an output of 23 bytes.."));
    assert!(steps(&mut batch).is_empty(), "as long as that, the outputs of 0 and 4 just fit");
    batch.on_finished(4, ok(""));
    assert_eq!(steps(&mut batch), ["submit 5"]);
}

#[test]
fn files_are_loaded_a_few_at_a_time() {
    let mut batch = Batch::new("task", BatchLimits { jobs: 100, ..LIMITS });
    assert_eq!(steps(&mut batch), ["read 100"]);
    batch.on_read(vec![Input::File("x".into()).into(); 6], true);
    assert_eq!(steps(&mut batch), ["load 0", "load 1", "load 2", "load 3"]);
    let payload = Payload { content: Content::Bytes(Bytes::from_static(b"x")), media_type: MediaType::TEXT };
    batch.on_loaded(1, Ok(payload.into()));
    assert_eq!(steps(&mut batch), ["submit 1", "load 4"]);
}

#[test]
fn an_input_that_cannot_be_had_is_a_result_in_its_place() {
    let mut batch = Batch::new("task", LIMITS);
    assert_eq!(steps(&mut batch), ["read 4"]);
    batch.on_read(vec![Input::Literal(vec![b'x'; 101]).into(), Input::File("x".into()).into()], true);
    assert_eq!(steps(&mut batch), ["write 0", "load 1"]);
    batch.on_written();
    batch.on_loaded(1, Err(Unreadable { code: OutcomeCode::IoError, message: "no".to_owned() }));
    assert_eq!(steps(&mut batch), ["write 1"]);
    assert_eq!(
        batch.tally(),
        BatchTally { ok: 0, failed: 2, first_failure: Some(OutcomeCode::TooLarge.exit_code()), run_us: 0 }
    );
}

#[test]
fn the_first_failure_is_the_first_in_input_order() {
    let mut batch = Batch::new("task", LIMITS);
    steps(&mut batch);
    batch.on_read(literals(3), true);
    steps(&mut batch);
    batch.on_finished(2, failed(OutcomeCode::Timeout));
    batch.on_finished(1, failed(OutcomeCode::AppError));
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0 1 2"]);
    assert_eq!(
        batch.tally(),
        BatchTally { ok: 1, failed: 2, first_failure: Some(OutcomeCode::AppError.exit_code()), run_us: 0 }
    );
}

#[test]
fn the_last_tolerable_failure_is_the_last_thing_written() {
    let mut batch = Batch::new("task", BatchLimits { failures: Some(2), ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(4), false);
    steps(&mut batch);
    for index in [3, 2, 1, 0] {
        batch.on_finished(index, if index == 1 { ok("b") } else { failed(OutcomeCode::AppError) });
    }
    assert_eq!(steps(&mut batch), ["write 0 1 2"]);
    assert!(!batch.is_complete());
    batch.on_written();
    assert!(batch.is_complete() && steps(&mut batch).is_empty());
}

#[test]
fn a_batch_whose_jobs_nobody_runs_any_more_is_complete_with_what_it_has() {
    let mut batch = Batch::new("task", LIMITS);
    steps(&mut batch);
    batch.on_read(literals(1), false);
    assert_eq!(steps(&mut batch), ["submit 0", "read 3"]);
    batch.on_lost();
    batch.on_finished(0, failed(OutcomeCode::Indeterminate));
    assert_eq!(steps(&mut batch), ["write 0"]);
    batch.on_read(literals(1), false);
    assert!(steps(&mut batch).is_empty());
    batch.on_written();
    assert!(batch.is_complete());
}

#[test]
fn what_is_to_be_kept_is_kept_as_soon_as_it_ends_and_then_holds_no_memory() {
    let kept = Kept { in_files: true, in_log: false };
    let mut batch = Batch::new("task", BatchLimits { kept, bytes: 60, ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(4), true);
    assert_eq!(steps(&mut batch), ["load 0", "load 1", "load 2", "load 3"], "its place is looked at");
    for index in 0..4 {
        let content = Content::Bytes(Bytes::from_static(b"0123456789"));
        batch.on_loaded(index, Ok(Payload { content, media_type: MediaType::TEXT }.into()));
    }
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1", "submit 2", "submit 3"]);
    batch.on_finished(2, ok("c"));
    let Some(BatchStep::Keep(mut results)) = batch.next_step() else { panic!("it is to be kept") };
    assert_eq!(results[0].notes.output_name.as_deref(), Some("2".as_ref()));
    batch.on_finished(3, ok("d"));
    batch.on_finished(1, ok("b"));
    assert!(steps(&mut batch).is_empty(), "one thread keeps at a time");
    results[0].finished.output = Bytes::new();
    batch.on_kept(results);
    assert_eq!((batch.result_bytes, steps(&mut batch)), (2, vec!["keep 1 3".to_owned()]));
    batch.end_early(CancelledJobs::HaveResults, "interrupted");
    batch.on_finished(0, failed(OutcomeCode::Cancelled));
    assert!(steps(&mut batch).is_empty() && !batch.is_complete());
    batch.on_kept(Vec::new());
    assert_eq!(steps(&mut batch), ["keep 0"], "nothing is written before it");
}

/// Jobs 0 to 3 are given to the workers; 4 waits to be loaded, and the source has more.
fn begun() -> Batch {
    let mut batch = Batch::new("task", BatchLimits { jobs: 5, ..LIMITS });
    steps(&mut batch);
    let mut inputs = literals(4);
    inputs.push(Input::File("x".into()).into());
    batch.on_read(inputs, false);
    assert_eq!(steps(&mut batch), ["submit 0", "submit 1", "submit 2", "submit 3", "load 4"]);
    batch
}

#[test]
fn a_batch_that_ends_early_delivers_what_has_ended_and_what_was_cancelled_in_input_order() {
    let mut batch = begun();
    batch.on_finished(1, ok("b"));
    batch.on_finished(3, failed(OutcomeCode::AppError));
    batch.end_early(CancelledJobs::HaveResults, "interrupted");
    assert!(
        steps(&mut batch).is_empty() && !batch.is_complete(),
        "the first job may end before it is cancelled"
    );
    batch.on_loaded(4, Err(Unreadable { code: OutcomeCode::IoError, message: "no".to_owned() }));
    batch.on_read(literals(2), true);
    batch.on_finished(0, failed(OutcomeCode::Cancelled));
    assert_eq!(steps(&mut batch), ["write 0 1"]);
    batch.on_written();
    assert!(!batch.is_complete());
    batch.on_silence();
    assert_eq!(steps(&mut batch), ["write 2 3"]);
    assert!(!batch.is_complete());
    batch.on_written();
    assert!(batch.is_complete());
    let not_done = NotDone { cancelled: 1, unknown: 1, not_submitted: 3, is_partly_read: true };
    assert_eq!(batch.not_done(), not_done);
    assert_eq!((batch.tally().ok, batch.tally().failed), (1, 3));
}

#[test]
fn where_cancelled_jobs_have_no_results_they_are_counted_and_what_has_ended_is_kept() {
    let mut batch = begun();
    batch.end_early(CancelledJobs::AreCounted, "interrupted");
    batch.on_finished(0, failed(OutcomeCode::Cancelled));
    batch.on_finished(1, failed(OutcomeCode::Overloaded));
    batch.on_finished(3, ok("d"));
    batch.on_finished(2, failed(OutcomeCode::Cancelled));
    let not_done = NotDone { cancelled: 2, unknown: 0, not_submitted: 2, is_partly_read: true };
    assert_eq!(batch.not_done(), not_done);
    assert_eq!(steps(&mut batch), ["write 3"]);
    batch.on_written();
    assert!(batch.is_complete());
}

fn refused_for(code: OutcomeCode, retry_after_ms: Option<u64>) -> Finished {
    super::super::render::rejected("task", code, "full".to_owned(), retry_after_ms)
}

/// A batch whose jobs `0..count` are all with the supervisor.
fn submitted(count: usize) -> Batch {
    let mut batch = Batch::new("task", BatchLimits { jobs: 1000, bytes: 1 << 20, ..LIMITS });
    steps(&mut batch);
    batch.on_read(literals(count), true);
    assert_eq!(steps(&mut batch).len(), count);
    batch
}

#[test]
fn a_refusal_for_want_of_room_is_waited_out_for_the_time_that_it_names() {
    for code in [OutcomeCode::Overloaded, OutcomeCode::Quota] {
        for (named, waited) in [(Some(700), 700), (Some(1), 50), (Some(3_600_000), 2000), (None, 50)] {
            let mut batch = submitted(1);
            batch.on_finished(0, refused_for(code, named));
            assert_eq!(steps(&mut batch), [format!("pause 0 of {waited} ms")]);
            batch.on_resumed(0);
            assert_eq!(steps(&mut batch), ["submit 0"]);
        }
    }
}

#[test]
fn other_refusals_are_results() {
    for code in [OutcomeCode::TooLarge, OutcomeCode::UnknownTask, OutcomeCode::Unavailable] {
        let mut batch = submitted(1);
        batch.on_finished(0, refused_for(code, None));
        assert_eq!(steps(&mut batch), ["write 0"], "{code}");
    }
}

#[test]
fn what_was_refused_goes_again_in_its_place_when_an_earlier_job_has_ended() {
    let mut batch = submitted(8);
    for index in [6, 7] {
        batch.on_finished(index, refused_for(OutcomeCode::Quota, None));
    }
    assert_eq!(steps(&mut batch), ["pause 0 of 50 ms"]);
    batch.on_finished(1, ok("b"));
    assert!(steps(&mut batch).is_empty(), "five run, and a little room is left for others");
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0 1", "submit 6"]);
    batch.on_finished(2, ok("c"));
    assert_eq!(steps(&mut batch), ["submit 7"]);
}

#[test]
fn a_pause_that_is_over_ends_no_later_one() {
    let mut batch = submitted(1);
    batch.on_finished(0, refused_for(OutcomeCode::Overloaded, None));
    assert_eq!(steps(&mut batch), ["pause 0 of 50 ms"]);
    batch.on_resumed(0);
    steps(&mut batch);
    batch.on_finished(0, refused_for(OutcomeCode::Overloaded, None));
    assert_eq!(steps(&mut batch), ["pause 1 of 100 ms"]);
    batch.on_resumed(0);
    assert!(steps(&mut batch).is_empty());
    batch.on_resumed(1);
    assert_eq!(steps(&mut batch), ["submit 0"]);
}

#[test]
fn a_supervisor_that_stays_full_is_waited_for_as_long_as_it_takes() {
    let mut batch = submitted(1);
    for number in 0..10_000 {
        batch.on_finished(0, refused_for(OutcomeCode::Overloaded, None));
        let pause = steps(&mut batch);
        assert!(pause.len() == 1 && pause[0].starts_with(&format!("pause {number} of ")), "{pause:?}");
        batch.on_resumed(number);
        assert_eq!(steps(&mut batch), ["submit 0"]);
    }
    batch.on_finished(0, ok("a"));
    assert_eq!(steps(&mut batch), ["write 0"]);
}

#[test]
fn after_refusals_the_window_grows_quickly_to_where_it_was_and_slowly_beyond() {
    let mut batch = submitted(100);
    (20..100).for_each(|index| batch.on_finished(index, refused_for(OutcomeCode::Quota, None)));
    assert_eq!(batch.room.window, 18, "of the twenty that were taken an eighth is left to others");
    (0..20).for_each(|index| batch.on_finished(index, ok("x")));
    assert_eq!(batch.room.window, 18);
    batch.on_finished(20, refused_for(OutcomeCode::Overloaded, None));
    steps(&mut batch);
    batch.running.clear();
    batch.room.on_rejection(&refused_for(OutcomeCode::Overloaded, None).report, 0);
    assert_eq!(batch.room.window, 1, "others have taken all the room");
    (0..100).for_each(|_| batch.room.widen());
    assert_eq!(batch.room.window, 18, "they have gone");
    (0..18 * CALM_RESULTS).for_each(|_| batch.room.widen());
    assert_eq!(batch.room.window, 19);
}

/// Plays a world that answers steps in any order.
fn play(inputs: u64, choices: &[usize], limits: BatchLimits) -> Vec<u64> {
    let mut batch = Batch::new("task", limits);
    let (mut left, mut turn) = (inputs, 0);
    let (mut under_way, mut written, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    while !batch.is_complete() {
        while let Some(step) = batch.next_step() {
            under_way.push(step);
        }
        assert!(batch.taken - batch.written <= limits.jobs, "over the window");
        if under_way.is_empty() {
            assert!(batch.is_complete(), "nothing is under way and nothing is complete");
            break;
        }
        let step = under_way.remove(choices[turn % choices.len()] % under_way.len());
        turn += 1;
        match step {
            BatchStep::Read { most } => {
                let count = left.min(most).min(1 + turn as u64 % 3);
                left -= count;
                let inputs = (0..count).map(|number| match (turn as u64 + number) % 3 {
                    0 => Input::File("x".into()),
                    _ => Input::Literal(vec![b'x'; turn % 50]),
                });
                batch.on_read(inputs.map(BatchInput::from).collect(), left == 0);
            }
            BatchStep::Load { index, .. } => {
                let content = Content::Bytes(vec![b'x'; turn % 90].into());
                let payload = Payload { content, media_type: MediaType::TEXT };
                let loaded = match limits.kept.in_log.then_some(turn % 5) {
                    Some(1) => Loaded::Done(Printed { at: 0, bytes: 0, check: 0 }),
                    Some(2) => Loaded::LeftOut,
                    digest => Loaded::Job { payload, digest: digest.map(|turn| turn.to_string()) },
                };
                if matches!(loaded, Loaded::LeftOut) {
                    left_out.push(index);
                }
                batch.on_loaded(index, Ok(loaded));
            }
            BatchStep::Submit { index, .. } => batch.on_finished(
                index,
                match turn % 7 {
                    0 => failed(OutcomeCode::Overloaded),
                    3 => failed(OutcomeCode::Quota),
                    5 => failed(OutcomeCode::AppError),
                    1 => ok("a rather long output that takes some room until it is written"),
                    _ => ok("short"),
                },
            ),
            BatchStep::Rest { index, .. } => batch.on_rested(index),
            BatchStep::Halt { .. } => unreachable!("nobody asked for it"),
            BatchStep::Keep(mut results) => {
                results.iter_mut().for_each(|result| result.finished.output = Bytes::new());
                batch.on_kept(results);
            }
            BatchStep::Write(results) => {
                written.extend(results.iter().map(|numbered| numbered.index));
                batch.on_written();
            }
            BatchStep::Pause { number, .. } => batch.on_resumed(number),
        }
    }
    assert_eq!(
        (batch.running_bytes, batch.result_bytes, batch.loading.len(), batch.notes.len()),
        (0, 0, 0, 0)
    );
    assert_eq!((batch.resting_bytes, batch.resting.len()), (0, 0));
    assert_eq!(batch.left_out(), left_out.len() as u64);
    assert!(written.is_sorted(), "in order");
    written.extend(left_out);
    written.sort_unstable();
    written
}

proptest! {
    #[test]
    fn whatever_the_order_of_events_every_result_is_written_once_and_in_order(
        inputs in 0u64..60,
        choices in proptest::collection::vec(0usize..100, 1..40),
        jobs in 1u64..10,
        bytes in 1u64..400,
        at_first in 1u64..4,
        log in any::<bool>(),
        retries in 0u32..3,
    ) {
        let kept = Kept { in_files: log, in_log: log };
        let retries = Retries { most: retries, pause: Duration::ZERO };
        let written = play(inputs, &choices, BatchLimits { jobs, at_first, bytes, kept, retries, ..LIMITS });
        prop_assert_eq!(written, (0..inputs).collect::<Vec<_>>());
    }
}

mod failures;
