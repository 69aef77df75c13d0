//! A batch: many jobs of one task, with results in input order. This module only decides; [`super::batch_runner`] does the
//! I/O that is decided here, and reports the results back.
//!
//! ```text
//!   source -- Read --> waiting -- Load --> loaded -- Submit --> running --> results -- Write --> written
//!                         `--- cannot be read -------------------------------^
//!                      ^                      ^------ no room ----|
//!                      '------------- a file that workers do not take: its bytes are loaded
//! ```
//!
//! *Back-pressure.* If the supervisor rejects a job because it has no room (`overloaded`, `quota`), the batch does not
//! fail: it waits, for as long as it takes. The *window* is the maximum number of running jobs. A rejection sets it to
//! the number of jobs that were accepted before, less an eighth, so that other clients find room too. From then on the
//! next job is submitted when an earlier one ends. Only a batch without running jobs waits for the time that the
//! rejection named. The window grows again as that of TCP does (RFC 5681): fast up to its size after the last
//! rejection, slowly beyond.
//!
//! *Limits.* However many inputs there are, at most `jobs` of them are between source and written, at most `bytes` of
//! inputs and outputs are held for running jobs and results (a single job may be larger), and at most [`LOADS_MAX`]
//! files are loaded and not yet submitted. So a slow first job delays the later ones instead of filling the memory.
//!
//! A batch that is interrupted delivers what has ended ([`early_end`]).

mod early_end;

pub(crate) use early_end::{CancelledJobs, NotDone};

use super::failure::Failure;
use super::input::{Content, Input, Payload, Unreadable, wants_bytes};
use super::render::refused;
use crate::limits::LOADS_MAX;
use early_end::EarlyEnd;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::Finished;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Beyond its size after the last rejection, the window grows by one after this many results per job in the window.
const CALM_RESULTS: usize = 16;

/// Shortest and longest pause after a rejection. If rejections name no time, pauses begin with the shortest and double.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(2);

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Maximum inputs that were read from the source and whose results are not written yet.
    pub(crate) jobs: u64,
    /// Maximum bytes held for running jobs and results.
    pub(crate) bytes: u64,
    /// Longest input of one job, in bytes.
    pub(crate) payload: u64,
    /// The setting that says so.
    pub(crate) payload_setting: &'static str,
    /// The batch ends after this many failed results have been written.
    pub(crate) failures: Option<u64>,
}

/// What to do next. The method in brackets reports that it is done.
#[derive(Debug)]
pub(crate) enum BatchStep {
    /// Take up to `most` inputs from the source ([`Batch::on_read`]).
    Read {
        /// Maximum number of inputs.
        most: u64,
    },
    /// Load an input ([`Batch::on_loaded`]).
    Load {
        /// Its number.
        index: u64,
        /// Where it is.
        input: Input,
    },
    /// Give a job to the workers ([`Batch::on_finished`]).
    Submit {
        /// Its number.
        index: u64,
        /// Its input.
        payload: Payload,
    },
    /// Write results, in this order ([`Batch::on_written`]).
    Write(Vec<NumberedResult>),
    /// Wait before more is submitted ([`Batch::on_resumed`]), unless a result comes first.
    Pause {
        /// Shortest length of the pause. The caller should add a random part, so that clients do not all retry
        /// together.
        at_least: Duration,
        /// The number of this pause, to be reported when it is over.
        number: u64,
        /// Why the supervisor rejected the job.
        why: String,
    },
}

/// A result and the number of its input, counted from 0.
#[derive(Clone, Debug)]
pub(crate) struct NumberedResult {
    /// The number.
    pub(crate) index: u64,
    /// The result.
    pub(crate) finished: Finished,
}

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
    /// Whether all inputs have been read.
    pub(crate) is_all_read: bool,
    /// Jobs that have ended, in whatever order.
    pub(crate) ended: u64,
    /// The ended jobs that were not `ok`.
    pub(crate) failed: u64,
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
    waiting: VecDeque<(u64, Input)>,
    loading: usize,
    /// Keyed by input number, so a rejected job is submitted again in its old place.
    loaded: BTreeMap<u64, Payload>,
    running: BTreeMap<u64, Payload>,
    running_bytes: u64,
    results: BTreeMap<u64, Finished>,
    /// Bytes of output in `results` and in the write under way.
    result_bytes: u64,
    /// How many of these bytes belong to the write under way.
    writing: Option<u64>,
    /// The longest output so far. A running job counts with this many bytes, or with its input if that is longer.
    longest_output: u64,
    backoff: Backoff,
    /// Pauses begun so far.
    pauses: u64,
    /// Pauses in a row, without a result in between.
    pauses_in_a_row: u32,
    /// Maximum running jobs, as learned from rejections.
    window: usize,
    /// Up to this size the window grows with each result.
    quick_up_to: usize,
    /// Results since the last rejection or the last growth.
    calm: usize,
    /// Jobs that have ended, and how many of them were not `ok`.
    ended: (u64, u64),
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Backoff {
    Off,
    /// The supervisor had no room: its reason, and the time after which it may have room, if it named one.
    Due {
        why: String,
        estimate: Option<Duration>,
    },
    Pausing {
        number: u64,
    },
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
            waiting: VecDeque::new(),
            loading: 0,
            loaded: BTreeMap::new(),
            running: BTreeMap::new(),
            running_bytes: 0,
            results: BTreeMap::new(),
            result_bytes: 0,
            writing: None,
            longest_output: 0,
            backoff: Backoff::Off,
            pauses: 0,
            pauses_in_a_row: 0,
            window: usize::MAX,
            quick_up_to: usize::MAX,
            calm: 0,
            ended: (0, 0),
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
        self.next_write()
            .or_else(|| self.next_pause())
            .or_else(|| self.next_submit())
            .or_else(|| self.next_load())
            .or_else(|| self.next_read())
    }

    /// Inputs have come from the source; `is_last` when there will be no more.
    pub(crate) fn on_read(&mut self, inputs: Vec<Input>, is_last: bool) {
        if self.source == SourceState::AllRead {
            return self.on_read_too_late(inputs.len());
        }
        self.source = if is_last { SourceState::AllRead } else { SourceState::Open };
        for input in inputs {
            let index = self.taken;
            self.taken += 1;
            match input {
                Input::Literal(_) => self.settle_load(index, input.load(self.limits.payload)),
                Input::File(_) | Input::Listed(_) | Input::Opened(_) | Input::Stdin => {
                    self.waiting.push_back((index, input));
                }
            }
        }
    }

    /// An input has been loaded, or cannot be loaded.
    pub(crate) fn on_loaded(&mut self, index: u64, loaded: Result<Payload, Unreadable>) {
        self.loading -= 1;
        // After an early end it is counted already.
        if self.early_end.is_none() {
            self.settle_load(index, loaded);
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
            return self.on_no_room(&finished.report);
        }
        if wants_bytes(&finished.report, &payload.content)
            && let Content::File(file) = payload.content
        {
            return self.waiting.push_front((index, Input::Opened(file)));
        }
        // A job has ended, so the supervisor has room again.
        self.backoff = Backoff::Off;
        self.pauses_in_a_row = 0;
        self.widen();
        self.keep(index, finished);
    }

    /// Several rejections at once make one pause. The last one shows best how many jobs were accepted.
    fn on_no_room(&mut self, refusal: &Report) {
        let taken = self.running.len();
        self.window = taken.saturating_sub((taken / 8).max(1)).max(1);
        if taken > 0 {
            self.quick_up_to = self.window;
        }
        self.calm = 0;
        if self.backoff == Backoff::Off {
            let error = refusal.error.as_ref();
            self.backoff = Backoff::Due {
                why: format!("{}: {}", refusal.outcome, error.map_or("", |error| &error.message)),
                estimate: error.and_then(|error| error.retry_after_ms).map(Duration::from_millis),
            };
        }
    }

    fn widen(&mut self) {
        self.calm = self.calm.saturating_add(1);
        let is_quick = self.window < self.quick_up_to;
        if is_quick || self.calm >= self.window.saturating_mul(CALM_RESULTS) {
            self.calm = 0;
            self.window = self.window.saturating_add(1);
        }
    }

    /// The write under way is done.
    pub(crate) fn on_written(&mut self) {
        self.result_bytes -= self.writing.take().unwrap_or(0);
    }

    /// The pause of this number is over.
    pub(crate) fn on_resumed(&mut self, number: u64) {
        if self.backoff == (Backoff::Pausing { number }) {
            self.backoff = Backoff::Off;
        }
    }

    /// From now on no more inputs are read; the batch is complete without them.
    pub(crate) fn stop_reading(&mut self) {
        self.source = SourceState::AllRead;
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_complete(&self) -> bool {
        if self.early_end.is_some() {
            return self.writing.is_none() && self.running.is_empty() && self.results.is_empty();
        }
        let all_written = self.source == SourceState::AllRead && self.written == self.taken;
        self.writing.is_none() && (all_written || self.has_failed_too_often())
    }

    /// What has been written so far, the write under way included.
    pub(crate) fn tally(&self) -> BatchTally {
        self.tally
    }

    /// Takes the results that were not handed to `Write`, in input order. Called when the batch ends early.
    pub(crate) fn take_results(&mut self) -> Vec<NumberedResult> {
        let results = std::mem::take(&mut self.results).into_iter();
        results.map(|(index, finished)| NumberedResult { index, finished }).collect()
    }

    /// Whether any job is running.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// How far the batch is.
    pub(crate) fn progress(&self) -> BatchProgress {
        let (ended, failed) = self.ended;
        BatchProgress { read: self.taken, is_all_read: self.source == SourceState::AllRead, ended, failed }
    }

    /// Longest input of one job, in bytes.
    pub(crate) fn payload_max(&self) -> u64 {
        self.limits.payload
    }

    fn has_failed_too_often(&self) -> bool {
        self.limits.failures.is_some_and(|most| self.tally.failed >= most)
    }

    fn settle_load(&mut self, index: u64, loaded: Result<Payload, Unreadable>) {
        match loaded {
            Ok(payload) => drop(self.loaded.insert(index, payload)),
            Err(unreadable) => {
                let Unreadable { code, message } = unreadable.with_setting(self.limits.payload_setting);
                self.keep(index, refused(&self.task, code, message));
            }
        }
    }

    fn keep(&mut self, index: u64, finished: Finished) {
        let length = finished.output.len() as u64;
        self.ended.0 += 1;
        self.ended.1 += u64::from(finished.report.outcome != OutcomeCode::Ok);
        self.longest_output = self.longest_output.max(length);
        self.result_bytes += length;
        self.results.insert(index, finished);
    }

    fn next_write(&mut self) -> Option<BatchStep> {
        if self.writing.is_some() || !self.results.contains_key(&self.written) {
            return None;
        }
        let mut prefix = Vec::new();
        while !self.has_failed_too_often()
            && let Some(finished) = self.results.remove(&self.written)
        {
            self.count(&finished.report);
            prefix.push(NumberedResult { index: self.written, finished });
            self.written += 1;
        }
        self.write_step(prefix)
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

    fn next_pause(&mut self) -> Option<BatchStep> {
        if !matches!(self.backoff, Backoff::Due { .. }) {
            return None;
        }
        let number = self.pauses;
        self.pauses += 1;
        let Backoff::Due { why, estimate } =
            std::mem::replace(&mut self.backoff, Backoff::Pausing { number })
        else {
            return None;
        };
        let (shortest, longest) = (*PAUSES.start(), *PAUSES.end());
        let doubled = shortest.saturating_mul(1 << self.pauses_in_a_row.min(10));
        let at_least = estimate.unwrap_or(doubled).clamp(shortest, longest);
        self.pauses_in_a_row = self.pauses_in_a_row.saturating_add(1);
        Some(BatchStep::Pause { at_least, number, why })
    }

    fn next_submit(&mut self) -> Option<BatchStep> {
        let length = self.loaded.first_key_value()?.1.held();
        if self.backoff != Backoff::Off || !self.has_room(length) {
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
        if self.running.len() >= self.window {
            return false;
        }
        let held = self.running_bytes + length + self.result_bytes + outputs;
        self.running.is_empty() || held <= self.limits.bytes
    }

    fn next_load(&mut self) -> Option<BatchStep> {
        if self.loading + self.loaded.len() >= LOADS_MAX {
            return None;
        }
        let (index, input) = self.waiting.pop_front()?;
        self.loading += 1;
        Some(BatchStep::Load { index, input })
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
