//! Tasks that are paused: nothing new of them starts. Their jobs are accepted, wait and expire as all others do, and what runs goes
//! on. A job that was lost with its worker, or was given back, waits as well.
//!
//! ```text
//!               accepted, lost or given back: enqueue
//!             /                                      \
//!   not paused                                        paused
//!            v   its turn: set_paused_aside            v
//!      in a queue ------------------------------> set aside: in no queue, so no other job waits behind it
//!                 <------------------------------
//!                        resume_paused
//! ```
//!
//! A queue lists each client under its first job. So when a pause begins, only first jobs are set aside; what is behind others
//! follows when it is first. At most [`MOVED_MAX`] jobs are moved in one event: until then `may_start_kind` keeps the rest.
//!
//! A pause is of a name: it goes on when nobody offers the task any more, and when somebody offers it again. But its jobs are not
//! kept for a task that is gone: like others they wait until all programs have said what they offer, and end if none offers it.
//!
//! A job that was sent to a worker and has not started cannot be had back. It starts: at most a window of tiny ones for each worker.

use super::Core;
use super::ids::{JobId, ProgramIndex, SlotIndex, TaskIndex};
use super::jobs::{Job, JobState};
use super::nanos::MaybeNanos;
use super::queue::Next;
use super::turn::Turn;
use crate::limits::MOVED_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is paused.
#[derive(Debug, Default)]
pub struct Pauses {
    everything: bool,
    names: BTreeSet<Arc<str>>,
    /// The tasks of these names. They are not forgotten, so these are their indexes also when nobody offers them.
    tasks: BTreeSet<TaskIndex>,
    /// The jobs that were set aside; at least one of each task that is here.
    waiting: BTreeMap<TaskIndex, BTreeSet<JobId>>,
    /// A pause has ended, and jobs that it had set aside may still be there.
    has_some_to_resume: bool,
}

impl Pauses {
    /// Whether jobs of this task wait because of a pause.
    pub fn holds(&self, task: TaskIndex) -> bool {
        self.everything || self.tasks.contains(&task)
    }

    /// Whether all tasks are paused, also those that nobody offers yet.
    pub fn holds_everything(&self) -> bool {
        self.everything
    }

    /// How many jobs were set aside.
    pub fn waiting_count(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Whether this job was set aside.
    pub(super) fn has(&self, id: JobId, job: &Job) -> bool {
        job.task.and_then(|task| self.waiting.get(&task)).is_some_and(|jobs| jobs.contains(&id))
    }

    fn is_nothing_paused(&self) -> bool {
        !self.everything && self.tasks.is_empty()
    }

    /// The names of the tasks that were paused one by one, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The tasks that were paused one by one.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskIndex> {
        self.tasks.iter().copied()
    }
}

impl Core {
    /// What is paused.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Pauses the tasks of one name, or all of them. A task that does not exist has no effect.
    pub(super) fn on_pause(&mut self, turn: &mut Turn<'_>, task: Option<TaskIndex>) {
        match task {
            None => self.pauses.everything = true,
            Some(task) if self.registry.has(task) => {
                self.pauses.names.insert(self.registry.task(task).name.clone());
                self.pauses.tasks.insert(task);
            }
            Some(_) => return,
        }
        let slots: Vec<SlotIndex> =
            (0..self.slots.len()).filter(|&slot| self.has_paused_in_tray(slot)).collect();
        slots.into_iter().for_each(|slot| self.want_back(turn, slot));
    }

    /// Ends the pause of the tasks of one name, or all pauses.
    pub(super) fn on_resume(&mut self, task: Option<TaskIndex>) {
        let registry = &self.registry;
        match task {
            None => {
                self.pauses.everything = false;
                self.pauses.names.clear();
                self.pauses.tasks.clear();
            }
            Some(task) if registry.has(task) => {
                self.pauses.names.remove(&registry.task(task).name);
                self.pauses.tasks.remove(&task);
            }
            Some(_) => return,
        }
        self.pauses.has_some_to_resume = true;
    }

    /// The job waits in no queue from now on, until its task is resumed. Its place is what it was: rank depends on its age.
    pub(super) fn set_aside(&mut self, id: JobId, task: TaskIndex) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        (job.task, job.state) = (Some(task), JobState::Paused);
        // Nobody foresees how long a pause takes.
        job.expected_wait = MaybeNanos::default();
        let client = job.client;
        self.jobs.unpark(id);
        self.clients.waits(client);
        self.pauses.waiting.entry(task).or_default().insert(id);
    }

    /// Sets aside the jobs of paused tasks that are first in their queues, so that the jobs behind them may start; at most so
    /// many. Returns how many.
    pub(super) fn set_paused_aside(&mut self, program: ProgramIndex, most: usize) -> usize {
        let mut moved = 0;
        while let Some(id) = self.first_paused(program) {
            if moved == most {
                self.has_more_to_move = true;
                break;
            }
            let Some(task) = self.jobs.get(id).and_then(|job| job.task) else { break };
            self.dequeue(id);
            self.set_aside(id, task);
            moved += 1;
        }
        moved
    }

    fn first_paused(&self, program: ProgramIndex) -> Option<JobId> {
        if self.pauses.is_nothing_paused() {
            return None;
        }
        let mut queues = self.programs[program].queues();
        queues.find_map(|queue| queue.first_of(|kind| self.pauses.holds(kind.task))).map(Next::job)
    }

    /// Puts jobs of tasks that are paused no more into their queues. In the meantime their tasks may have become unavailable,
    /// which is checked after this.
    pub(super) fn resume_paused(&mut self) {
        if !std::mem::take(&mut self.pauses.has_some_to_resume) {
            return;
        }
        let pauses = &self.pauses;
        let resumed = pauses.waiting.iter().filter(|(task, _)| !pauses.holds(**task));
        let jobs: Vec<JobId> =
            resumed.flat_map(|(_, jobs)| jobs.iter().copied()).take(MOVED_MAX + 1).collect();
        self.pauses.has_some_to_resume = jobs.len() > MOVED_MAX;
        self.has_more_to_move |= self.pauses.has_some_to_resume;
        for id in jobs.into_iter().take(MOVED_MAX) {
            self.release_paused(id);
            self.enqueue(id);
            self.places_changed = true;
        }
    }

    /// Jobs of tasks that nobody offers any more are not set aside any longer: whether they can ever start is decided as for others.
    pub(super) fn release_unoffered(&mut self) {
        let waiting = self.pauses.waiting.iter();
        let unoffered = waiting.filter(|(task, _)| !self.registry.is_on_offer(**task));
        let jobs: Vec<JobId> =
            unoffered.flat_map(|(_, jobs)| jobs.iter().copied()).take(MOVED_MAX + 1).collect();
        if jobs.len() > MOVED_MAX {
            self.move_more_later();
        }
        for id in jobs.into_iter().take(MOVED_MAX) {
            self.release_paused(id);
            self.enqueue(id);
        }
    }

    /// The job is set aside no more; the caller decides where it goes.
    pub(super) fn release_paused(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.state == JobState::Paused) else { return };
        self.clients.waits_no_more(job.client);
        let Some(task) = job.task else { return };
        let Some(jobs) = self.pauses.waiting.get_mut(&task) else { return };
        jobs.remove(&id);
        if jobs.is_empty() {
            self.pauses.waiting.remove(&task);
        }
    }

    /// Checks that no job waits behind one of a paused task, and that nobody is forgotten when a pause ends.
    pub(super) fn check_pauses(&self) -> Result<(), String> {
        let forgotten = self.pauses.waiting.keys().find(|task| !self.pauses.holds(**task));
        if let Some(task) = forgotten.filter(|_| !self.pauses.has_some_to_resume) {
            return Err(format!("jobs of task {task} are set aside, and it is not paused"));
        }
        let first = (0..self.programs.len()).find_map(|program| self.first_paused(program));
        match first.filter(|_| !self.has_more_to_move) {
            Some(id) => Err(format!("{id} is paused and first in its queue")),
            None => Ok(()),
        }
    }

    fn has_paused_in_tray(&self, slot: SlotIndex) -> bool {
        let tray = self.slots[slot].load().and_then(|load| load.tray);
        let task = tray.and_then(|tray| self.jobs.get(tray.job)?.task);
        task.is_some_and(|task| self.pauses.holds(task))
    }
}
