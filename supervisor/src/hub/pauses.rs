//! Pauses, by the names of tasks.

use super::Hub;
use crate::views::PausedView;
use offload_core::event::Event;
use offload_core::ids::TaskIndex;
use offload_protocol::limits::TASK_NAME_MAX;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, cut};

impl Hub {
    /// What is paused.
    pub(crate) fn paused(&self) -> PausedView {
        let pauses = self.core.pauses();
        PausedView { all: pauses.holds_everything(), tasks: pauses.names().map(str::to_owned).collect() }
    }

    /// Starts nothing new of this task, or of any if the name is empty.
    ///
    /// # Errors
    /// If no worker has offered such a task.
    pub(crate) fn pause_task(&mut self, task: &str) -> Result<(), ErrorDetail> {
        let task = self.task_or_all(task)?;
        self.handle_event(Event::Pause { task });
        Ok(())
    }

    /// Ends the pause of this task, or all pauses if the name is empty.
    ///
    /// # Errors
    /// If no worker has offered such a task, or all tasks are paused, so that this one would stay so.
    pub(crate) fn resume_task(&mut self, task: &str) -> Result<(), ErrorDetail> {
        let task = self.task_or_all(task)?;
        if task.is_some() && self.core.pauses().holds_everything() {
            let message = "all tasks are paused: resume all of them, then pause those that are to wait";
            return Err(ErrorDetail::new(OutcomeCode::Conflict, message));
        }
        self.handle_event(Event::Resume { task });
        Ok(())
    }

    fn task_or_all(&mut self, name: &str) -> Result<Option<TaskIndex>, ErrorDetail> {
        if name.is_empty() {
            return Ok(None);
        }
        // So that nothing comes between the index and the event, and the task is not forgotten meanwhile.
        self.settle();
        self.core.registry().find_known(name).map(Some).ok_or_else(|| {
            let shown = cut(name, TASK_NAME_MAX).escape_debug();
            let message = format!(
                "no worker has offered a task '{shown}' until now; `offload tasks` lists those that there are"
            );
            ErrorDetail::new(OutcomeCode::UnknownTask, message)
        })
    }
}
