//! The crash matrix: a real worker process fails in every phase of its life in every way that has a meaning there, with
//! 64 other jobs around it. Each time: the victim has exactly one outcome, the right one, in time; the others have
//! theirs; the pool is whole again; the loop was not held up; and nothing is left behind.
//!
//! `OFFLOAD_CASES=text` plays only the cases whose name has that text in it.

mod case;
mod stage;
mod table;

use case::Case;
use stage::Stage;

/// Flags of supervisors whose workers are to fail quickly.
const QUICK: &[&str] = &["--backoff-min", "10ms", "--max-payload", "8MiB"];

fn is_wanted(case: &&Case) -> bool {
    std::env::var("OFFLOAD_CASES").map_or(true, |text| case.fault.contains(&text))
}

/// Plays the case and prints its row. What went wrong, if something did.
fn play(stage: &mut Stage, case: &Case) -> Option<String> {
    match stage.play(case) {
        Ok(measured) => {
            println!(
                "{:<26} {:<7} {:<16} told {:>8.1} ms  whole {:>8.1} ms  lag {:>6.1} ms",
                case.fault,
                case.task,
                case.outcome,
                measured.outcome.as_secs_f64() * 1e3,
                measured.whole.as_secs_f64() * 1e3,
                measured.lag.as_secs_f64() * 1e3
            );
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

#[test]
fn a_worker_that_stops_half_way_is_given_up_in_time() {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let play_alone = |case| {
            let mut stage = Stage::ready(QUICK);
            play(&mut stage, case).or_else(|| stage.end().err())
        };
        let cases = table::SLOW.iter().filter(is_wanted);
        let playing: Vec<_> = cases.map(|case| scope.spawn(move || play_alone(case))).collect();
        playing.into_iter().filter_map(|case| case.join().expect("a failure is told, not panicked")).collect()
    });
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
