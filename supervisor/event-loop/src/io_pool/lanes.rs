//! The two queues of a pool, and which task is next.
//!
//! Each lane is first in, first out. A slow task waits for the fast tasks that were queued when the slow task before it
//! began (or, if the slow lane was empty, when it was queued itself), and for no later ones. So neither lane starves the
//! other, even on a single thread.

use std::collections::{HashMap, HashSet, VecDeque};

use super::work::QueuedTask;
use super::{Lane, TaskId};

/// If more tasks than this are to be taken out, each lane is filtered once instead of being searched for each task.
const SEARCHES_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Lanes {
    fast: VecDeque<QueuedTask>,
    slow: VecDeque<QueuedTask>,
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

    pub(super) fn push(&mut self, job: QueuedTask) {
        match job.task.lane {
            Lane::Fast => self.fast.push_back(job),
            Lane::Slow => {
                if self.slow.is_empty() {
                    self.fast_before_slow = self.fast.len();
                }
                self.slow.push_back(job);
            }
        }
    }

    /// Whether there is a task that a thread may take.
    pub(super) fn has_next(&self, slow_may_run: bool) -> bool {
        !self.fast.is_empty() || (slow_may_run && !self.slow.is_empty())
    }

    pub(super) fn pop(&mut self, slow_may_run: bool) -> Option<QueuedTask> {
        let slow_goes_first = self.fast_before_slow == 0 || self.fast.is_empty();
        if slow_may_run && slow_goes_first && !self.slow.is_empty() {
            self.fast_before_slow = self.fast.len();
            return self.slow.pop_front();
        }
        self.fast_before_slow = self.fast_before_slow.saturating_sub(1);
        self.fast.pop_front()
    }

    /// Takes a task out of its queue.
    pub(super) fn take(&mut self, task: TaskId) -> Option<QueuedTask> {
        let lane = match task.lane {
            Lane::Fast => &mut self.fast,
            Lane::Slow => &mut self.slow,
        };
        let place = lane.iter().position(|job| job.task == task)?;
        if task.lane == Lane::Fast && place < self.fast_before_slow {
            self.fast_before_slow -= 1;
        }
        lane.remove(place)
    }

    /// Takes those of the given tasks out that wait. However many there are, each lane is searched only a few times.
    pub(super) fn take_each(&mut self, tasks: &[TaskId]) -> HashMap<TaskId, QueuedTask> {
        if tasks.len() <= SEARCHES_MAX {
            return tasks.iter().filter_map(|&task| Some((task, self.take(task)?))).collect();
        }
        let wanted: HashSet<TaskId> = tasks.iter().copied().collect();
        let is_wanted = |job: &QueuedTask| wanted.contains(&job.task);
        let before_slow = self.fast.iter().take(self.fast_before_slow);
        self.fast_before_slow -= before_slow.filter(|job| is_wanted(job)).count();
        let (fast, slow) = (std::mem::take(&mut self.fast), std::mem::take(&mut self.slow));
        let (fast_taken, fast) = fast.into_iter().partition::<VecDeque<_>, _>(is_wanted);
        let (slow_taken, slow) = slow.into_iter().partition::<VecDeque<_>, _>(is_wanted);
        (self.fast, self.slow) = (fast, slow);
        fast_taken.into_iter().chain(slow_taken).map(|job| (job.task, job)).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<QueuedTask> {
        self.fast.drain(..).chain(self.slow.drain(..)).collect()
    }
}
