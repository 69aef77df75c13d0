//! How many jobs a supervisor has room for, as far as a batch has learned from rejections.
//!
//! If the supervisor rejects a job because it has no room (`overloaded`, `quota`), the batch does not fail: it waits, for as
//! long as it takes. The *window* is the maximum number of running jobs. A rejection sets it to the number of jobs that were
//! accepted before, less an eighth, so that other clients find room too. From then on the next job is submitted when an
//! earlier one ends. Only a batch without running jobs waits for the time that the rejection named. The window grows again as
//! that of TCP does (RFC 5681): fast up to its size after the last rejection, slowly beyond.

use super::BatchStep;
use offload_protocol::nouns::Report;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Beyond its size after the last rejection, the window grows by one after this many results per job in the window.
pub(super) const CALM_RESULTS: usize = 16;

/// Shortest and longest pause after a rejection. If rejections name no time, pauses begin with the shortest and double.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(2);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Room {
    backoff: Backoff,
    /// Pauses begun so far.
    pauses: u64,
    /// Pauses in a row, without a result in between.
    pauses_in_a_row: u32,
    /// Maximum running jobs, as learned from rejections.
    pub(super) window: usize,
    /// Up to this size the window grows with each result.
    quick_up_to: usize,
    /// Results since the last rejection or the last growth.
    calm: usize,
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

impl Room {
    /// Without limits, until the first rejection.
    pub(super) fn new() -> Room {
        Room {
            backoff: Backoff::Off,
            pauses: 0,
            pauses_in_a_row: 0,
            window: usize::MAX,
            quick_up_to: usize::MAX,
            calm: 0,
        }
    }

    /// Whether one more job may be submitted while so many are running.
    pub(super) fn has_place(&self, running: usize) -> bool {
        self.backoff == Backoff::Off && running < self.window
    }

    /// A job was rejected while so many others are running. Several rejections at once make one pause. The last one shows
    /// best how many jobs were accepted.
    pub(super) fn on_rejection(&mut self, refusal: &Report, running: usize) {
        self.window = running.saturating_sub((running / 8).max(1)).max(1);
        if running > 0 {
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

    /// A job has ended, so the supervisor has room again.
    pub(super) fn on_result(&mut self) {
        self.backoff = Backoff::Off;
        self.pauses_in_a_row = 0;
        self.widen();
    }

    pub(super) fn widen(&mut self) {
        self.calm = self.calm.saturating_add(1);
        let is_quick = self.window < self.quick_up_to;
        if is_quick || self.calm >= self.window.saturating_mul(CALM_RESULTS) {
            self.calm = 0;
            self.window = self.window.saturating_add(1);
        }
    }

    /// The pause that is to begin now, if any.
    pub(super) fn next_pause(&mut self) -> Option<BatchStep> {
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

    /// The pause of this number is over.
    pub(super) fn on_resumed(&mut self, number: u64) {
        if self.backoff == (Backoff::Pausing { number }) {
            self.backoff = Backoff::Off;
        }
    }
}
