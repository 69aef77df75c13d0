//! What a running task may ask about its job.

use crate::link::Link;
use std::io;

/// The job that a task is running for.
pub struct TaskContext<'a> {
    job: u64,
    attempt: u32,
    link: &'a mut Link,
}

impl TaskContext<'_> {
    pub(crate) fn new(job: u64, attempt: u32, link: &mut Link) -> TaskContext<'_> {
        TaskContext { job, attempt, link }
    }

    /// The supervisor's number for the job, the same in each of its attempts.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Which attempt at the job this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
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
