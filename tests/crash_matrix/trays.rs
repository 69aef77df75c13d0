//! Workers with trays: they treat them badly, or fail while a job lies there. The canaries around take a millisecond, as
//! these workers say, so that one lies in each tray all the time.

use crate::QUICK;
use crate::case::{Case, all_well};
use crate::play as play_and_print;
use crate::stage::Stage;

/// So often all is well before something goes wrong: it has to be known how long jobs take.
const LESSONS: usize = 3;

/// One row, under a supervisor of its own whose workers all do that with their trays.
pub(crate) fn play(case: &Case) -> Result<(), String> {
    let mut stage = Stage::ready_with(&case.fault.replace(' ', "+"), QUICK);
    learn(&mut stage)?;
    stage.is_as_it_should_be();
    let restarts = u64::from(case.ends_a_worker);
    let measured = stage.play_until(case, restarts)?;
    crate::print_row(case.fault, "-", case.outcome, &measured);
    let [prefetched, taken_back] = stage.trays();
    println!("{:<26} {prefetched} jobs were in trays, {taken_back} of them taken back", "");
    if prefetched == 0 {
        return Err("no job was ever in a tray".to_owned());
    }
    stage.end()
}

/// The rows, one after another under one supervisor whose workers look into their trays. Each failure is told.
pub(crate) fn play_full(cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut stage = Stage::ready_with("tray:look", QUICK);
    failures.extend(learn(&mut stage).err());
    for case in cases.iter().filter(crate::is_wanted) {
        if let Some(failure) = play_and_print(&mut stage, case) {
            failures.push(failure);
            stage = Stage::ready_with("tray:look", QUICK);
            failures.extend(learn(&mut stage).err());
        }
    }
    let [prefetched, taken_back] = stage.trays();
    println!("{prefetched} jobs were in trays, {taken_back} of them taken back");
    failures.extend((prefetched == 0).then(|| "no job was ever in a tray".to_owned()));
    failures.extend(stage.end().err());
    failures
}

/// Canaries, and jobs of the victims' task that do no harm.
fn learn(stage: &mut Stage) -> Result<(), String> {
    for _ in 0..LESSONS {
        let case = Case { ends_a_worker: false, ..all_well("run:nothing").task("charge", 8, 0) };
        stage.play(&case)?;
    }
    Ok(())
}
