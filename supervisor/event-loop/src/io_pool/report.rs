//! How many threads and tasks a pool has, and which threads are stuck.

use std::panic::Location;
use std::time::Instant;

use super::Lane;

/// How many threads and tasks a pool has at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPoolStats {
    /// What the pool is called.
    pub name: &'static str,
    /// Threads that run tasks, without those that were written off.
    pub threads: usize,
    /// Threads among them that run a task now.
    pub busy: usize,
    /// Threads among the busy ones that run a task of the slow lane.
    pub busy_slow: usize,
    /// Tasks of both lanes that wait for a thread.
    pub queued: usize,
    /// Tasks among them that wait in the slow lane.
    pub queued_slow: usize,
    /// Threads that were written off and still have not returned from their task.
    pub stuck: usize,
    /// Tasks that ended on a thread, with a result or a panic, and were answered with it. A task counts once, however many
    /// parts it had.
    pub finished: u64,
}

/// A task that was not done by its deadline and still occupies its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckTask {
    /// What the pool is called.
    pub pool: &'static str,
    /// The number of the thread: number 2 of the pool `files` is called `files-2`.
    pub thread: usize,
    /// Where the task was submitted.
    pub site: &'static Location<'static>,
    /// The lane in which it waited.
    pub lane: Lane,
    /// When it was submitted, in the loop's time.
    pub submitted: Instant,
    /// When its thread was written off, in the loop's time.
    pub since: Instant,
}
