//! Many jobs of one task, their results in input order: the decisions, without any I/O. [`super::conveyor`] does what
//! is decided here and tells what came of it.
//!
//! ```text
//!   source -- Read --> waiting -- Load --> loaded -- Submit --> running --> results -- Write --> written
//!                         `--- cannot be read -------------------------------^
//!                                             ^------ overloaded -'
//! ```
//!
//! Three bounds hold, however many inputs there are: at most `jobs` inputs are between source and written, at most
//! `bytes` of inputs and outputs are held for running jobs and results (a single job may be larger), and at most
//! [`LOADS_MAX`] files are loaded and not yet submitted. So a slow first job holds up the rest instead of filling the
//! memory.

use super::input::{Input, Payload, Unreadable};
use super::render::refused;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::Finished;
use std::collections::{BTreeMap, VecDeque};

/// Most files that are read or lie ready at a time.
const LOADS_MAX: usize = 4;

/// How many pauses in a row an overloaded supervisor gets before its refusal is taken for the result. With the length
/// of the conveyor's pause this is a matter of seconds. Refusals that come together count once.
const PATIENCE: u32 = 100;

/// So many results for each job of the window, without a refusal, let the window grow by one.
const CALM_RESULTS: usize = 16;

/// The bounds of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most inputs between source and written.
    pub(crate) jobs: u64,
    /// Most bytes held for running jobs and results.
    pub(crate) bytes: u64,
    /// Longest input of one job, in bytes.
    pub(crate) payload: u64,
    /// The batch is over when so many of the results written have been failures.
    pub(crate) failures: Option<u64>,
}

/// What to do next. Each is answered by the event in brackets.
#[derive(Debug)]
pub(crate) enum Step {
    /// Take up to `most` inputs from the source ([`Batch::on_read`]).
    Read {
        /// How many, at the most.
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
    Write(Vec<Numbered>),
    /// Wait a little before more is submitted ([`Batch::on_resumed`]).
    Pause,
}

/// A result and the number of its input, counted from 0.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// The number.
    pub(crate) index: u64,
    /// The result.
    pub(crate) finished: Finished,
}

/// What has been written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Results that were `ok`.
    pub(crate) ok: u64,
    /// All others.
    pub(crate) failed: u64,
    /// The first of the others, in input order.
    pub(crate) first_failure: Option<OutcomeCode>,
    /// Time that their tasks ran, by the workers' clocks, in microseconds.
    pub(crate) run_us: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Batch {
    task: String,
    limits: Limits,
    source: Source,
    /// Inputs taken from the source so far: the number of the next.
    taken: u64,
    /// Inputs whose result was handed to `Write` so far: the number of the next.
    written: u64,
    waiting: VecDeque<(u64, Input)>,
    loading: usize,
    loaded: VecDeque<(u64, Payload)>,
    running: BTreeMap<u64, Payload>,
    running_bytes: u64,
    results: BTreeMap<u64, Finished>,
    /// Bytes of output in `results` and in the write under way.
    result_bytes: u64,
    /// The write under way has so many of them.
    writing: Option<u64>,
    /// A running job is taken to hold as much as the longest output so far, if its input is shorter.
    longest_output: u64,
    pace: Pace,
    patience: u32,
    /// Most running jobs, as far as is known from refusals: it shrinks with each and grows with each result.
    window: usize,
    /// Results since the last refusal or the last growth.
    calm: usize,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Open,
    Reading,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Going,
    ToPause,
    Pausing,
}

impl Batch {
    /// A batch of jobs that run `task`.
    pub(crate) fn new(task: &str, limits: Limits) -> Batch {
        Batch {
            task: task.to_owned(),
            limits,
            source: Source::Open,
            taken: 0,
            written: 0,
            waiting: VecDeque::new(),
            loading: 0,
            loaded: VecDeque::new(),
            running: BTreeMap::new(),
            running_bytes: 0,
            results: BTreeMap::new(),
            result_bytes: 0,
            writing: None,
            longest_output: 0,
            pace: Pace::Going,
            patience: PATIENCE,
            window: usize::MAX,
            calm: 0,
            tally: Tally::default(),
        }
    }

    /// The next thing to do now, if there is one. What is nearest to the user goes first.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
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
        if self.source == Source::Ended {
            return;
        }
        self.source = if is_last { Source::Ended } else { Source::Open };
        for input in inputs {
            let index = self.taken;
            self.taken += 1;
            match input {
                Input::Literal(_) => self.settle_load(index, input.load(self.limits.payload)),
                Input::File(_) | Input::Stdin => self.waiting.push_back((index, input)),
            }
        }
    }

    /// An input is loaded, or cannot be.
    pub(crate) fn on_loaded(&mut self, index: u64, loaded: Result<Payload, Unreadable>) {
        self.loading -= 1;
        self.settle_load(index, loaded);
    }

    /// A job has ended.
    pub(crate) fn on_finished(&mut self, index: u64, finished: Finished) {
        let Some(payload) = self.running.remove(&index) else { return };
        self.running_bytes -= payload.bytes.len() as u64;
        if finished.report.outcome == OutcomeCode::Overloaded && self.patience > 0 {
            self.loaded.push_front((index, payload));
            // What the supervisor has taken is what it has room for.
            self.window = self.running.len().max(1);
            self.calm = 0;
            if self.pace == Pace::Going {
                self.pace = Pace::ToPause;
                self.patience -= 1;
            }
            return;
        }
        self.patience = PATIENCE;
        self.widen();
        self.keep(index, finished);
    }

    /// After many results without a refusal there may be room for one job more.
    fn widen(&mut self) {
        self.calm = self.calm.saturating_add(1);
        if self.calm >= self.window.saturating_mul(CALM_RESULTS) {
            self.calm = 0;
            self.window = self.window.saturating_add(1);
        }
    }

    /// The write has reached its place.
    pub(crate) fn on_written(&mut self) {
        self.result_bytes -= self.writing.take().unwrap_or(0);
    }

    /// The pause is over.
    pub(crate) fn on_resumed(&mut self) {
        self.pace = Pace::Going;
    }

    /// No more inputs are taken, and the batch is complete without them.
    pub(crate) fn stop_reading(&mut self) {
        self.source = Source::Ended;
    }

    /// Whether everything is done that will be.
    pub(crate) fn is_complete(&self) -> bool {
        let all_written = self.source == Source::Ended && self.written == self.taken;
        self.writing.is_none() && (all_written || self.has_failed_too_often())
    }

    /// What has been written so far, the write under way included.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
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
            Ok(payload) => self.loaded.push_back((index, payload)),
            Err(Unreadable { code, message }) => self.keep(index, refused(&self.task, code, message)),
        }
    }

    fn keep(&mut self, index: u64, finished: Finished) {
        let length = finished.output.len() as u64;
        self.longest_output = self.longest_output.max(length);
        self.result_bytes += length;
        self.results.insert(index, finished);
    }

    fn next_write(&mut self) -> Option<Step> {
        if self.writing.is_some() || !self.results.contains_key(&self.written) {
            return None;
        }
        let mut prefix = Vec::new();
        while !self.has_failed_too_often()
            && let Some(finished) = self.results.remove(&self.written)
        {
            self.count(&finished.report);
            prefix.push(Numbered { index: self.written, finished });
            self.written += 1;
        }
        self.writing = Some(prefix.iter().map(|numbered| numbered.finished.output.len() as u64).sum());
        Some(Step::Write(prefix))
    }

    fn count(&mut self, report: &Report) {
        self.tally.run_us = self.tally.run_us.saturating_add(report.receipt.run_us);
        match report.outcome {
            OutcomeCode::Ok => self.tally.ok += 1,
            failure => {
                self.tally.failed += 1;
                self.tally.first_failure.get_or_insert(failure);
            }
        }
    }

    fn next_pause(&mut self) -> Option<Step> {
        (self.pace == Pace::ToPause).then(|| {
            self.pace = Pace::Pausing;
            Step::Pause
        })
    }

    fn next_submit(&mut self) -> Option<Step> {
        let length = self.loaded.front()?.1.bytes.len() as u64;
        if self.pace != Pace::Going || !self.has_room(length) {
            return None;
        }
        let (index, payload) = self.loaded.pop_front()?;
        self.running_bytes += length;
        self.running.insert(index, payload.clone());
        Some(Step::Submit { index, payload })
    }

    /// A job that is alone may be as large as it likes: its fate is for the supervisor to say.
    fn has_room(&self, length: u64) -> bool {
        let outputs = self.longest_output * (self.running.len() as u64 + 1);
        if self.running.len() >= self.window {
            return false;
        }
        let held = self.running_bytes + length + self.result_bytes + outputs;
        self.running.is_empty() || held <= self.limits.bytes
    }

    fn next_load(&mut self) -> Option<Step> {
        if self.loading + self.loaded.len() >= LOADS_MAX {
            return None;
        }
        let (index, input) = self.waiting.pop_front()?;
        self.loading += 1;
        Some(Step::Load { index, input })
    }

    fn next_read(&mut self) -> Option<Step> {
        let most = self.limits.jobs.saturating_sub(self.taken - self.written);
        if self.source != Source::Open || most == 0 {
            return None;
        }
        self.source = Source::Reading;
        Some(Step::Read { most })
    }
}

#[cfg(test)]
mod tests;
