//! The proof that the simulator sees: mistakes that are planted in the core, each of which it must find.
//! `OFFLOAD_SIM_BUG=text` plants only those whose name has that text in it.

use crate::seeds::run_caught;
use crate::world::{Plan, Verdict, World};
use offload_core::sabotage::Bug;
use std::time::Instant;

/// Each is found in fewer: on one core in less than a minute.
const SEEDS_MAX: u64 = 20_000;

fn run_spoiled(bug: Bug, seed: u64) -> Verdict {
    let plan = Plan { seed, ..Plan::default() };
    run_caught(|| World::run_with(plan, |core| core.sabotage(bug)))
}

/// The first seed that shows the mistake, and the rule that it breaks.
fn find(bug: Bug) -> Option<(u64, &'static str)> {
    (0..SEEDS_MAX).find_map(|seed| Some((seed, run_spoiled(bug, seed).failure?.rule)))
}

#[test]
fn planted_bugs() {
    let wanted = std::env::var("OFFLOAD_SIM_BUG").unwrap_or_default();
    for bug in Bug::ALL.iter().filter(|bug| format!("{bug:?}").contains(&wanted)) {
        let began = Instant::now();
        let (seed, rule) = find(*bug).unwrap_or_else(|| panic!("{bug:?} was not found by {SEEDS_MAX} seeds"));
        let millis = began.elapsed().as_millis();
        println!("{:<26} after {:>5} seeds, {millis:>5} ms: {rule}", format!("{bug:?}"), seed + 1);
    }
}
