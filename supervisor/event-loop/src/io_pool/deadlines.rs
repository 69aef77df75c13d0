//! The deadlines of the tasks of a pool: a heap, with one timer for its earliest entry.
//!
//! Nearly every task is done long before its deadline. Its entry then stays in the heap, and all such entries are removed
//! together when they outnumber the others. Most tasks have the same time limit, and pushing an entry that is due after all
//! others costs almost nothing.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Instant;

use super::TaskId;

/// Up to this many stale entries are not worth a sweep.
const STALE_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<Deadline>>,
}

struct Deadline {
    due: Instant,
    task: TaskId,
}

impl Deadlines {
    pub(super) fn push(&mut self, due: Instant, task: TaskId) {
        self.heap.push(Reverse(Deadline { due, task }));
    }

    /// Whether too many entries belong to tasks that are done. `awaited` is the number of tasks that are not.
    pub(super) fn need_sweep(&self, awaited: usize) -> bool {
        self.heap.len() > 2 * awaited + STALE_MAX
    }

    pub(super) fn sweep(&mut self, is_awaited: impl Fn(TaskId) -> bool) {
        self.heap.retain(|Reverse(deadline)| is_awaited(deadline.task));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(deadline)| deadline.due)
    }

    /// The tasks whose deadline is `now` or earlier, including those that are done.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<TaskId> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|next| next <= now) {
            due.extend(self.heap.pop().map(|Reverse(deadline)| deadline.task));
        }
        due
    }
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Deadline) -> bool {
        self.due == other.due
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Deadline) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Deadline) -> Ordering {
        self.due.cmp(&other.due)
    }
}
