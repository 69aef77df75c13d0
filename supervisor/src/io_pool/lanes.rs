//! The two queues of a pool and whose turn is next.
//!
//! Each lane is first in, first out. When the slow lane may have a thread, its first task goes after the fast ones
//! that waited already when the slow task before it began, or when it came to an empty slow lane: so neither lane
//! starves the other, even on a single thread.

use std::collections::VecDeque;

use super::work::Job;
use super::{Lane, TaskId};

#[derive(Default)]
pub(super) struct Lanes {
    fast: VecDeque<Job>,
    slow: VecDeque<Job>,
    /// How many fast tasks go before the next slow one.
    fast_before_slow: usize,
}

impl Lanes {
    pub(super) fn len(&self, lane: Lane) -> usize {
        match lane {
            Lane::Fast => self.fast.len(),
            Lane::Slow => self.slow.len(),
        }
    }

    pub(super) fn push(&mut self, job: Job) {
        match job.lane {
            Lane::Fast => self.fast.push_back(job),
            Lane::Slow => {
                if self.slow.is_empty() {
                    self.fast_before_slow = self.fast.len();
                }
                self.slow.push_back(job);
            }
        }
    }

    /// A thread would find something to do.
    pub(super) fn has_next(&self, slow_may_run: bool) -> bool {
        !self.fast.is_empty() || (slow_may_run && !self.slow.is_empty())
    }

    pub(super) fn pop(&mut self, slow_may_run: bool) -> Option<Job> {
        let slow_goes_first = self.fast_before_slow == 0 || self.fast.is_empty();
        if slow_may_run && slow_goes_first && !self.slow.is_empty() {
            self.fast_before_slow = self.fast.len();
            return self.slow.pop_front();
        }
        self.fast_before_slow = self.fast_before_slow.saturating_sub(1);
        self.fast.pop_front()
    }

    /// Takes a task out of its queue.
    pub(super) fn take(&mut self, task: TaskId) -> Option<Job> {
        if let Some(place) = self.fast.iter().position(|job| job.task == task) {
            self.fast_before_slow =
                self.fast_before_slow.saturating_sub(usize::from(place < self.fast_before_slow));
            return self.fast.remove(place);
        }
        let place = self.slow.iter().position(|job| job.task == task)?;
        self.slow.remove(place)
    }

    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.fast.drain(..).chain(self.slow.drain(..)).collect()
    }
}
