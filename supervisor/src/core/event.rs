//! What can happen, as the core is told it. Any event may come in any state: what no longer matters is ignored.

use super::config::CoreConfig;
use super::ids::{JobId, Ticket, WorkerId};
use crate::exit::Exit;
use offload_protocol::nouns::{FailureKind, Lane, TaskOffer};
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody wants a job done. Answered with `Accepted` or `Rejected`.
    Submit {
        /// Named in the answer.
        ticket: Ticket,
        /// What is wanted.
        request: JobRequest,
    },
    /// Somebody does not want a job any more.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// The shell itself refused a job: its input was too long, or there was no room for it.
    Refused,
    /// A worker could not be started.
    SpawnFailed {
        /// Which.
        worker: WorkerId,
        /// Trying again is pointless.
        fatal: bool,
        /// Why, for people.
        message: String,
    },
    /// A worker is ready for jobs.
    Hello {
        /// Which.
        worker: WorkerId,
        /// What it offers.
        tasks: Vec<TaskOffer<'static>>,
    },
    /// A worker is none of ours: its magic or version is wrong. Trying again is pointless.
    Unfit {
        /// Which.
        worker: WorkerId,
        /// Why, for people.
        message: String,
    },
    /// A worker has begun a job.
    Started {
        /// Which.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
    },
    /// A task returned; the shell holds the output.
    Finished {
        /// Where.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
        /// How long it says that it took.
        run: Duration,
    },
    /// A task failed, its worker did not.
    Failed {
        /// Where.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
        /// How long it says that it took.
        run: Duration,
        /// In which way.
        kind: FailureKind,
        /// Why, for people.
        message: String,
    },
    /// A worker has thrown away, unstarted, a job that it was told to cancel.
    Skipped {
        /// Which.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
    },
    /// A worker sent what no worker may send.
    Violation {
        /// Which.
        worker: WorkerId,
        /// What, for people.
        message: String,
    },
    /// A worker's channel has ended; the process may or may not live.
    Closed {
        /// Which.
        worker: WorkerId,
    },
    /// A worker's process is gone and reaped, and all that it had sent was handed over before.
    Exited {
        /// Which.
        worker: WorkerId,
        /// How.
        exit: Exit,
        /// What it printed last.
        last_words: Option<String>,
    },
    /// Time has passed: `next_deadline` is reached.
    Tick,
    /// Take no more jobs, finish those there are, then end.
    Drain,
    /// End now.
    Stop,
    /// Other limits and times. Workers and programs stay as they are.
    Configure(Box<CoreConfig>),
}

/// What somebody wants done. The input itself stays with the shell.
#[derive(Clone, Debug, Default)]
pub struct JobRequest {
    /// Name of the task.
    pub task: String,
    /// Length of the input.
    pub input_bytes: u64,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// Longest time from now to the result.
    pub deadline: Option<Duration>,
    /// Most attempts. Whoever asks for more than one says that running it twice is as good as once.
    pub attempts: Option<u32>,
    /// The lane that the task must be in.
    pub lane: Option<Lane>,
}
