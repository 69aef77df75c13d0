//! Tasks of a pool as futures.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use super::loop_side::LoopSide;
use super::{IoError, IoHandle, TaskId};
use crate::Context;

/// Where a result is left for a future.
pub(super) struct Slot<T> {
    value: Cell<Option<T>>,
    is_filled: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl<T: 'static> Slot<T> {
    pub(super) fn new() -> Rc<Slot<T>> {
        Rc::new(Slot { value: Cell::new(None), is_filled: Cell::new(false), waiter: RefCell::new(None) })
    }

    /// A callback that leaves its argument here.
    pub(super) fn filling(self: &Rc<Slot<T>>) -> impl FnOnce(&mut Context, T) + use<T> {
        let slot = Rc::clone(self);
        move |_, value| slot.fill(value)
    }

    fn fill(&self, value: T) {
        self.value.set(Some(value));
        self.is_filled.set(true);
        let waiter = self.waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// # Panics
    /// If the value was taken before.
    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<T> {
        if self.is_filled.get() {
            return Poll::Ready(self.value.take().expect("a finished future is not polled again"));
        }
        let previous = self.waiter.replace(Some(context.waker().clone()));
        drop(previous);
        Poll::Pending
    }
}

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
    slot: Rc<Slot<Result<T, IoError>>>,
}

impl<T> IoFuture<T> {
    pub(super) fn new(handle: &IoHandle, task: TaskId, slot: Rc<Slot<Result<T, IoError>>>) -> IoFuture<T> {
        IoFuture { loop_side: Rc::clone(&handle.loop_side), task, slot }
    }

    /// By which the task can be cancelled.
    pub fn task(&self) -> TaskId {
        self.task
    }
}

impl<T> Future for IoFuture<T> {
    type Output = Result<T, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.slot.poll(context)
    }
}

impl<T> Drop for IoFuture<T> {
    fn drop(&mut self) {
        if !self.slot.is_filled.get() {
            self.loop_side.cancel(self.task);
        }
    }
}

impl IoHandle {
    /// As [`IoHandle::submit`], with the result as a future. The task is queued by this call, not by the first poll.
    #[track_caller]
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> IoFuture<T> {
        let slot = Slot::new();
        IoFuture::new(self, self.submit(task, slot.filling()), slot)
    }

    /// As [`IoHandle::submit_parts`], with the result as a future. The task is queued by this call.
    #[track_caller]
    pub fn run_parts<T: Send + 'static>(
        &self,
        part: impl FnMut() -> ControlFlow<T> + Send + 'static,
    ) -> IoFuture<T> {
        let slot = Slot::new();
        IoFuture::new(self, self.submit_parts(part, slot.filling()), slot)
    }

    /// As [`IoHandle::shutdown`], with its end as a future. The pool takes no more tasks from this call on, whether
    /// the future is awaited or not.
    #[track_caller]
    pub fn shutdown_async(&self) -> impl Future<Output = ()> + use<> {
        let slot = Slot::new();
        let filling = slot.filling();
        self.shutdown(|context| filling(context, ()));
        poll_fn(move |context| slot.poll(context))
    }
}
