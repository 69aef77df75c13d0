//! Jobs whose task has returned an error, and that are tried again: after a pause, with the same input, as a new job of the
//! supervisor. Any other failure is none of the task's, and the supervisor decides about it.

use super::{Batch, BatchStep};
use crate::input::Payload;
use bytes::Bytes;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use std::time::Duration;

/// The longest pause before a retry.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// How often a job is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retries {
    /// At most so often.
    pub(crate) most: u32,
    /// How long to wait before the first time; then twice as long, and so on.
    pub(crate) pause: Duration,
}

impl Retries {
    /// The pause after so many attempts; none if there is no further one.
    pub(crate) fn pause_after(self, attempts: u32) -> Option<Duration> {
        let doubled = self.pause.saturating_mul(1u32.checked_shl(attempts).unwrap_or(u32::MAX));
        (attempts < self.most).then_some(doubled.min(PAUSE_MAX))
    }
}

/// A job that rests before its next attempt: how the last one ended, and the input.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) finished: Finished,
    payload: Payload,
}

impl Batch {
    /// Puts the job aside if it is to be tried again. Otherwise the result is returned.
    pub(super) fn rest(&mut self, index: u64, finished: Finished, payload: Payload) -> Option<Finished> {
        let earlier = self.notes.get(&index).map_or(0, |notes| notes.earlier.len());
        let pause = self.limits.retries.pause_after(u32::try_from(earlier).unwrap_or(u32::MAX));
        match pause.filter(|_| finished.report.outcome == OutcomeCode::AppError) {
            None => Some(finished),
            Some(pause) => {
                self.due_rests.push_back((index, pause));
                self.resting_bytes += payload.held();
                self.resting.insert(index, Resting { finished, payload });
                None
            }
        }
    }

    pub(super) fn next_rest(&mut self) -> Option<BatchStep> {
        let (index, pause) = self.due_rests.pop_front()?;
        Some(BatchStep::Rest { index, pause })
    }

    /// The pause of this job is over.
    pub(crate) fn on_rested(&mut self, index: u64) {
        let Some(Resting { finished, payload }) = self.resting.remove(&index) else { return };
        self.resting_bytes -= payload.held();
        self.notes.entry(index).or_default().earlier.push(finished.report);
        self.loaded.insert(index, payload);
    }

    /// No job is tried again: the last attempt of each that waits for its next one was its last, wherever it waits.
    pub(super) fn end_retries(&mut self) {
        self.due_rests.clear();
        self.resting_bytes = 0;
        for (index, Resting { finished, .. }) in std::mem::take(&mut self.resting) {
            self.keep(index, finished);
        }
        for index in self.not_with_the_workers() {
            if let Some(finished) = self.take_last_attempt(index) {
                self.waiting.retain(|(other, _)| *other != index);
                self.loading.remove(&index);
                self.loaded.remove(&index);
                self.keep(index, finished);
            }
        }
    }

    /// How many jobs wait for their next attempt.
    pub(super) fn between_attempts(&self) -> usize {
        let was_tried = |index: &u64| self.notes.get(index).is_some_and(|notes| !notes.earlier.is_empty());
        self.resting.len() + self.not_with_the_workers().into_iter().filter(was_tried).count()
    }

    /// The attempt of this job that was followed by another one, which does not take place.
    pub(super) fn take_last_attempt(&mut self, index: u64) -> Option<Finished> {
        let report = self.notes.get_mut(&index)?.earlier.pop()?;
        Some(Finished { report, output: Bytes::new() })
    }

    /// The jobs that are read and can be submitted, or will be.
    fn not_with_the_workers(&self) -> Vec<u64> {
        let waiting = self.waiting.iter().map(|(index, _)| index);
        waiting.chain(&self.loading).chain(self.loaded.keys()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_end_with_the_last_retry() {
        let retries = Retries { most: 40, pause: Duration::from_secs(1) };
        let seconds = |attempts| retries.pause_after(attempts).map(|pause| pause.as_secs());
        assert_eq!(
            [0, 1, 2, 11, 12, 39, 40].map(seconds),
            [1, 2, 4, 2048, 3600, 3600, 0].map(|s| (s > 0).then_some(s))
        );
        assert_eq!(Retries::default().pause_after(0), None);
    }
}
