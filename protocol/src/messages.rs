//! What is said, one enum for each direction. A variant's position is its number on the wire: new ones go last.

use crate::nouns::{ContentType, FailureKind, Lane, OutcomeCode, Report, TaskOffer, Usage};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// First bytes of what a worker says, so that a program started by mistake is recognized at once.
pub const WORKER_MAGIC: [u8; 8] = *b"OFFLOADW";
/// First bytes of what a client says, and of the supervisor's answer.
pub const CLIENT_MAGIC: [u8; 8] = *b"OFFLOADC";
/// Both ends must speak the same major version.
pub const VERSION_MAJOR: u16 = 2;
/// A higher minor version adds messages that the other end need not know.
pub const VERSION_MINOR: u16 = 1;

/// Supervisor to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker<'a> {
    /// Run `task` on the payload. Jobs are run one after another in the order in which they come.
    Run {
        /// The job; the answers name it.
        job: u64,
        /// Which attempt at it this is, counted from 1; the answers name it too.
        attempt: u32,
        /// One of the tasks that the worker offered.
        task: &'a str,
        /// What the payload is.
        content: ContentType,
    },
    /// Nobody wants the answer to `job` any more: if it has not started, answer `Skipped` in its place; otherwise
    /// run on, the supervisor ends the process if it does not want to wait.
    Cancel {
        /// The job.
        job: u64,
    },
    /// Finish what you were given, then exit with code 0.
    Drain,
    /// The payload is a state that the task itself once gave as a checkpoint: the `Run` of this job, which follows
    /// at once, goes on from there.
    Resume {
        /// The job.
        job: u64,
    },
    /// Another job needs the worker: at the end of its step the job may be given back with `Yielded`. A worker that
    /// cannot do that ignores it.
    Yield {
        /// The job.
        job: u64,
    },
}

/// Worker to supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker<'a> {
    /// The first message, sent once, when the worker is ready for jobs.
    Hello {
        /// [`WORKER_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// The tasks that it can run, at most [`crate::limits::TASKS_OFFERED_MAX`].
        #[serde(borrow)]
        tasks: Vec<TaskOffer<'a>>,
    },
    /// Sent, and on its way, before the task sees its first byte: a worker that dies later died of this job. Between
    /// two steps of a stepped job another one that was given may be started; it ends before the next step begins.
    Started {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// The task returned; the payload is its output.
    Finished {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Nanoseconds that the task took.
        run_ns: u64,
        /// What the payload is.
        content: ContentType,
        /// What it used.
        usage: Usage,
    },
    /// The task failed, the worker did not. No payload.
    Failed {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Nanoseconds that the task took.
        run_ns: u64,
        /// In which way it failed.
        kind: FailureKind,
        /// Why, for people; at most [`crate::limits::MESSAGE_MAX`] bytes.
        #[serde(borrow)]
        message: Cow<'a, str>,
        /// What it used.
        usage: Usage,
    },
    /// The job was cancelled before it started and will not be. Sent when it would have been its turn.
    Skipped {
        /// As in `Cancel`.
        job: u64,
    },
    /// How far the job is; said by tasks that promised to, and by others that like to. No payload.
    Progress {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Units of work done.
        done: u64,
        /// Units of work in all; 0 if that is not known.
        total: u64,
    },
    /// The payload, at most [`crate::limits::CHECKPOINT_MAX`] bytes, is all that is needed to go on from here.
    Checkpoint {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// The answer to `Yield`: the attempt is over, and the payload is a checkpoint from which another one goes on.
    Yielded {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Nanoseconds that the task took.
        run_ns: u64,
        /// What it used.
        usage: Usage,
    },
}

/// What a client may ask to see; the answer is a JSON document as in `--json` of the verb of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// The supervisor as a whole.
    Status,
    /// One entry a slot.
    Workers,
    /// Recent jobs, the newest first.
    Jobs,
    /// The tasks on offer.
    Tasks,
    /// The dead letters, the newest first.
    Dead,
}

/// What can be done with a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadDeed {
    /// Show everything that is known of it.
    Show,
    /// Submit it again as a new job, and forget the letter.
    Retry,
    /// Forget it.
    Drop,
}

/// A name under which a client submits a job at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The name: 1 to [`crate::limits::LABEL_MAX`] bytes.
    pub key: String,
    /// Of the input, made by the client: the same key with another digest is a conflict.
    pub digest: u128,
}

/// How a job wants to be treated. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitOptions {
    /// Longest run of one attempt; the supervisor's default if absent.
    pub timeout_ms: Option<u64>,
    /// Longest time from acceptance to the result, queueing included.
    pub deadline_ms: Option<u64>,
    /// Most attempts; the supervisor's default if absent.
    pub attempts: Option<u32>,
    /// The lane that the task must be in, if the client minds.
    pub lane: Option<Lane>,
    /// -10 to 10, 0 if nothing is said; a larger one is sooner.
    pub priority: i8,
    /// Submitting the same again gives the same job.
    pub idempotency: Option<IdempotencyKey>,
}

/// Client to supervisor. `ticket` is the client's own number for the request; the answers repeat it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor<'a> {
    /// The first message, sent once.
    Hello {
        /// [`CLIENT_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// Who asks, for tables and fairness: at most [`crate::limits::LABEL_MAX`] bytes, may be empty.
        client: &'a str,
    },
    /// A job; the payload is its input. Answered `Accepted` or `Rejected`, then `Finished` unless detached.
    Submit {
        /// The client's number for it.
        ticket: u64,
        /// The task to run.
        task: &'a str,
        /// What the payload is.
        content: ContentType,
        /// Do not send `Finished`; keep the output for `Wait` and `Result`.
        detach: bool,
        /// How it wants to be treated.
        options: SubmitOptions,
    },
    /// Send `Finished` when the job has ended (at once if it has).
    Wait {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Send `Finished` if the job has ended, `Rejected` with `unavailable` if it has not.
    Result {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// End the job. Answered with `Answer` saying what became of it.
    Cancel {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Show something; answered with `Answer`. Of a list these are only the rows that fit into one page; `Page` shows
    /// the others.
    Show {
        /// The client's number for it.
        ticket: u64,
        /// What.
        view: View,
    },
    /// Take no more jobs, finish those there are, however long they take, then end. Answered with `Answer` when the jobs
    /// are done.
    Drain {
        /// The client's number for it.
        ticket: u64,
    },
    /// End now: what is queued or running is cancelled. Answered with `Answer` when that is done.
    Stop {
        /// The client's number for it.
        ticket: u64,
    },
    /// Why is the job waiting, retried or dead? Answered with `Answer`.
    Explain {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Do something with a dead letter. Answered with `Answer`.
    Dead {
        /// The client's number for it.
        ticket: u64,
        /// What.
        deed: DeadDeed,
        /// The job's public id.
        job: &'a str,
    },
    /// Read the configuration again and replace the workers one by one. Answered with `Answer` when that is done or
    /// was taken back.
    Reload {
        /// The client's number for it.
        ticket: u64,
    },
    /// Show the next rows of a view that is a list. Answered with `Answer`: `{"rows": [...], "next": "..."}`, as many
    /// rows as fit into a page; without `next` it was the last one. Since version 2.1.
    Page {
        /// The client's number for it.
        ticket: u64,
        /// Which list.
        view: View,
        /// The `next` of the page before; empty for the first one.
        after: &'a str,
        /// Most rows.
        limit: u32,
    },
    /// As `Drain`, but what is not done after this time is cancelled. Since minor version 1.
    DrainWithin {
        /// The client's number for it.
        ticket: u64,
        /// The time, in milliseconds.
        limit_ms: u64,
    },
}

/// Supervisor to client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient<'a> {
    /// The answer to `Hello`.
    Welcome {
        /// [`CLIENT_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// The longest payload that this supervisor takes, in bytes.
        payload_max: u64,
    },
    /// The job is in the queue.
    Accepted {
        /// As asked.
        ticket: u64,
        /// The job's public id.
        #[serde(borrow)]
        job: Cow<'a, str>,
    },
    /// The request is refused and had no effect.
    Rejected {
        /// As asked.
        ticket: u64,
        /// Why, for programs.
        code: OutcomeCode,
        /// Why, for people.
        #[serde(borrow)]
        message: Cow<'a, str>,
        /// When it may be worth trying again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// A job has ended; the payload is its output.
    Finished {
        /// As asked.
        ticket: u64,
        /// How.
        report: Report,
    },
    /// What was asked for; the payload is a JSON document.
    Answer {
        /// As asked.
        ticket: u64,
    },
    /// The last message before the supervisor closes the connection.
    Goodbye {
        /// Why, for people.
        #[serde(borrow)]
        reason: Cow<'a, str>,
    },
}
