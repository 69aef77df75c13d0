//! Many faults in a few seconds. The program `chaos` runs the same for minutes. Promises are asserted. Times are only printed
//! beside their targets, because a test does not know what else its machine does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tests::chaos::crowd::Crowd;
use tests::chaos::run::Chaos;
use tests::chaos::soak::Soak;
use tests::chaos::storm::Storm;

/// Two of these at a time would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn chaos_ten_seconds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let told = Chaos::lasting(Duration::from_secs(10)).run();
    println!("{}\ntargets missed: {:?}", told.summary(), told.missed_targets());
    assert_eq!(told.violations(), Vec::<String>::new());
}

#[test]
fn in_a_crowd_of_every_kind_of_client_only_the_guilty_are_blamed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let told = Crowd::of(10_000).gather();
    println!("{}", told.summary());
    assert_eq!(told.violations(), Vec::<String>::new());
}

#[test]
fn a_hundred_thousand_jobs_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let soak = Soak::of(100_000, 1, 2);
    println!("{}", soak.summary());
    assert_eq!(soak.violations(), Vec::<String>::new());
}

#[test]
fn a_worker_that_dies_at_every_start_is_started_ever_more_slowly_and_costs_next_to_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let storm = Storm::rage(2, Duration::from_secs(12));
    println!("{}", storm.summary());
    assert_eq!(storm.violations(), Vec::<String>::new());
}
