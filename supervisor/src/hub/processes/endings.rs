//! Workers that are to end, or have ended: what was to be sent to them never is, and of those jobs they cannot know.

use super::{LivingProcess, WorkerProcesses};
use offload_core::ids::{JobId, WorkerId};
use rustix::process::Signal;
use std::io;

impl WorkerProcesses {
    /// Sends a signal that ends the worker, after which nothing else is sent. Returns the jobs of which the worker cannot
    /// know.
    pub(crate) fn terminate(
        &mut self,
        worker: WorkerId,
        signal: Signal,
    ) -> Option<(Vec<JobId>, io::Result<()>)> {
        let living = self.living.get_mut(&worker)?;
        let signalled = living.process.signal(signal);
        Some((living.terminate(), signalled))
    }

    /// The process has ended: nothing else is sent. Returns the jobs of which it cannot know.
    pub(crate) fn stop_writing(&mut self, worker: WorkerId) -> Vec<JobId> {
        self.living.get_mut(&worker).map(LivingProcess::terminate).unwrap_or_default()
    }

    /// Whether this job was put into the worker's outbox, but not one byte of it has been written.
    pub(crate) fn is_unwritten(&self, worker: WorkerId, job: JobId) -> bool {
        self.living.get(&worker).is_some_and(|living| living.is_unwritten(job))
    }
}

impl LivingProcess {
    /// Discards what is not written. Returns the jobs of which not one byte was written.
    fn terminate(&mut self) -> Vec<JobId> {
        self.is_terminated = true;
        self.process.discard_unsent();
        self.unwritten.iter().map(|(job, _)| *job).collect()
    }

    fn is_unwritten(&self, job: JobId) -> bool {
        job >= self.unwritten_from && self.unwritten.iter().any(|(unwritten, _)| *unwritten == job)
    }
}
