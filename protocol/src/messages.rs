//! All messages, one enum for each direction. The position of a variant is its number on the wire, so new variants go
//! last.

pub use crate::capabilities::{
    BATCHES, CAPABILITIES, CLIENT_CAPABILITIES, ENDS, FILES, FILTERS, FIND, LINGERING, LOGS, PARTS, PAUSES,
    PREFETCH, PROGRAMS, REASONS, SEGMENTS, shared_capabilities,
};
use crate::nouns::{
    Batching, FailureKind, MediaType, Metadata, OutcomeCode, ProgramNews, Report, TaskDescription, TaskOffer,
    Usage,
};
pub use crate::requests::{DeadLetterAction, IdempotencyKey, JobFilter, Operation, SubmitOptions, View};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The first field of a worker's hello, by which a program that is no worker is recognized at once.
pub const WORKER_MAGIC: [u8; 8] = *b"OFFLOADW";
/// The first field of a client's hello and of the supervisor's answer to it.
pub const CLIENT_MAGIC: [u8; 8] = *b"OFFLOADC";
/// Both ends must speak the same major version.
pub const VERSION_MAJOR: u16 = 3;
/// A higher minor version only adds capabilities, and the other end need not know them.
pub const VERSION_MINOR: u16 = 0;
/// What a segment is for ([`SEGMENTS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentUse {
    /// The supervisor writes inputs into it. The worker only reads.
    Inputs,
    /// The worker writes outputs into it. The supervisor only reads.
    Outputs,
}

/// Supervisor to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker<'a> {
    /// The answer to `Hello`. A worker without capabilities may ignore it.
    Welcome {
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// Those that both ends have: see [`shared_capabilities`].
        capabilities: u64,
        /// The longest payload that this supervisor takes, in bytes.
        payload_max: u64,
    },
    /// Run `task` on the payload. A worker runs its jobs one after another, in the order in which they come.
    Run {
        /// The job. The answers repeat it.
        job: u64,
        /// The number of the attempt, counted from 1. The answers repeat it.
        attempt: u32,
        /// One of the tasks that the worker offered.
        task: &'a str,
        /// What the payload is.
        media_type: MediaType,
        /// How long the attempt may run, in milliseconds, counted from `Started`. 0 if there is no limit.
        timeout_ms: u64,
        /// The time to the job's deadline, in milliseconds, counted from when this message was sent. 0 if there is none.
        deadline_ms: u64,
        /// What the client attached to the job.
        metadata: Metadata,
    },
    /// Nobody wants the answer to `job` any more. If it has not started, answer `Skipped` when its turn comes. If it runs,
    /// go on: the supervisor ends the process if that takes too long.
    Cancel {
        /// The job.
        job: u64,
    },
    /// Finish what you were given, then exit with code 0.
    Drain,
    /// The payload is a checkpoint that an earlier attempt of this job gave. The `Run` of this job follows at once, and
    /// goes on from the checkpoint.
    Resume {
        /// The job.
        job: u64,
    },
    /// Another job needs the worker: give this one back with `Yielded` at the end of its step. A worker that cannot do
    /// that ignores the message.
    Yield {
        /// The job.
        job: u64,
    },
    /// The parts of this job's output may have so many bytes more ([`PARTS`]). The first
    /// [`PARTS_CREDIT`](crate::limits::PARTS_CREDIT) bytes of each attempt need no credit. A job that has no credit left
    /// waits, or does without parts.
    Credit {
        /// The job.
        job: u64,
        /// How many bytes more.
        bytes: u64,
    },
    /// A piece of shared memory for large payloads ([`SEGMENTS`]). A descriptor to map comes together with the first byte of
    /// this message. Answered with `SegmentReady`, or with `SegmentLeft` if it cannot be mapped. A worker has at most one
    /// segment for each use.
    Segment {
        /// Its number. No other segment of this worker has it.
        segment: u32,
        /// Its length, in bytes.
        bytes: u64,
        /// Who writes into it.
        holds: SegmentUse,
    },
    /// The supervisor does not use this segment any more. Answered with `SegmentLeft`.
    SegmentGone {
        /// The segment.
        segment: u32,
    },
    /// The `Run` of this job follows at once. Its payload is empty, because the input is in a segment: the supervisor does not
    /// touch the segment until the job is answered.
    InputIn {
        /// The job.
        job: u64,
        /// The segment.
        segment: u32,
        /// Where the input begins, in bytes.
        offset: u64,
        /// The length of the input, in bytes.
        length: u64,
    },
    /// The output that was in this segment has been read. The worker may write the next one.
    OutputRead {
        /// The segment.
        segment: u32,
    },
    /// The `Run` of this job follows at once. Its payload is empty, because the input is a file ([`FILES`]). A descriptor to
    /// read comes together with the first byte of this message. The worker reads the file from its start, after it has sent
    /// `Started`, without moving the offset of the descriptor, which others have too.
    InputFile {
        /// The job.
        job: u64,
        /// The length of the file when the job was submitted, in bytes. A file of another length is an error of the job.
        bytes: u64,
    },
    /// The next messages are so many `Run`, all of one task that was offered with `OfferBatch`: their jobs run together
    /// ([`BATCHES`]). `Started` of the first one stands for all of them; each is answered by itself, in any order.
    Batch {
        /// How many: 2 to what the worker offered.
        jobs: u32,
    },
}

/// Worker to supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker<'a> {
    /// The first message, sent once. Its number and its first three fields are the same in every version.
    Hello {
        /// [`WORKER_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// [`CAPABILITIES`].
        capabilities: u64,
        /// The library that the worker is written with and its version, for people; at most
        /// [`crate::limits::SDK_NAME_MAX`] bytes.
        sdk: &'a str,
    },
    /// One task that it can run. After `Hello` and before `Ready`, at most [`crate::limits::TASKS_OFFERED_MAX`]. The payload
    /// is an example input, then a JSON Schema of the input.
    Offer {
        /// What it promises.
        #[serde(borrow)]
        task: TaskOffer<'a>,
        /// What it takes, gives and needs.
        about: TaskDescription,
        /// Length of the example, in bytes.
        example_length: u32,
        /// Length of the schema, in bytes.
        schema_length: u32,
    },
    /// All tasks are offered, and the worker is ready for jobs.
    Ready,
    /// The task is about to run. It is written to the socket before the task gets its input, so if the process ends
    /// later, this job is to blame. Between two steps of a stepped job, another job that was given may be started; it
    /// ends before the next step begins.
    Started {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// The task returned. The payload is its output.
    Finished {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Nanoseconds that the task took.
        run_ns: u64,
        /// What the payload is.
        media_type: MediaType,
        /// What it used.
        usage: Usage,
    },
    /// The task failed, and the worker goes on. No payload.
    Failed {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
        /// Nanoseconds that the task took.
        run_ns: u64,
        /// How it failed.
        kind: FailureKind,
        /// Why, for people; at most [`crate::limits::MESSAGE_MAX`] bytes.
        #[serde(borrow)]
        message: Cow<'a, str>,
        /// What it used.
        usage: Usage,
    },
    /// The job was cancelled before it started, and will not run. Sent when its turn came.
    Skipped {
        /// As in `Cancel`.
        job: u64,
    },
    /// How far the job is. Tasks that promised a time send it at least that often; others may send it. No payload.
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
    /// The payload, at most [`crate::limits::CHECKPOINT_MAX`] bytes, is a state from which another attempt can go on.
    Checkpoint {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// The answer to `Yield`: this attempt is over, and another one goes on from the payload, which is a checkpoint.
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
    /// The payload, 1 to [`PART_MAX`](crate::limits::PART_MAX) bytes, is the next part of the output ([`PARTS`]). It uses up
    /// credit. The payload of `Finished` comes behind all parts. A task that works in steps sends none.
    Part {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// The segment is mapped and can be used ([`SEGMENTS`]).
    SegmentReady {
        /// The segment.
        segment: u32,
    },
    /// This worker takes nothing more from this segment, and puts nothing more into it. Said once of each segment: when
    /// it cannot be mapped, when the supervisor has said `SegmentGone`, or before the answer to a job whose task still holds
    /// the input that is in the segment.
    SegmentLeft {
        /// The segment.
        segment: u32,
    },
    /// The `Finished` of this job follows at once. Its payload is empty, because the output is in a segment: in the one for
    /// outputs, which the worker does not touch until `OutputRead`, or in the one that has the job's input.
    OutputIn {
        /// As in `Run`.
        job: u64,
        /// The segment.
        segment: u32,
        /// Where the output begins, in bytes.
        offset: u64,
        /// The length of the output, in bytes.
        length: u64,
    },
    /// The task that was offered last takes several jobs at once ([`BATCHES`]). It is idempotent, does not work in steps and
    /// promises no progress. Sent at most once for each task, right behind its `Offer`.
    OfferBatch {
        /// How many, and how long the first one waits for others.
        batching: Batching,
    },
    /// What has become of the program that the worker stands in front of ([`PROGRAMS`]). No payload.
    Program {
        /// What it is.
        #[serde(borrow)]
        news: ProgramNews<'a>,
    },
}

/// Client to supervisor. `ticket` is the client's own number for the request; the answers repeat it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor<'a> {
    /// The first message, sent once. Its number and its first three fields are the same in every version.
    Hello {
        /// [`CLIENT_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// [`CAPABILITIES`].
        capabilities: u64,
        /// The client's name, for tables and fair shares: at most [`crate::limits::NAME_MAX`] bytes. If it is empty,
        /// the process is a client of its own.
        client: &'a str,
    },
    /// A job; the payload is its input. Answered `Accepted` or `Rejected`, then `Finished` unless detached.
    Submit {
        /// The client's number for the request.
        ticket: u64,
        /// The task to run.
        task: &'a str,
        /// What the payload is.
        media_type: MediaType,
        /// Do not send `Finished`; keep the output for `Wait` and `Result`.
        detach: bool,
        /// How it wants to be treated.
        options: SubmitOptions,
    },
    /// Send `Finished` when the job has ended, at once if it has ended already.
    Wait {
        /// The client's number for the request.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Send `Finished` if the job has ended, or `Rejected` with `unavailable` if it has not.
    Result {
        /// The client's number for the request.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Cancel the job. Answered with an `Answer` that says what became of it.
    Cancel {
        /// The client's number for the request.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Show a view. Answered with `Answer`. If the view is a list, only the rows that fit into one page are sent; `Page`
    /// gets the others.
    Show {
        /// The client's number for the request.
        ticket: u64,
        /// Which view.
        view: View,
    },
    /// Accept no more jobs, finish those that were accepted, however long they take, then end. Answered with `Answer` when
    /// they are done.
    Drain {
        /// The client's number for the request.
        ticket: u64,
    },
    /// Cancel all queued and running jobs, then end. Answered with `Answer` when that is done.
    Stop {
        /// The client's number for the request.
        ticket: u64,
    },
    /// Say why the job waits, was retried or is dead. Answered with `Answer`.
    Explain {
        /// The client's number for the request.
        ticket: u64,
        /// The job's public id.
        job: &'a str,
    },
    /// Show, retry or delete a dead letter. Answered with `Answer`.
    Dead {
        /// The client's number for the request.
        ticket: u64,
        /// What to do.
        action: DeadLetterAction,
        /// The job's public id.
        job: &'a str,
    },
    /// Read the configuration again and replace the workers one by one. Answered with `Answer` when that is done, or was
    /// undone because the new version failed.
    Reload {
        /// The client's number for the request.
        ticket: u64,
    },
    /// Show the next rows of a view that is a list. Answered with an `Answer` of the form
    /// `{"rows": [...], "next": "..."}` with as many rows as fit into a page. The last page has no `next`.
    Page {
        /// The client's number for the request.
        ticket: u64,
        /// Which list.
        view: View,
        /// The `next` of the page before; empty for the first page.
        after: &'a str,
        /// Most rows.
        limit: u32,
        /// Of the view `Jobs`, only those with this label; empty for all. A page with few rows, or none, may be followed by
        /// others.
        label: &'a str,
    },
    /// As `Drain`, but jobs that have not ended after this time are cancelled.
    DrainWithin {
        /// The client's number for the request.
        ticket: u64,
        /// The time, in milliseconds.
        limit_ms: u64,
    },
    /// The next message is the `Submit` of this ticket. Its payload is empty, because the input is a file ([`FILES`]). A
    /// descriptor of a regular file, which can be read, comes together with the first byte of this message. If the supervisor
    /// cannot use it, it answers `SendInput`.
    InputFile {
        /// The client's number for the request.
        ticket: u64,
        /// The length of the file, in bytes.
        bytes: u64,
    },
    /// A request of somebody who operates the supervisor. Each belongs to a capability.
    Operate {
        /// The client's number for the request.
        ticket: u64,
        /// What is asked for, and how it is answered.
        operation: Operation,
    },
}

/// Supervisor to client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and most of them are the large one")]
pub enum ToClient<'a> {
    /// The answer to `Hello`.
    Welcome {
        /// [`CLIENT_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION_MAJOR`].
        major: u16,
        /// [`VERSION_MINOR`].
        minor: u16,
        /// Those that both ends have: see [`shared_capabilities`].
        capabilities: u64,
        /// The longest payload that this supervisor takes, in bytes.
        payload_max: u64,
    },
    /// The job is in the queue.
    Accepted {
        /// The number of the request.
        ticket: u64,
        /// The job's public id.
        #[serde(borrow)]
        job: Cow<'a, str>,
    },
    /// The request is rejected. It had no effect.
    Rejected {
        /// The number of the request.
        ticket: u64,
        /// Why, for programs.
        code: OutcomeCode,
        /// Why, for people.
        #[serde(borrow)]
        message: Cow<'a, str>,
        /// After how many milliseconds it may be worth trying again.
        retry_after_ms: Option<u64>,
    },
    /// A job has ended; the payload is its output.
    Finished {
        /// The number of the request.
        ticket: u64,
        /// How it ended.
        report: Report,
    },
    /// The answer to a request. The payload is a JSON document.
    Answer {
        /// The number of the request.
        ticket: u64,
    },
    /// The last message before the supervisor closes the connection. The payload is the word of an [`OutcomeCode`]: why, for
    /// programs. Number and field are the same in every version, so that a client of another one can read why.
    Goodbye {
        /// Why, for people.
        #[serde(borrow)]
        reason: Cow<'a, str>,
    },
    /// The payload is the next part of the output of a job that was submitted with `stream`. `Finished` comes behind all
    /// parts.
    Part {
        /// The number of the request.
        ticket: u64,
    },
    /// The job whose input is a file is not accepted ([`FILES`]): send its `Submit` again, with the bytes of the file. It had
    /// no effect.
    SendInput {
        /// The number of the request.
        ticket: u64,
    },
}
