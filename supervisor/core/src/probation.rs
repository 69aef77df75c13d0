//! Probation: jobs that no worker has lived to start. As far as is known, such a job has done nothing wrong, so it is
//! given back again and again. But each try costs a worker that others could use. So these jobs are tried one at a
//! time, with pauses that grow, and wait in queues of their own, where they neither hold up other jobs nor wait
//! behind them.
//!
//! That has an end, because clients, batches and a drain wait for these jobs. A job ends as unavailable, which blames
//! nobody, after [`LATE_TESTS_MAX`](crate::limits::LATE_TESTS_MAX) of its tests have failed at the longest pause; while
//! draining, after one.
//!
//! ```text
//!            one is given to a worker              the worker ends before it has started it
//!   Open ----------------------------> Testing ------------------------------------------> Closed, ever longer
//!    ^                                    |                                                   |
//!    |------------ it was started, or is not wanted any more                                  |
//!    '----------------------------------------------------------------------------- its time is over
//! ```
//!
//! A pause belongs to the program, and not to the job that has caused it. How long the next one will be is forgotten when the gate
//! is open and no job on probation waits.

use super::config::CoreConfig;
use super::ids::{JobId, Mono};
use super::restarts::backoff;
use super::rng::Rng;
use std::time::Duration;

/// The probation of one program's jobs.
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
        /// The test of another job has failed meanwhile. No more jobs are tried until then, unless the job under test
        /// is started.
        pause: Option<Mono>,
    },
    Closed {
        until: Mono,
    },
}

impl Probation {
    /// Whether a job on probation may be dispatched.
    pub(super) fn is_open(&self) -> bool {
        self.gate == Gate::Open
    }

    /// The job under test, if there is one.
    pub(super) fn tested(&self) -> Option<JobId> {
        match self.gate {
            Gate::Testing { job, .. } => Some(job),
            Gate::Open | Gate::Closed { .. } => None,
        }
    }

    /// Whether this job is under test.
    pub(super) fn is_testing(&self, job: JobId) -> bool {
        self.tested() == Some(job)
    }

    /// This job is dispatched: its test begins.
    pub(super) fn test(&mut self, job: JobId) {
        self.gate = Gate::Testing { job, pause: None };
    }

    /// This job was started: if it was under test, all pauses are forgotten.
    pub(super) fn passed(&mut self, job: JobId) {
        if self.is_testing(job) {
            *self = Probation::default();
        }
    }

    /// Tests in a row that ended a worker.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// A start was taken back: so many tests had failed before it.
    pub(super) fn recall(&mut self, failures: u32) {
        self.failures = self.failures.max(failures);
    }

    /// This job has ended, or its test was called off.
    pub(super) fn gone(&mut self, gone: JobId) {
        if let Gate::Testing { job, pause } = self.gate
            && job == gone
        {
            self.gate = pause.map_or(Gate::Open, |until| Gate::Closed { until });
        }
    }

    /// No job on probation waits: earlier failures are forgotten, unless a job is under test or a pause has not ended. A job
    /// that was set aside because its task is paused may come back before that.
    pub(super) fn forget(&mut self) {
        if self.is_open() {
            *self = Probation::default();
        }
    }

    /// A worker that had only this job has ended before it started it.
    pub(super) fn failed(&mut self, now: Mono, failed: JobId, config: &CoreConfig, rng: &mut Rng) {
        self.failures = self.failures.saturating_add(1);
        let until = now + rng.stretched_time(backoff(self.failures, config));
        match &mut self.gate {
            // Another job is under test, and its test goes on.
            Gate::Testing { job, pause } if *job != failed => *pause = Some(until),
            gate => *gate = Gate::Closed { until },
        }
    }

    /// Whether the pauses have reached their longest.
    pub(super) fn is_slowest(&self, config: &CoreConfig) -> bool {
        backoff(self.failures, config) >= config.backoff_max
    }

    /// When the probation opens, if it waits for a time.
    pub(super) fn opens_at(&self) -> Option<Mono> {
        match self.gate {
            Gate::Closed { until } => Some(until),
            Gate::Open | Gate::Testing { .. } => None,
        }
    }

    /// After which time a job may be tried, if none is tried now.
    pub(super) fn opens_in(&self, now: Mono) -> Option<Duration> {
        match self.gate {
            Gate::Open => Some(Duration::ZERO),
            Gate::Closed { until } => Some(until - now),
            Gate::Testing { .. } => None,
        }
    }

    /// Opens the probation if its time has come.
    pub(super) fn open_in_time(&mut self, now: Mono) {
        if self.opens_at().is_some_and(|until| until <= now) {
            self.gate = Gate::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_of_a_probation_stays_closed_ever_longer_until_a_job_is_started() {
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
        assert!(probation.is_testing(JobId(2)), "another job was started");
        probation.passed(JobId(2));
        assert!(probation.is_open() && probation.failures == 0);
    }

    #[test]
    fn a_pause_lasts_even_if_no_job_waits_for_its_end() {
        let (config, mut rng) = (CoreConfig::default(), Rng::new(1));
        let mut probation = Probation::default();
        probation.test(JobId(1));
        probation.forget();
        assert!(probation.is_testing(JobId(1)));
        probation.failed(Mono::default(), JobId(1), &config, &mut rng);
        probation.forget();
        let until = probation.opens_at().unwrap_or_default();
        assert!(until > Mono::default(), "closed");
        probation.open_in_time(until);
        assert_eq!(probation.failures, 1);
        probation.forget();
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
        assert!(!probation.is_open(), "only one job is tested at a time");
        probation.gone(JobId(1));
        assert!(
            !probation.is_open() && probation.opens_at().is_some(),
            "the pause of the failed job still holds"
        );
    }
}
