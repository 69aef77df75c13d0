//! A batch: many jobs of one task, with results in input order. This module only decides; [`super::batch_runner`] does the
//! I/O that is decided here, and reports the results back.
//!
//! ```text
//!   source -- Read --> waiting -- Load --> loaded -- Submit --> running --> unkept -- Keep --> results -- Write --> written
//!                         `--- cannot be read -------------------------------^                   ^
//!                         `--- done before, or left out -----------------------------------------'
//!                      ^                      ^------ no room ----|
//!                      '------------- a file that workers do not take: its bytes are loaded
//! ```
//!
//! *Back-pressure.* A full supervisor makes the batch wait ([`room`]).
//!
//! *Limits.* However many inputs there are, at most `jobs` of them are between source and written, at most `at_once` of these are
//! with the workers, at most `bytes` of inputs and outputs are held for running jobs and results (a single job may be larger, and
//! the outputs of jobs that were submitted before one of that length was known), and at most [`LOADS_MAX`] files are loaded and not
//! yet submitted. So a slow first job delays the later ones instead of filling the memory.
//!
//! *Kept results.* Every input passes `Load`, also one that is there already: there its digest is taken, and it is refused if
//! its output would replace it.
//!
//! A batch that is interrupted delivers what has ended ([`early_end`]).

mod early_end;
mod notes;
mod retries;
mod room;
mod steps;

pub(crate) use early_end::{CancelledJobs, NotDone};
pub(crate) use notes::{BatchInput, Kept, Loaded, Notes, NumberedResult};
pub(crate) use retries::Retries;
pub(crate) use steps::{BatchLimits, BatchStep, Halt, jobs_at_once};

use super::failure::Failure;
use super::input::{Content, Input, Payload, Unreadable, wants_bytes};
use super::keeper::OutputNames;
use super::render::refused;
use crate::limits::LOADS_MAX;
use early_end::EarlyEnd;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::Finished;
use retries::Resting;
use room::Room;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

/// What has been written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchTally {
    /// Results that were `ok`.
    pub(crate) ok: u64,
    /// All others.
    pub(crate) failed: u64,
    /// The exit code for the first of the others, in input order.
    pub(crate) first_failure: Option<u8>,
    /// Total run time of their tasks, measured by the workers, in microseconds.
    pub(crate) run_us: u64,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchProgress {
    /// Inputs read from the source so far: the number of known jobs.
    pub(crate) read: u64,
    /// How many jobs there are, once that is known.
    pub(crate) total: Option<u64>,
    /// Jobs that have ended, in whatever order.
    pub(crate) ended: u64,
    /// The ended jobs that were not `ok`.
    pub(crate) failed: u64,
    /// The ended jobs that were done before this batch.
    pub(crate) done_before: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Batch {
    task: String,
    limits: BatchLimits,
    source: SourceState,
    /// Inputs taken from the source so far: the number of the next.
    taken: u64,
    /// Inputs whose result was handed to `Write` so far: the number of the next.
    written: u64,
    /// Of all inputs that were taken and whose result is not written; nothing where there is nothing to note.
    notes: BTreeMap<u64, Notes>,
    waiting: VecDeque<(u64, Input)>,
    loading: BTreeSet<u64>,
    /// Keyed by input number, so a rejected job is submitted again in its old place.
    loaded: BTreeMap<u64, Payload>,
    running: BTreeMap<u64, Payload>,
    running_bytes: u64,
    /// Jobs that are tried again later, and the pauses that have not begun.
    resting: BTreeMap<u64, Resting>,
    due_rests: VecDeque<(u64, Duration)>,
    resting_bytes: u64,
    /// Results of which something is to be kept, and which of them a thread keeps now.
    unkept: BTreeMap<u64, Finished>,
    keeping: BTreeSet<u64>,
    /// How many bytes of output these have.
    keeping_bytes: u64,
    /// Results that can be written. An input that was left out has none.
    results: BTreeMap<u64, Option<Finished>>,
    /// Bytes of output in `unkept`, `results` and what threads do with them.
    result_bytes: u64,
    /// How many of these bytes belong to the write under way.
    writing: Option<u64>,
    /// The longest output so far. A running job counts with this many bytes, or with its input if that is longer.
    longest_output: u64,
    /// How many jobs may be running, by the number of lengths that are known. So what is submitted before the first long output ends
    /// is little.
    foreseen: u64,
    room: Room,
    names: OutputNames,
    progress: BatchProgress,
    left_out: u64,
    /// How many jobs had failed when that was too many.
    halted_after: Option<u64>,
    tally: BatchTally,
    /// Set when the batch is to end before all is done.
    early_end: Option<EarlyEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    Open,
    Reading,
    /// All inputs are read, or no more will be read.
    AllRead,
}

impl Batch {
    /// A batch of jobs that run `task`.
    pub(crate) fn new(task: &str, limits: BatchLimits) -> Batch {
        Batch {
            task: task.to_owned(),
            limits,
            source: SourceState::Open,
            taken: 0,
            written: 0,
            notes: BTreeMap::new(),
            waiting: VecDeque::new(),
            loading: BTreeSet::new(),
            loaded: BTreeMap::new(),
            running: BTreeMap::new(),
            running_bytes: 0,
            resting: BTreeMap::new(),
            due_rests: VecDeque::new(),
            resting_bytes: 0,
            unkept: BTreeMap::new(),
            keeping: BTreeSet::new(),
            keeping_bytes: 0,
            results: BTreeMap::new(),
            result_bytes: 0,
            writing: None,
            longest_output: 0,
            foreseen: limits.at_first,
            room: Room::new(),
            names: OutputNames::default(),
            progress: BatchProgress::default(),
            left_out: 0,
            halted_after: None,
            tally: BatchTally::default(),
            early_end: None,
        }
    }

    /// The next step that can be done now, if any. Steps that are nearest to the output come first.
    pub(crate) fn next_step(&mut self) -> Option<BatchStep> {
        if self.early_end.is_some() {
            return self.next_write_at_the_end();
        }
        if self.has_failed_too_often() {
            return None;
        }
        self.next_halt()
            .or_else(|| self.next_write())
            .or_else(|| self.next_keep())
            .or_else(|| self.room.next_pause())
            .or_else(|| self.next_rest())
            .or_else(|| self.next_submit())
            .or_else(|| self.next_load())
            .or_else(|| self.next_read())
    }

    /// Inputs have come from the source; `is_last` when there will be no more.
    pub(crate) fn on_read(&mut self, inputs: Vec<BatchInput>, is_last: bool) {
        if self.source == SourceState::AllRead {
            return self.on_read_too_late(inputs.len());
        }
        self.source = if is_last { SourceState::AllRead } else { SourceState::Open };
        for BatchInput { input, mut notes } in inputs {
            let index = self.taken;
            self.taken += 1;
            if self.limits.kept.in_files {
                notes.output_name = Some(self.names.name(index, notes.file.as_deref()));
            }
            if notes != Notes::default() {
                self.notes.insert(index, notes);
            }
            match input {
                // The digest of a long one takes its time, and so does a look at the place of its output.
                Input::Literal(_) if self.limits.kept == Kept::default() => {
                    self.settle_load(index, input.load(self.limits.payload).map(Loaded::from));
                }
                other => self.waiting.push_back((index, other)),
            }
        }
    }

    /// An input has been loaded, or cannot be loaded.
    pub(crate) fn on_loaded(&mut self, index: u64, loaded: Result<Loaded, Unreadable>) {
        // Otherwise its end was decided meanwhile.
        if self.loading.remove(&index) {
            self.settle_load(index, loaded);
        }
    }

    /// A job has been submitted.
    pub(crate) fn on_submitted(&mut self, index: u64, now: SystemTime) {
        if self.limits.kept.in_log {
            self.notes.entry(index).or_default().submitted = Some(now);
        }
    }

    /// A job has ended.
    pub(crate) fn on_finished(&mut self, index: u64, finished: Finished) {
        let Some(payload) = self.running.remove(&index) else { return };
        self.running_bytes -= payload.held();
        if let Some(end) = self.early_end {
            return self.on_finished_late(end, index, finished);
        }
        if let OutcomeCode::Overloaded | OutcomeCode::Quota = finished.report.outcome {
            self.loaded.insert(index, payload);
            return self.room.on_rejection(&finished.report, self.running.len());
        }
        if wants_bytes(&finished.report, &payload.content)
            && let Content::File(file) = payload.content
        {
            return self.waiting.push_front((index, Input::Opened(file)));
        }
        self.room.on_result();
        if let Some(finished) = self.rest(index, finished, payload) {
            self.keep(index, finished);
        }
    }

    /// What is to be kept of these results is on disk, and no more in them.
    pub(crate) fn on_kept(&mut self, kept: Vec<NumberedResult>) {
        self.result_bytes -= std::mem::take(&mut self.keeping_bytes);
        self.keeping.clear();
        for NumberedResult { index, finished, notes } in kept {
            self.result_bytes += finished.output.len() as u64;
            self.notes.insert(index, notes);
            self.results.insert(index, Some(finished));
        }
    }

    /// The write under way is done.
    pub(crate) fn on_written(&mut self) {
        self.result_bytes -= self.writing.take().unwrap_or(0);
    }

    /// The pause of this number is over.
    pub(crate) fn on_resumed(&mut self, number: u64) {
        self.room.on_resumed(number);
    }

    /// No more jobs can run. No more inputs are read, and none of those that were is waited for.
    pub(crate) fn on_lost(&mut self) {
        self.source = SourceState::AllRead;
        self.end_retries();
        // Who is not there answers at once.
        self.room.on_result();
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_complete(&self) -> bool {
        if self.early_end.is_some() {
            return self.is_at_rest()
                && self.running.is_empty()
                && self.results.is_empty()
                && self.unkept.is_empty();
        }
        let all_written = self.source == SourceState::AllRead && self.written == self.taken;
        self.is_at_rest() && (all_written || self.has_failed_too_often())
    }

    /// Whether nothing is being kept or written.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.writing.is_none() && self.keeping.is_empty()
    }

    /// Inputs whose jobs were not to be done.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What has been written so far, the write under way included.
    pub(crate) fn tally(&self) -> BatchTally {
        self.tally
    }

    /// Takes the results that were not handed to `Write`, in input order. Called when the batch ends early.
    pub(crate) fn take_results(&mut self) -> Vec<NumberedResult> {
        let mut results = std::mem::take(&mut self.unkept);
        results.extend(
            std::mem::take(&mut self.results)
                .into_iter()
                .filter_map(|(index, result)| Some((index, result?))),
        );
        results.into_iter().map(|(index, finished)| self.numbered(index, finished)).collect()
    }

    /// Whether any job is running.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// How far the batch is.
    pub(crate) fn progress(&self) -> BatchProgress {
        let total = (self.source == SourceState::AllRead).then_some(self.taken);
        BatchProgress { read: self.taken, total, ..self.progress }
    }

    /// Longest input of one job, in bytes.
    pub(crate) fn payload_max(&self) -> u64 {
        self.limits.payload
    }

    fn has_failed_too_often(&self) -> bool {
        self.limits.failures.is_some_and(|most| self.tally.failed >= most)
    }

    fn settle_load(&mut self, index: u64, loaded: Result<Loaded, Unreadable>) {
        match loaded {
            Ok(Loaded::Job { payload, digest }) => {
                if digest.is_some() {
                    self.notes.entry(index).or_default().input_digest = digest;
                }
                self.loaded.insert(index, payload);
            }
            Ok(Loaded::Done(printed)) => {
                self.notes.entry(index).or_default().printed = Some(printed);
                self.progress.ended += 1;
                self.progress.done_before += 1;
                self.results.insert(index, Some(refused(&self.task, OutcomeCode::Ok, String::new())));
            }
            Ok(Loaded::LeftOut) => {
                self.left_out += 1;
                self.results.insert(index, None);
            }
            Err(unreadable) => {
                let Unreadable { code, message } = unreadable.with_setting(self.limits.payload_setting);
                self.keep(index, refused(&self.task, code, message));
            }
        }
    }

    fn next_halt(&mut self) -> Option<BatchStep> {
        let Halt { failures, is_now } = self.limits.halt.filter(|_| self.halted_after.is_none())?;
        self.halted_after = Some(self.progress.failed).filter(|failed| *failed >= failures);
        self.halted_after.map(|_| BatchStep::Halt { is_now })
    }

    /// How many jobs had failed, if the batch has ended early because of that.
    pub(crate) fn halted_after(&self) -> Option<u64> {
        self.halted_after
    }

    fn keep(&mut self, index: u64, mut finished: Finished) {
        let earlier = self
            .notes
            .get(&index)
            .map_or(0, |notes| notes.earlier.iter().map(|report| report.attempts).sum());
        finished.report.attempts += earlier;
        let length = finished.output.len() as u64;
        self.progress.ended += 1;
        let is_ok = finished.report.outcome == OutcomeCode::Ok;
        self.progress.failed += u64::from(!is_ok);
        self.foreseen = self.foreseen.saturating_add(u64::from(is_ok));
        self.longest_output = self.longest_output.max(length);
        self.result_bytes += length;
        match self.limits.kept == Kept::default() {
            true => drop(self.results.insert(index, Some(finished))),
            false => drop(self.unkept.insert(index, finished)),
        }
    }

    /// Everything that has ended since the last time, so that a disk which is slow gets more at a time.
    pub(super) fn next_keep(&mut self) -> Option<BatchStep> {
        if self.unkept.is_empty() || !self.keeping.is_empty() {
            return None;
        }
        let ended = std::mem::take(&mut self.unkept);
        self.keeping = ended.keys().copied().collect();
        self.keeping_bytes = ended.values().map(|finished| finished.output.len() as u64).sum();
        Some(BatchStep::Keep(
            ended.into_iter().map(|(index, finished)| self.numbered(index, finished)).collect(),
        ))
    }

    fn next_write(&mut self) -> Option<BatchStep> {
        if self.writing.is_some() || !self.results.contains_key(&self.written) {
            return None;
        }
        let mut prefix = Vec::new();
        while !self.has_failed_too_often()
            && let Some(result) = self.results.remove(&self.written)
        {
            let index = self.written;
            self.written += 1;
            if let Some(finished) = result {
                self.count(&finished.report);
                prefix.push(self.numbered(index, finished));
            } else {
                self.notes.remove(&index);
            }
        }
        self.write_step(prefix)
    }

    /// The result as it is handed on, with what was noted down.
    fn numbered(&mut self, index: u64, finished: Finished) -> NumberedResult {
        let notes = self.notes.remove(&index).unwrap_or_default();
        NumberedResult { index, finished, notes }
    }

    fn write_step(&mut self, results: Vec<NumberedResult>) -> Option<BatchStep> {
        if results.is_empty() {
            return None;
        }
        self.writing = Some(results.iter().map(|numbered| numbered.finished.output.len() as u64).sum());
        Some(BatchStep::Write(results))
    }

    fn count(&mut self, report: &Report) {
        self.tally.run_us = self.tally.run_us.saturating_add(report.receipt.run_us);
        match report.outcome {
            OutcomeCode::Ok => self.tally.ok += 1,
            _ => {
                self.tally.failed += 1;
                self.tally.first_failure.get_or_insert(Failure::code_of(report));
            }
        }
    }

    fn next_submit(&mut self) -> Option<BatchStep> {
        let length = self.loaded.first_key_value()?.1.held();
        if !self.has_room(length) {
            return None;
        }
        let (index, payload) = self.loaded.pop_first()?;
        self.running_bytes += length;
        self.running.insert(index, payload.clone());
        Some(BatchStep::Submit { index, payload })
    }

    /// A single running job may be of any size: the supervisor decides whether to accept it.
    fn has_room(&self, length: u64) -> bool {
        let outputs = self.longest_output * (self.running.len() as u64 + 1);
        let is_full = self.running.len() as u64 >= self.limits.at_once.min(self.foreseen);
        if is_full || !self.room.has_place(self.running.len()) {
            return false;
        }
        let held = self.running_bytes + self.resting_bytes + length + self.result_bytes + outputs;
        self.running.is_empty() || held <= self.limits.bytes
    }

    fn next_load(&mut self) -> Option<BatchStep> {
        if self.loading.len() + self.loaded.len() >= LOADS_MAX {
            return None;
        }
        let (index, input) = self.waiting.pop_front()?;
        self.loading.insert(index);
        let notes = self.notes.get(&index).cloned().unwrap_or_default();
        Some(BatchStep::Load { index, input, notes })
    }

    fn next_read(&mut self) -> Option<BatchStep> {
        let most = self.limits.jobs.saturating_sub(self.taken - self.written);
        if self.source != SourceState::Open || most == 0 {
            return None;
        }
        self.source = SourceState::Reading;
        Some(BatchStep::Read { most })
    }
}

#[cfg(test)]
mod tests;
