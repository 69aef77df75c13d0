//! Jobs that nobody wants any more: whoever submitted one is gone, nobody else waits for it, and nothing was promised of
//! its result. Nobody is left who would cancel it, so it must not be able to live for ever.
//!
//! ```text
//!   it waits                                cancelled now
//!   a worker has it, and may even run it    it may be done; if it comes back to its queue, for whatever reason,
//!                                           it is cancelled then
//!   somebody waits for it again             as if nothing had been
//! ```

use super::ids::JobId;
use super::outcome;
use super::turn::Turn;
use super::{Core, Ending};
use offload_protocol::nouns::OutcomeCode;

impl Core {
    /// Nobody waits for a job any more. It matters only if nothing is kept of it for those who come later.
    pub(super) fn on_abandoned(&mut self, id: JobId) {
        let is_promised = self.promises.has(id);
        let Some(job) = self.jobs.get_mut(id).filter(|_| !is_promised) else { return };
        job.is_abandoned = true;
        if !job.state.is_with_a_worker() {
            self.unwanted.push(id);
        }
    }

    /// Somebody waits for it again.
    pub(super) fn want_again(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.is_abandoned = false;
        }
    }

    /// A job waits again that a worker had.
    pub(super) fn end_if_abandoned(&mut self, id: JobId) {
        if self.jobs.get(id).is_some_and(|job| job.is_abandoned) {
            self.unwanted.push(id);
        }
    }

    /// Ends those that wait and that nobody wants.
    pub(super) fn end_unwanted(&mut self, turn: &mut Turn<'_>) {
        for id in std::mem::take(&mut self.unwanted) {
            let error = outcome::error(OutcomeCode::Cancelled, "its client is gone, and nobody waits for it");
            self.finish(turn, id, Ending::of(error));
        }
    }
}
