//! What the tests of the event loop share: a record of the order of callbacks, and a lock for tests that measure time.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What happened, in the order of its happening. Clones write to the same list.
#[derive(Debug)]
pub(crate) struct Order<T = &'static str>(Rc<RefCell<Vec<T>>>);

impl<T> Clone for Order<T> {
    fn clone(&self) -> Order<T> {
        Order(Rc::clone(&self.0))
    }
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order(Rc::default())
    }
}

impl<T: Clone + 'static> Order<T> {
    pub(crate) fn new() -> Order<T> {
        Order::default()
    }

    pub(crate) fn push(&self, what: T) {
        self.0.borrow_mut().push(what);
    }

    /// A callback of whatever kind that writes `what` down.
    pub(crate) fn add<Context>(&self, what: T) -> impl FnMut(&mut Context) + 'static {
        let order = self.clone();
        move |_| order.push(what.clone())
    }

    pub(crate) fn so_far(&self) -> Vec<T> {
        self.0.borrow().clone()
    }
}

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by a test that measures time: no other test of this binary that keeps to the rule runs meanwhile.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that keeps a core busy or takes long, so that it is not beside one that measures time.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}
