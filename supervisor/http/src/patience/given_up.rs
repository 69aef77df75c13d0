//! What may end because its own time is over, while the rest of its connection goes on: a body that does not come, an answer that is
//! not read. Over HTTP/2 others may be under way beside it, and behind a proxy those are of other people.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Whether it was given up. Whoever would wait for it asks here before.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    is_it: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl GivenUp {
    pub(crate) fn is_it(&self) -> bool {
        self.is_it.get()
    }

    /// The task is woken when it is given up.
    pub(crate) fn wait(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    pub(crate) fn give_up(&self) {
        self.is_it.set(true);
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}
