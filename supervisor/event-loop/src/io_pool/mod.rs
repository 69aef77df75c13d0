//! A pool of threads for blocking work. The results come back to the event loop.
//!
//! Files and name look-ups cannot be waited for with epoll, so they block a thread: a thread of the pool, never that of the
//! loop. The pool is protected against its tasks: its queues are bounded, every task has a deadline, a panic becomes an
//! error, slow tasks have a lane of their own, and a thread that is stuck in a task is written off and replaced.
//!
//! ```text
//!   submit() --queue full, pool shut--> Overloaded, ShutDown
//!      |
//!      v
//!   queued <--another part-- running --done, panicked--> answered
//!      |                        |
//!      +------(deadline)--------+--> TimedOut; a thread that still runs it is stuck
//! ```
//!
//! The pool keeps the loop alive as long as an answer is awaited.
//!
//! | read | for |
//! |---|---|
//! | `mod.rs`, `future.rs` | submitting tasks, and the pool as a whole |
//! | `fs.rs`, `dns.rs`, `random.rs` | ready-made tasks |
//! | `loop_side.rs`, `deadlines.rs`, `on_stuck.rs` | the loop's side: answers, deadlines, reports |
//! | `thread_pool.rs`, `lanes.rs`, `work.rs` | the threads' side |

mod config;
mod deadlines;
mod dns;
mod error;
mod fs;
mod future;
mod lanes;
mod loop_side;
mod on_stuck;
mod random;
mod report;
#[cfg(test)]
mod tests;
mod thread_pool;
mod work;

use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::callback::Site;
use crate::{Context, LoopHandle, RequestId};
use loop_side::LoopSide;
use thread_pool::ThreadPool;
use work::{PoolTask, QueuedTask};

pub use crate::limits::{RANDOM_PART, READ_PART};
pub use config::{IoPoolConfig, Lane};
pub use error::IoError;
pub use future::IoFuture;
pub use report::{IoPoolStats, StuckTask};

/// Names a task of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pool: u64,
    /// The lane in which it waits.
    lane: Lane,
    request: RequestId,
}

/// What [`IoHandle::cancel`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It waited. It will not run (or not go on), and is answered with [`IoError::Cancelled`].
    Cancelled,
    /// A thread runs one of its parts. No other part will begin. It is answered with [`IoError::Cancelled`], or with its
    /// result if this part is the last one.
    AfterThisPart,
    /// A thread runs it, which cannot be interrupted. It will be answered as if it had not been cancelled.
    Running,
    /// It is done or was cancelled before (its answer may still be on the way), or it never was a task of this pool.
    NotFound,
}

/// A pool of threads for blocking work. It dereferences to [`IoHandle`], by which tasks are submitted.
///
/// Several pools may work side by side for one loop, e.g. one for each class of tasks.
///
/// Dropping it does not wait. Tasks that wait are answered with [`IoError::ShutDown`], running ones when they are done. A
/// task in parts ends after the part that runs.
#[must_use = "dropping it ends the threads and gives up the tasks that wait"]
pub struct IoPool {
    handle: IoHandle,
}

/// A handle to a pool. It has the lane, the deadline and the size of parts for the tasks that are submitted with it. Cheap
/// to clone; it stays on the loop's thread. When the [`IoPool`] was dropped, every task is answered with [`IoError::ShutDown`].
#[derive(Clone)]
pub struct IoHandle {
    loop_side: Rc<LoopSide>,
    lane: Lane,
    deadline: Duration,
    part_bytes: usize,
}

impl IoPool {
    /// Starts the threads of a pool, which answers on this loop.
    ///
    /// # Errors
    /// [`IoError::Io`] when a thread cannot be started.
    pub fn new(event_loop: &LoopHandle, config: IoPoolConfig) -> Result<IoPool, IoError> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        let config = config.usable();
        let thread_pool = ThreadPool::start(config, event_loop.remote()).map_err(IoError::Io)?;
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let loop_side = LoopSide::new(event_loop.clone(), config, thread_pool, number);
        let IoPoolConfig { deadline, part_bytes, .. } = config;
        Ok(IoPool { handle: IoHandle { loop_side, lane: Lane::Fast, deadline, part_bytes } })
    }

    /// A handle for structs and futures on this thread.
    pub fn handle(&self) -> IoHandle {
        self.handle.clone()
    }
}

impl Deref for IoPool {
    type Target = IoHandle;

    fn deref(&self) -> &IoHandle {
        &self.handle
    }
}

impl fmt::Debug for IoHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoHandle { loop_side, lane, deadline, part_bytes } = self;
        let mut shown = formatter.debug_struct("IoHandle");
        shown.field("pool", &loop_side.config.name).field("lane", lane);
        shown.field("deadline", deadline).field("part_bytes", part_bytes);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for IoPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("IoPool").field(&self.handle).finish()
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        self.handle.loop_side.close();
        self.handle.loop_side.forget_on_stuck();
    }
}

/// Changing the lane, the deadline and the size of parts.
impl IoHandle {
    /// A handle whose tasks wait in `lane`.
    pub fn on_lane(&self, lane: Lane) -> IoHandle {
        IoHandle { lane, ..self.clone() }
    }

    /// A handle whose tasks must be done `deadline` after their submission.
    pub fn within(&self, deadline: Duration) -> IoHandle {
        IoHandle { deadline, ..self.clone() }
    }

    /// A handle whose reads have parts of at most `part_bytes` bytes. 0 counts as 1.
    pub fn in_parts_of(&self, part_bytes: usize) -> IoHandle {
        IoHandle { part_bytes: part_bytes.max(1), ..self.clone() }
    }
}

/// Tasks.
impl IoHandle {
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
        self.enter(Location::caller(), false, only_part, done)
    }

    /// As [`IoHandle::submit`], for a task in parts: `part` is called until it returns `Break` with the result. Between two
    /// calls, the other waiting tasks have their turn. The deadline is that of the whole task.
    #[track_caller]
    pub fn submit_parts<T: Send + 'static>(
        &self,
        part: impl FnMut() -> ControlFlow<T> + Send + 'static,
        done: impl FnOnce(&mut Context, Result<T, IoError>) + 'static,
    ) -> TaskId {
        self.enter(Location::caller(), true, part, done)
    }

    fn enter<T: Send + 'static, Part: FnMut() -> ControlFlow<T> + Send + 'static>(
        &self,
        site: Site,
        has_parts: bool,
        part: Part,
        done: impl FnOnce(&mut Context, Result<T, IoError>) + 'static,
    ) -> TaskId {
        let loop_side = &self.loop_side;
        let answering = Rc::clone(loop_side);
        let request = loop_side.event_loop.request_any(site, move |context, answer| {
            answering.on_answer(&*answer);
            done(context, PoolTask::<Part, T>::result_of(answer));
        });
        let task = TaskId { pool: loop_side.number, lane: self.lane, request };
        let submitted = loop_side.event_loop.clock_reading();
        loop_side.expect(task, submitted, self.deadline);
        let work = Box::new(PoolTask::Unfinished(part));
        loop_side.enqueue(QueuedTask { task, site, has_parts, submitted, work });
        task
    }

    /// Cancels a task that no thread has begun, or that is between two parts. A task that runs in parts ends after the part
    /// that runs. It is answered in any case.
    pub fn cancel(&self, task: TaskId) -> CancelOutcome {
        self.loop_side.cancel(task)
    }
}

/// The pool as a whole.
impl IoHandle {
    /// Accepts no more tasks, lets those that were submitted end, and then calls `done` in the pending phase. Every task
    /// ends by its deadline, so this ends too: it does not wait for a thread that is stuck.
    ///
    /// If the [`IoPool`] is dropped meanwhile, the tasks that still wait are given up, and `done` is called nevertheless. If the
    /// loop is dropped, so is `done`.
    #[track_caller]
    pub fn shutdown(&self, done: impl FnOnce(&mut Context) + 'static) {
        self.loop_side.shut_down(Location::caller(), Box::new(done));
    }

    /// How many threads and tasks there are now.
    pub fn stats(&self) -> IoPoolStats {
        self.loop_side.thread_pool.stats(self.loop_side.finished())
    }

    #[cfg(test)]
    pub(crate) fn lock_for_ever(&self) {
        self.loop_side.thread_pool.lock_for_ever();
    }

    /// The tasks in which threads are stuck now.
    pub fn stuck(&self) -> Vec<StuckTask> {
        self.loop_side.thread_pool.stuck()
    }

    /// Calls `callback` in the pending phase for every thread that is written off from now on, until the [`IoPool`]
    /// or its loop is dropped. It replaces the callback that was set before. A callback that panics is called again for the next
    /// thread. If the [`IoPool`] or its loop is already dropped, `callback` is dropped at once.
    pub fn set_on_stuck(&self, callback: impl FnMut(&mut Context, StuckTask) + 'static) {
        self.loop_side.set_on_stuck(Box::new(callback));
    }
}
