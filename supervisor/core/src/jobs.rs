//! The jobs that have not ended.
//!
//! ```text
//!            task known                     given to a worker                its Started came
//!  Parked ---------------> Queued -------------------------> Assigned ------------------------> Running
//!    |                       ^  |                             |  |                                |  |
//!    |                       |  |       worker ended first    |  |   worker ended, may be tried   |  |
//!    |                       '--|-----------------------------'  |   again, or it yielded ---> Queued |
//!    '-- no such task           '-- cancelled, deadline, ...     '-- cancelled, deadline, ...     '--+- finished,
//!                                                                                            failed, timed out...
//!
//!  an abandoned job (`abandoned.rs`) is cancelled where it would wait
//!
//!  Queued ---- its turn, but no room for its output ----> Held ---- there is room again ----> Queued
//! ```
//!
//! A job whose worker has ended, for whatever reason, is a *suspect*: from then on it is dispatched only to a worker
//! without any other job, and no other job is dispatched to that worker. So a job that ends its workers is the only
//! one lost with them, and a job that once was near it is not lost because of it again. A job may be given back any
//! number of times.
//!
//! Every way out of the picture goes through one function, `Core::finish`, which reports the outcome and forgets the
//! job. So each job has exactly one outcome.

use super::clients::ClientId;
use super::ids::{JobId, Mono, ProgramIndex, TaskIndex, WorkerId};
use super::job_table::JobTable;
use super::nanos::MaybeNanos;
pub use super::past::{Past, Progress, Trouble};
use super::queue::Rank;
use super::registry::{Class, Promise};
use super::waiting::{Line, Standing};
use crate::limits::UNSTARTED_MAX;
use offload_protocol::nouns::Lane;
use std::collections::BTreeSet;
use std::time::Duration;

/// A job that has not ended.
#[derive(Clone, Debug)]
pub struct Job {
    /// The task, once it is known. Until then its name is in `past`.
    pub task: Option<TaskIndex>,
    /// The client that submitted it. Its name is also that of the account which the job's bytes are charged to, and from
    /// which they are released at its end.
    pub client: ClientId,
    /// Its priority; a larger one is served sooner.
    pub priority: i8,
    /// Length of the input in bytes.
    pub input_bytes: u64,
    /// The input is a file that the shell holds open. It takes no memory.
    pub has_file: bool,
    /// How many bytes are reserved for its output since it was dispatched.
    pub expected_output: u64,
    /// The longest run of one attempt, if there is a limit.
    pub run_limit: MaybeNanos,
    /// When its result is of no use any more.
    pub deadline: MaybeNanos,
    /// Most attempts, if the submitter set a limit.
    pub attempts_asked: Option<u8>,
    /// Most attempts otherwise, if the task is idempotent.
    pub attempts_default: u8,
    /// The lane that the task must be in.
    pub lane: Option<Lane>,
    /// When it was accepted.
    pub accepted_at: Mono,
    /// How long it was expected to wait when it was accepted, if that could be estimated.
    pub expected_wait: MaybeNanos,
    /// How long it was assumed to run when it was last given to a worker.
    pub expected_run: MaybeNanos,
    /// The program that it was last given to. Its task may be another program's by now.
    pub(super) given_to: GivenTo,
    /// The class of work, as known when it began to wait or was given to a worker: the queue that it waits in. What is known now
    /// is in `short.rs`.
    pub class: Class,
    /// What its client was charged for the attempt in flight, in nanoseconds.
    pub charged: i64,
    /// How often it was started.
    pub attempts: u32,
    /// A worker that had it has ended: it no longer shares a worker with other jobs.
    pub is_suspect: bool,
    /// Nobody wants it any more: it is not tried again.
    pub is_abandoned: bool,
    /// What the worker that has it promises of its task.
    pub promise: Promise,
    /// Under which promises it was started until now.
    pub ran_under: RanUnder,
    /// What most jobs never have.
    pub past: Past,
    /// Where it is in its life.
    pub state: JobState,
}

/// The program that a job was last given to, and how. Two bytes, since there are many jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenTo(u16);

impl GivenTo {
    const ASIDE: u16 = 1 << 15;

    /// There are no more programs than workers (`CoreConfig::validate`), and one for what is done here.
    pub(super) fn new(program: ProgramIndex, is_aside: bool) -> GivenTo {
        let program = u16::try_from(program).unwrap_or(u16::MAX) & !GivenTo::ASIDE;
        GivenTo(program | if is_aside { GivenTo::ASIDE } else { 0 })
    }

    pub(super) fn program(self) -> ProgramIndex {
        usize::from(self.0 & !GivenTo::ASIDE)
    }

    /// Whether no long job could have run in its place, although one waited.
    pub(super) fn is_aside(self) -> bool {
        self.0 & GivenTo::ASIDE != 0
    }
}

/// Under which promises a job was started. The promise that counts is that of the process which started it, whatever
/// other processes promise of the task before or after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RanUnder {
    /// The job was never started.
    #[default]
    Nothing,
    /// At each start, the task was idempotent.
    Idempotent,
    /// At one start, the task was not idempotent: the job must not be started again, unless its submitter asked for
    /// that.
    NotIdempotent,
}

impl RanUnder {
    /// The job is started once more, under this promise.
    pub(super) fn and(self, promise: Promise) -> RanUnder {
        match self {
            RanUnder::Nothing | RanUnder::Idempotent if promise.idempotent => RanUnder::Idempotent,
            _ => RanUnder::NotIdempotent,
        }
    }
}

impl Job {
    /// A job that is accepted now, about which nothing else is known.
    pub(super) fn new(client: ClientId, now: Mono) -> Job {
        Job {
            task: None,
            client,
            priority: 0,
            input_bytes: 0,
            has_file: false,
            expected_output: 0,
            run_limit: MaybeNanos::from(Duration::ZERO),
            deadline: MaybeNanos::default(),
            attempts_asked: None,
            attempts_default: 1,
            lane: None,
            accepted_at: now,
            expected_wait: MaybeNanos::default(),
            expected_run: MaybeNanos::default(),
            given_to: GivenTo::default(),
            class: Class::Long,
            charged: 0,
            attempts: 0,
            is_suspect: false,
            is_abandoned: false,
            promise: Promise::default(),
            ran_under: RanUnder::default(),
            past: Past::default(),
            state: JobState::Parked,
        }
    }

    /// Its position among the jobs of its client.
    pub fn rank(&self, id: JobId) -> Rank {
        Rank::new(self.waits_since(), self.priority, id)
    }

    /// The queue that it waits in.
    pub(super) fn line(&self) -> Line {
        let standing = match self.is_suspect {
            _ if self.past.unstarted >= UNSTARTED_MAX => Standing::OnProbation,
            true => Standing::Suspect,
            false => Standing::Good,
        };
        Line { class: self.class, standing }
    }

    /// Since when it waits, which decides its place in the queue: since it was accepted, or since it was last put on
    /// probation.
    pub fn waits_since(&self) -> Mono {
        self.past.put_back_at.unwrap_or(self.accepted_at)
    }

    /// The longest run of one attempt.
    pub fn run_timeout(&self) -> Duration {
        self.run_limit.duration().unwrap_or(Duration::MAX)
    }

    /// How many attempts it has had: its starts, without those that were lost together with others, which cost none. At least one
    /// if it was started.
    pub fn attempts_had(&self) -> u32 {
        self.attempts.saturating_sub(self.past.lost_together).max(self.attempts.min(1))
    }

    /// Bytes of memory that its input takes.
    pub fn input_held(&self) -> u64 {
        if self.has_file { 0 } else { self.input_bytes }
    }

    /// Bytes that are held for it: its input with metadata and labels, and its checkpoint.
    pub fn held_bytes(&self) -> u64 {
        self.input_held() + self.past.tag_bytes + self.past.checkpoint_bytes
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// The job waits until it is known whether anybody offers its task.
    Parked,
    /// The job waits in the queue of its task's program.
    Queued,
    /// It was the job's turn, but its output is to be kept and there is no room for another one now.
    Held,
    /// The job waits in no queue, because its task is paused (`pauses.rs`).
    Paused,
    /// The job was dispatched to a worker, which has not reported that it started.
    Assigned {
        /// The worker.
        worker: WorkerId,
        /// When it was dispatched.
        given_at: Mono,
    },
    /// The job runs.
    Running {
        /// The worker.
        worker: WorkerId,
        /// When it started.
        started_at: Mono,
    },
    /// The shell does the job itself (`here.rs`).
    Here {
        /// When it started.
        started_at: Mono,
    },
}

impl JobState {
    /// Whether a worker, or the shell, has the job.
    pub fn is_dispatched(self) -> bool {
        matches!(self, JobState::Assigned { .. } | JobState::Running { .. } | JobState::Here { .. })
    }
}

/// All jobs that have not ended, with their deadlines in order.
#[derive(Debug, Default)]
pub struct Jobs {
    live: JobTable<Job>,
    deadlines: BTreeSet<(Mono, JobId)>,
    parked: BTreeSet<JobId>,
    held_bytes: u64,
    last: u64,
}

impl Jobs {
    /// Adds a job and gives it its number.
    pub fn insert(&mut self, job: Job) -> JobId {
        self.last += 1;
        let id = JobId(self.last);
        self.held_bytes += job.held_bytes();
        if let Some(deadline) = job.deadline.moment() {
            self.deadlines.insert((deadline, id));
        }
        if job.state == JobState::Parked {
            self.parked.insert(id);
        }
        self.live.insert(id, job);
        id
    }

    /// Removes a job.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.live.remove(id)?;
        self.held_bytes -= job.held_bytes();
        if let Some(deadline) = job.deadline.moment() {
            self.deadlines.remove(&(deadline, id));
        }
        self.parked.remove(&id);
        Some(job)
    }

    /// The highest job number until now.
    pub fn last(&self) -> JobId {
        JobId(self.last)
    }

    /// Marks a job as parked.
    pub fn park(&mut self, id: JobId) {
        self.parked.insert(id);
    }

    /// Marks a job as no longer parked; the caller decides where it goes.
    pub fn unpark(&mut self, id: JobId) {
        self.parked.remove(&id);
    }

    /// The parked jobs, the oldest first.
    pub fn parked(&self) -> impl Iterator<Item = JobId> + '_ {
        self.parked.iter().copied()
    }

    /// How many jobs are parked.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// The job of this number, if it has not ended.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.live.get(id)
    }

    /// The job of this number, if it has not ended.
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.live.get_mut(id)
    }

    /// All jobs, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (JobId, &Job)> {
        self.live.iter()
    }

    /// The jobs that are older than this one, the youngest first.
    pub fn before(&self, id: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        self.live.before(id)
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// How many bytes of inputs and checkpoints the jobs hold.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Sets the length of a job's checkpoint; 0 if it has none any more.
    pub fn set_checkpoint(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.live.get_mut(id) else { return };
        self.held_bytes = self.held_bytes - job.past.checkpoint_bytes + bytes;
        job.past.checkpoint_bytes = bytes;
    }

    /// The jobs whose deadline has passed, the earliest deadline first.
    pub fn late(&self, now: Mono) -> impl Iterator<Item = JobId> + '_ {
        self.deadlines.range(..=(now, JobId(u64::MAX))).map(|(_, id)| *id)
    }

    /// The earliest deadline, and its job.
    pub fn first_deadline(&self) -> Option<(Mono, JobId)> {
        self.deadlines.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million jobs may wait. What only few of them have is in `past`.
    #[test]
    fn a_job_that_waits_takes_no_more_than_it_must() {
        assert_eq!((size_of::<Job>(), size_of::<Option<Job>>()), (136, 136));
    }
}
