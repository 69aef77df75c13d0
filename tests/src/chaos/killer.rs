//! Somebody who ends workers at random moments, in one of three ways.

use super::seed::Seed;
use crate::harness::{children_of, signal};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a worker that is only held up is stopped: a start that takes its time, mostly.
pub const HELD_UP: Duration = Duration::from_millis(100);
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

/// Who does it, to the children of one process.
#[derive(Debug)]
pub struct Killer {
    supervisor: u32,
    seed: Seed,
    habits: Habits,
    deeds: Deeds,
}

impl Killer {
    /// Has done nothing yet.
    pub fn new(supervisor: u32, seed: Seed, habits: Habits) -> Killer {
        Killer { supervisor, seed, habits, deeds: Deeds::default() }
    }

    /// All that was done.
    pub fn deeds(&self) -> Deeds {
        self.deeds
    }

    /// Goes on until it is over. Who is held up then is let go.
    pub fn kill_until(&mut self, is_over: &AtomicBool) {
        let mut held_up = Vec::new();
        let mut next = Instant::now() + self.seed.pause(self.habits.every);
        while !is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            let_go(&mut held_up, |until| until <= now);
            if now < next {
                std::thread::park_timeout(GLANCE.min(next - now));
                continue;
            }
            next += self.seed.pause(self.habits.every);
            held_up.extend(self.do_something().map(|worker| (now + HELD_UP, worker)));
        }
        let_go(&mut held_up, |_| true);
    }

    /// Returns whom it has held up.
    fn do_something(&mut self) -> Option<u32> {
        let workers = children_of(self.supervisor);
        if workers.is_empty() {
            return None;
        }
        let victim = workers[self.seed.below(workers.len())];
        let (how, count, is_held_up) = match self.seed.below(100) {
            dice if dice < self.habits.stops => (Signal::STOP, &mut self.deeds.stops, false),
            dice if dice < self.habits.stops + self.habits.pauses => {
                (Signal::STOP, &mut self.deeds.pauses, true)
            }
            _ => (Signal::KILL, &mut self.deeds.kills, false),
        };
        signal(victim, how);
        *count += 1;
        is_held_up.then_some(victim)
    }
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
