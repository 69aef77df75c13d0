//! What the launchers of this process have in common. A sweep sees every child of the process, so it has to know the workers of all
//! launchers, and two sweeps must not go over the same children at the same time.
//!
//! ```text
//!   a worker, whichever launcher started it ----------------> stays: its parent is a launch thread
//!   a stray with a mark of a launcher's own, worker gone ---> killed by that launcher
//!   any other stray ----------------------------------------> killed when the last launcher of the process ends
//! ```

use super::marks::Mark;
use super::sweep::{SweepResult, SweepTarget, Sweeper};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many launchers there are.
static LAUNCHERS: AtomicUsize = AtomicUsize::new(0);

/// The threads that start workers.
static LAUNCH_THREADS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// It remembers processes by their numbers, so no other sweeper may collect one of them.
static SWEEPER: Mutex<Sweeper> = Mutex::new(Sweeper::new());

/// A launcher counts while this exists.
#[derive(Debug)]
pub(super) struct CountedLauncher;

impl CountedLauncher {
    pub(super) fn new() -> CountedLauncher {
        LAUNCHERS.fetch_add(1, Ordering::Relaxed);
        CountedLauncher
    }
}

impl Drop for CountedLauncher {
    fn drop(&mut self) {
        LAUNCHERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From now on the children of this thread are workers.
pub(super) fn add_launch_thread(thread: u32) {
    locked(&LAUNCH_THREADS).insert(thread);
}

pub(super) fn remove_launch_thread(thread: u32) {
    locked(&LAUNCH_THREADS).remove(&thread);
}

fn is_launch_thread(thread: u32) -> bool {
    locked(&LAUNCH_THREADS).contains(&thread)
}

/// Kills and collects strays whose mark is that of a worker that has ended.
pub(super) fn sweep_left_behind(is_left_behind: &dyn Fn(Mark) -> bool) -> SweepResult {
    locked(&SWEEPER).sweep(&is_launch_thread, &SweepTarget::LeftBehind(is_left_behind))
}

/// Kills and collects the strays of a launcher that has ended: those with a mark of its own, and if it was the last launcher, all.
pub(super) fn sweep_at_the_end(is_own: &dyn Fn(Mark) -> bool) -> SweepResult {
    let mut sweeper = locked(&SWEEPER);
    let target = match LAUNCHERS.load(Ordering::Relaxed) {
        0 => SweepTarget::All,
        _ => SweepTarget::LeftBehind(is_own),
    };
    sweeper.sweep(&is_launch_thread, &target)
}

/// Locks, also after a panic: no code leaves the data under these locks in an inconsistent state.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
