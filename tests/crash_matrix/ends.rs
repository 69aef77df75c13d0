//! The two ends of a worker's life: it fails before it is ready, or when it is to end by itself.

use crate::case::Case;
use crate::stage::{Measured, Stage, WORKERS};
use crate::{QUICK, print_row};
use offload_protocol::nouns::OutcomeCode;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tests::harness::{private_folder, until};

/// How long a supervisor may take to end: its workers have half a second, and machines are slow.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Failed starts in a row after which jobs are refused, as configured here by default.
const STARTS_BEFORE_REFUSAL: usize = 5;

/// One process fails at its start. The canaries are submitted at once, before anybody can be ready.
pub(crate) fn play_first_start(case: &Case) -> Result<(), String> {
    let mut stage = Stage::launch(&format!("{}+once", case.fault), QUICK);
    let measured = stage.play_until(case, 1)?;
    print_row(case.fault, "-", case.outcome, &measured);
    stage.end()
}

/// Every process fails at its start: all jobs are refused in time, with the reason, after `starts` at most.
pub(crate) fn play_no_start(fault: &str, reason: &str, is_pointless: bool) -> Result<(), String> {
    let folder = private_folder();
    let count = folder.path().join("starts");
    let mut stage = Stage::launch(&format!("counted:{} {fault}", count.display()), QUICK);
    let began = Instant::now();
    let refused = stage.submit_canaries_to_nobody(OutcomeCode::Unavailable, reason)?;
    let status = stage.status();
    if status["state"] != "degraded" || !status["reason"].as_str().unwrap_or("").contains(reason) {
        return Err(format!("P3: state {}, reason {}", status["state"], status["reason"]));
    }
    let starts = std::fs::read_to_string(&count).unwrap_or_default().lines().count();
    let most = if is_pointless { WORKERS } else { WORKERS + STARTS_BEFORE_REFUSAL };
    if starts == 0 || starts > most {
        return Err(format!("{starts} starts, at most {most}"));
    }
    let lag = stage.lag_since(began)?;
    let measured = Measured { outcome: refused, whole: Duration::ZERO, lag };
    print_row(fault, "-", OutcomeCode::Unavailable, &measured);
    println!("{:<26} {starts} starts", "");
    until("no process is left", || stage.processes().is_empty().then_some(()));
    stage.end()
}

/// A worker that did a job misbehaves when the supervisor ends.
pub(crate) fn play_stop(fault: &'static str) -> Result<(), String> {
    let mut stage = Stage::ready(QUICK);
    let case = Case { ends_a_worker: false, ..crate::case::unharmed(fault) };
    stage.play(&case)?;
    let began = Instant::now();
    stage.daemon.signal(Signal::TERM);
    let code = stage.daemon.wait();
    let took = began.elapsed();
    if code != 0 || took > END_WITHIN {
        return Err(format!("the supervisor ended with {code} after {took:?}"));
    }
    let left = stage.processes();
    if !left.is_empty() {
        return Err(format!("P5: processes {left:?} are left"));
    }
    println!("{fault:<26} {:<7} {:<16} over {:>8.1} ms", "-", "ok", took.as_secs_f64() * 1e3);
    Ok(())
}
