//! What can happen. The shell reports each event to the core. Any event is legal in any state; one that no longer matters
//! is ignored. A submitted job is no event, because submitting has an answer: [`Core::submit`](super::Core::submit).

use super::config::CoreConfig;
use super::ids::{JobId, Version, WorkerId};
use super::kept::Owner;
use super::ledger::Holding;
use crate::exit::{Exit, ExitUsage};
use offload_protocol::nouns::{FailureKind, Lane, TaskOffer, Usage};
use std::sync::Arc;
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody does not want a job any more.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// Somebody waits for the end of a job, and will be given its output.
    Awaited {
        /// Which.
        job: JobId,
    },
    /// Nobody waits for the end of a job any more: whoever submitted it is gone, and so are all others who waited.
    Abandoned {
        /// Which.
        job: JobId,
    },
    /// Somebody who asked for the output of a job that has ended has been given all of it.
    Collected {
        /// Which.
        job: JobId,
    },
    /// A dead letter was dropped, or its job is tried again.
    LetterDropped {
        /// The job that died.
        job: JobId,
    },
    /// The shell itself refused a job: its input was too long, or there was no room for it.
    Refused,
    /// The process of a worker is there: from now on it has time to say hello.
    Launched {
        /// Which.
        worker: WorkerId,
    },
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
        /// What it says that it used.
        usage: Usage,
        /// Length of the output. It is on the account of the job's client from now on, as
        /// [`Outgoing`](Holding::Outgoing), until the shell says that it is released.
        output_bytes: u64,
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
        /// What it says that it used.
        usage: Usage,
    },
    /// A worker says how far its job is.
    Progress {
        /// Where.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
        /// Units of work done.
        done: u64,
        /// Units of work in all; 0 if that is not known.
        total: u64,
    },
    /// A worker gave a state from which its job can go on; the shell holds it.
    Checkpoint {
        /// Where.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
        /// Length of the state.
        bytes: u64,
    },
    /// A worker gave its job back, with a state from which it can go on; the shell holds it.
    Yielded {
        /// Where.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
        /// The attempt that it names.
        attempt: u32,
        /// How long it says that it took.
        run: Duration,
        /// Length of the state.
        bytes: u64,
    },
    /// A worker has thrown away, unstarted, a job that it was told to cancel.
    Skipped {
        /// Which.
        worker: WorkerId,
        /// The job that it names.
        job: JobId,
    },
    /// A worker sent what no worker may send. What else it sends can be read, and is told.
    Violation {
        /// Which.
        worker: WorkerId,
        /// What, for people.
        message: String,
    },
    /// A worker sent what cannot be read, nor can what may come after it.
    Garbled {
        /// Which.
        worker: WorkerId,
        /// What, for people.
        message: String,
    },
    /// What was to be sent to a worker that is on its way out was thrown away.
    Unsent {
        /// Which.
        worker: WorkerId,
        /// The jobs of which not one byte had been written to it.
        jobs: Vec<JobId>,
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
        /// What it printed last, the last line last.
        last_lines: Vec<String>,
        /// What the kernel says that it used, if it says so.
        usage: Option<ExitUsage>,
    },
    /// A worker's process was stopped by a signal: it lives and does nothing.
    Stopped {
        /// Which.
        worker: WorkerId,
    },
    /// A stopped worker goes on.
    Continued {
        /// Which.
        worker: WorkerId,
    },
    /// A worker's memory was measured.
    Measured {
        /// Which.
        worker: WorkerId,
        /// Its resident memory.
        resident_bytes: u64,
    },
    /// The shell holds bytes for a client.
    Held {
        /// For whom, by the name that its jobs have in [`JobRequest::client`].
        client: Arc<str>,
        /// Why: not for a reason that the core itself counts.
        what: Holding,
        /// How many more.
        bytes: u64,
    },
    /// The shell has let bytes go that were held for a client.
    Released {
        /// For whom they were held.
        client: Arc<str>,
        /// Why they were.
        what: Holding,
        /// How many fewer.
        bytes: u64,
    },
    /// Time has passed: `next_deadline` is reached, and everything that had come until now is told. Only then is it
    /// certain who has not kept a limit.
    Tick,
    /// Take no more jobs, finish those there are, then end.
    Drain {
        /// After this time what is not done is cancelled. The earliest end that was asked for counts.
        limit: Option<Duration>,
    },
    /// End now.
    Stop,
    /// Other limits and times, and another number of workers. The programs stay as they are.
    Configure(Box<CoreConfig>),
    /// Replace the workers one by one by ones of this version of their programs, unless the first of them fail.
    /// Answered with `Reloaded`.
    Reload {
        /// Above all that were there before.
        version: Version,
    },
}

/// What somebody wants done. The input itself stays with the shell.
#[derive(Clone, Debug, Default)]
pub struct JobRequest {
    /// Name of the task.
    pub task: String,
    /// Who wants it: jobs of one name share what one client may have.
    pub client: String,
    /// Whose its key is. What is kept of it beyond its end is on the account of `client`.
    pub owner: Owner,
    /// Nobody is there to take the output: it is kept for whoever asks for it.
    pub keeps_output: bool,
    /// A larger one is sooner. -10 to 10.
    pub priority: i8,
    /// The name under which it is submitted at most once.
    pub key: Option<Key>,
    /// Length of the input.
    pub input_bytes: u64,
    /// Room was found for the input before it came: it is here and was counted as it came.
    pub has_room: bool,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// Longest time from now to the result.
    pub deadline: Option<Duration>,
    /// Most attempts. Whoever asks for more than one says that running it twice is as good as once.
    pub attempts: Option<u32>,
    /// The lane that the task must be in.
    pub lane: Option<Lane>,
}

/// A name for a job, so that submitting it again gives the same job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Unique among those of its owner.
    pub name: String,
    /// Of the input: another one under the same name is a conflict.
    pub digest: u128,
}
