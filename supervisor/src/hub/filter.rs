//! Which jobs a list has. Jobs are looked at from the youngest to the oldest, so one that is too old ends the list.

use super::Hub;
use super::finished::Record;
use offload_core::ids::{JobId, Mono};
use offload_core::jobs::Job;
use offload_protocol::messages::JobFilter;
use std::time::Duration;

/// What a filter says of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in the list.
    Wanted,
    /// It is not.
    Unwanted,
    /// Neither it is, nor any older job.
    TooOld,
}

/// A filter at one moment.
pub(super) struct Sieve<'a> {
    filter: &'a JobFilter,
    /// Jobs that were accepted before this are too old.
    since: Mono,
}

impl<'a> Sieve<'a> {
    pub(super) fn new(filter: &'a JobFilter, now: Mono) -> Sieve<'a> {
        let oldest = filter.since_ms.map(|millis| Duration::from_millis(millis).as_nanos());
        let nanos = oldest.map_or(u64::MAX, |nanos| u64::try_from(nanos).unwrap_or(u64::MAX));
        Sieve { filter, since: Mono::from_nanos(now.as_nanos().saturating_sub(nanos)) }
    }

    fn judge(&self, accepted_at: Mono, is_wanted: impl FnOnce(&JobFilter) -> bool) -> Verdict {
        match accepted_at < self.since {
            true => Verdict::TooOld,
            false if is_wanted(self.filter) => Verdict::Wanted,
            false => Verdict::Unwanted,
        }
    }
}

impl Hub {
    /// What the filter says of a job that has not ended.
    pub(super) fn judge_live(&self, sieve: &Sieve<'_>, id: JobId, job: &Job) -> Verdict {
        sieve.judge(job.accepted_at, |filter| {
            is_any_or(&filter.state, self.listed_state(job).as_str())
                && is_any_or(&filter.task, self.core.task_name(job))
                && filter.client.as_deref().is_none_or(|client| client == &**self.core.account_of(job))
                && (filter.label.is_empty() || self.labels_of(id).contains(&filter.label))
        })
    }

    /// What the filter says of a job that has ended.
    pub(super) fn judge_ended(sieve: &Sieve<'_>, record: &Record) -> Verdict {
        let report = &record.report;
        sieve.judge(record.accepted_at, |filter| {
            is_any_or(&filter.state, report.outcome.as_str())
                && is_any_or(&filter.task, &report.task)
                && filter.client.as_deref().is_none_or(|client| client == &*record.client)
                && (filter.label.is_empty() || report.labels().contains(&filter.label))
        })
    }
}

fn is_any_or(wanted: &str, there: &str) -> bool {
    wanted.is_empty() || wanted == there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_too_old_by_its_acceptance_whatever_else_it_is() {
        let now = Mono::from_nanos(5_000_000_000);
        let filter = JobFilter { since_ms: Some(2000), ..JobFilter::default() };
        let sieve = Sieve::new(&filter, now);
        let at = |millis: u64| Mono::from_nanos(millis * 1_000_000);
        assert_eq!(sieve.judge(at(2999), |_| true), Verdict::TooOld);
        assert_eq!(sieve.judge(at(3000), |_| true), Verdict::Wanted);
        assert_eq!(sieve.judge(at(3000), |_| false), Verdict::Unwanted);
        let any = JobFilter::default();
        assert_eq!(Sieve::new(&any, now).judge(at(0), |_| true), Verdict::Wanted);
        let far = JobFilter { since_ms: Some(u64::MAX), ..JobFilter::default() };
        assert_eq!(Sieve::new(&far, now).judge(at(0), |_| true), Verdict::Wanted);
    }
}
