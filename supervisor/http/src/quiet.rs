//! A waker of a connection's task that can be told not to listen.
//!
//! Whoever takes the last bytes of a body over HTTP/1 wakes hyper's connection so that it reads on, also when all of the body was read
//! already. That is so for nearly every request with a body, and the connection would be looked at once more for nothing.
//!
//! ```text
//!   wake-up ---> listening? --yes--> the task is woken
//!                   '-- no: `unheard` is told, and decides
//! ```

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};

/// See the module's documentation. Until it has a task it changes nothing.
#[derive(Default)]
pub(crate) struct Quiet(RefCell<Option<Arc<Listening>>>);

struct Listening {
    task: Waker,
    is_deaf: AtomicBool,
    has_missed: AtomicBool,
}

impl Quiet {
    /// The waker for what belongs to this task.
    pub(crate) fn over(&self, task: &Waker) -> Waker {
        let listening = Arc::new(Listening {
            task: task.clone(),
            is_deaf: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        });
        let before = self.0.replace(Some(Arc::clone(&listening)));
        drop(before);
        Waker::from(listening)
    }

    /// Does something of which it can be seen by its result whether the task has to be woken, if it wants to wake it.
    pub(crate) fn unheard<T>(&self, act: impl FnOnce() -> T, has_to_be_woken: impl FnOnce(&T) -> bool) -> T {
        let Some(listening) = self.0.borrow().clone() else { return act() };
        listening.is_deaf.store(true, Relaxed);
        let result = act();
        listening.is_deaf.store(false, Relaxed);
        if listening.has_missed.swap(false, Relaxed) && has_to_be_woken(&result) {
            listening.task.wake_by_ref();
        }
        result
    }
}

impl Wake for Listening {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// All of it happens on the thread of the loop, so the order of the two does not matter.
    fn wake_by_ref(self: &Arc<Self>) {
        match self.is_deaf.load(Relaxed) {
            true => self.has_missed.store(true, Relaxed),
            false => self.task.wake_by_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn only_what_is_said_to_change_nothing_is_not_heard() {
        let (counter, quiet) = (Arc::new(Counter::default()), Quiet::default());
        assert_eq!(quiet.unheard(|| 1, |_| true), 1, "there is no task yet");
        let waker = quiet.over(&Waker::from(Arc::clone(&counter)));
        let woken = |act: &dyn Fn(), has_to_be_woken: bool| {
            act();
            quiet.unheard(|| (), |()| has_to_be_woken);
            counter.0.swap(0, Relaxed)
        };
        assert_eq!(woken(&|| waker.wake_by_ref(), false), 1, "it listens");
        assert_eq!(
            woken(&|| quiet.unheard(|| waker.wake_by_ref(), |()| false), true),
            0,
            "and forgets what it has not heard"
        );
        assert_eq!(woken(&|| quiet.unheard(|| waker.wake_by_ref(), |()| true), true), 1);
        assert_eq!(woken(&|| quiet.unheard(|| (), |()| true), true), 0, "nothing has happened");
    }
}
