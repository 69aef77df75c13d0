//! The crash matrix: a real worker process fails in every phase of its life in every way that has a meaning there, with
//! 64 other jobs around it. Each time: the victim has exactly one outcome, the right one, in time; the others have
//! theirs; the pool is whole again; the loop was not held up; and nothing is left behind.
//!
//! `OFFLOAD_CASES=text` plays only the cases whose name has that text in it.

mod batches;
mod case;
mod ends;
mod segments;
mod stage;
mod streams;
mod table;
mod trays;

use case::Case;
use offload_protocol::nouns::OutcomeCode;
use stage::{Measured, Stage};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Flags of supervisors whose workers are to fail quickly.
const QUICK: &[&str] = &["--backoff-min", "10ms", "--max-payload", "8MiB"];

/// Those that measure something do so one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_wanted(case: &&Case) -> bool {
    std::env::var("OFFLOAD_CASES").map_or(true, |text| case.fault.contains(&text))
}

/// One line a case: what, and how long.
fn print_row(fault: &str, task: &str, outcome: OutcomeCode, measured: &Measured) {
    let Measured { outcome: told, whole, lag } = measured;
    let [told, whole, lag] = [told, whole, lag].map(|time| time.as_secs_f64() * 1e3);
    println!(
        "{fault:<26} {task:<7} {outcome:<16} told {told:>8.1} ms  whole {whole:>8.1} ms  lag {lag:>6.1} ms"
    );
}

/// Plays the case and prints its row. What went wrong, if something did.
fn play(stage: &mut Stage, case: &Case) -> Option<String> {
    match stage.play(case) {
        Ok(measured) => {
            print_row(case.fault, case.task, case.outcome, &measured);
            None
        }
        Err(why) => {
            println!("{:<26} {:<7} FAILED: {why}", case.fault, case.task);
            Some(format!("{} ({}): {why}", case.fault, case.task))
        }
    }
}

/// One after another under one supervisor; after a failure under a new one.
fn play_all(cases: &[Case]) {
    let _alone = alone();
    let mut failures = Vec::new();
    let mut stage = Stage::ready(QUICK);
    for case in cases.iter().filter(is_wanted) {
        if let Some(failure) = play(&mut stage, case) {
            failures.push(failure);
            stage = Stage::ready(QUICK);
        }
    }
    failures.extend(stage.end().err());
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_worker_that_fails_while_it_runs_a_job_fails_that_job_and_nothing_else() {
    play_all(table::RUN);
}

#[test]
fn a_worker_that_answers_in_parts_delivers_what_it_sent_and_nothing_that_breaks_a_rule() {
    play_all(table::PARTS);
}

#[test]
fn a_worker_that_fails_with_an_input_file_leaves_it_to_the_next_attempt_and_nothing_open() {
    play_all(table::FILES);
}

#[test]
fn a_worker_that_fails_before_it_has_started_a_job_costs_the_job_nothing() {
    play_all(table::RECV);
}

#[test]
fn a_worker_that_fails_instead_of_answering_is_found_out() {
    play_all(table::REPLY);
}

#[test]
fn a_worker_that_fails_after_its_answer_takes_nothing_back() {
    play_all(table::AFTER);
}

/// All at the same time.
fn play_side_by_side(cases: &[Case], play: impl Fn(&Case) -> Option<String> + Sync) {
    let play = &play;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let cases = cases.iter().filter(is_wanted);
        let playing: Vec<_> = cases.map(|case| scope.spawn(move || play(case))).collect();
        playing.into_iter().filter_map(|case| case.join().expect("a failure is told, not panicked")).collect()
    });
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

fn told(fault: &str, played: Result<(), String>) -> Option<String> {
    let failure = format!("{fault}: {}", played.err()?);
    println!("{failure}");
    Some(failure)
}

#[test]
fn a_worker_that_stops_half_way_is_given_up_in_time() {
    play_side_by_side(table::SLOW, |case| {
        let mut stage = Stage::ready(QUICK);
        play(&mut stage, case).or_else(|| stage.end().err())
    });
}

#[test]
fn a_process_that_fails_before_it_is_ready_is_replaced() {
    let _alone = alone();
    let cases = table::FIRST_START.iter().filter(is_wanted);
    let failures: Vec<_> = cases.filter_map(|case| told(case.fault, ends::play_first_start(case))).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_process_that_never_gets_ready_is_replaced_in_time() {
    play_side_by_side(table::SLOW_START, |case| told(case.fault, ends::play_first_start(case)));
}

#[test]
fn a_program_that_cannot_be_started_makes_its_jobs_unavailable_and_is_tried_ever_more_slowly() {
    let _alone = alone();
    let rows = table::NO_START.iter().map(|row| (row, false));
    let rows = rows.chain(table::POINTLESS_START.iter().map(|row| (row, true)));
    let play = |((fault, reason), is_pointless): (&(&str, &str), bool)| {
        told(fault, ends::play_no_start(fault, reason, is_pointless))
    };
    let failures: Vec<_> = rows.filter_map(play).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_worker_that_treats_its_tray_badly_harms_no_job_that_lies_there() {
    play_side_by_side(table::TRAYS, |case| told(case.fault, trays::play(case)));
}

#[test]
fn a_worker_that_fails_with_a_full_tray_harms_only_the_job_that_it_ran() {
    let _alone = alone();
    let failures: Vec<_> = trays::play_full(table::FULL_TRAYS);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_worker_that_misuses_the_memory_that_it_shares_harms_only_the_job_that_it_ran() {
    let _alone = alone();
    let failures = segments::play(table::SEGMENTS);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_worker_that_fails_with_a_batch_fails_the_guilty_job_and_the_others_get_their_results() {
    let _alone = alone();
    let failures = batches::play(table::BATCHES);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_worker_that_does_not_end_properly_does_not_keep_its_supervisor() {
    let _alone = alone();
    let failures: Vec<_> =
        table::STOP.iter().filter_map(|fault| told(fault, ends::play_stop(fault))).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
