//! The requests of those who operate the supervisor.

use super::Front;
use offload_protocol::messages::Operation;

impl Front {
    /// Does what was asked for, and answers.
    pub(super) fn operate(&mut self, id: u64, ticket: u64, operation: &Operation) {
        let reply = match operation {
            Operation::Find { text } => self.service.find_jobs(text),
        };
        self.reply(id, ticket, reply);
    }
}
