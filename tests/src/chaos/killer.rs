//! Somebody who ends workers at random moments, in one of three ways.

use super::seed::Seed;
use crate::harness::{children_of, signal};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a worker that is only held up is stopped: a start that takes its time, mostly.
const HELD_UP: Duration = Duration::from_millis(100);
/// The killer looks so often whether it is over.
const GLANCE: Duration = Duration::from_millis(10);

/// How it goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// From one deed to the next, on average.
    pub every: Duration,
    /// Of a hundred deeds, so many stop a worker for good (SIGSTOP, and nothing follows).
    pub stops: usize,
    /// Of a hundred deeds, so many hold a worker up for 100 ms; the rest are SIGKILL.
    pub pauses: usize,
}

/// What it has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deeds {
    /// Workers killed.
    pub kills: u64,
    /// Workers stopped for good.
    pub stops: u64,
    /// Workers held up.
    pub pauses: u64,
}

/// Does it to the children of this process until it is over.
pub fn kill_until(supervisor: u32, mut seed: Seed, habits: Habits, is_over: &AtomicBool) -> Deeds {
    let mut deeds = Deeds::default();
    let mut held_up = Vec::new();
    let mut next = Instant::now() + seed.pause(habits.every);
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        let_go(&mut held_up, |until| until <= now);
        if now < next {
            std::thread::park_timeout(GLANCE.min(next - now));
            continue;
        }
        next += seed.pause(habits.every);
        let workers = children_of(supervisor);
        if workers.is_empty() {
            continue;
        }
        let victim = workers[seed.below(workers.len())];
        match seed.below(100) {
            dice if dice < habits.stops => {
                signal(victim, Signal::STOP);
                deeds.stops += 1;
            }
            dice if dice < habits.stops + habits.pauses => {
                signal(victim, Signal::STOP);
                held_up.push((now + HELD_UP, victim));
                deeds.pauses += 1;
            }
            _ => {
                signal(victim, Signal::KILL);
                deeds.kills += 1;
            }
        }
    }
    let_go(&mut held_up, |_| true);
    deeds
}

/// A number may have become somebody else's meanwhile; to be told to go on harms nobody who is not stopped.
fn let_go(held_up: &mut Vec<(Instant, u32)>, is_time: impl Fn(Instant) -> bool) {
    held_up.retain(|(until, worker)| {
        if is_time(*until) {
            signal(*worker, Signal::CONT);
        }
        !is_time(*until)
    });
}
