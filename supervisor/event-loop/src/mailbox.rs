//! Where other threads leave posts for the loop, and the flag by which several wake-ups of one future become one.
//!
//! Posts are collected in one queue under a mutex, and the loop takes all of them at once. Only the thread that finds the queue
//! empty has to wake the loop: for the others a wake-up is on its way already. The loop takes its wake-ups before it takes
//! the posts, so no post is left behind.
//!
//! Both are proved by going through all interleavings of their threads: `tests/interleavings.rs`.

use std::collections::VecDeque;

use super::blocks::Blocks;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

pub(super) struct Inbox<T> {
    things: Blocks<T>,
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
        let inbox = Inbox { things: Blocks::new(), is_closed: false };
        Mailbox { inbox: Mutex::new(inbox), has_mail: AtomicBool::new(false) }
    }

    /// Gives the thing back if the mailbox is closed.
    pub(super) fn push(&self, thing: T) -> Result<Ring, T> {
        let mut inbox = self.lock();
        if inbox.is_closed {
            return Err(thing);
        }
        let was_empty = inbox.things.is_empty();
        inbox.things.push(thing);
        if !was_empty {
            return Ok(Ring::OnItsWay);
        }
        self.has_mail.store(true, Ordering::Release);
        Ok(Ring::Needed)
    }

    /// Moves everything left since the last time to the end of `queue`, in order. The mailbox goes on in the spare blocks of
    /// `queue`, of which it keeps at most `spare_max`.
    pub(super) fn take(&self, queue: &mut Blocks<T>, spare_max: usize) {
        let mut inbox = self.lock();
        self.has_mail.store(false, Ordering::Release);
        let surplus = queue.append(&mut inbox.things, spare_max);
        // Other threads need not wait for the memory to be freed.
        drop(inbox);
        drop(surplus);
    }

    /// Something was left that nobody took yet.
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// From here on nothing is accepted any more. What is there is handed back.
    pub(super) fn close(&self) -> VecDeque<VecDeque<T>> {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        self.has_mail.store(false, Ordering::Release);
        inbox.things.take_all()
    }

    /// No code of others runs under this lock, so a poisoned one guards nothing broken.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inbox<T>> {
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
