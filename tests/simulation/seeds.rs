//! One seed, or one after the other.

use crate::batches;
use crate::choices::mix;
use crate::oracle::Failure;
use crate::shrink::shrink;
use crate::world::{Plan, Verdict, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a plan; a panic is a failure like any other.
pub(crate) fn run(plan: Plan) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| World::run(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict::of_panic(Failure { rule: "panic", what: text.unwrap_or_default() })
    })
}

/// The first of so many seeds that breaks a rule, and which one.
pub(crate) fn first_broken(seeds: u64) -> Option<(u64, Failure)> {
    (0..seeds).find_map(|seed| {
        let failure = together(seed).err().or_else(|| run(Plan { seed, ..Plan::default() }).failure);
        Some((seed, failure?))
    })
}

/// Runs the world of this seed in which jobs run together; a panic is a failure like any other.
///
/// # Errors
/// The rule that was broken.
pub(crate) fn together(seed: u64) -> Result<(), Failure> {
    let ran = catch_unwind(AssertUnwindSafe(|| batches::run(seed)));
    ran.unwrap_or_else(|_| Err(Failure { rule: "panic", what: format!("the batches of seed {seed}") }))
}

/// A digest of all events and all actions of so many seeds: the same for as long as neither the core nor the simulator
/// behaves in another way.
pub(crate) fn digest(seeds: u64) -> u64 {
    let digest_of = |seed| run(Plan { seed, with_digest: true, ..Plan::default() }).digest;
    (0..seeds).fold(0, |digest, seed| mix(digest ^ digest_of(seed)))
}

/// What is printed of a seed that failed.
pub(crate) fn story(seed: u64, run: &dyn Fn(Plan) -> Verdict) -> String {
    if let Err(failure) = together(seed) {
        return format!("seed {seed} breaks {} with its batches: {}", failure.rule, failure.what);
    }
    let (_, verdict) = shrink(seed, run);
    let Some(failure) = verdict.failure else { return format!("seed {seed} is fine") };
    let trace = verdict.trace.join("\n");
    format!(
        "seed {seed} breaks {}: {}\nshrunk to {} events:\n{trace}",
        failure.rule, failure.what, verdict.events
    )
}
