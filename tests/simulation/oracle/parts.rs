//! Records of outputs in parts (O21): whose parts they are, that a job of which a part was delivered is not run again, and
//! that credit is given back, and no more than that.

use super::duties::Duty;
use super::{Failure, Oracle, demand};
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::limits::PARTS_CREDIT;
use offload_protocol::nouns::OutcomeCode;

/// The parts of one job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartsBook {
    /// Its submitter asked for a stream.
    pub(super) is_stream: bool,
    /// ... and is gone.
    has_no_reader: bool,
    /// Bytes that were collected or passed on, of the present attempt.
    pub(super) sent: u64,
    /// Bytes that the reader has taken.
    pub(super) delivered: u64,
    /// Bytes of the present attempt that came, that are to be replaced by credit, and the credit that was given.
    came: u64,
    taken: u64,
    granted: u64,
}

impl PartsBook {
    pub(super) fn asked(is_stream: bool) -> PartsBook {
        PartsBook { is_stream, ..PartsBook::default() }
    }

    /// Another attempt begins.
    pub(super) fn start(&mut self) {
        (self.came, self.taken, self.granted) = (0, 0, 0);
    }
}

impl Oracle {
    /// Whether what came of an output that is wanted as a whole is too long for one answer, with so much more.
    pub(super) fn is_too_long(&self, id: JobId, more: u64) -> bool {
        let parts = self.jobs.get(&id).map(|book| book.parts).unwrap_or_default();
        !parts.is_stream && parts.sent > 0 && parts.sent + more > self.config.max_payload
    }

    pub(super) fn part_came(&mut self, worker: WorkerId, id: JobId, bytes: u64, is_honest: bool) -> Duty {
        if !is_honest {
            let duty = self.lied(worker);
            // Of a job that is not known any more, nobody knows which attempt it should be.
            let unnoticed = self.workers.get(&worker).and_then(|book| book.unnoticed_lie);
            return if unnoticed == Some(id) { Duty::Nothing } else { duty };
        }
        let is_liar = self.workers.get(&worker).is_none_or(|book| book.is_liar);
        let most = self.config.max_payload;
        let Some(book) = self.jobs.get_mut(&id).filter(|book| book.holder == Some(worker)) else {
            return Duty::Nothing;
        };
        if is_liar || book.running_since.is_none() || !self.live.contains(&id) {
            return Duty::Nothing;
        }
        book.parts.came += bytes;
        if book.parts.has_no_reader {
            book.parts.taken += bytes;
        }
        let is_too_long = !book.parts.is_stream && book.parts.sent + bytes > most;
        if is_too_long { Duty::End(id, OutcomeCode::AppError) } else { Duty::Nothing }
    }

    /// A reader has taken parts.
    pub(super) fn part_taken(&mut self, id: JobId, bytes: u64) {
        let Some(book) = self.jobs.get_mut(&id).filter(|_| self.live.contains(&id)) else { return };
        let parts = &mut book.parts;
        if book.running_since.is_some() && parts.is_stream && !parts.has_no_reader {
            let bytes = bytes.min(parts.sent - parts.delivered);
            parts.delivered += bytes;
            parts.taken += bytes;
        }
    }

    /// Nobody reads the output of a job any more.
    pub(super) fn reader_left(&mut self, id: JobId) {
        if let Some(book) = self.jobs.get_mut(&id).filter(|book| book.parts.is_stream) {
            book.parts.has_no_reader = true;
            book.parts.taken = book.parts.came;
        }
    }

    /// A part is kept or passed on.
    pub(super) fn judge_part(
        &mut self,
        id: JobId,
        event: Option<&Event>,
        is_stream: bool,
    ) -> Result<(), Failure> {
        let Some(Event::Part { job, bytes, .. }) = event else {
            return Err(Failure { rule: "O21", what: format!("no part of {id} came") });
        };
        let is_right = *job == id && self.live.contains(&id);
        demand(is_right, "O21", || format!("a part of {job} is taken for one of {id}"))?;
        let Some(book) = self.jobs.get_mut(&id) else { return Ok(()) };
        let is_wanted = book.parts.is_stream == is_stream && !book.parts.has_no_reader;
        demand(is_wanted, "O21", || format!("a part of {id} goes the wrong way: {book:?}"))?;
        book.parts.sent += bytes;
        book.parts.taken += if is_stream { 0 } else { *bytes };
        let client = book.client.clone();
        self.memory.part_came(&client, *bytes);
        Ok(())
    }

    /// A worker is given credit.
    pub(super) fn judge_credit(&mut self, worker: WorkerId, id: JobId, bytes: u64) -> Result<(), Failure> {
        let is_live = self.live.contains(&id);
        let Some(book) = self.jobs.get_mut(&id) else { return Ok(()) };
        book.parts.granted += bytes;
        let is_right = is_live && book.holder == Some(worker) && book.parts.granted <= book.parts.taken;
        demand(is_right || book.is_doubtful, "O21", || {
            format!("{worker} is given {bytes} bytes of credit for {id}: {book:?}")
        })
    }

    /// The parts of a lost attempt are dropped, because the job is run again.
    pub(super) fn judge_drop(&mut self, id: JobId) -> Result<(), Failure> {
        let is_live = self.live.contains(&id);
        let Some(book) = self.jobs.get_mut(&id) else { return Ok(()) };
        let is_right = is_live && book.parts.sent > 0 && book.parts.delivered == 0;
        book.parts.sent = 0;
        demand(is_right || book.is_doubtful, "O21", || format!("parts of {id} are dropped: {book:?}"))
    }

    /// A job is given to a worker.
    pub(super) fn judge_parts_of_run(&self, id: JobId) -> Result<(), Failure> {
        let Some(book) = self.jobs.get(&id) else { return Ok(()) };
        let is_right = book.parts.delivered == 0 && book.parts.sent == 0;
        demand(is_right || book.is_doubtful, "O21", || {
            format!("{id} is run again, and parts of it are there or were delivered: {book:?}")
        })
    }

    /// Less than half of all credit is kept back.
    pub(super) fn compare_parts(&self) -> Result<(), Failure> {
        let owes = |id: &&JobId| {
            let book = &self.jobs[*id];
            let is_certain = book.running_since.is_some() && !book.is_doubtful;
            is_certain && book.parts.taken - book.parts.granted >= PARTS_CREDIT / 2
        };
        let owed = self.live.iter().find(owes);
        demand(owed.is_none(), "O21", || {
            format!("{owed:?} waits for credit: {:?}", owed.map(|id| &self.jobs[id]))
        })
    }
}
