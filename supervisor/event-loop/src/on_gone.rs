//! What is called when the loop is dropped, for what may outlive the loop and keeps callbacks for it in a place of its own: a
//! pool of threads, a server.
//!
//! ```text
//!   registered ---- the loop is dropped --------> called, once
//!      |     '----- the guard is dropped first -> never called
//!      '----------- the loop is gone already ---> called at once
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::LoopHandle;
use super::state::Shared;

/// Takes back what [`LoopHandle::on_gone`] has registered, when it is dropped before the loop.
#[must_use = "dropping it takes the callback back"]
pub struct OnGone {
    shared: Rc<Shared>,
    /// `None` if it was called at once.
    number: Option<u64>,
}

impl Drop for OnGone {
    fn drop(&mut self) {
        let taken_back = self.number.and_then(|number| self.shared.on_gone.remove(number));
        drop(taken_back);
    }
}

type GoneCallback = Box<dyn FnOnce()>;

/// The callbacks that wait, in the order in which they were registered.
#[derive(Default)]
pub(super) struct GoneCallbacks {
    waiting: RefCell<BTreeMap<u64, GoneCallback>>,
    last: Cell<u64>,
}

impl GoneCallbacks {
    fn add(&self, callback: GoneCallback) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.waiting.borrow_mut().insert(number, callback);
        number
    }

    fn remove(&self, number: u64) -> Option<GoneCallback> {
        self.waiting.borrow_mut().remove(&number)
    }

    fn pop(&self) -> Option<GoneCallback> {
        self.waiting.borrow_mut().pop_first().map(|(_, callback)| callback)
    }

    /// Calls them all, one after the other, and returns the first panic. Each is taken out right before: one of them may take back others.
    pub(super) fn call_all(&self) -> Option<Box<dyn Any + Send>> {
        let mut panic = None;
        while let Some(callback) = self.pop() {
            panic = panic.or(catch_unwind(AssertUnwindSafe(callback)).err());
        }
        panic
    }
}

impl LoopHandle {
    /// Calls `callback` once, when the loop is dropped; at once, if that has happened. If the returned guard is dropped before,
    /// it is never called. It does not keep the loop alive. Not to be confused with the end of
    /// [`run`](super::Context::run), behind which the loop may run again.
    ///
    /// It is for what may outlive the loop and keeps callbacks of its own, which nobody calls any more: drop them here, because they may
    /// own what keeps them, and the two would own each other for ever. What is dropped may come back to its owner, so nothing
    /// may be borrowed then:
    ///
    /// ```
    /// use offload_event_loop::{EventLoop, LoopHandle, OnGone};
    /// use std::cell::RefCell;
    /// use std::rc::{Rc, Weak};
    ///
    /// struct Server {
    ///     handlers: RefCell<Vec<Box<dyn Fn()>>>,
    ///     _on_gone: OnGone,
    /// }
    ///
    /// impl Server {
    ///     fn new(event_loop: &LoopHandle) -> Rc<Server> {
    ///         Rc::new_cyclic(|me: &Weak<Server>| {
    ///             let me = Weak::clone(me);
    ///             let _on_gone = event_loop.on_gone(move || {
    ///                 let handlers = me.upgrade().map(|server| server.handlers.take());
    ///                 drop(handlers);
    ///             });
    ///             Server { handlers: RefCell::default(), _on_gone }
    ///         })
    ///     }
    /// }
    ///
    /// let event_loop = EventLoop::new()?;
    /// let server = Server::new(&event_loop);
    /// let owned = Rc::clone(&server);
    /// server.handlers.borrow_mut().push(Box::new(move || drop(Rc::clone(&owned))));
    /// drop(event_loop);
    /// assert_eq!(Rc::strong_count(&server), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The callbacks are called in the order in which they were registered. By then the loop [is gone](LoopHandle::is_gone): what
    /// other threads send is refused, and what a callback registers is refused or dropped, except for another `on_gone`, which is called
    /// at once. What was registered before, such as timers and futures, is dropped after the last callback. Nothing of the
    /// loop is borrowed meanwhile.
    ///
    /// A forked child that drops its copy of the loop calls them, too. There they must leave alone whatever is the parent's.
    ///
    /// # Panics
    /// If a callback panics, the others are called and everything is dropped, and then dropping the loop panics with the first of these
    /// panics, unless the thread is panicking already. If it is called at once, its panic leaves this call.
    pub fn on_gone(&self, callback: impl FnOnce() + 'static) -> OnGone {
        let number = if self.is_gone() {
            callback();
            None
        } else {
            Some(self.shared.on_gone.add(Box::new(callback)))
        };
        OnGone { shared: Rc::clone(&self.shared), number }
    }
}
