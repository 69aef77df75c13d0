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
//!  one that nobody wants any more (`abandoned.rs`) is cancelled where it would wait
//!
//!  Queued ---- its turn, but no room for its output ----> Held ---- there is room again ----> Queued
//! ```
//!
//! A job whose worker ended, for whatever reason, is a *suspect*: from then on it is given only to a worker that has no
//! other job, and no other is given to that worker. So a job that ends its workers ends them alone, and those that were
//! near it once are never lost because of it again. How often a job may be given back is not limited.
//!
//! Every way out of the picture goes through one function (`Core::finish`), which says the outcome and forgets the
//! job: that is why there is exactly one outcome for each.

use super::action::LostAttempt;
use super::clients::ClientId;
use super::ids::{JobId, Mono, TaskIndex, WorkerId};
use super::probation::UNSTARTED_MAX;
use super::queue::Rank;
use super::registry::{Class, Promise};
use super::waiting::{Line, Standing};
use offload_protocol::nouns::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A job that has not ended.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name of the task that it asks for.
    pub task_name: Arc<str>,
    /// That task, once it is known.
    pub task: Option<TaskIndex>,
    /// Who wants it done.
    pub client: ClientId,
    /// The client's name: that of the account which its bytes are on, now and when it is forgotten.
    pub account: Arc<str>,
    /// A larger one is sooner.
    pub priority: i8,
    /// The job for which its key stood before, until its time was over.
    pub key_before: Option<JobId>,
    /// Length of the input.
    pub input_bytes: u64,
    /// What was set aside for its output when it was given to a worker.
    pub expected_output: u64,
    /// Longest run of one attempt.
    pub run_timeout: Duration,
    /// When its result is of no use any more.
    pub deadline: Option<Mono>,
    /// Most attempts, if the submitter said so.
    pub attempts_asked: Option<u32>,
    /// Most attempts otherwise, if the task is idempotent.
    pub attempts_default: u32,
    /// The lane that the task must be in.
    pub lane: Option<Lane>,
    /// When it was accepted.
    pub accepted_at: Mono,
    /// Since when it waits, for its place in the queue: since it was accepted, or since it was last on probation.
    pub waits_since: Mono,
    /// How long it was expected to wait when it was accepted, if there was anything to go by.
    pub expected_wait: Option<Duration>,
    /// How long it is expected to run, and what class of work that makes it. As learned when it began to wait.
    pub expected: Expected,
    /// What its client was charged for the attempt that is under way, in nanoseconds.
    pub charged: i64,
    /// How often it was started.
    pub attempts: u32,
    /// Attempts that ended their worker.
    pub crashes: u32,
    /// A worker that had it has ended: it shares none with others any more.
    pub is_suspect: bool,
    /// Workers in a row that had no other job and ended before they had started it. It costs time, never the job.
    pub unstarted: u32,
    /// Of those that it was to be seen with whether a worker lives to start it, the ones that ended when the pause between
    /// them was as long as it gets.
    pub late_tests: u32,
    /// Nobody wants it any more: it is not tried again.
    pub is_abandoned: bool,
    /// What the worker that has it promises of its task.
    pub promise: Promise,
    /// Under which promises it was started.
    pub ran_under: RanUnder,
    /// What its earlier attempts, those that were given back in the middle, have run.
    pub ran_before: Duration,
    /// How far it is, as its worker last said.
    pub progress: Option<Progress>,
    /// Length of the checkpoint from which the next attempt goes on; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<LostAttempt>,
    /// Where it stands.
    pub state: JobState,
}

/// Under which promises a job was started. What counts is what the process said that started it, whatever others say
/// of the task before or after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RanUnder {
    /// It was never started.
    #[default]
    Nothing,
    /// Each time it was idempotent.
    Idempotent,
    /// Once it was not: it must not be started again, unless its submitter asked for that.
    NotIdempotent,
}

impl RanUnder {
    /// Once more, under this promise.
    pub(super) fn and(self, promise: Promise) -> RanUnder {
        match self {
            RanUnder::Nothing | RanUnder::Idempotent if promise.idempotent => RanUnder::Idempotent,
            _ => RanUnder::NotIdempotent,
        }
    }
}

/// What is expected of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How long it runs; none if nothing like it ever ran.
    pub run: Option<Duration>,
    /// The class of slots that it waits for.
    pub class: Class,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Units of work done.
    pub done: u64,
    /// Units of work in all; 0 if that is not known.
    pub total: u64,
    /// When that was said.
    pub at: Mono,
}

impl Job {
    /// Its place among the jobs of its client.
    pub fn rank(&self, id: JobId) -> Rank {
        Rank::new(self.waits_since, self.priority, id)
    }

    /// The queue that it waits in.
    pub(super) fn line(&self) -> Line {
        let standing = match self.is_suspect {
            _ if self.unstarted >= UNSTARTED_MAX => Standing::OnProbation,
            true => Standing::Suspect,
            false => Standing::Good,
        };
        Line { class: self.expected.class, standing }
    }

    /// Bytes that are held for it.
    pub fn held_bytes(&self) -> u64 {
        self.input_bytes + self.checkpoint_bytes
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// It is not known yet whether anybody offers its task.
    Parked,
    /// In the queue of its task's program.
    Queued,
    /// It was its turn, but its output is to be kept and there is no room for more of those now.
    Held,
    /// Given to a worker which has not said that it started.
    Assigned {
        /// Which.
        worker: WorkerId,
    },
    /// Being worked on.
    Running {
        /// By whom.
        worker: WorkerId,
        /// Since when.
        started_at: Mono,
    },
}

impl JobState {
    /// Whether a worker has it.
    pub fn is_with_a_worker(self) -> bool {
        matches!(self, JobState::Assigned { .. } | JobState::Running { .. })
    }
}

/// All of them, with their deadlines in order.
#[derive(Debug, Default)]
pub struct Jobs {
    live: BTreeMap<JobId, Job>,
    deadlines: BTreeSet<(Mono, JobId)>,
    parked: BTreeSet<JobId>,
    held_bytes: u64,
    last: u64,
}

impl Jobs {
    /// Takes a job in and gives it its number.
    pub fn insert(&mut self, job: Job) -> JobId {
        self.last += 1;
        let id = JobId(self.last);
        self.held_bytes += job.held_bytes();
        if let Some(deadline) = job.deadline {
            self.deadlines.insert((deadline, id));
        }
        if job.state == JobState::Parked {
            self.parked.insert(id);
        }
        self.live.insert(id, job);
        id
    }

    /// Forgets a job.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.live.remove(&id)?;
        self.held_bytes -= job.held_bytes();
        if let Some(deadline) = job.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.parked.remove(&id);
        Some(job)
    }

    /// The number that was given last.
    pub fn last(&self) -> JobId {
        JobId(self.last)
    }

    /// Marks a job as parked.
    pub fn park(&mut self, id: JobId) {
        self.parked.insert(id);
    }

    /// Marks a parked job as no longer parked; the caller says where it goes.
    pub fn unpark(&mut self, id: JobId) {
        self.parked.remove(&id);
    }

    /// The parked jobs, the oldest first.
    pub fn parked(&self) -> impl Iterator<Item = JobId> + '_ {
        self.parked.iter().copied()
    }

    /// How many are parked.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// The job of this number, if it has not ended.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.live.get(&id)
    }

    /// The job of this number, if it has not ended.
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.live.get_mut(&id)
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (JobId, &Job)> {
        self.live.iter().map(|(&id, job)| (id, job))
    }

    /// Those that are older than this one, the youngest first.
    pub fn before(&self, id: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        self.live.range(..id).rev().map(|(&id, job)| (id, job))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Bytes of input and of checkpoints that they hold.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// A job has another checkpoint, or, with 0 bytes, none any more.
    pub fn set_checkpoint(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.live.get_mut(&id) else { return };
        self.held_bytes = self.held_bytes - job.checkpoint_bytes + bytes;
        job.checkpoint_bytes = bytes;
    }

    /// Those whose deadline has passed, the one that passed first first.
    pub fn late(&self, now: Mono) -> impl Iterator<Item = JobId> + '_ {
        self.deadlines.range(..=(now, JobId(u64::MAX))).map(|(_, id)| *id)
    }

    /// The earliest deadline and whose it is.
    pub fn first_deadline(&self) -> Option<(Mono, JobId)> {
        self.deadlines.first().copied()
    }
}
