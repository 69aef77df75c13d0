//! Events: what can happen. The shell reports each event to the core. Any event is legal in any state; one that no
//! longer matters is ignored. Submitting a job is not an event, because it has an answer:
//! [`Core::submit`](super::Core::submit).

use super::config::CoreConfig;
use super::here::RanHere;
use super::ids::{JobId, TaskIndex, Version, WorkerId};
use super::kept::Owner;
use super::ledger::Holding;
use crate::exit::{Exit, ExitUsage};
use offload_protocol::nouns::{FailureKind, Lane, OutcomeCode, TaskOffer, Usage};
use std::sync::Arc;
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody no longer wants a job: cancel it.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// The client that waited for the end of a job is gone, and nobody wants the job: it is cancelled, even if it runs.
    ClientGone {
        /// The job.
        job: JobId,
    },
    /// From now on nothing new of a task starts: its jobs wait.
    Pause {
        /// The task; all of them if there is none.
        task: Option<TaskIndex>,
    },
    /// The pause is over.
    Resume {
        /// The task; all of them if there is none. While all are paused, one alone is not resumed.
        task: Option<TaskIndex>,
    },
    /// A client waits for the end of a job, and will be given its output.
    Awaited {
        /// The job.
        job: JobId,
    },
    /// No client waits for the end of a job any more: the one that submitted it is gone, and so are all others that
    /// waited.
    Abandoned {
        /// The job.
        job: JobId,
    },
    /// The shell is done with a job that it was told to do itself. It says so for each `RunHere`, also if the job has ended in the
    /// meantime.
    RanHere {
        /// The job.
        job: JobId,
        /// The length of the output in bytes, or the outcome and why.
        result: RanHere,
    },
    /// A client that asked for the output of an ended job has been given all of it.
    Collected {
        /// The job.
        job: JobId,
    },
    /// A dead letter was dropped, or its job is tried again.
    LetterDropped {
        /// The job of the dead letter.
        job: JobId,
    },
    /// The shell itself refused a job: its input was too long, or there was no room for the input.
    Refused {
        /// What its client was told.
        code: OutcomeCode,
    },
    /// The process of a worker was started: the time for its hello begins now.
    Launched {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker could not be started.
    SpawnFailed {
        /// The worker.
        worker: WorkerId,
        /// Trying again is pointless.
        fatal: bool,
        /// What went wrong, in words for people.
        message: String,
    },
    /// A worker has said hello: it is ready for jobs.
    Hello {
        /// The worker.
        worker: WorkerId,
        /// The tasks that it offers.
        tasks: Vec<TaskOffer<'static>>,
        /// The worker reads inputs that are files by itself.
        takes_files: bool,
    },
    /// A process is not a worker that this supervisor can talk to: its magic or version is wrong. Trying again is
    /// pointless.
    Unfit {
        /// The worker.
        worker: WorkerId,
        /// Why, in words for people.
        message: String,
    },
    /// A worker has started a job.
    Started {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
    },
    /// A task returned; the shell holds the output.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// The run time that the worker reports.
        run: Duration,
        /// The usage that the worker reports.
        usage: Usage,
        /// Length of the output in bytes. From now on it is charged to the job's client as
        /// [`Outgoing`](Holding::Outgoing), until the shell reports that it was released.
        output_bytes: u64,
    },
    /// A task failed; its worker did not.
    Failed {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// The run time that the worker reports.
        run: Duration,
        /// How the task failed.
        kind: FailureKind,
        /// Why, in words for people.
        message: String,
        /// The usage that the worker reports.
        usage: Usage,
    },
    /// A worker reports how far its job is.
    Progress {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// Units of work that are done.
        done: u64,
        /// Units of work in total; 0 if unknown.
        total: u64,
    },
    /// A worker sent a part of the output of its job. The shell holds it.
    Part {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// Length of the part in bytes. If it is wanted, it is charged to the job's client as
        /// [`Outgoing`](Holding::Outgoing), until the shell reports that it was released.
        bytes: u64,
    },
    /// The reader of a stream has taken parts: they are delivered (`parts.rs`).
    Delivered {
        /// The job.
        job: JobId,
        /// How many bytes.
        bytes: u64,
    },
    /// A worker sent a checkpoint: a state from which its job can go on. The shell holds it.
    Checkpoint {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// Length of the checkpoint in bytes.
        bytes: u64,
    },
    /// A worker gave its job back, with a checkpoint from which the job can go on. The shell holds the checkpoint.
    Yielded {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
        /// The run time that the worker reports.
        run: Duration,
        /// Length of the checkpoint in bytes.
        bytes: u64,
    },
    /// A worker was told to cancel a job that it had not started, and has thrown the job away.
    Skipped {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
    },
    /// The program behind a worker has not taken one byte of a job that the worker has started, and never will: the job counts as
    /// not started. The worker ends.
    NotBegun {
        /// The worker.
        worker: WorkerId,
        /// The job that the message names.
        job: JobId,
        /// The attempt that the message names.
        attempt: u32,
    },
    /// The program behind a worker broke its rules: the worker, which ends, counts as one that broke the protocol.
    BrokeRules {
        /// The worker.
        worker: WorkerId,
        /// It has to do with another job than the one that runs.
        of_another: bool,
        /// What the program did, in words for people.
        how: String,
    },
    /// A worker broke the protocol. Its later messages can still be read, and are reported.
    Violation {
        /// The worker.
        worker: WorkerId,
        /// What it sent, in words for people.
        message: String,
    },
    /// A worker sent bytes that cannot be read. Its later messages cannot be read either.
    Garbled {
        /// The worker.
        worker: WorkerId,
        /// What it sent, in words for people.
        message: String,
    },
    /// A worker that is ready has a tray, in which its next job can lie while it works (`trays.rs`).
    TrayMade {
        /// The worker.
        worker: WorkerId,
    },
    /// The tray of a worker cannot be used any more. The worker is well.
    TrayFailed {
        /// The worker.
        worker: WorkerId,
    },
    /// A job was taken out of a worker's tray, and the worker has not seen it. The answer to `TakeBack`; or the worker's
    /// process has ended, or the job could not be put there.
    TakenBack {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
    },
    /// The other answer to `TakeBack`: the worker has taken the job.
    NotInTray {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
    },
    /// Everything that workers had sent until now was reported. The shell says so if
    /// [`Core::has_untaken`](super::Core::has_untaken).
    EndOfTurn,
    /// Messages to a worker that is leaving were thrown away.
    Unsent {
        /// The worker.
        worker: WorkerId,
        /// The jobs of which not one byte had been written to the worker.
        jobs: Vec<JobId>,
    },
    /// A worker's channel has ended, or its process has, whoever else has its channel open: it is given nothing any more.
    Closed {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker's process has ended and was reaped. Everything that it had sent was reported before, and then `Closed`, and
    /// what of its jobs had not left the shell.
    Exited {
        /// The worker.
        worker: WorkerId,
        /// How it ended.
        exit: Exit,
        /// The last lines that it printed, in order.
        last_lines: Vec<String>,
        /// What it used as the kernel counts it, if that is known.
        usage: Option<ExitUsage>,
    },
    /// A worker's process was stopped by a signal: it lives and does nothing.
    Stopped {
        /// The worker.
        worker: WorkerId,
    },
    /// A stopped worker goes on.
    Continued {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker's memory was measured.
    Measured {
        /// The worker.
        worker: WorkerId,
        /// Its resident memory, in bytes.
        resident_bytes: u64,
    },
    /// The shell holds more bytes for a client.
    Held {
        /// The client, by the name in [`JobRequest::client`].
        client: Arc<str>,
        /// The reason. Reasons that the core counts itself are ignored.
        what: Holding,
        /// How many bytes more.
        bytes: u64,
    },
    /// The shell no longer holds some bytes for a client.
    Released {
        /// The client, by the name in [`JobRequest::client`].
        client: Arc<str>,
        /// The reason for which they were held. Reasons that the core counts itself are ignored.
        what: Holding,
        /// How many bytes fewer.
        bytes: u64,
    },
    /// Time has passed: `next_deadline` is reached, and all that had come until now from workers whose limits are due was
    /// reported before. Only then is it certain who has missed a time limit.
    Tick,
    /// Whether the shell answers requests that may still submit jobs. It says so before it says [`Event::Drain`], and again when it has
    /// answered the last of them: a drain waits for that, and lets their jobs in ([`JobRequest::of_request`]).
    RequestsInFlight {
        /// There are some.
        some: bool,
    },
    /// Drain: accept no more jobs, finish the accepted ones, then end.
    Drain {
        /// After this time, jobs that are not done are cancelled. If several limits were given, the earliest end
        /// counts.
        limit: Option<Duration>,
    },
    /// Stop: cancel all jobs and end now.
    Stop,
    /// Use another configuration: other limits, times and number of workers. The programs stay the same.
    Configure(Box<CoreConfig>),
    /// Replace the workers one by one with workers of this version of their programs, unless the first of them fail.
    /// The answer is `Reloaded`.
    Reload {
        /// The new version: higher than all before.
        version: Version,
    },
}

impl Event {
    /// Whether [`Core::handle_unsettled`](super::Core::handle_unsettled) may leave the core unsettled after this event. These come
    /// again and again: what a worker has started, and how that ended; and what is held for a client. And `Closed`, so that what
    /// came in the same turn is not dispatched to a worker that has gone.
    pub fn may_be_settled_later(&self) -> bool {
        matches!(
            self,
            Event::Started { .. }
                | Event::Finished { .. }
                | Event::Failed { .. }
                | Event::Closed { .. }
                | Event::Held { .. }
                | Event::Released { .. }
        )
    }
}

/// A job as it is submitted. The input itself stays with the shell.
#[derive(Clone, Debug, Default)]
pub struct JobRequest {
    /// Name of the task.
    pub task: String,
    /// Name of the client. All jobs of one name share what one client may have.
    pub client: Arc<str>,
    /// The owner of its key. What is kept after its end is charged to `client`.
    pub owner: Owner,
    /// The client has shown nothing but its address: an output beyond its share is not kept.
    pub is_of_stranger: bool,
    /// The submitter reads the output in parts, as they come. Such a job has no key, and its output is not kept.
    pub stream: bool,
    /// The job is detached: nobody is there to take the output, so it is kept until somebody collects it.
    pub keeps_output: bool,
    /// Its priority, -10 to 10; a larger one is served sooner.
    pub priority: i8,
    /// Its idempotency key: the name under which it is submitted at most once.
    pub key: Option<Key>,
    /// Length of the input in bytes.
    pub input_bytes: u64,
    /// Bytes of memory that metadata and labels take. They stay as long as anything of the job does.
    pub tag_bytes: u64,
    /// The input is a file that the shell holds open: it takes no memory, and only a worker that takes files can do the job
    /// (`files.rs`).
    pub has_file: bool,
    /// The input was let in and counted as it arrived, so room for it is not checked again.
    pub has_room: bool,
    /// It is the job of a request that the shell had begun to answer before a drain ([`Event::RequestsInFlight`]).
    pub of_request: bool,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// Longest time from now to the result.
    pub deadline: Option<Duration>,
    /// Most attempts. A submitter that asks for more than one declares that the job may run twice.
    pub attempts: Option<u32>,
    /// The lane that the task must be in.
    pub lane: Option<Lane>,
}

impl JobRequest {
    /// Bytes of memory that its input takes, with metadata and labels.
    pub fn held_bytes(&self) -> u64 {
        self.tag_bytes + if self.has_file { 0 } else { self.input_bytes }
    }
}

/// An idempotency key. Submitting the same key again gives the same job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key's name, unique among the keys of its owner.
    pub name: String,
    /// Digest of the input. The same name with another digest is a conflict.
    pub digest: u128,
}
