//! Jobs that no worker has lived to start. Nothing is their doing as far as anybody knows, so they are given back as often
//! as it takes; but each time costs a worker, which others could use, so they are tried one at a time and ever more
//! slowly. They wait in a queue of their own, behind nobody and before nobody.
//!
//! Not for ever: whoever waits for one, be it a client, a batch or a drain, would never be told anything. When so many
//! tests of a job have failed with the longest pause between them that there is no hope, it ends as unavailable, which
//! blames nobody. While draining one such test is enough.
//!
//! ```text
//!            one is given to a worker              the worker ends before it has started it
//!   Open ----------------------------> Testing ------------------------------------------> Closed, ever longer
//!    ^                                    |                                                   |
//!    |------------ it was started, or is not wanted any more                                  |
//!    '----------------------------------------------------------------------------- its time is over
//! ```

use super::config::CoreConfig;
use super::ids::{JobId, Mono};
use super::restarts::backoff;
use super::rng::Rng;

/// With so many workers in a row that ended before they had started it, and had no other job, a job is on probation.
pub(super) const UNSTARTED_MAX: u32 = 2;

/// So many tests of one job fail with the longest pause between them before it is given up: by default it has been tried
/// for a minute and more by then.
pub(super) const LATE_TESTS_MAX: u32 = 12;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Probation {
    gate: Gate,
    /// Tests in a row that ended a worker.
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    Testing {
        job: JobId,
        /// Another one has failed meanwhile: until then no more are tried, unless this one is started.
        pause: Option<Mono>,
    },
    Closed {
        until: Mono,
    },
}

impl Probation {
    /// Whether one of the jobs may be given to a worker.
    pub(super) fn is_open(&self) -> bool {
        self.gate == Gate::Open
    }

    /// The job that is being tried, if one is.
    pub(super) fn tested(&self) -> Option<JobId> {
        match self.gate {
            Gate::Testing { job, .. } => Some(job),
            Gate::Open | Gate::Closed { .. } => None,
        }
    }

    /// Whether this job is being tried.
    pub(super) fn is_testing(&self, job: JobId) -> bool {
        self.tested() == Some(job)
    }

    /// This job is given to a worker.
    pub(super) fn test(&mut self, job: JobId) {
        self.gate = Gate::Testing { job, pause: None };
    }

    /// It was started.
    pub(super) fn passed(&mut self, job: JobId) {
        if self.is_testing(job) {
            *self = Probation::default();
        }
    }

    /// It is not wanted any more.
    pub(super) fn gone(&mut self, gone: JobId) {
        if let Gate::Testing { job, pause } = self.gate
            && job == gone
        {
            self.gate = pause.map_or(Gate::Open, |until| Gate::Closed { until });
        }
    }

    /// There is no such job, but for one that may be under test.
    pub(super) fn forget(&mut self) {
        if self.tested().is_none() {
            *self = Probation::default();
        }
    }

    /// A worker that had nothing but this job, which is such a one now, has ended.
    pub(super) fn failed(&mut self, now: Mono, failed: JobId, config: &CoreConfig, rng: &mut Rng) {
        self.failures = self.failures.saturating_add(1);
        let until = now + rng.stretched_time(backoff(self.failures, config));
        match &mut self.gate {
            // The test of another one goes on.
            Gate::Testing { job, pause } if *job != failed => *pause = Some(until),
            gate => *gate = Gate::Closed { until },
        }
    }

    /// Whether the pauses do not get any longer.
    pub(super) fn is_slowest(&self, config: &CoreConfig) -> bool {
        backoff(self.failures, config) >= config.backoff_max
    }

    /// When it opens, if time opens it.
    pub(super) fn opens_at(&self) -> Option<Mono> {
        match self.gate {
            Gate::Closed { until } => Some(until),
            Gate::Open | Gate::Testing { .. } => None,
        }
    }

    /// Opens if its time has come.
    pub(super) fn open_in_time(&mut self, now: Mono) {
        if self.opens_at().is_some_and(|until| until <= now) {
            self.gate = Gate::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_stays_closed_ever_longer_until_a_job_is_started() {
        let (config, mut rng) = (CoreConfig::default(), Rng::new(1));
        let mut probation = Probation::default();
        let mut now = Mono::default();
        for least in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            probation.test(JobId(1));
            assert!(!probation.is_open());
            probation.failed(now, JobId(1), &config, &mut rng);
            let until = probation.opens_at().unwrap_or_default();
            assert!(until - now >= Duration::from_millis(least));
            assert_eq!(probation.is_slowest(&config), least == 5000);
            probation.open_in_time(now);
            assert!(!probation.is_open());
            now = until;
            probation.open_in_time(now);
            assert!(probation.is_open());
        }
        probation.test(JobId(2));
        probation.passed(JobId(1));
        assert!(probation.is_testing(JobId(2)), "that is another job");
        probation.passed(JobId(2));
        assert!(probation.is_open() && probation.failures == 0);
    }

    #[test]
    fn a_test_goes_on_while_another_job_fails() {
        let (config, mut rng) = (CoreConfig::default(), Rng::new(1));
        let mut probation = Probation::default();
        probation.test(JobId(1));
        probation.failed(Mono::default(), JobId(2), &config, &mut rng);
        assert!(probation.is_testing(JobId(1)));
        probation.open_in_time(Mono::default() + Duration::from_secs(60));
        assert!(!probation.is_open(), "one at a time");
        probation.gone(JobId(1));
        assert!(!probation.is_open() && probation.opens_at().is_some(), "the other one has to wait");
    }
}
