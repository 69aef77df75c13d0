//! When a job reports its progress: often enough for people who watch and for what its task promised, and seldom enough to
//! cost almost nothing.

use std::time::{Duration, Instant};

/// Time between two reports of a job, unless its task promised to report more often. A shorter job reports nothing.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// What one attempt has reported, and when.
#[derive(Debug)]
pub(crate) struct Progress {
    every: Duration,
    promised: bool,
    said: (u64, u64),
    said_at: Instant,
}

impl Progress {
    /// For a task that promised a report at least every `promise`. It reports twice as often, so that a slow step or a slow
    /// machine does not break the promise.
    pub(crate) fn new(promise: Option<Duration>, now: Instant) -> Progress {
        let every = promise.map_or(PROGRESS_EVERY, |promise| PROGRESS_EVERY.min(promise / 2));
        Progress { every, promised: promise.is_some(), said: (0, 0), said_at: now }
    }

    /// Whether a report is due now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.said_at) >= self.every
    }

    /// Whether `done` of `total` is to be reported now. If so, it counts as reported. Without a promise, only changes are
    /// reported.
    pub(crate) fn is_news(&mut self, done: u64, total: u64, now: Instant) -> bool {
        if !self.is_due(now) || (!self.promised && self.said == (done, total)) {
            return false;
        }
        self.said = (done, total);
        self.said_at = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn news_is_told_ten_times_a_second_and_never_of_a_shorter_job() {
        let start = Instant::now();
        let mut progress = Progress::new(None, start);
        assert!(!progress.is_news(1, 9, start + 99 * MS));
        assert!(progress.is_news(2, 9, start + 100 * MS));
        assert!(!progress.is_news(3, 9, start + 199 * MS));
        assert!(progress.is_news(4, 9, start + 200 * MS));
        assert!(!progress.is_news(4, 9, start + 400 * MS), "nothing has changed");
    }

    #[test]
    fn a_promise_is_kept_at_twice_its_pace_even_if_nothing_changes() {
        let start = Instant::now();
        let mut progress = Progress::new(Some(30 * MS), start);
        assert!(!progress.is_news(0, 0, start + 14 * MS));
        assert!(progress.is_news(0, 0, start + 15 * MS));
        assert!(progress.is_news(0, 0, start + 30 * MS));
    }

    #[test]
    fn a_promise_for_a_long_time_does_not_make_progress_rarer() {
        let start = Instant::now();
        assert!(Progress::new(Some(10_000 * MS), start).is_news(1, 0, start + 100 * MS));
    }
}
