//! The jobs of a task that wait, counted by the size class of their inputs: so what is expected of all of them follows what is
//! learned, however many there are.

use super::{RunTimes, Task, size_of};
use crate::limits::RUN_UNKNOWN;
use crate::small_map::SmallMap;
use std::time::Duration;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    waiting: SmallMap<u32, u32>,
    /// How long all of them are expected to run.
    total: Duration,
}

/// A run that has taken longer than was expected of it, and is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    /// The size class of the input.
    pub(crate) size: u32,
    /// How long it has run.
    pub(crate) ran: Duration,
}

impl Task {
    /// One more of its jobs waits in a queue.
    pub(crate) fn waits(&mut self, input_bytes: u64) {
        *self.backlog.waiting.get_or_add(size_of(input_bytes)) += 1;
        self.sum_up();
    }

    /// One of them does no longer.
    pub(crate) fn waits_no_more(&mut self, input_bytes: u64) {
        let size = size_of(input_bytes);
        let waiting = self.backlog.waiting.get_or_add(size);
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            self.backlog.waiting.remove(&size);
        }
        self.sum_up();
    }

    /// How long its waiting jobs are expected to run, in all.
    pub(crate) fn backlog(&self) -> Duration {
        self.backlog.total
    }

    /// The same if these runs ended now: they take so long at least.
    pub(crate) fn backlog_with(&self, overdue: &[Overdue]) -> Duration {
        self.total(|size| self.planned_with(size, overdue))
    }

    /// How long a run with an input of this size class is assumed to take if these runs ended now.
    pub(crate) fn planned_with(&self, size: u32, overdue: &[Overdue]) -> Duration {
        let with = |times: Option<&RunTimes>, all: bool| {
            let mut times = times.cloned().unwrap_or_default();
            let alike = overdue.iter().filter(|run| all || run.size == size);
            alike.for_each(|run| times.add(run.ran));
            times.mean()
        };
        let of_the_size = with(self.by_size.get(&size), false);
        of_the_size.or_else(|| with(Some(&self.runs), true)).unwrap_or(RUN_UNKNOWN)
    }

    pub(super) fn sum_up(&mut self) {
        self.backlog.total = self.total(|size| self.times_of(size).mean().unwrap_or(RUN_UNKNOWN));
    }

    fn total(&self, planned: impl Fn(u32) -> Duration) -> Duration {
        let waiting = self.backlog.waiting.iter();
        let times = waiting.map(|(size, count)| planned(size).saturating_mul(*count));
        times.fold(Duration::ZERO, Duration::saturating_add)
    }
}
