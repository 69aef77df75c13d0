//! Outputs that come in parts while their task still runs: whose parts they are, when the worker may send more, and what
//! *delivered* means.
//!
//! ```text
//!                          one answer is wanted      the submitter reads a stream       the reader is gone
//!   a part has come        collected                 waits for the reader               thrown away
//!   credit comes back      at once                   when the reader takes it           at once
//!   the attempt is lost    the parts are dropped     nothing was taken: the parts are   the parts are dropped
//!   and may be tried       and the job is run        dropped and the job is run again
//!   again                  again                     something was taken: DELIVERED,
//!                                                    the job ends
//!   the job ends           ok: the output is all     the reader gets all parts that     -
//!                          parts and the rest        came, then the outcome
//! ```
//!
//! A part is *delivered* as soon as its reader takes it, whatever the reader does with it: from then on somebody may have
//! acted upon it. A job of which a part was delivered is never run again, also if its task is idempotent: another attempt
//! could send other parts, or the same ones twice. `Core::attempts_allowed` says so, which every decision about another
//! attempt asks.
//!
//! *Credit* is counted in bytes, for each attempt. At most [`PARTS_CREDIT`] bytes are under way from a worker to the reader
//! or the collection, so a reader that stops stops its task, and nothing else waits for it. Credit is given back in halves,
//! so that a stream costs few messages. A worker that sends more than its credit breaks the protocol. While a job may be
//! waiting for credit it need not report progress; its run timeout goes on.
//!
//! A job whose reader decides how long it runs is never tiny (nobody waits behind it), counts as long (it keeps no slot from
//! short work), and teaches nothing about the run time of its task.

use super::action::Action;
use super::ids::{JobId, SlotIndex, WorkerId};
use super::jobs::{Job, JobState};
use super::ledger::Holding;
use super::outcome;
use super::slots::Running;
use super::turn::Turn;
use super::{Core, Ending};
use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};

/// The parts of a job's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Where they go.
    pub wanted: Wanted,
    /// Bytes that the present attempt has sent, and that were not thrown away.
    pub sent: u64,
    /// Bytes that the reader has taken.
    pub delivered: u64,
}

impl Parts {
    /// None have come, and one answer is wanted.
    pub(super) const NONE: Parts = Parts { wanted: Wanted::Whole, sent: 0, delivered: 0 };
}

/// Where the parts of an output go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One answer is wanted: they are collected.
    Whole,
    /// The submitter reads them as they come.
    Stream,
    /// The submitter read them as they came, and is gone.
    Nothing,
}

/// How many bytes of parts one attempt may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    left: u64,
    /// Bytes that were taken, and for which the worker was not given credit again yet.
    owed: u64,
}

impl Default for Credit {
    fn default() -> Credit {
        Credit { left: PARTS_CREDIT, owed: 0 }
    }
}

impl Credit {
    /// Uses up credit for one part. False if there is too little.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Bytes were taken. Returns how much credit the worker is to be given now, if any.
    fn give_back(&mut self, bytes: u64) -> Option<u64> {
        self.owed += bytes.min(self.untaken());
        if self.owed < PARTS_CREDIT / 2 {
            return None;
        }
        let given = std::mem::take(&mut self.owed);
        self.left += given;
        Some(given)
    }

    /// Bytes that were sent and not taken.
    pub fn untaken(&self) -> u64 {
        PARTS_CREDIT - self.left - self.owed
    }

    /// Whether the worker may be waiting for credit: the longest part does not fit.
    pub fn is_short(&self) -> bool {
        self.left < PART_MAX as u64
    }
}

impl Job {
    /// Whether its submitter reads the output in parts, or did.
    pub fn is_streamed(&self) -> bool {
        self.past.parts.wanted != Wanted::Whole
    }

    /// Whether a part of its output was delivered: it must not be run again.
    pub fn has_delivered(&self) -> bool {
        self.past.parts.delivered > 0
    }
}

impl Core {
    /// A worker has sent a part of the output of its job.
    pub(super) fn on_part(&mut self, turn: &mut Turn<'_>, worker: WorkerId, named: (JobId, u32), bytes: u64) {
        let Some((slot, running)) = self.running_as_named(turn, worker, named, "sent a part of") else {
            return;
        };
        if let Err(message) = self.accept_part(slot, running, bytes) {
            return self.on_violation(turn, worker, message);
        }
        let id = running.job;
        let Some(job) = self.jobs.get_mut(id) else { return };
        match job.past.parts.wanted {
            Wanted::Nothing => return self.give_credit(turn, slot, id, bytes),
            Wanted::Stream => turn.push(Action::PassOn { job: id }),
            Wanted::Whole => turn.push(Action::Collect { job: id }),
        }
        job.past.parts.sent += bytes;
        let (wanted, sent) = (job.past.parts.wanted, job.past.parts.sent);
        self.hold_part(id, bytes);
        if wanted == Wanted::Stream {
            return;
        }
        match self.check_length(sent) {
            Ok(()) => self.give_credit(turn, slot, id, bytes),
            Err(error) => self.end_gently(turn, id, Ending::of(error)),
        }
    }

    /// Uses up credit for a part.
    ///
    /// # Errors
    /// How the worker breaks the protocol by it.
    fn accept_part(&mut self, slot: SlotIndex, running: Running, bytes: u64) -> Result<(), String> {
        if bytes == 0 || bytes > PART_MAX as u64 {
            return Err(format!("sent a part of {bytes} bytes, 1 to {PART_MAX} are allowed"));
        }
        if self.jobs.get(running.job).is_some_and(|job| job.promise.is_stepped) {
            return Err("sent a part of the output of a task that works in steps".to_owned());
        }
        let load = self.slot_mut(slot).load_mut();
        let started = load.and_then(|load| load.started_mut(running.job));
        match started.is_some_and(|running| running.credit.spend(bytes)) {
            true => Ok(()),
            false => Err("sent more of an output than it had credit for".to_owned()),
        }
    }

    /// Whether an output that is wanted as a whole may be as long as its parts are by now.
    ///
    /// # Errors
    /// It may not, and the job ends like this.
    fn check_length(&self, bytes: u64) -> Result<(), ErrorDetail> {
        let most = self.config.max_payload;
        if bytes <= most {
            return Ok(());
        }
        let message = format!("the output has more than {most} bytes; a stream may be longer");
        Err(outcome::for_anybody(OutcomeCode::AppError, message))
    }

    /// The length of a whole output: what the task returned comes behind the parts.
    ///
    /// # Errors
    /// The output is wanted as a whole, and is too long.
    pub(super) fn output_with_parts(&self, id: JobId, rest: u64) -> Result<u64, ErrorDetail> {
        let Some(job) = self.jobs.get(id).filter(|job| job.past.parts.sent > 0) else { return Ok(rest) };
        let bytes = job.past.parts.sent.saturating_add(rest);
        if job.is_streamed() { Ok(bytes) } else { self.check_length(bytes).map(|()| bytes) }
    }

    /// The reader of a stream has taken parts: they are delivered.
    pub(super) fn on_delivered(&mut self, turn: &mut Turn<'_>, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.past.parts.wanted == Wanted::Stream) else {
            return;
        };
        let JobState::Running { worker, .. } = job.state else { return };
        let bytes = bytes.min(job.past.parts.sent - job.past.parts.delivered);
        job.past.parts.delivered += bytes;
        if let Some(&slot) = self.places.get(&worker).filter(|_| bytes > 0) {
            self.give_credit(turn, slot, id, bytes);
        }
    }

    /// The reader of a stream is gone: what it has not taken is thrown away, and so is what still comes.
    pub(super) fn stop_reading(&mut self, turn: &mut Turn<'_>, id: JobId) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.is_streamed()) else { return };
        job.past.parts.wanted = Wanted::Nothing;
        if let JobState::Running { worker, .. } = job.state
            && let Some(&slot) = self.places.get(&worker)
        {
            self.give_credit(turn, slot, id, PARTS_CREDIT);
        }
    }

    /// Bytes of parts were taken: the worker may send as many more. From now on it may be expected to report progress.
    fn give_credit(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, id: JobId, bytes: u64) {
        let now = turn.now;
        let place = self.slot_mut(slot);
        let Some(worker) = place.worker() else { return };
        let Some(running) = place.load_mut().and_then(|load| load.started_mut(id)) else { return };
        if let Some(given) = running.credit.give_back(bytes) {
            running.progress_by = running.progress_by.map(|(_, promise)| (now, promise));
            turn.push(Action::Credit { worker, job: id, bytes: given });
        }
    }

    /// The job is run again: what its lost attempt has sent is dropped. Nothing of it was delivered.
    pub(super) fn drop_parts(&mut self, turn: &mut Turn<'_>, id: JobId) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.past.parts.sent > 0) else { return };
        job.past.parts.sent = 0;
        turn.push(Action::DropParts { job: id });
    }

    /// A part has come: it is charged to the client, as far as possible in place of the reservation for the output.
    fn hold_part(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let covered = bytes.min(job.expected_output);
        job.expected_output -= covered;
        let client = self.clients.name_of(job.client).clone();
        self.release(&client, Holding::Expected, covered);
        self.hold(&client, Holding::Outgoing, bytes);
    }
}
