//! What a running task can ask about its job, how it reports progress, and how it sends parts of its output.

use crate::link::Link;
use crate::parts::{PartError, Parts};
use crate::progress::Progress;
use crate::usage::Meter;
use bytes::Bytes;
use offload_protocol::limits::PAYLOAD_MAX_DEFAULT;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::Metadata;
#[cfg(feature = "exec")]
use offload_protocol::nouns::Usage;
use std::fmt;
use std::io;
#[cfg(feature = "exec")]
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// One attempt, from Started to its answer.
pub(crate) struct Attempt {
    pub(crate) job: u64,
    /// Counted from 1.
    pub(crate) number: u32,
    /// When its time is over, if that is limited.
    pub(crate) over_at: Option<Instant>,
    pub(crate) metadata: Metadata,
    pub(crate) meter: Meter,
    pub(crate) progress: Progress,
    pub(crate) parts: Parts,
}

/// The job that a task runs for.
pub struct TaskContext<'a> {
    attempt: &'a mut Attempt,
    link: &'a mut Link,
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TaskContext").field("job", &self.attempt.job).finish_non_exhaustive()
    }
}

impl<'a> TaskContext<'a> {
    pub(crate) fn new(attempt: &'a mut Attempt, link: &'a mut Link) -> TaskContext<'a> {
        TaskContext { attempt, link }
    }

    /// The supervisor's number for the job, the same in each of its attempts.
    pub fn job(&self) -> u64 {
        self.attempt.job
    }

    /// Which attempt at the job this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// How much time is left before the supervisor ends this attempt, because of its run timeout or the job's deadline. `None`
    /// if there is no limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.attempt.over_at.map(|over_at| over_at.saturating_duration_since(Instant::now()))
    }

    /// What the client attached to the job, such as a trace context.
    pub fn metadata(&self) -> &Metadata {
        &self.attempt.metadata
    }

    /// Reports progress: `done` units of work of `total` (0 if not known).
    ///
    /// It may be called often: it only reads the clock. A message is sent at most every 100 ms, or twice in the time that
    /// [`Task::progress_every`](crate::Task::progress_every) promised if that is shorter. Reports in between are dropped.
    /// Stepped tasks have [`Stepped::progress`](crate::Stepped::progress) instead.
    pub fn progress(&mut self, done: u64, total: u64) {
        if self.attempt.progress.is_news(done, total, Instant::now()) {
            let Attempt { job, number, .. } = *self.attempt;
            self.link.push(&FromWorker::Progress { job, attempt: number, done, total }, &Bytes::new());
            self.link.try_flush();
        }
    }

    /// Sends the next part of the output. What the task returns comes behind all parts. A long part is sent in pieces, an empty
    /// one not at all.
    ///
    /// A client that asked for a stream reads the part as soon as it comes; other clients get all of the output at the end. If
    /// the client reads more slowly than the task sends, this call waits, and the run timeout goes on. If the task fails,
    /// a client that reads the stream has the parts nevertheless. A job of which a part was read is not run again, even if
    /// its task is idempotent.
    ///
    /// # Errors
    /// [`PartError::Cancelled`] if nobody wants the output any more, also while it waits; [`PartError::InSteps`] in a stepped
    /// task. With a supervisor that does not take parts, the parts are kept here until the task returns, and
    /// [`PartError::TooLong`] says that they are too long for one answer.
    pub fn send_part(&mut self, part: impl Into<Bytes>) -> Result<(), PartError> {
        let Attempt { job, number, parts, .. } = self.attempt;
        match parts {
            Parts::Sent => self.link.send_part(*job, *number, part.into()),
            Parts::Kept(kept) => {
                let max = self.link.payload_max().unwrap_or(PAYLOAD_MAX_DEFAULT);
                Parts::keep(kept, &part.into(), max)
            }
            Parts::None => Err(PartError::InSteps),
        }
    }

    /// Whether nobody wants the output any more, because the job was cancelled, its time is over, or the supervisor is gone. A long task may
    /// ask now and then, and return early with any result.
    ///
    /// It takes one system call: ask about every millisecond, not in the innermost loop. A task need not ask, because the
    /// supervisor can end the process.
    pub fn is_cancelled(&mut self) -> bool {
        self.link.look();
        self.link.is_running_cancelled()
    }

    /// What is readable when [`TaskContext::is_cancelled`] may answer otherwise than before. `None` while no more can be taken in.
    #[cfg(feature = "exec")]
    pub(crate) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.link.news()
    }

    /// The task was a program, which has ended. `before` is what all programs before it had used.
    #[cfg(feature = "exec")]
    pub(crate) fn add_program(&mut self, before: Usage) {
        self.attempt.meter.add_program(before);
    }

    /// The longest output that can be sent, in bytes.
    #[cfg(feature = "exec")]
    pub(crate) fn output_max(&self) -> usize {
        self.link.payload_max().unwrap_or(PAYLOAD_MAX_DEFAULT)
    }

    /// For programs that test supervisors: sends `bytes` as they are, between two frames.
    ///
    /// # Errors
    /// If they cannot be written to the socket.
    #[doc(hidden)]
    pub fn send_garbage(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.send_garbage(bytes)
    }

    /// For programs that test supervisors: ends the connection in both directions, while the process lives on.
    ///
    /// # Errors
    /// If it has already ended.
    #[doc(hidden)]
    pub fn close_link(&mut self) -> io::Result<()> {
        self.link.close()
    }
}
