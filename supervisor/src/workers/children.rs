//! Which children of this process are workers. Sweeps spare those, and take all others, whichever thread they are children
//! of: a worker can make a child of its own parent (clone(2), CLONE_PARENT), which is the thread that has started it.
//!
//! ```text
//!           begin               fork, exec             became
//!   start --------> starting ---------------> a child --------> known ----- ended ----> collected
//!                   no child of this thread                        |                       ^
//!                   is taken meanwhile: which                      | somebody traces it:   |
//!                   is the worker is not known                     '--> left for later ----'
//! ```
//!
//! The end of a process that is traced can be seen by its tracer alone (ptrace(2)) until that has taken note of it, or is
//! gone. Such a zombie stays known, and is collected when that is possible.

use nix::unistd::gettid;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The workers of all launchers of this process: a sweep sees the children of all threads.
static CHILDREN: Mutex<Children> = Mutex::new(Children::new());

#[derive(Debug)]
struct Children {
    /// Threads on which a start is under way.
    starting: BTreeSet<u32>,
    /// The process ids of the workers that have not been collected. Each has a number, because its process id may be that of
    /// another worker as soon as it is collected.
    known: BTreeMap<u64, u32>,
    /// The workers that have ended and could not be collected.
    left: Vec<(Known, Arc<OwnedFd>)>,
    last_number: u64,
}

impl Children {
    const fn new() -> Children {
        Children { starting: BTreeSet::new(), known: BTreeMap::new(), left: Vec::new(), last_number: 0 }
    }
}

/// A start of a worker that is under way on the thread that has begun it.
#[derive(Debug)]
pub(super) struct Start {
    thread: u32,
}

/// Makes a child known as a worker as long as this value exists.
#[derive(Debug)]
pub(super) struct Known(u64);

impl Start {
    /// The calling thread is about to start a worker.
    pub(super) fn begin() -> Start {
        let thread = gettid().as_raw().unsigned_abs();
        locked().starting.insert(thread);
        Start { thread }
    }

    /// The start has made this child.
    pub(super) fn became(self, pid: Pid) -> Known {
        let mut children = locked();
        children.last_number += 1;
        let number = children.last_number;
        children.known.insert(number, pid.as_raw_pid().unsigned_abs());
        Known(number)
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        locked().starting.remove(&self.thread);
    }
}

impl Known {
    /// Collects this worker, which has ended, or leaves it to [`collect_left`]. Does not wait.
    pub(super) fn collect(self, pidfd: Arc<OwnedFd>) {
        if !is_collected(&pidfd) {
            locked().left.push((self, pidfd));
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        locked().known.remove(&self.0);
    }
}

/// Collects the ended workers that could not be collected before, as far as that is possible now. Does not wait.
pub(super) fn collect_left() {
    let left = std::mem::take(&mut locked().left);
    let (collected, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, pidfd)| is_collected(pidfd));
    locked().left.extend(left);
    drop(collected);
}

/// Collects a process. False if that is not possible yet.
fn is_collected(pidfd: &OwnedFd) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(pidfd.as_fd()), ended) {
        Ok(None) | Err(Errno::INTR) => false,
        // After an error, somebody else has collected it.
        Ok(Some(_)) | Err(_) => true,
    }
}

/// The children of one thread that are no workers. `list` lists its children, zombies included. None while the thread is
/// starting a worker. What is returned is no worker later either: such a child exists already.
pub(super) fn strangers_of(thread: u32, list: impl FnOnce() -> Vec<u32>) -> Vec<u32> {
    // No start begins while this is locked, and none has made a child that is not known.
    let children = locked();
    if children.starting.contains(&thread) {
        return Vec::new();
    }
    let known: BTreeSet<u32> = children.known.values().copied().collect();
    list().into_iter().filter(|pid| !known.contains(pid)).collect()
}

/// Locks, also after a panic: no code leaves the data under this lock in an inconsistent state.
fn locked() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_is_known_until_it_is_collected_and_meanwhile_nobody_else_is() {
        let this = gettid().as_raw().unsigned_abs();
        let start = Start::begin();
        assert!(strangers_of(this, || vec![1, 2]).is_empty(), "one of them may be the worker");
        let known = start.became(Pid::from_raw(1).unwrap());
        assert_eq!(strangers_of(this, || vec![1, 2]), [2]);
        drop(Start::begin());
        // Its process id was used again before the first one was forgotten.
        let again = Start::begin().became(Pid::from_raw(1).unwrap());
        drop(known);
        assert_eq!(strangers_of(this, || vec![1, 2]), [2]);
        drop(again);
        assert_eq!(strangers_of(this, || vec![1, 2]), [1, 2]);
    }
}
