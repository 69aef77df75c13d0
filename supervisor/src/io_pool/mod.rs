//! Blocking work on a few threads, with the answers coming back to the event loop.
//!
//! Files and name look-ups cannot be waited for with epoll, so they block a thread: one of these, never the loop's.
//! The pool defends itself against its own tasks: the queue is bounded, every task has a deadline, a panic is an
//! answer, and a thread that is stuck in a task is written off and replaced.
//!
//! ```text
//!   submit() --queue full--> Overloaded
//!      |
//!      v
//!   queued <--another part-- running --done, panicked--> answered
//!      |                        |
//!      +------(deadline)--------+--> TimedOut; a thread that still runs it is stuck
//! ```
//!
//! The loop is alive as long as an answer is awaited. It knows no job.

mod crew;
mod fs;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::event_loop::{Context, LoopHandle, Request, RequestId, TimerId, panic_message};
use crew::{Crew, Job, WriteOff};

pub use fs::READ_PART;

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct IoPoolConfig {
    /// How many threads serve. At least 1 counts.
    pub threads: usize,
    /// How many threads may exist, those included that are stuck in a task.
    pub threads_max: usize,
    /// How many tasks may wait for a thread.
    pub queue_max: usize,
    /// How long after its submission a task must be done. Its submitter is answered then in any case.
    pub deadline: Duration,
}

impl Default for IoPoolConfig {
    /// 4 threads, 16 with the stuck ones, 10,000 tasks that wait, 30 seconds.
    fn default() -> IoPoolConfig {
        IoPoolConfig { threads: 4, threads_max: 16, queue_max: 10_000, deadline: Duration::from_secs(30) }
    }
}

/// Why a task has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum IoError {
    /// The queue was full when it was submitted. It did not run.
    Overloaded,
    /// It was not done by its deadline. It may still be running.
    TimedOut,
    /// It was cancelled while it waited. It did not run, or not to its end.
    Cancelled,
    /// The pool was dropped while it waited.
    ShutDown,
    /// It panicked, and said this.
    Panicked(String),
    /// The file is not a regular one, and reading another kind could go on for ever.
    NotRegularFile,
    /// The file has more bytes than the reader wants.
    TooLarge {
        /// What the reader wants at most, in bytes.
        max_bytes: usize,
    },
    /// What the system said.
    Io(io::Error),
}

impl fmt::Display for IoError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::Overloaded => write!(formatter, "too many tasks wait for an I/O thread"),
            IoError::TimedOut => write!(formatter, "the I/O task was not done in time"),
            IoError::Cancelled => write!(formatter, "the I/O task was cancelled"),
            IoError::ShutDown => write!(formatter, "the I/O pool was shut down"),
            IoError::Panicked(message) => write!(formatter, "the I/O task panicked: {message}"),
            IoError::NotRegularFile => write!(formatter, "not a regular file"),
            IoError::TooLarge { max_bytes } => write!(formatter, "the file has more than {max_bytes} bytes"),
            IoError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IoError::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Names a task of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(u64);

/// What [`IoPool::cancel`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It waited; it will not run, and is answered with [`IoError::Cancelled`].
    Cancelled,
    /// A thread is at it. That cannot be interrupted; the task will be answered as if nobody had asked.
    Running,
    /// It is done, or never was.
    NotFound,
}

/// How many threads and tasks a pool has at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPoolStats {
    /// Threads that serve.
    pub threads: usize,
    /// Threads among them that run a task now.
    pub busy: usize,
    /// Tasks that wait for a thread.
    pub queued: usize,
    /// Threads that were written off and still have not returned from their task.
    pub stuck: usize,
}

/// A pool of threads for blocking work. Dropping it never waits: tasks that wait are answered with
/// [`IoError::ShutDown`], running ones when they are done.
pub struct IoPool {
    desk: Rc<Desk>,
}

/// The loop's side of a pool: who has to be answered.
struct Desk {
    event_loop: LoopHandle,
    config: IoPoolConfig,
    crew: Arc<Crew>,
    next_task: Cell<u64>,
    awaited: RefCell<HashMap<TaskId, Awaited>>,
}

struct Awaited {
    deadline: TimerId,
    request: RequestId,
    /// Makes an answer of the type that the request expects.
    failure: fn(IoError) -> Box<dyn Any + Send>,
}

fn failure_of<T: Send + 'static>(error: IoError) -> Box<dyn Any + Send> {
    Box::new(Err::<T, IoError>(error))
}

impl IoPool {
    /// Starts the threads of a pool, which answers on the loop of `context`.
    ///
    /// # Errors
    /// [`IoError::Io`] when a thread cannot be started.
    pub fn new(context: &mut Context, config: IoPoolConfig) -> Result<IoPool, IoError> {
        let config = IoPoolConfig { threads: config.threads.max(1), ..config };
        let crew = Crew::start(config.threads).map_err(IoError::Io)?;
        let (next_task, awaited) = (Cell::new(0), RefCell::default());
        let event_loop = context.handle();
        Ok(IoPool { desk: Rc::new(Desk { event_loop, config, crew, next_task, awaited }) })
    }

    /// Runs `task` on a thread, then `done` with its result on the loop. `done` is always called, exactly once,
    /// and never from within this call.
    #[track_caller]
    pub fn submit<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Context, Result<T, IoError>) + 'static,
    ) -> TaskId {
        let mut task = Some(task);
        let only_part = move || match task.take() {
            Some(task) => ControlFlow::Break(task()),
            None => ControlFlow::Continue(()),
        };
        self.submit_parts(only_part, done)
    }

    /// As [`IoPool::submit`], for a task in parts: `part` is called until it `Break`s with the result, and between
    /// two calls the other waiting tasks have their turn.
    #[track_caller]
    pub fn submit_parts<T: Send + 'static>(
        &self,
        part: impl FnMut() -> ControlFlow<T> + Send + 'static,
        done: impl FnOnce(&mut Context, Result<T, IoError>) + 'static,
    ) -> TaskId {
        let desk = &self.desk;
        let task = TaskId(desk.next_task.replace(desk.next_task.get() + 1));
        let answering = Rc::clone(desk);
        let request = desk.event_loop.request(move |context, result| {
            answering.forget(task);
            done(context, result);
        });
        desk.expect::<T>(task, request.id());
        let job = Job { task, site: Location::caller(), part: answering_part(part, request) };
        if let Err(refused) = desk.crew.accept(job, desk.config.queue_max) {
            desk.fail(task, IoError::Overloaded);
            drop(refused);
        }
        task
    }

    /// Takes a task back that no thread has begun, or that is between two parts.
    pub fn cancel(&self, task: TaskId) -> CancelOutcome {
        if let Some(job) = self.desk.crew.take_queued(task) {
            self.desk.fail(task, IoError::Cancelled);
            drop(job);
            return CancelOutcome::Cancelled;
        }
        match self.desk.awaited.borrow().contains_key(&task) {
            true => CancelOutcome::Running,
            false => CancelOutcome::NotFound,
        }
    }

    /// How many threads and tasks there are now.
    pub fn stats(&self) -> IoPoolStats {
        self.desk.crew.stats()
    }

    /// Where the tasks were submitted in which threads are stuck.
    pub fn stuck_sites(&self) -> Vec<&'static Location<'static>> {
        self.desk.crew.stuck_sites()
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        for job in self.desk.crew.close() {
            self.desk.fail(job.task, IoError::ShutDown);
        }
    }
}

/// The part as a thread runs it: it answers the request itself when it was the last one, or panicked.
fn answering_part<T: Send + 'static>(
    mut part: impl FnMut() -> ControlFlow<T> + Send + 'static,
    request: Request<Result<T, IoError>>,
) -> Box<dyn FnMut() -> ControlFlow<()> + Send> {
    let mut request = Some(request);
    Box::new(move || {
        let result = match catch_unwind(AssertUnwindSafe(&mut part)) {
            Ok(ControlFlow::Continue(())) => return ControlFlow::Continue(()),
            Ok(ControlFlow::Break(value)) => Ok(value),
            Err(panic) => Err(IoError::Panicked(panic_message(&*panic).to_owned())),
        };
        if let Some(request) = request.take() {
            // Without a loop nobody wants to know.
            let _ = request.complete(result);
        }
        ControlFlow::Break(())
    })
}

impl Desk {
    fn expect<T: Send + 'static>(self: &Rc<Desk>, task: TaskId, request: RequestId) {
        let desk = Rc::clone(self);
        let deadline = self.event_loop.set_timeout(self.config.deadline, move |_| desk.time_out(task));
        let awaited = Awaited { deadline, request, failure: failure_of::<T> };
        self.awaited.borrow_mut().insert(task, awaited);
    }

    fn forget(&self, task: TaskId) -> Option<Awaited> {
        let awaited = self.awaited.borrow_mut().remove(&task)?;
        self.event_loop.clear(awaited.deadline);
        Some(awaited)
    }

    /// Answers a task in its place.
    fn fail(&self, task: TaskId, error: IoError) {
        if let Some(awaited) = self.forget(task) {
            self.event_loop.answer(awaited.request, (awaited.failure)(error));
        }
    }

    fn time_out(&self, task: TaskId) {
        match self.crew.write_off(task) {
            WriteOff::WasQueued(job) => {
                self.fail(task, IoError::TimedOut);
                drop(job);
            }
            WriteOff::ThreadIsStuck => {
                self.fail(task, IoError::TimedOut);
                // If the system has no more threads, the pool goes on with fewer.
                let _ = self.crew.replace_stuck(self.config.threads, self.config.threads_max);
            }
            // Its answer is on the way.
            WriteOff::IsDone => {}
        }
    }
}
