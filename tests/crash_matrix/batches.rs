//! Workers that fail with a batch: eight jobs of a task that run together, of which one is guilty. The others have their results,
//! however often they were lost with it.

use crate::case::Case;
use crate::stage::Stage;
use crate::{QUICK, is_wanted};

/// The rows, one after another under one supervisor. Each failure is told.
pub(crate) fn play(cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut stage = Stage::ready_with("batches", QUICK);
    for case in cases.iter().filter(is_wanted) {
        let [before, lost_before] = stage.batches();
        let failure = crate::play(&mut stage, case);
        let [batches, lost] = stage.batches();
        println!("{:<26} {} batches, {} of them lost", "", batches - before, lost - lost_before);
        failures.extend((batches == before).then(|| format!("{}: no jobs went together", case.fault)));
        if failure.is_some() {
            failures.extend(failure);
            stage = Stage::ready_with("batches", QUICK);
        }
    }
    failures.extend(stage.end().err());
    failures
}
