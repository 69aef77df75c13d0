//! Which workers are stopped (SIGSTOP). What follows is decided in `strays.rs`.

use super::WorkerProcesses;
use offload_core::ids::WorkerId;

impl WorkerProcesses {
    /// The workers that were stopped, or let go on, since they were looked at last, and whether they are stopped now. Only those
    /// that pass `is_asked_for` are looked at.
    pub(crate) fn stop_changes(&mut self, is_asked_for: impl Fn(WorkerId) -> bool) -> Vec<(WorkerId, bool)> {
        let mut changes = Vec::new();
        for (worker, living) in &mut self.living {
            if is_asked_for(*worker) {
                let is_stopped = living.process.is_stopped();
                if std::mem::replace(&mut living.is_stopped, is_stopped) != is_stopped {
                    changes.push((*worker, is_stopped));
                }
            }
        }
        changes
    }
}
