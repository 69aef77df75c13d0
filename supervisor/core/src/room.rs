//! Admission by memory: charges the bytes of jobs to their clients' accounts, decides whether an input may come in,
//! and whether a job may start. The rules are in [`ledger`](super::ledger).

use super::Core;
use super::ids::{JobId, Mono, ProgramIndex, TaskIndex};
use super::jobs::Job;
use super::ledger::{Exceeding, Holding, Holdings, Short};
use super::queue::{Kind, Next};
use super::registry::size_of;
use super::submit::full;
use super::waiting::Line;
use crate::limits::STALL_TIMEOUT;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::vec::IntoIter;

impl Core {
    pub(super) fn on_held(&mut self, client: &str, what: Holding, bytes: u64) {
        if is_counted_by_shell(what) {
            self.hold(client, what, bytes);
        }
    }

    pub(super) fn on_released(&mut self, client: &str, what: Holding, bytes: u64) {
        if is_counted_by_shell(what) {
            self.release(client, what, bytes);
        }
    }

    /// Whether an input of this many bytes may come in for this client, or so many more of one of which `came` bytes are held already.
    /// Cheap, for callers that ask again and again.
    pub fn takes_in(&self, client: &str, bytes: u64, came: u64) -> bool {
        self.ledger.has_room(self.config.max_bytes, client, bytes, came).is_ok()
    }

    /// Like [`Core::takes_in`], with a reason.
    ///
    /// # Errors
    /// Why the input may not come in, and when it is worth asking again: `quota` if the client's share is used up,
    /// `overloaded` if there is no room for anybody.
    pub fn room_for(&self, now: Mono, client: &str, bytes: u64, came: u64) -> Result<(), ErrorDetail> {
        let limit = self.config.max_bytes;
        let Err(short) = self.ledger.has_room(limit, client, bytes, came) else { return Ok(()) };
        let (all, own) = (self.ledger.all(), self.ledger.of(client));
        match short {
            Short::OfItsShare => {
                let (held, free) = (own.total(), limit - all.total());
                let message = format!(
                    "no room for {bytes} bytes of input: {held} are held for this client, {free} of {limit} are free, \
                     and one client may hold as much as it leaves free"
                );
                Err(self.short_of(now, OutcomeCode::Quota, &message, own))
            }
            Short::OfRoom => {
                let held = all.total();
                let message = format!(
                    "no room for {bytes} bytes of input: {held} are held, the limit is {limit} bytes{}",
                    if held.saturating_add(bytes) > limit {
                        ""
                    } else {
                        ", and a client may hold as much as it leaves free"
                    }
                );
                Err(self.short_of(now, OutcomeCode::Overloaded, &message, all))
            }
        }
    }

    /// Most of what is held may be unread output. It goes away only as fast as its readers read, so the suggested
    /// wait is then at least [`STALL_TIMEOUT`]; everything else goes away as jobs are done.
    fn short_of(&self, now: Mono, code: OutcomeCode, message: &str, held: Holdings) -> ErrorDetail {
        let wait = self.retry_after(now, None);
        if held.of(Holding::Outgoing) <= held.total() / 2 {
            return full(code, message, wait);
        }
        full(
            code,
            &format!("{message}; most of it is output that has not been read"),
            wait.max(STALL_TIMEOUT),
        )
    }

    /// For each queue, the first job that may start as far as memory and pauses are concerned, in the order in which the jobs
    /// would be served. Takes time in proportion to the number of job kinds, not to the number of clients that may
    /// not start theirs.
    pub(super) fn heads_to_start(&self, program: ProgramIndex) -> IntoIter<(Next, Line)> {
        let may_start = |kind| {
            self.looks.count();
            self.may_start_kind(kind)
        };
        self.programs[program].heads(may_start, |kind| self.is_short(kind.task, kind.size))
    }

    /// Whether the outputs of the job's client, with the one that this job is expected to return, are within the
    /// client's share.
    pub(super) fn fits_into_share(&self, job: &Job) -> bool {
        job.task.is_none_or(|task| self.has_room_to_start(self.kind_of(job, task)))
    }

    /// Whether neither memory nor a pause keeps a job of this kind from being started.
    pub(super) fn may_start_kind(&self, kind: Kind) -> bool {
        !self.pauses.holds(kind.task) && self.has_room_to_start(kind)
    }

    fn has_room_to_start(&self, kind: Kind) -> bool {
        let task = self.registry.task(kind.task);
        let limit = self.config.max_bytes;
        self.ledger.may_start(limit, kind.level, task.likely_output_of(kind.size))
            || self.ledger.may_exceed(limit, kind.level, task.known_output_of(kind.size), || self.exceeding())
    }

    fn exceeding(&self) -> Exceeding {
        Exceeding {
            longest: self.config.max_payload,
            workers: self.config.workers as u64,
            busy: self.slots.iter().filter(|slot| slot.load().is_some()).count() as u64,
        }
    }

    /// The kind under which this job waits now. `task` is the job's task.
    pub(super) fn kind_of(&self, job: &Job, task: TaskIndex) -> Kind {
        Kind { task, size: size_of(job.input_bytes), level: self.ledger.level_of(self.account_of(job)) }
    }

    pub(super) fn hold(&mut self, client: &str, what: Holding, bytes: u64) {
        if self.ledger.hold(client, what, bytes) {
            self.note_level(client);
        }
    }

    pub(super) fn release(&mut self, client: &str, what: Holding, bytes: u64) {
        if self.ledger.release(client, what, bytes) {
            self.note_level(client);
        }
    }

    /// The level of the client's outputs has changed: its waiting jobs are listed under the new one.
    fn note_level(&mut self, client: &str) {
        let Some(id) = self.clients.id_of(client) else { return };
        let level = self.ledger.level_of(client);
        for queue in self.programs.iter_mut().flat_map(super::Program::queues_mut) {
            queue.set_level(id, level);
        }
    }

    pub(super) fn likely_output(&self, job: &Job) -> u64 {
        job.task.map_or(0, |task| self.registry.task(task).likely_output(job.input_bytes))
    }

    /// The job is dispatched to a worker: room for its likely output is reserved, in memory and among what is kept.
    pub(super) fn expect_output(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (client, expected) = (self.account_of(job).clone(), self.likely_output(job));
        self.hold(&client, Holding::Expected, expected);
        self.promises.expect(id, expected);
        if let Some(job) = self.jobs.get_mut(id) {
            job.expected_output = expected;
        }
    }

    /// The job has returned, or no worker has it any more: the reservation for its output ends.
    pub(super) fn expect_no_output(&mut self, id: JobId) {
        self.promises.expect_nothing(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let expected = std::mem::take(&mut job.expected_output);
        if expected > 0
            && let Some(job) = self.jobs.get(id)
        {
            let client = self.account_of(job).clone();
            self.release(&client, Holding::Expected, expected);
        }
    }

    /// The job's output has arrived: it is charged to the client in place of the reservation.
    pub(super) fn hold_output(&mut self, id: JobId, bytes: u64) {
        self.expect_no_output(id);
        let Some(job) = self.jobs.get(id) else { return };
        let client = self.account_of(job).clone();
        self.hold(&client, Holding::Outgoing, bytes);
    }

    pub(super) fn change_checkpoint(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get(id) else { return };
        let (client, before) = (self.account_of(job).clone(), job.past.checkpoint_bytes);
        self.ledger.release(&client, Holding::Inputs, before);
        self.ledger.hold(&client, Holding::Inputs, bytes);
        self.jobs.set_checkpoint(id, bytes);
    }

    /// The job is about to be forgotten: its reservation, input and checkpoint are taken off the client's account.
    pub(super) fn release_account(&mut self, id: JobId) {
        self.expect_no_output(id);
        let Some(job) = self.jobs.get(id) else { return };
        let account = self.clients.name_of(job.client);
        self.ledger.release(account, Holding::Inputs, job.held_bytes());
    }
}

fn is_counted_by_shell(what: Holding) -> bool {
    !matches!(what, Holding::Inputs | Holding::Expected)
}
