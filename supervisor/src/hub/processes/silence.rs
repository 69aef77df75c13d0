//! Which workers owe bytes, and at how many checks in a row they were silent. What follows is decided in `stalls.rs`.

use super::{LivingProcess, Reading, WorkerProcesses};
use offload_core::ids::WorkerId;
use std::time::Instant;

impl WorkerProcesses {
    /// Whether the worker has to send the rest of a message, or to take what is written to it. `runs` says whether the
    /// worker is running a job.
    pub(crate) fn owes_bytes(&self, worker: WorkerId, runs: bool) -> bool {
        self.living.get(&worker).is_some_and(|living| living.owes_bytes(runs))
    }

    /// Whether no byte has gone in or out since `when`.
    pub(crate) fn is_silent_since(&self, worker: WorkerId, when: Instant) -> bool {
        self.living.get(&worker).is_some_and(|living| living.progress_at <= when)
    }

    /// Counts one check, at which the workers in `silent` were silent.
    pub(crate) fn count_checks(&mut self, silent: &[WorkerId]) {
        for (worker, living) in &mut self.living {
            living.silent_checks = if silent.contains(worker) { living.silent_checks + 1 } else { 0 };
        }
    }

    /// The first byte that the worker has printed to its standard output.
    pub(crate) fn first_printed(&self, worker: WorkerId) -> Option<u8> {
        self.living.get(&worker)?.process.first_printed()
    }

    /// Number of checks in a row at which the worker was silent.
    pub(crate) fn silent_checks(&self, worker: WorkerId) -> u32 {
        self.living.get(&worker).map_or(0, |living| living.silent_checks)
    }
}

impl LivingProcess {
    /// Whether bytes are expected from the process. A worker that runs a job need not read the next one.
    fn owes_bytes(&self, runs: bool) -> bool {
        let owes_more = self.process.is_mid_frame() && self.reading != Reading::Waits;
        owes_more || (self.process.unsent() > 0 && !runs)
    }
}
