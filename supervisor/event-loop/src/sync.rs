//! What the parts that several threads share are built from. The tests put loom's versions in their place and go
//! through every order in which threads can meet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};

/// A counter in the kernel (an eventfd) that is readable while it is not zero.
pub(super) struct EventCounter(OwnedFd);

impl EventCounter {
    pub(super) fn new() -> Result<EventCounter, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(EventCounter)
    }

    /// False if it cannot be added to, which happens only with 2^64 additions that nobody took.
    pub(super) fn add_one(&self) -> bool {
        #[cfg(test)]
        interruption::happens();
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).is_ok()
    }

    /// How often it was added to since the last time.
    pub(super) fn take(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }
}

impl AsFd for EventCounter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A test takes the place of the kernel's scheduler: it interrupts a thread that rings for the loop right before its
/// system call.
#[cfg(test)]
pub(super) mod interruption {
    use std::cell::Cell;

    type Meanwhile = Box<dyn FnOnce()>;

    thread_local! {
        static NEXT: Cell<Option<Meanwhile>> = const { Cell::new(None) };
    }

    /// What happens on this thread before its next ring.
    pub(crate) fn before_next_ring(meanwhile: impl FnOnce() + 'static) {
        NEXT.set(Some(Box::new(meanwhile)));
    }

    pub(super) fn happens() {
        if let Some(meanwhile) = NEXT.take() {
            meanwhile();
        }
    }
}
