//! Which tasks are offered, as far as workers have said.

use super::{Oracle, ProgramBook};
use offload_protocol::nouns::is_task_name;

impl Oracle {
    /// Whether a job for this task may be refused because nobody offers it.
    pub(super) fn is_unknown(&self, task: &str) -> bool {
        let is_offered = self.programs.iter().any(|program| program.offers.iter().any(|name| name == task));
        let all_known = self.programs.iter().all(|program| program.has_said_hello);
        // When a version is taken back, what the one before it offered last counts again; when workers are too many, what
        // only they offered is offered no more.
        let was_dropped = self.programs.iter().any(|program| program.dropped.iter().any(|name| name == task));
        let may_be_dropped = self.reloads.has_been_asked() || self.is_resized;
        let is_gone = !is_offered || (may_be_dropped && was_dropped);
        let is_done_here = task == crate::script::HERE && self.here.places > 0;
        !is_task_name(task) || (all_known && is_gone && !is_done_here)
    }

    /// Whether any worker has ever offered this task.
    pub(super) fn was_offered(&self, task: &str) -> bool {
        let ever =
            |program: &ProgramBook| program.offers.iter().chain(&program.dropped).any(|name| name == task);
        self.programs.iter().any(ever)
    }
}
