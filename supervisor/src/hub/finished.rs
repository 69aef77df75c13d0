//! Ended jobs that are still remembered. There are two kinds, with separate rules:
//!
//! ```text
//!                  was anything promised?
//!   a job ends ---- yes: the core says so ---> Promised: report and output, until the core releases them
//!        |                                         |
//!        |                                         | released: collected, or its time is over
//!        |                                         v
//!        '--------- no ---------------------> Courtesy: the report, as long as there is room. If it was collected,
//!                                                  |     also the output, as long as there is room, and no longer than
//!                                                  |     was promised or until somebody gives it up
//!                                                  '---> forgotten
//! ```
//!
//! The core limits how much may be promised: it refuses jobs beyond the limit. This module limits what is best effort: when
//! it takes too much, the client whose jobs take most loses its oldest job first. So a client with few jobs still
//! finds them when another client has many.

use crate::job::Finished;
use crate::limits::{HISTORY_BYTES_MAX, HISTORY_JOBS_MAX};
use crate::public_id::PublicId;
use crate::views::AttemptView;
use bytes::Bytes;
use offload_core::action::{Keep, Released};
use offload_core::ids::{JobId, Mono};
use offload_core::job_table::JobTable;
use offload_core::lookup::Lookup;
use offload_protocol::nouns::{ErrorDetail, Labels, MediaType, Metadata, OutcomeCode, Receipt, Report};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// All ended jobs that are remembered. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct FinishedJobs {
    records: JobTable<Record>,
    history: History,
    /// The jobs whose output is remembered as best effort, and until when; the same in the order of that; and the bytes of these
    /// outputs.
    collected: BTreeMap<JobId, Mono>,
    collected_ends: BTreeSet<(Mono, JobId)>,
    collected_bytes: u64,
}

/// One job that has ended.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) report: Remembered,
    pub(super) client: Arc<str>,
    pub(super) accepted_at: Mono,
    /// Time from acceptance to the end, in microseconds.
    pub(super) age_us: u64,
    /// How many jobs its last attempt was given together with, itself included; 0 if it was alone.
    pub(super) together: u32,
    /// The attempts that were lost.
    pub(super) lost: Box<[AttemptView]>,
    /// Approximate size of the report.
    bytes: u64,
    output: RememberedOutput,
}

/// The report of a job as it is remembered. Ten thousand are, and every job that ends adds one and pushes out another, which
/// no cache has any more: so this is small. It shares the name of the task with others, the job's id is written as a text
/// only when somebody asks, and what few jobs have is in boxes.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) job: PublicId,
    pub(crate) task: Arc<str>,
    pub(crate) outcome: OutcomeCode,
    pub(crate) error: Option<Box<ErrorDetail>>,
    pub(crate) attempts: u32,
    pub(crate) receipt: Receipt,
    pub(crate) media_type: MediaType,
    /// What its client had attached to the job: see [`tags`].
    pub(super) tags: Option<Box<(Metadata, Labels)>>,
}

/// What a client has attached to a job, as it is remembered: nothing if there is neither of both.
pub(super) fn tags(metadata: Metadata, labels: Labels) -> Option<Box<(Metadata, Labels)>> {
    let tags = (metadata, labels);
    (tags != Default::default()).then(|| Box::new(tags))
}

impl Remembered {
    /// The words by which the job can be found.
    pub(crate) fn labels(&self) -> Labels {
        self.tags.as_deref().map(|(_, labels)| labels.clone()).unwrap_or_default()
    }

    pub(super) fn metadata(&self) -> Metadata {
        self.tags.as_deref().map(|(metadata, _)| metadata.clone()).unwrap_or_default()
    }

    /// The report as it is sent.
    pub(crate) fn report(&self) -> Report {
        Report {
            job: self.job.to_text(),
            task: (*self.task).to_owned(),
            outcome: self.outcome,
            error: self.error.as_deref().cloned(),
            attempts: self.attempts,
            receipt: self.receipt.clone(),
            media_type: self.media_type.clone(),
            metadata: self.metadata(),
            labels: self.labels(),
        }
    }
}

/// What is remembered of the output of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RememberedOutput {
    /// The whole output. In a box: most jobs have nothing here.
    Here(Box<Bytes>),
    /// The output went to the submitter. It was not to be kept.
    Delivered,
    /// The output was to be kept, but there was no room.
    NoRoom,
    /// The output was kept as long as was promised.
    TimeIsOver,
    /// The output was collected, and later forgotten to make room.
    Collected,
    /// Somebody has said that the output is of no use any more.
    GivenUp,
}

/// What is remembered of an ended job beside its report.
#[derive(Debug)]
pub(super) struct EndedJobDetails {
    pub(super) client: Arc<str>,
    pub(super) accepted_at: Mono,
    /// Time from acceptance to the end, in microseconds.
    pub(super) age_us: u64,
    pub(super) together: u32,
    pub(super) lost: Vec<AttemptView>,
    /// Approximate size of the report.
    pub(super) bytes: u64,
}

impl Record {
    /// How the job ended. None if the job returned an output that is no longer here.
    pub(crate) fn finished(&self) -> Option<Finished> {
        let output = match &self.output {
            RememberedOutput::Here(output) => (**output).clone(),
            _ if self.report.error.is_some() => Bytes::new(),
            _ => return None,
        };
        Some(Finished { report: self.report.report(), output })
    }

    /// How the job ended, and the output that is kept of it.
    pub(crate) fn end(&self) -> (Report, Option<Bytes>) {
        let output = match &self.output {
            RememberedOutput::Here(output) => Some((**output).clone()),
            _ => None,
        };
        (self.report.report(), output)
    }

    /// Why the output is not here, as the answer to whoever asks for it.
    pub(crate) fn no_output(&self) -> ErrorDetail {
        let code = match self.output {
            RememberedOutput::NoRoom => OutcomeCode::StorageFull,
            _ => OutcomeCode::NoSuchJob,
        };
        ErrorDetail::new(code, self.why_no_output())
    }

    /// A sentence for users that says why the output is not here.
    pub(crate) fn why_no_output(&self) -> String {
        let bytes = self.report.receipt.output_bytes;
        let why = match self.output {
            RememberedOutput::Here(_) => "is here",
            RememberedOutput::Delivered => {
                "went to whoever submitted it, and was not to be kept (it is kept if the job is detached)"
            }
            RememberedOutput::NoRoom => {
                "could not be kept: there was no room among the results that are kept"
            }
            RememberedOutput::TimeIsOver => "was kept as long as results are kept, and is forgotten",
            RememberedOutput::Collected => "was collected before, and is forgotten",
            RememberedOutput::GivenUp => "is forgotten, because somebody has given it up",
        };
        format!("the job ended ok; its output of {bytes} bytes {why}")
    }
}

impl FinishedJobs {
    pub(super) fn remember(
        &mut self,
        job: JobId,
        report: Remembered,
        output: &Bytes,
        (keep, details): (Keep, EndedJobDetails),
    ) {
        let EndedJobDetails { client, accepted_at, age_us, together, lost, bytes } = details;
        let output = match keep {
            Keep::Promised => RememberedOutput::Here(Box::new(output.clone())),
            Keep::WithoutOutput => RememberedOutput::NoRoom,
            Keep::AsCourtesy => RememberedOutput::Delivered,
        };
        self.records.insert(
            job,
            Record {
                report,
                client: client.clone(),
                accepted_at,
                age_us,
                together,
                lost: lost.into(),
                bytes,
                output,
            },
        );
        if keep == Keep::AsCourtesy {
            self.add_to_history(job, &client, bytes);
        }
    }

    /// What was promised for a job is over: from now on the job is remembered as best effort.
    pub(super) fn release(&mut self, job: JobId, why: Released) {
        let Some(record) = self.records.get_mut(job) else { return };
        match (&record.output, why) {
            (RememberedOutput::Here(output), Released::Collected { until }) => {
                self.collected_bytes += output.len() as u64;
                self.collected.insert(job, until);
                self.collected_ends.insert((until, job));
            }
            (RememberedOutput::Here(_), Released::TimeIsOver) => record.output = RememberedOutput::TimeIsOver,
            _ => {}
        }
        let (client, bytes) = (record.client.clone(), record.bytes);
        self.add_to_history(job, &client, bytes);
    }

    fn add_to_history(&mut self, job: JobId, client: &Arc<str>, bytes: u64) {
        self.history.push(job, client, bytes);
        while let Some(forgotten) = self.history.pop_if_too_many() {
            self.forget_collected(forgotten, RememberedOutput::Collected);
            self.records.remove(forgotten);
        }
    }

    /// Forgets collected outputs, those of the oldest jobs first, until they take no more than `most` bytes.
    pub(super) fn forget_collected_over(&mut self, most: u64) {
        while self.collected_bytes > most {
            let Some((&oldest, _)) = self.collected.first_key_value() else { return };
            self.forget_collected(oldest, RememberedOutput::Collected);
        }
    }

    /// Forgets the collected outputs that have been here as long as was promised.
    pub(super) fn forget_collected_until(&mut self, now: Mono) {
        while let Some(&(_, job)) = self.collected_ends.first().filter(|(until, _)| *until <= now) {
            self.forget_collected(job, RememberedOutput::TimeIsOver);
        }
    }

    /// Somebody has said that the output of this job is of no use any more. What is still promised stays.
    pub(super) fn give_up(&mut self, job: JobId) {
        self.forget_collected(job, RememberedOutput::GivenUp);
    }

    fn forget_collected(&mut self, job: JobId, why: RememberedOutput) {
        let Some(until) = self.collected.remove(&job) else { return };
        self.collected_ends.remove(&(until, job));
        let Some(record) = self.records.get_mut(job) else { return };
        if let RememberedOutput::Here(output) = std::mem::replace(&mut record.output, why) {
            self.collected_bytes -= output.len() as u64;
        }
    }

    /// Everything that is remembered of a job.
    pub(super) fn record(&self, job: JobId) -> Option<&Record> {
        self.records.get(job)
    }

    /// The remembered jobs that are older than this one, the youngest first.
    pub(super) fn before(&self, job: JobId) -> impl Iterator<Item = (JobId, &Record)> {
        self.records.before(job)
    }
}

/// Jobs that are remembered as best effort: for each client in the order in which they were added.
#[derive(Debug, Default)]
struct History {
    by_client: Lookup<Arc<str>, ClientHistory>,
    /// The clients in the order of how many bytes their jobs take, rounded. One job hardly ever changes a rounded number,
    /// so this tree is seldom touched.
    by_level: BTreeSet<(u64, Arc<str>)>,
    count: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct ClientHistory {
    jobs: VecDeque<(JobId, u64)>,
    bytes: u64,
}

/// A number of bytes, rounded up by one eighth at most.
fn level(bytes: u64) -> u64 {
    let digits = u64::BITS - bytes.leading_zeros();
    bytes.next_multiple_of(1 << digits.saturating_sub(4))
}

impl History {
    fn push(&mut self, job: JobId, client: &Arc<str>, bytes: u64) {
        let history = self.by_client.get_or_add::<str>(client);
        let before = history.bytes;
        history.jobs.push_back((job, bytes));
        history.bytes += bytes;
        let after = history.bytes;
        self.count += 1;
        self.bytes += bytes;
        self.list(client, before, after);
    }

    /// The bytes of a client's jobs have changed: its place in the order may have, too.
    fn list(&mut self, client: &Arc<str>, before: u64, after: u64) {
        if level(before) == level(after) {
            return;
        }
        self.by_level.remove(&(level(before), client.clone()));
        if after > 0 {
            self.by_level.insert((level(after), client.clone()));
        }
    }

    /// Takes out the job that is to be forgotten, if there are too many: the oldest job of a client whose jobs take as many
    /// bytes as those of any other, or at most an eighth less.
    fn pop_if_too_many(&mut self) -> Option<JobId> {
        if self.count <= HISTORY_JOBS_MAX && self.bytes <= HISTORY_BYTES_MAX {
            return None;
        }
        let client = self.by_level.last()?.1.clone();
        let history = self.by_client.get_mut(&*client)?;
        let (job, bytes) = history.jobs.pop_front()?;
        let before = history.bytes;
        history.bytes -= bytes;
        let after = history.bytes;
        if history.jobs.is_empty() {
            self.by_client.remove(&*client);
        }
        self.count -= 1;
        self.bytes -= bytes;
        self.list(&client, before, after);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_id::PublicIds;

    fn report() -> Remembered {
        Remembered {
            job: PublicIds::new().id(JobId(1)),
            task: "x".into(),
            outcome: OutcomeCode::Ok,
            error: None,
            attempts: 1,
            receipt: Receipt::default(),
            media_type: MediaType::default(),
            tags: None,
        }
    }

    fn details(client: &str, bytes: u64) -> EndedJobDetails {
        EndedJobDetails {
            client: client.into(),
            accepted_at: Mono::default(),
            age_us: 0,
            together: 0,
            lost: Vec::new(),
            bytes,
        }
    }

    fn remember(jobs: &mut FinishedJobs, job: u64, client: &str, keep: Keep) {
        jobs.remember(JobId(job), report(), &Bytes::from(vec![0; 100]), (keep, details(client, 1024)));
    }

    fn has_output(jobs: &FinishedJobs, job: u64) -> Option<bool> {
        Some(jobs.record(JobId(job))?.finished().is_some())
    }

    /// Ten thousand of them are kept, and each job that ends takes the place of another.
    #[test]
    fn a_record_takes_no_more_than_it_must() {
        assert_eq!(size_of::<Record>(), 240);
    }

    #[test]
    fn what_was_attached_to_a_job_is_in_its_report() {
        let labels = Labels::new(&["nightly"]).unwrap();
        let metadata = Metadata::new(&[("tenant", "blue")]).unwrap();
        let tagged = Remembered { tags: tags(metadata.clone(), labels.clone()), ..report() };
        assert_eq!((tagged.report().metadata, tagged.report().labels), (metadata, labels));
        assert!(tags(Metadata::default(), Labels::default()).is_none());
    }

    #[test]
    fn what_was_promised_stays_however_many_others_end() {
        let mut jobs = FinishedJobs::default();
        remember(&mut jobs, 1, "me", Keep::Promised);
        (2..30_000).for_each(|job| remember(&mut jobs, job, "greedy", Keep::AsCourtesy));
        assert_eq!(has_output(&jobs, 1), Some(true));
        assert_eq!(jobs.records.len(), HISTORY_JOBS_MAX + 1);
        jobs.release(JobId(1), Released::TimeIsOver);
        assert_eq!(has_output(&jobs, 1), Some(false), "the report is remembered, the output is not");
    }

    #[test]
    fn an_output_that_went_to_its_submitter_is_not_kept_and_it_is_said_why() {
        let mut jobs = FinishedJobs::default();
        remember(&mut jobs, 1, "me", Keep::AsCourtesy);
        assert_eq!(has_output(&jobs, 1), Some(false));
        assert!(jobs.record(JobId(1)).unwrap().why_no_output().contains("whoever submitted it"));
    }

    #[test]
    fn an_output_that_was_collected_is_remembered_while_there_is_room() {
        let mut jobs = FinishedJobs::default();
        for job in 1..=3 {
            remember(&mut jobs, job, "me", Keep::Promised);
            jobs.release(JobId(job), Released::Collected { until: Mono::from_nanos(job) });
        }
        jobs.forget_collected_over(250);
        assert_eq!([1, 2, 3].map(|job| has_output(&jobs, job)), [Some(false), Some(true), Some(true)]);
        jobs.forget_collected_over(0);
        assert_eq!((jobs.collected_bytes, jobs.collected.len(), jobs.collected_ends.len()), (0, 0, 0));
    }

    #[test]
    fn an_output_that_was_collected_is_not_here_longer_than_promised_or_when_it_was_given_up() {
        let mut jobs = FinishedJobs::default();
        for job in 1..=4 {
            remember(&mut jobs, job, "me", Keep::Promised);
        }
        for job in 1..=3 {
            jobs.release(JobId(job), Released::Collected { until: Mono::from_nanos(10 - job) });
        }
        jobs.forget_collected_until(Mono::from_nanos(8));
        assert_eq!([1, 2, 3].map(|job| has_output(&jobs, job)), [Some(true), Some(false), Some(false)]);
        (1..=4).for_each(|job| jobs.give_up(JobId(job)));
        assert_eq!([1, 4].map(|job| has_output(&jobs, job)), [Some(false), Some(true)], "one is promised");
        assert_eq!((jobs.collected_bytes, jobs.collected.len(), jobs.collected_ends.len()), (0, 0, 0));
    }

    #[test]
    fn the_client_with_most_jobs_is_the_one_whose_oldest_are_forgotten() {
        let mut jobs = FinishedJobs::default();
        remember(&mut jobs, 1, "me", Keep::AsCourtesy);
        for job in 2..=HISTORY_JOBS_MAX as u64 + 5 {
            remember(&mut jobs, job, "greedy", Keep::AsCourtesy);
        }
        assert_eq!(jobs.records.len(), HISTORY_JOBS_MAX);
        let remembered = [1, 6, 7].map(|job| jobs.record(JobId(job)).is_some());
        assert_eq!(remembered, [true, false, true]);
    }

    #[test]
    fn long_reports_count_by_their_length() {
        let mut jobs = FinishedJobs::default();
        for job in 1..=3 {
            let details = details("me", HISTORY_BYTES_MAX / 2);
            jobs.remember(JobId(job), report(), &Bytes::from_static(b"1"), (Keep::AsCourtesy, details));
        }
        assert_eq!(jobs.records.len(), 2);
    }
}
