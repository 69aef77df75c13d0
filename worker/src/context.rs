//! What a running task may ask about its job.

use crate::link::Link;
use crate::progress::Progress;
use crate::usage::Meter;
use bytes::Bytes;
use offload_protocol::messages::FromWorker;
use std::io;
use std::time::Instant;

/// An attempt at a job, from Started to its answer.
pub(crate) struct Attempt {
    pub(crate) job: u64,
    /// Counted from 1.
    pub(crate) number: u32,
    pub(crate) meter: Meter,
    pub(crate) progress: Progress,
}

/// The job that a task is running for.
pub struct TaskContext<'a> {
    attempt: &'a mut Attempt,
    link: &'a mut Link,
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

    /// Says how far the job is: `done` units of work of `total`, which is 0 as long as that is not known.
    ///
    /// Call it as often as you like, it costs a look at the clock. A message is sent at most every 100 ms, or every half
    /// of what [`Task::progress_every`](crate::Task::progress_every) promised if that is less; what is said in between
    /// is forgotten. Stepped tasks have [`Stepped::progress`](crate::Stepped::progress) instead.
    pub fn progress(&mut self, done: u64, total: u64) {
        if self.attempt.progress.is_news(done, total, Instant::now()) {
            let Attempt { job, number, .. } = *self.attempt;
            self.link.push(&FromWorker::Progress { job, attempt: number, done, total }, &Bytes::new());
            self.link.try_flush();
        }
    }

    /// Whether nobody wants the answer any more, because the job was cancelled or the supervisor is gone. A long
    /// task may ask now and then and return early, with anything.
    ///
    /// Costs one system call: ask every millisecond or so, not in the innermost loop. A task that never asks is
    /// correct as well, since the supervisor can always end the process.
    pub fn is_cancelled(&mut self) -> bool {
        self.link.look();
        self.link.is_running_cancelled()
    }

    /// For programs that test supervisors: sends `bytes` as they are, between two frames.
    ///
    /// # Errors
    /// If the socket does not take them.
    #[doc(hidden)]
    pub fn send_garbage(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.send_garbage(bytes)
    }

    /// For programs that test supervisors: ends the connection in both directions, while the process lives on.
    ///
    /// # Errors
    /// If it is ended already.
    #[doc(hidden)]
    pub fn close_link(&mut self) -> io::Result<()> {
        self.link.close()
    }
}
