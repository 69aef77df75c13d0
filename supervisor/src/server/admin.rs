//! What those who run the supervisor ask for: why a job waits, what became of the dead ones.

use super::Front;
use offload_protocol::messages::DeadDeed;
use offload_protocol::nouns::OutcomeCode;

impl Front {
    pub(super) fn explain(&mut self, id: u64, ticket: u64, name: &str) {
        let explanation = {
            let hub = self.hub.borrow();
            hub.find(name).and_then(|job| hub.explain(job))
        };
        match explanation {
            Some(explanation) => self.answer(id, ticket, &explanation),
            None => self.reject_unknown(id, ticket, name),
        }
    }

    pub(super) fn dead(&mut self, id: u64, ticket: u64, deed: DeadDeed, name: &str) {
        let letter = {
            let hub = self.hub.borrow();
            hub.find(name).and_then(|job| Some((job, hub.dead_letter(job)?)))
        };
        let Some((job, letter)) = letter else {
            let message =
                "there is no dead letter of this job; `offload dead list` shows those that there are";
            return self.reject(id, ticket, OutcomeCode::NoSuchJob, message);
        };
        match deed {
            DeadDeed::Show => self.answer(id, ticket, &letter),
            DeadDeed::Drop => {
                self.hub.borrow_mut().drop_dead_letter(job);
                self.answer(id, ticket, &serde_json::json!({ "job": name, "dropped": true }));
            }
            DeadDeed::Retry => self.retry_dead(id, ticket, job, name),
        }
    }

    fn retry_dead(&mut self, id: u64, ticket: u64, job: offload_core::ids::JobId, name: &str) {
        let Some(client) = self.clients.get(&id) else { return };
        let asker = (client.connection.client(), client.peer);
        let retried = self.hub.borrow_mut().retry_dead_letter(job, asker);
        match retried {
            Some(Ok(submitted)) => {
                let again = self.hub.borrow().name(submitted.job);
                self.answer(id, ticket, &serde_json::json!({ "dead": name, "job": again }));
            }
            Some(Err(refused)) => self.refuse(id, ticket, &refused.error),
            None => self.reject_unknown(id, ticket, name),
        }
    }
}
