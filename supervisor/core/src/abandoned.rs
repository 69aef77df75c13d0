//! Abandoned jobs: the client that submitted the job is gone, no other client waits for the job, and no promise says
//! that its result will be kept. Nobody is left who could cancel an abandoned job, so the core cancels it.
//!
//! ```text
//!   the job waits in a queue          cancelled now
//!   a worker has the job              left alone: it may still be done. If it would go back to its queue, for whatever
//!                                     reason, it is cancelled instead
//!   a client waits for the job again  no longer abandoned: nothing happens to the job
//! ```

use super::ids::JobId;
use super::outcome;
use super::turn::Turn;
use super::{Core, Ending};
use offload_protocol::nouns::OutcomeCode;

/// Why a job is cancelled whose client is gone.
pub(super) const CLIENT_GONE: &str = "its client is gone, and nobody waits for it";

impl Core {
    /// Nobody waits for a job any more. The job is abandoned unless its result, or its key, was promised to be kept.
    pub(super) fn on_abandoned(&mut self, id: JobId) {
        let is_promised = self.promises.has(id);
        let Some(job) = self.jobs.get_mut(id).filter(|_| !is_promised) else { return };
        job.is_abandoned = true;
        if !job.state.is_dispatched() {
            self.unwanted.push(id);
        }
    }

    /// A client waits for the job again: it is no longer abandoned.
    pub(super) fn want_again(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.is_abandoned = false;
        }
    }

    /// Called when a job goes back to its queue from a worker: an abandoned one is put on the list of jobs to end.
    pub(super) fn end_if_abandoned(&mut self, id: JobId) {
        if self.jobs.get(id).is_some_and(|job| job.is_abandoned) {
            self.unwanted.push(id);
        }
    }

    /// Cancels the waiting jobs that nobody wants.
    pub(super) fn end_unwanted(&mut self, turn: &mut Turn<'_>) {
        for id in std::mem::take(&mut self.unwanted) {
            let error = outcome::error(OutcomeCode::Cancelled, CLIENT_GONE);
            self.finish(turn, id, Ending::of(error));
        }
    }
}
