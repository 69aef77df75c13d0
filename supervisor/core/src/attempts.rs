//! How often a job may be tried.

use super::Core;
use super::jobs::{Job, RanUnder};
use crate::limits::ATTEMPTS_MAX;

impl Core {
    /// How many attempts at a job may end their workers before it is given up. A job of which a part was delivered is not
    /// run again.
    pub(super) fn attempts_allowed(&self, job: &Job) -> u32 {
        if job.has_delivered() { 1 } else { self.attempts_under(job, job.ran_under) }
    }

    /// The same for a job that was started under `ran_under`. What is promised now counts only if the job was never
    /// started.
    pub(super) fn attempts_under(&self, job: &Job, ran_under: RanUnder) -> u32 {
        let promised_now = || job.task.is_some_and(|task| self.registry.task(task).promise.idempotent);
        let idempotent = match ran_under {
            RanUnder::Nothing => promised_now(),
            RanUnder::Idempotent => true,
            RanUnder::NotIdempotent => false,
        };
        let unasked = if idempotent { job.attempts_default } else { 1 };
        u32::from(job.attempts_asked.unwrap_or(unasked)).clamp(1, ATTEMPTS_MAX)
    }
}
