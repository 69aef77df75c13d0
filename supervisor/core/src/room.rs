//! What the jobs have on their clients' accounts, and what follows from it: who is let in and who may start. The rules
//! are in [`ledger`](super::ledger).

use super::Core;
use super::ids::{JobId, ProgramIndex, TaskIndex};
use super::jobs::Job;
use super::ledger::{Holding, Holdings, Short};
use super::queue::{Kind, Next};
use super::registry::size_of;
use super::submit::full;
use super::waiting::Line;
use crate::limits::STALL_TIMEOUT;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};

impl Core {
    pub(super) fn on_held(&mut self, client: &str, what: Holding, bytes: u64) {
        if is_the_shells(what) {
            self.ledger.hold(client, what, bytes);
            self.note_level(client);
        }
    }

    pub(super) fn on_released(&mut self, client: &str, what: Holding, bytes: u64) {
        if is_the_shells(what) {
            self.ledger.release(client, what, bytes);
            self.note_level(client);
        }
    }

    /// Whether an input of so many bytes may come in for this client: for those who ask again and again.
    pub fn takes_in(&self, client: &str, bytes: u64) -> bool {
        self.ledger.has_room(self.config.max_bytes, client, bytes).is_ok()
    }

    /// The same.
    ///
    /// # Errors
    /// Why not, and when it is worth asking again.
    pub fn room_for(&self, client: &str, bytes: u64) -> Result<(), ErrorDetail> {
        let limit = self.config.max_bytes;
        let Err(short) = self.ledger.has_room(limit, client, bytes) else { return Ok(()) };
        let (all, own) = (self.ledger.all(), self.ledger.of(client));
        match short {
            Short::OfItsShare => {
                let (held, free) = (own.total(), limit - all.total());
                let message = format!(
                    "no room for {bytes} bytes of input: {held} are held for this client, {free} of {limit} are free, \
                     and one client may hold as much as it leaves free"
                );
                Err(self.short_of(OutcomeCode::Quota, &message, own))
            }
            Short::OfRoom => {
                let held = all.total();
                let message = format!(
                    "no room for {bytes} bytes of input: {held} are held, the limit is {limit} bytes"
                );
                Err(self.short_of(OutcomeCode::Overloaded, &message, all))
            }
        }
    }

    /// What is read goes away as slowly as its readers may be; all else by being worked on.
    fn short_of(&self, code: OutcomeCode, message: &str, held: Holdings) -> ErrorDetail {
        let wait = self.retry_after(None);
        if held.of(Holding::Outgoing) <= held.total() / 2 {
            return full(code, message, wait);
        }
        full(
            code,
            &format!("{message}; most of it is output that has not been read"),
            wait.max(STALL_TIMEOUT),
        )
    }

    /// The first job of each queue that may start, as far as memory is concerned, in the order in which they are served.
    /// Takes time in proportion to the kinds of jobs, however many clients may not start theirs.
    pub(super) fn heads_to_start(&self, program: ProgramIndex) -> impl Iterator<Item = (Next, Line)> {
        self.programs[program].heads(|kind| {
            self.looks.count();
            self.may_start_kind(kind)
        })
    }

    /// Whether the outputs of the job's client are within its share, with its own.
    pub(super) fn may_start(&self, job: &Job) -> bool {
        job.task.is_none_or(|task| self.may_start_kind(self.kind_of(job, task)))
    }

    fn may_start_kind(&self, kind: Kind) -> bool {
        let expected = self.registry.task(kind.task).likely_output_of(kind.size);
        self.ledger.may_start(self.config.max_bytes, kind.level, expected)
    }

    /// How the job of this task is listed now among those that wait.
    pub(super) fn kind_of(&self, job: &Job, task: TaskIndex) -> Kind {
        Kind { task, size: size_of(job.input_bytes), level: self.ledger.level_of(&job.account) }
    }

    /// What a client has of outputs may have changed: its jobs that wait are listed by that.
    fn note_level(&mut self, client: &str) {
        let Some(id) = self.clients.id_of(client) else { return };
        let level = self.ledger.level_of(client);
        for queue in self.programs.iter_mut().flat_map(super::Program::queues_mut) {
            queue.set_level(id, level);
        }
    }

    fn likely_output(&self, job: &Job) -> u64 {
        job.task.map_or(0, |task| self.registry.task(task).likely_output(job.input_bytes))
    }

    /// A job is given to a worker: room for what it is likely to return is set aside.
    pub(super) fn expect_output(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (client, expected) = (job.account.clone(), self.likely_output(job));
        self.ledger.hold(&client, Holding::Expected, expected);
        self.note_level(&client);
        if let Some(job) = self.jobs.get_mut(id) {
            job.expected_output = expected;
        }
    }

    /// The job has returned, or is not with a worker any more.
    pub(super) fn expect_no_output(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let expected = std::mem::take(&mut job.expected_output);
        if expected > 0
            && let Some(job) = self.jobs.get(id)
        {
            let client = job.account.clone();
            self.ledger.release(&client, Holding::Expected, expected);
            self.note_level(&client);
        }
    }

    /// The output of a job is here.
    pub(super) fn hold_output(&mut self, id: JobId, bytes: u64) {
        self.expect_no_output(id);
        let Some(job) = self.jobs.get(id) else { return };
        let client = job.account.clone();
        self.ledger.hold(&client, Holding::Outgoing, bytes);
        self.note_level(&client);
    }

    pub(super) fn change_checkpoint(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get(id) else { return };
        let (client, before) = (job.account.clone(), job.checkpoint_bytes);
        self.ledger.release(&client, Holding::Inputs, before);
        self.ledger.hold(&client, Holding::Inputs, bytes);
        self.jobs.set_checkpoint(id, bytes);
    }

    /// A job is about to be forgotten.
    pub(super) fn settle_account(&mut self, id: JobId) {
        self.expect_no_output(id);
        let Some(job) = self.jobs.get(id) else { return };
        self.ledger.release(&job.account, Holding::Inputs, job.held_bytes());
    }
}

fn is_the_shells(what: Holding) -> bool {
    !matches!(what, Holding::Inputs | Holding::Expected)
}
