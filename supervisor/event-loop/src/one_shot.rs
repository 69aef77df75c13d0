//! A value that a callback leaves for a future, once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use super::Context;

/// See the module's documentation.
pub(crate) struct OneShot<T> {
    value: Cell<Option<T>>,
    is_filled: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl<T> OneShot<T> {
    pub(crate) fn new() -> Rc<OneShot<T>> {
        Rc::new(OneShot { value: Cell::new(None), is_filled: Cell::new(false), waiter: RefCell::new(None) })
    }

    /// A callback that leaves its argument here.
    pub(crate) fn filling(self: &Rc<OneShot<T>>) -> impl FnOnce(&mut Context, T) + use<T> {
        let one_shot = Rc::clone(self);
        move |_, value| one_shot.fill(value)
    }

    pub(crate) fn fill(&self, value: T) {
        self.value.set(Some(value));
        self.is_filled.set(true);
        let waiter = self.waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.get()
    }

    /// # Panics
    /// When the value was taken before.
    pub(crate) fn poll(&self, context: &mut TaskContext<'_>) -> Poll<T> {
        if self.is_filled.get() {
            return Poll::Ready(self.value.take().expect("a finished future is not polled again"));
        }
        let previous = self.waiter.replace(Some(context.waker().clone()));
        drop(previous);
        Poll::Pending
    }

    /// Waits for the value.
    ///
    /// # Panics
    /// When the value was taken before.
    pub(crate) async fn wait(&self) -> T {
        poll_fn(|context| self.poll(context)).await
    }
}
