//! Workers with shared memory that misuse it, or fail while they hold it. Before each row, every worker has both segments.

use crate::case::{Case, all_well};
use crate::stage::{Stage, WORKERS};
use crate::{QUICK, is_wanted};
use tests::harness::until;

/// Bytes of the inputs and of the outputs: well above those that go behind their headers.
const LARGE: usize = 200_000;
/// The memory that is made for so many bytes.
const SEGMENT: u64 = 256 << 10;

/// The rows, one after another under one supervisor. Each failure is told.
pub(crate) fn play(cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut stage = Stage::ready_with("segments", QUICK);
    for case in cases.iter().filter(is_wanted) {
        let case = case.task("shared", 1, LARGE);
        if let Some(failure) = share(&mut stage).err().or_else(|| crate::play(&mut stage, &case)) {
            failures.push(failure);
            stage = Stage::ready_with("segments", QUICK);
        }
    }
    // Memory that nobody uses is returned, and its descriptors with it.
    until("all memory is returned", || (segment_bytes(&mut stage) == 0).then_some(()));
    failures.extend(stage.end().err());
    failures
}

fn segment_bytes(stage: &mut Stage) -> u64 {
    stage.status()["queue"]["segment_bytes"].as_u64().expect("a number")
}

/// Large jobs that do no harm, until every worker shares two segments.
fn share(stage: &mut Stage) -> Result<(), String> {
    let lesson = Case { ends_a_worker: false, ..all_well("turn").task("shared", 2 * WORKERS, LARGE) };
    let lessons = std::iter::repeat_with(|| stage.play(&lesson).map(|_| segment_bytes(stage)));
    for bytes in lessons.take(20) {
        if bytes? == 2 * WORKERS as u64 * SEGMENT {
            return Ok(());
        }
    }
    Err("not every worker has two segments".to_owned())
}
