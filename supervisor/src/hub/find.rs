//! Jobs by what people type: the beginning or the end of an id. Nothing is searched: the numbers of the jobs follow from the
//! text, and of those as many are looked up as can be named, and one more.

use super::Hub;
use crate::limits::FIND_LOOKS_MAX;
use crate::views::{Candidates, JobView};
use offload_core::ids::JobId;
use offload_protocol::limits::CANDIDATES_MAX;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

impl Hub {
    /// The jobs that are known and whose ids begin or end with this text, the youngest first: at most [`CANDIDATES_MAX`].
    pub(crate) fn jobs_like(&self, text: &str) -> Candidates {
        let mut found = BTreeSet::new();
        if let Some(numbers) = self.records.beginning_with(text) {
            found.extend(self.known_within(numbers));
        }
        if let Some(numbers) = self.records.ending_with(text, self.core.jobs().last()) {
            let known = numbers.take(FIND_LOOKS_MAX).map(JobId).filter(|job| self.job_view(*job).is_some());
            found.extend(known.take(CANDIDATES_MAX + 1));
        }
        let more = found.len() > CANDIDATES_MAX;
        let youngest = found.into_iter().rev().take(CANDIDATES_MAX);
        Candidates { jobs: youngest.filter_map(|job| self.job_view(job)).collect(), more }
    }

    /// The youngest jobs with these numbers, one more than can be named.
    fn known_within(&self, numbers: RangeInclusive<u64>) -> impl Iterator<Item = JobId> {
        let (first, behind) = (JobId(*numbers.start()), JobId(numbers.end().saturating_add(1)));
        let live = self.core.jobs().before(behind).map(|(job, _)| job);
        let ended = self.records.finished().before(behind).map(|(job, _)| job);
        let named = move |job: &JobId| *job >= first;
        live.take_while(named)
            .take(CANDIDATES_MAX + 1)
            .chain(ended.take_while(named).take(CANDIDATES_MAX + 1))
    }

    fn job_view(&self, job: JobId) -> Option<JobView> {
        let live = self.core.jobs().get(job).map(|live| self.live_job_view(job, live));
        live.or_else(|| self.records.finished().record(job).map(Hub::ended_job_view))
    }
}
