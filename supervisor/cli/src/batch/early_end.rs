//! The early end of a batch: by a signal, or because its results cannot be written.
//!
//! ```text
//!   source, waiting, loaded ---> counted as not submitted; what was to be tried again has the result of its last attempt
//!   running -------------------> each ends: by itself, or cancelled, or nobody knows --- results
//!   results -------------------> written in input order as soon as no earlier job is running
//! ```
//!
//! What has ended is delivered as if the batch had gone on; only that the results have gaps where jobs were not submitted.

use super::{Batch, BatchStep, SourceState};
use crate::render::refused;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;

/// What becomes of a job that is cancelled because its batch ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelledJobs {
    /// It has a result like any other job.
    HaveResults,
    /// It is only counted.
    AreCounted,
}

/// The jobs that were not done when a batch ended early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotDone {
    /// Jobs that were cancelled.
    pub(crate) cancelled: u64,
    /// Jobs of which nobody knows whether they were done.
    pub(crate) unknown: u64,
    /// Inputs that were read and whose jobs nobody was given.
    pub(crate) not_submitted: u64,
    /// More inputs may be there, which were not read.
    pub(crate) is_partly_read: bool,
}

/// A batch that ends early.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyEnd {
    cancelled_jobs: CancelledJobs,
    why: &'static str,
    not_done: NotDone,
}

impl Batch {
    /// Ends the batch early. From now on, there is no other step than [`BatchStep::Write`]; the batch is complete when
    /// no job is running and all results are written. `why` is what is said of jobs that are cancelled for that. Only the first
    /// call counts.
    pub(crate) fn end_early(&mut self, cancelled_jobs: CancelledJobs, why: &'static str) {
        if self.early_end.is_some() {
            return;
        }
        self.end_retries();
        let not_submitted = self.waiting.len() + self.loading.len() + self.loaded.len();
        self.waiting.clear();
        self.loading.clear();
        self.loaded.clear();
        let not_done = NotDone {
            not_submitted: not_submitted as u64,
            is_partly_read: self.source != SourceState::AllRead,
            ..NotDone::default()
        };
        self.source = SourceState::AllRead;
        self.early_end = Some(EarlyEnd { cancelled_jobs, why, not_done });
    }

    /// What was not done, if the batch has ended early.
    pub(crate) fn not_done(&self) -> NotDone {
        self.early_end.map_or(NotDone::default(), |end| end.not_done)
    }

    /// Whoever runs the jobs has ended, and says nothing more about those that are still running.
    pub(crate) fn on_silence(&mut self) {
        let running: Vec<u64> = self.running.keys().copied().collect();
        for index in running {
            let message = "nobody said how the job has ended; it may or may not have run".to_owned();
            self.on_finished(index, refused(&self.task, OutcomeCode::Indeterminate, message));
        }
    }

    /// Jobs that were given to the workers and whose results are not written, nor being written.
    pub(crate) fn unwritten(&self) -> u64 {
        (self.running.len()
            + self.between_attempts()
            + self.unkept.len()
            + self.keeping.len()
            + self.results.len()) as u64
    }

    /// Inputs have come from the source after the early end.
    pub(super) fn on_read_too_late(&mut self, inputs: usize) {
        self.early_end.iter_mut().for_each(|end| end.not_done.not_submitted += inputs as u64);
    }

    /// A job has ended after the early end of the batch, or was rejected for want of room and is not submitted again.
    pub(super) fn on_finished_late(&mut self, mut end: EarlyEnd, index: u64, mut finished: Finished) {
        let is_result = match finished.report.outcome {
            // The last one: its input is a file, and its bytes were to be sent instead.
            OutcomeCode::Overloaded | OutcomeCode::Quota | OutcomeCode::Unsupported => {
                let last = self.take_last_attempt(index);
                end.not_done.not_submitted += u64::from(last.is_none());
                let was_tried = last.is_some();
                finished = last.unwrap_or(finished);
                was_tried
            }
            OutcomeCode::Cancelled => {
                end.not_done.cancelled += 1;
                finished.report.error.iter_mut().for_each(|error| error.message = end.why.to_owned());
                end.cancelled_jobs == CancelledJobs::HaveResults
            }
            OutcomeCode::Indeterminate => {
                end.not_done.unknown += 1;
                true
            }
            _ => true,
        };
        self.early_end = Some(end);
        if is_result {
            self.keep(index, finished);
        }
    }

    /// The results before the first job that is still running, or of which something is still to be kept.
    pub(super) fn next_write_at_the_end(&mut self) -> Option<BatchStep> {
        let keep = self.next_keep();
        if keep.is_some() || self.writing.is_some() {
            return keep;
        }
        let running = self.running.keys().next();
        let first = running.into_iter().chain(self.unkept.keys().next()).chain(self.keeping.first()).min();
        let later = first.map_or_else(Default::default, |first| self.results.split_off(first));
        let results: Vec<_> = std::mem::replace(&mut self.results, later)
            .into_iter()
            .filter_map(|(index, result)| Some((index, result?)))
            .collect();
        results.iter().for_each(|(_, finished)| self.count(&finished.report));
        let results = results.into_iter().map(|(index, finished)| self.numbered(index, finished)).collect();
        self.write_step(results)
    }
}
