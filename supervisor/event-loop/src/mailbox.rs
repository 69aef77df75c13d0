//! Where other threads leave posts for the loop, and the flag by which several wake-ups of one future become one.
//!
//! Posts are collected in one `Vec` under a mutex, and the loop takes all of them at once. Only the thread that finds the `Vec`
//! empty has to wake the loop: for the others a wake-up is on its way already. The loop takes its wake-ups before it takes
//! the posts, so no post is left behind.
//!
//! Both are proved by going through all interleavings of their threads: `tests/interleavings.rs`.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

struct Inbox<T> {
    things: Vec<T>,
    is_closed: bool,
}

pub(super) struct Mailbox<T> {
    inbox: Mutex<Inbox<T>>,
    has_mail: AtomicBool,
}

/// Whether the thread that has left something must wake the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Needed,
    OnItsWay,
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Mailbox<T> {
        let inbox = Inbox { things: Vec::new(), is_closed: false };
        Mailbox { inbox: Mutex::new(inbox), has_mail: AtomicBool::new(false) }
    }

    /// Gives the thing back if the mailbox is closed.
    pub(super) fn push(&self, thing: T) -> Result<Ring, T> {
        let mut inbox = self.lock();
        if inbox.is_closed {
            return Err(thing);
        }
        inbox.things.push(thing);
        if inbox.things.len() > 1 {
            return Ok(Ring::OnItsWay);
        }
        self.has_mail.store(true, Ordering::Release);
        Ok(Ring::Needed)
    }

    /// Everything left since the last time, in order. `empty` takes its place.
    pub(super) fn take(&self, mut empty: Vec<T>) -> Vec<T> {
        let mut inbox = self.lock();
        self.has_mail.store(false, Ordering::Release);
        std::mem::swap(&mut inbox.things, &mut empty);
        empty
    }

    /// Something was left that nobody took yet.
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// From here on nothing is accepted any more. What is there is handed back.
    pub(super) fn close(&self) -> Vec<T> {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        self.has_mail.store(false, Ordering::Release);
        std::mem::take(&mut inbox.things)
    }

    /// No code of others runs under this lock, so a poisoned one guards nothing broken.
    fn lock(&self) -> MutexGuard<'_, Inbox<T>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a future waits to be polled already, or a notification is on its way.
pub(super) struct WakeFlag(AtomicBool);

impl WakeFlag {
    pub(super) fn new(is_queued: bool) -> WakeFlag {
        WakeFlag(AtomicBool::new(is_queued))
    }

    /// True for the first one to wake it, who has to queue the future.
    pub(super) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// To be called before the future is polled: a wake-up from here on is news. It sees everything that was done
    /// before the wake-ups that found the flag raised.
    pub(super) fn lower(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
