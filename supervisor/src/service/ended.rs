//! What is kept of jobs that have ended.

use super::{Account, Collection, Found, Reply, Service};
use crate::hub::Hub;
use bytes::Bytes;
use offload_core::ids::JobId;
use offload_protocol::nouns::OutcomeCode;
use std::cell::Ref;

impl Service {
    /// How a job ended, and its output if that is kept. None if it has not ended or is not known.
    pub fn end_of_job(&self, name: &str) -> Option<(offload_protocol::nouns::Report, Option<Bytes>)> {
        let hub = self.hub_without_old_outputs();
        let job = hub.find(name).filter(|job| !hub.is_live(*job))?;
        hub.look_up(job).map(|record| record.end())
    }

    /// Gives a job up: cancels it, or, if it has ended, no longer keeps its output.
    pub fn give_up(&self, name: &str) -> Reply {
        if let Ok(Found::Ended(job)) = self.find(name) {
            self.hub().borrow_mut().give_up_output(job);
        }
        self.cancel(name)
    }

    pub(super) fn result_of(&self, job: JobId, account: &Account) -> Reply {
        let hub = self.hub_without_old_outputs();
        let found = hub.look_up(job).map(|record| record.finished().ok_or_else(|| record.no_output()));
        match found {
            Some(Ok(finished)) => {
                drop(hub);
                // What is kept may be forgotten while it is on its way to this client.
                let held = account.hold_output(job, finished.output.len());
                let collection = Collection::new(self.clone(), job);
                Reply::report(Box::new(finished), Some(collection), held)
            }
            Some(Err(why)) => Reply::Refusal(why),
            None => Reply::refusal(OutcomeCode::NoSuchJob, hub.why_unknown(&hub.name(job))),
        }
    }

    /// The hub without outputs whose time is over.
    pub(super) fn hub_without_old_outputs(&self) -> Ref<'_, Hub> {
        self.hub().borrow_mut().forget_old_outputs();
        self.hub().borrow()
    }
}
