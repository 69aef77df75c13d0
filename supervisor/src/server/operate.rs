//! The requests of those who operate the supervisor.

use super::Front;
use crate::front::{RowWriter, to_json};
use crate::service::Reply;
use offload_protocol::messages::{JobFilter, Operation};

impl Front {
    /// Does what was asked for, and answers.
    pub(super) fn operate(&mut self, id: u64, ticket: u64, operation: &Operation) {
        let reply = match operation {
            Operation::Find { text } => self.service.find_jobs(text),
            Operation::Logs { after, slot, job } => self.service.printed(*after, *slot, job),
            Operation::Pause { task } => self.service.pause(task),
            Operation::Resume { task } => self.service.resume(task),
            Operation::Jobs { after, limit, filter } => {
                return self.answer_with_jobs(id, ticket, filter, (after, *limit));
            }
        };
        self.reply(id, ticket, reply);
    }

    fn answer_with_jobs(&mut self, id: u64, ticket: u64, filter: &JobFilter, (after, limit): (&str, u32)) {
        let mut writer = RowWriter::default();
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        match self.service.jobs_page(filter, after, most, |row| writer.write(&row)) {
            Ok(page) => self.answer(id, ticket, to_json(&page)),
            Err(error) => self.reply(id, ticket, Reply::Refusal(error)),
        }
    }
}
