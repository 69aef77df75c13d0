//! A waker of a connection's task that can be told not to listen.
//!
//! Whoever takes bytes of a body over HTTP/1 wakes hyper's connection so that it reads on. If all of the body was there at the first
//! look, hyper has nothing left to read: it has dropped the body's sender in the same call in which it sent the last bytes
//! (`Dispatcher::poll_read` of hyper 1.12), and the connection would be polled once more for nothing. A test sends bodies in all portions
//! (`tests/spec/http/portions.rs`): if hyper changes, an answer does not come there.
//!
//! ```text
//!   wake-up ---> listening, or from another thread? --yes--> the task is woken
//!                   '-- no: `unheard` is told, and decides
//! ```

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

/// See the module's documentation. Until it has a task it changes nothing.
#[derive(Default)]
pub(crate) struct Quiet(RefCell<Option<Arc<Listening>>>);

struct Listening {
    task: Waker,
    /// Of the loop. The waker also goes to whatever a handler awaits, which may wake it from any thread: that is always heard.
    thread: ThreadId,
    is_deaf: AtomicBool,
    has_missed: AtomicBool,
}

impl Quiet {
    /// The waker for what belongs to this task. Called on the thread of the loop.
    pub(crate) fn over(&self, task: &Waker) -> Waker {
        let listening = Arc::new(Listening {
            task: task.clone(),
            thread: thread::current().id(),
            is_deaf: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        });
        let before = self.0.replace(Some(Arc::clone(&listening)));
        drop(before);
        Waker::from(listening)
    }

    /// Calls `act` without waking the task. If `act` tried to wake it, the task is woken afterwards if `has_to_be_woken` says so of
    /// the result.
    pub(crate) fn unheard<T>(&self, act: impl FnOnce() -> T, has_to_be_woken: impl FnOnce(&T) -> bool) -> T {
        let Some(listening) = self.0.borrow().clone() else { return act() };
        listening.is_deaf.store(true, Relaxed);
        let until_heard = HeardAgain(&listening);
        let result = act();
        drop(until_heard);
        if listening.has_missed.swap(false, Relaxed) && has_to_be_woken(&result) {
            listening.task.wake_by_ref();
        }
        result
    }
}

/// Listens again when it is dropped, also by a panic.
struct HeardAgain<'a>(&'a Listening);

impl Drop for HeardAgain<'_> {
    fn drop(&mut self) {
        self.0.is_deaf.store(false, Relaxed);
    }
}

impl Wake for Listening {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the thread of the loop changes and uses the two flags, so their order does not matter.
        match self.is_deaf.load(Relaxed) && thread::current().id() == self.thread {
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

    #[test]
    fn a_wake_up_from_another_thread_is_heard_at_any_time() {
        let (counter, quiet) = (Arc::new(Counter::default()), Quiet::default());
        let waker = quiet.over(&Waker::from(Arc::clone(&counter)));
        let from_elsewhere = || {
            thread::scope(|scope| {
                scope.spawn(|| waker.wake_by_ref());
            });
        };
        quiet.unheard(from_elsewhere, |()| false);
        assert_eq!(counter.0.load(Relaxed), 1);
    }

    #[test]
    fn a_panic_does_not_leave_the_connection_deaf() {
        let (counter, quiet) = (Arc::new(Counter::default()), Quiet::default());
        let waker = quiet.over(&Waker::from(Arc::clone(&counter)));
        let act = std::panic::AssertUnwindSafe(|| quiet.unheard(|| panic!("act"), |()| false));
        assert!(std::panic::catch_unwind(act).is_err());
        waker.wake_by_ref();
        assert_eq!(counter.0.load(Relaxed), 1);
    }
}
