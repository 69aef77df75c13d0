//! Tasks of a pool as futures.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use super::loop_side::LoopSide;
use super::{IoError, IoHandle, TaskId};
use crate::one_shot::OneShot;

/// The result of a task that was submitted when this future was made. Dropping it cancels the task if it waits, or at
/// the end of its part if it runs in parts; a thread that runs another task is not interrupted, and its result is
/// dropped. The loop stays alive until the task is answered.
///
/// # Panics
/// If it is polled again after it was ready.
#[must_use = "dropping the future cancels the task"]
pub struct IoFuture<T: 'static> {
    loop_side: Rc<LoopSide>,
    task: TaskId,
    one_shot: Rc<OneShot<Result<T, IoError>>>,
}

impl<T> IoFuture<T> {
    pub(super) fn new(
        handle: &IoHandle,
        task: TaskId,
        one_shot: Rc<OneShot<Result<T, IoError>>>,
    ) -> IoFuture<T> {
        IoFuture { loop_side: Rc::clone(&handle.loop_side), task, one_shot }
    }

    /// By which the task can be cancelled.
    pub fn task(&self) -> TaskId {
        self.task
    }
}

impl<T> fmt::Debug for IoFuture<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IoFuture").field("task", &self.task).finish_non_exhaustive()
    }
}

impl<T> Future for IoFuture<T> {
    type Output = Result<T, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.one_shot.poll(context)
    }
}

impl<T> Drop for IoFuture<T> {
    fn drop(&mut self) {
        if !self.one_shot.is_filled() && self.loop_side.thread_pool.is_of_this_process() {
            self.loop_side.cancel(self.task);
        }
    }
}

impl IoHandle {
    /// As [`IoHandle::submit`], with the result as a future. The task is queued by this call, not by the first poll.
    #[track_caller]
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> IoFuture<T> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.submit(task, one_shot.filling()), one_shot)
    }

    /// As [`IoHandle::submit_parts`], with the result as a future. The task is queued by this call.
    #[track_caller]
    pub fn run_parts<T: Send + 'static>(
        &self,
        part: impl FnMut() -> ControlFlow<T> + Send + 'static,
    ) -> IoFuture<T> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.submit_parts(part, one_shot.filling()), one_shot)
    }

    /// As [`IoHandle::shutdown`], with its end as a future. The pool takes no more tasks from this call on, whether
    /// the future is awaited or not.
    #[track_caller]
    pub fn shutdown_async(&self) -> impl Future<Output = ()> + use<> {
        let one_shot = OneShot::new();
        let filling = one_shot.filling();
        self.shutdown(|context| filling(context, ()));
        poll_fn(move |context| one_shot.poll(context))
    }
}
