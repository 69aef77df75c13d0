//! Records of what is paused. Of a paused task nothing is given to a worker or done by the shell, and nothing is left in a
//! tray (O25).

use super::{Failure, Oracle, demand};
use offload_core::Core;
use offload_core::event::Event;
use offload_core::ids::{JobId, TaskIndex};
use std::collections::BTreeSet;

const RULE: &str = "O25";

/// What is paused, by the names of the tasks.
#[derive(Debug, Default)]
pub(super) struct PauseBook {
    everything: bool,
    tasks: BTreeSet<String>,
}

impl PauseBook {
    pub(super) fn pause(&mut self, task: Option<String>) {
        match task {
            None => self.everything = true,
            Some(task) => drop(self.tasks.insert(task)),
        }
    }

    pub(super) fn resume(&mut self, task: Option<&str>) {
        match task {
            None => *self = PauseBook::default(),
            Some(task) => drop(self.tasks.remove(task)),
        }
    }
}

/// The name of a task that the core knows.
fn name_of(core: &Core, task: TaskIndex) -> Option<String> {
    core.registry().has(task).then(|| core.registry().task(task).name.to_string())
}

impl Oracle {
    pub(super) fn note_pauses(&mut self, event: &Event, core: &Core) {
        let (Event::Pause { task } | Event::Resume { task }) = event else { return };
        let name = task.map(|task| name_of(core, task));
        match (event, name) {
            (_, Some(None)) => {}
            (Event::Pause { .. }, name) => self.pauses.pause(name.flatten()),
            (_, name) => self.pauses.resume(name.flatten().as_deref()),
        }
    }

    pub(super) fn is_paused(&self, id: JobId) -> bool {
        self.pauses.everything || self.pauses.tasks.contains(&self.jobs[&id].task)
    }

    /// The job is given to a worker, or done by the shell.
    pub(super) fn judge_pause(&self, id: JobId) -> Result<(), Failure> {
        demand(!self.is_paused(id), RULE, || {
            format!("{id} is started, and its task is paused: {:?}", self.pauses)
        })
    }

    pub(super) fn compare_pauses(&self) -> Result<(), Failure> {
        for (worker, book) in &self.workers {
            let left = book.left_in_tray().filter(|id| self.live.contains(id) && self.is_paused(*id));
            demand(left.is_none(), RULE, || format!("{left:?} is paused and left in the tray of {worker}"))?;
        }
        Ok(())
    }
}
