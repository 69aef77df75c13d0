//! The types that messages consist of: what a payload is, what a task promises, how a job ended.

mod media_type;
mod offer;
mod tags;

pub use media_type::{MediaType, NoMediaType};
pub use offer::{Batching, DescribedTask, TASK_NAMES, TaskDescription, TaskOffer, is_task_name};
pub use tags::{BadTag, Labels, Metadata, check_label};

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Where the jobs of a task run. A worker states it for each task, and a client can require it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Work that keeps a core busy: runs in a worker process.
    #[default]
    Cpu,
    /// Work that waits for something outside. The tasks that the supervisor does itself, on threads, are in this lane. A worker may
    /// offer tasks in it, too; they run in that worker.
    Io,
}

/// The CPU time and memory that an attempt used, as its worker measured them; 0 if the worker cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, in microseconds.
    pub cpu_user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub cpu_system_us: u64,
    /// The peak resident memory of its process so far, in bytes. Some kernels include what the process used before it
    /// became this program.
    pub peak_rss_bytes: u64,
}

/// How a task failed, while its process lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The task returned an error.
    AppError,
    /// The task panicked, and the worker caught it.
    Panic,
    /// The program that the worker ran for the job exited with this code ([`ENDS`](crate::messages::ENDS), as all that follow).
    Exited {
        /// The code, 0 to 255.
        code: i32,
    },
    /// The program was ended by this signal.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// The program ran longer than its task allows, and the worker ended it.
    TimedOut,
    /// The program used more memory than its task allows, and the worker ended it.
    OutOfMemory,
    /// The task returned an error whose message it wrote for whoever called it
    /// ([`REASONS`](crate::messages::REASONS)). The others may be anything, such as what a library says of a path.
    Deliberate,
}

/// The exit code of a worker whose program broke its promises (`EX_PROTOCOL` of sysexits.h). It says how in its last lines.
pub const EXIT_BROKEN_PROMISE: i32 = 76;

/// What stands before that in the line that says it.
pub const BROKEN_PROMISE: &str = "the program broke its promises: ";

/// What has become of the program that a worker stands in front of ([`PROGRAMS`](crate::messages::PROGRAMS)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramNews<'a> {
    /// It was stopped, for example by SIGSTOP: the worker counts as stopped.
    Stopped,
    /// It goes on.
    Continued,
    /// It has not taken one byte of this job, of which `Started` was sent, and will not: the job counts as not started. The
    /// worker ends now.
    NotBegun {
        /// As in `Run`.
        job: u64,
        /// As in `Run`.
        attempt: u32,
    },
    /// It broke its rules, which counts as if the worker had broken the protocol. The worker ends now.
    BrokeRules {
        /// That has to do, or may have to do, with another job than the one that runs, if one does.
        of_another: bool,
        /// How, for people; at most [`MESSAGE_MAX`](crate::limits::MESSAGE_MAX) bytes.
        #[serde(borrow)]
        how: Cow<'a, str>,
    },
}

macro_rules! outcome_codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        /// How a job ended, or why it was rejected. Each has one word, which is the same in JSON, on the command line and
        /// in every table. On the wire it is its position in this list, so new ones go last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum OutcomeCode { $($(#[$doc])* $variant),+ }

        impl OutcomeCode {
            /// All of them, in wire order.
            pub const ALL: &'static [OutcomeCode] = &[$(OutcomeCode::$variant),+];

            /// The code with this word.
            pub fn of_word(word: &[u8]) -> Option<OutcomeCode> {
                OutcomeCode::ALL.iter().copied().find(|code| code.as_str().as_bytes() == word)
            }

            /// The stable word, such as `worker_crashed`.
            pub fn as_str(self) -> &'static str {
                match self { $(OutcomeCode::$variant => $word),+ }
            }
        }
    };
}

outcome_codes! {
    /// The task returned a result.
    Ok = "ok",
    /// The task returned an error.
    AppError = "app_error",
    /// The task panicked.
    Panic = "panic",
    /// The worker process ended while it ran the job.
    WorkerCrashed = "worker_crashed",
    /// A program used more memory than its task allows, and its worker ended it ([`FailureKind::OutOfMemory`]). A worker that
    /// the kernel kills for its use of memory ends by SIGKILL, which is [`OutcomeCode::WorkerCrashed`].
    WorkerOom = "worker_oom",
    /// The worker broke the protocol and was killed.
    WorkerProtocol = "worker_protocol",
    /// The worker made a system call that is forbidden to it (seccomp(2)), and the kernel ended it with SIGSYS.
    Confinement = "confinement",
    /// The time limit of the run, or the deadline of the job, has passed.
    Timeout = "timeout",
    /// Somebody cancelled the job, or nobody waits for it any more.
    Cancelled = "cancelled",
    /// Each of two or more allowed attempts ended its worker.
    Poison = "poison",
    /// Nobody knows whether the job was done, and it must not run twice: the connection to the supervisor was lost, its
    /// worker was killed because of another job, or it may have begun when its worker broke the protocol.
    Indeterminate = "indeterminate",
    /// A task that threads of the supervisor do ([`Lane::Io`]) failed. The command line also uses it for an input that it cannot
    /// read.
    IoError = "io_error",
    /// A task that threads of the supervisor do ([`Lane::Io`]) panicked.
    IoPanic = "io_panic",
    /// Rejected: the queue or the memory is full.
    Overloaded = "overloaded",
    /// Rejected: the client has used up its share.
    Quota = "quota",
    /// Rejected: the payload is over the limit.
    TooLarge = "too_large",
    /// Rejected: the request makes no sense.
    BadRequest = "bad_request",
    /// Rejected: no valid credentials. Only over HTTP: whoever may open the local socket is trusted.
    Unauthenticated = "unauthenticated",
    /// Rejected: not allowed. Only over HTTP.
    Forbidden = "forbidden",
    /// Rejected: the idempotency key was used with another input.
    Conflict = "conflict",
    /// Rejected: no worker can be had, or the supervisor is draining.
    Unavailable = "unavailable",
    /// There was no room to keep something: the output of a job, or the input of a dead letter.
    StorageFull = "storage_full",
    /// Not supported: an input that is a file, if not all workers of its task take files; a request or a version of the protocol
    /// that the other end does not know.
    Unsupported = "unsupported",
    /// Rejected: no worker offers a task of this name.
    UnknownTask = "unknown_task",
    /// There is no job of this id (an answer to a question, never the outcome of a job).
    NoSuchJob = "no_such_job",
}

impl OutcomeCode {
    /// The exit code of the command line for a job that ended so.
    pub fn exit_code(self) -> u8 {
        use OutcomeCode::*;
        match self {
            Ok => 0,
            AppError | Panic | IoError | IoPanic => 1,
            NoSuchJob => 5,
            Timeout => 124,
            WorkerCrashed | WorkerOom | WorkerProtocol | Confinement | Poison | Indeterminate => 125,
            Cancelled => 126,
            Overloaded | Quota | TooLarge | BadRequest | Unauthenticated | Forbidden | Conflict
            | Unavailable | StorageFull | Unsupported | UnknownTask => 4,
        }
    }
}

impl fmt::Display for OutcomeCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Where the time of a job went, and where it ran. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// From acceptance until the last attempt started.
    pub queued_us: u64,
    /// The task itself, by the worker's clock.
    pub run_us: u64,
    /// From the task's end until the supervisor had the result.
    pub returned_us: u64,
    /// The process that ran it; 0 when none did.
    pub worker_pid: u32,
    /// The slot of that process.
    pub slot: u32,
    /// Which process of that slot it was, counted from 1.
    pub incarnation: u64,
    /// Length of the input.
    pub input_bytes: u64,
    /// Length of the output.
    pub output_bytes: u64,
    /// What the last attempt used; of one whose worker ended, as far as the kernel told.
    pub usage: Usage,
}

/// What went wrong, for programs (`code`, `signal`, `exit_code`) and for people (`message`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// The cause. For an outcome of `poison` it is what ended the last attempt.
    pub code: OutcomeCode,
    /// The reason for people, in one line.
    pub message: String,
    /// The signal that ended the worker, or the program that it ran, if one did.
    pub signal: Option<i32>,
    /// The exit code of the worker, or of the program that it ran, if it exited.
    pub exit_code: Option<i32>,
    /// For a rejected job: after how many milliseconds it may be worth trying again.
    pub retry_after_ms: Option<u64>,
    /// The message may be told to anybody: a task wrote it for its callers, or the supervisor made it of nothing but numbers and
    /// what the caller sent. It is not on the wire, because clients there may read everything.
    #[serde(skip)]
    pub is_for_anybody: bool,
}

impl ErrorDetail {
    /// An error that has nothing to do with how a process ended.
    pub fn new(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
        ErrorDetail {
            code,
            message: message.into(),
            signal: None,
            exit_code: None,
            retry_after_ms: None,
            is_for_anybody: false,
        }
    }

    /// The same with a message that anybody may read ([`ErrorDetail::is_for_anybody`]).
    pub fn for_anybody(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
        ErrorDetail { is_for_anybody: true, ..ErrorDetail::new(code, message) }
    }
}

/// One line, such as `worker_crashed: signal 11 (SIGSEGV) in attempt 1 of 1`.
impl fmt::Display for ErrorDetail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ErrorDetail {}

/// Everything about a job that has ended, except its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The job's public id (a ULID); empty if the job was rejected.
    pub job: String,
    /// The task that it asked for.
    pub task: String,
    /// How it ended.
    pub outcome: OutcomeCode,
    /// What went wrong, unless `outcome` is `ok`.
    pub error: Option<ErrorDetail>,
    /// How many attempts were started, without those that were lost together with other jobs: these cost none. At least 1 if one
    /// was started.
    pub attempts: u32,
    /// Its times, and where it ran.
    pub receipt: Receipt,
    /// What the output is.
    pub media_type: MediaType,
    /// As it was submitted.
    pub metadata: Metadata,
    /// As they were submitted.
    pub labels: Labels,
}

/// The longest prefix of `text` that has at most `max` bytes and ends at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_word_of_its_own() {
        let mut words: Vec<_> = OutcomeCode::ALL.iter().map(|code| code.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), OutcomeCode::ALL.len());
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("häuser", 2), "h");
        assert_eq!(cut("häuser", 3), "hä");
        assert_eq!(cut("kurz", 100), "kurz");
    }
}
