//! Jobs that have ended, as far as they are remembered: the last so many, and of those whose output nobody has taken
//! yet, as much output as fits. The oldest are forgotten first.

use crate::core::ids::JobId;
use crate::job::Finished;
use crate::limits::{FINISHED_BYTES_MAX, FINISHED_JOBS_MAX};
use crate::views::AttemptView;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct FinishedJobs {
    records: BTreeMap<JobId, Record>,
    /// The same in the order in which they ended: the first is forgotten first.
    ended: VecDeque<JobId>,
    /// Those whose output is kept, in the order in which they ended, with its length.
    with_output: VecDeque<(JobId, usize)>,
    output_bytes: usize,
}

/// One job that has ended.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) finished: Finished,
    pub(super) client: String,
    /// From acceptance to the end.
    pub(super) age: Duration,
    /// The attempts that were lost.
    pub(super) lost: Vec<AttemptView>,
    has_output: bool,
}

/// What is remembered of an end beside the report.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) client: String,
    /// From acceptance.
    pub(super) age: Duration,
    pub(super) lost: Vec<AttemptView>,
    /// Somebody may still come for the output.
    pub(super) keep_output: bool,
}

impl FinishedJobs {
    pub(super) fn remember(&mut self, job: JobId, finished: &Finished, ending: Ending) {
        let Ending { client, age, lost, keep_output } = ending;
        let length = finished.output.len();
        let has_output = keep_output && length <= FINISHED_BYTES_MAX;
        let output = if has_output { finished.output.clone() } else { Bytes::new() };
        let finished = Finished { report: finished.report.clone(), output };
        self.records.insert(job, Record { finished, client, age, lost, has_output });
        if has_output {
            self.with_output.push_back((job, length));
            self.output_bytes += length;
        }
        self.ended.push_back(job);
        self.forget_what_is_too_much();
    }

    fn forget_what_is_too_much(&mut self) {
        while self.output_bytes > FINISHED_BYTES_MAX {
            let Some((job, length)) = self.with_output.pop_front() else { return };
            self.output_bytes -= length;
            if let Some(record) = self.records.get_mut(&job) {
                record.finished.output = Bytes::new();
                record.has_output = false;
            }
        }
        while self.ended.len() > FINISHED_JOBS_MAX {
            let Some(job) = self.ended.pop_front() else { return };
            self.records.remove(&job);
            // Both queues are in the same order, so if it is there, it is first.
            if let Some(&(first, length)) = self.with_output.front()
                && first == job
            {
                self.with_output.pop_front();
                self.output_bytes -= length;
            }
        }
    }

    /// How a job ended, and whether its output is here as well.
    pub(super) fn get(&self, job: JobId) -> Option<(&Finished, bool)> {
        self.records.get(&job).map(|record| (&record.finished, record.has_output))
    }

    /// Everything that is remembered of a job.
    pub(super) fn record(&self, job: JobId) -> Option<&Record> {
        self.records.get(&job)
    }

    /// Those that are remembered and older than this one, the youngest first.
    pub(super) fn before(&self, job: JobId) -> impl Iterator<Item = (JobId, &Record)> {
        self.records.range(..job).rev().map(|(job, record)| (*job, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::outcome::error;
    use offload_protocol::nouns::OutcomeCode;

    fn with_output(length: usize) -> Finished {
        let refusal = super::super::orders::refusal("x", error(OutcomeCode::Ok, ""));
        Finished { output: Bytes::from(vec![0; length]), ..refusal }
    }

    fn remember(jobs: &mut FinishedJobs, job: u64, length: usize, keep: bool) {
        jobs.remember(JobId(job), &with_output(length), Ending { keep_output: keep, ..Ending::default() });
    }

    #[test]
    fn output_that_was_delivered_is_not_kept() {
        let mut jobs = FinishedJobs::default();
        remember(&mut jobs, 1, 100, false);
        remember(&mut jobs, 2, 100, true);
        let kept: Vec<_> = [1, 2].map(|job| jobs.get(JobId(job)).unwrap().1).into();
        assert_eq!(kept, [false, true]);
        assert_eq!(jobs.output_bytes, 100);
    }

    #[test]
    fn the_oldest_output_makes_room_for_the_youngest() {
        let mut jobs = FinishedJobs::default();
        for job in 1..=3 {
            remember(&mut jobs, job, FINISHED_BYTES_MAX / 2, true);
        }
        let kept: Vec<_> = [1, 2, 3].map(|job| jobs.get(JobId(job)).unwrap().1).into();
        assert_eq!(kept, [false, true, true]);
        remember(&mut jobs, 4, FINISHED_BYTES_MAX + 1, true);
        assert!(!jobs.get(JobId(4)).unwrap().1, "it would never fit");
        assert!(jobs.output_bytes <= FINISHED_BYTES_MAX);
    }

    #[test]
    fn a_job_that_took_long_is_remembered_as_long_as_any_other() {
        let mut jobs = FinishedJobs::default();
        for job in 2..=FINISHED_JOBS_MAX as u64 + 10 {
            remember(&mut jobs, job, 1, true);
        }
        remember(&mut jobs, 1, 1, true);
        assert_eq!(jobs.get(JobId(1)).map(|(_, has_output)| has_output), Some(true));
        assert_eq!(jobs.output_bytes, FINISHED_JOBS_MAX);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut jobs = FinishedJobs::default();
        for job in 1..=FINISHED_JOBS_MAX as u64 + 5 {
            remember(&mut jobs, job, 1, true);
        }
        assert_eq!(jobs.records.len(), FINISHED_JOBS_MAX);
        assert!(jobs.get(JobId(5)).is_none() && jobs.get(JobId(6)).is_some());
        assert_eq!(jobs.output_bytes, FINISHED_JOBS_MAX);
    }
}
