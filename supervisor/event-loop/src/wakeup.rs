//! How other threads wake the loop: a counter in the kernel that ends the loop's wait, and beside it the number of wake-ups
//! (rings) that the loop has not taken yet, so that it asks the kernel only when there may be one.
//!
//! ```text
//!   a thread that rings    adds to the number --> adds to the kernel's counter
//!   the loop               takes the kernel's counter --> subtracts as much from the number
//! ```
//!
//! Each side may be interrupted between its two steps, for as long as the scheduler likes:
//! * A ring is added to the number first. So whenever the kernel's counter is not zero, the number is not zero either, and the
//!   loop looks. The other way round, the kernel could call a loop that sees no reason to look, again and again.
//! * The loop subtracts what it took from the kernel and no more. So no ring that is on its way is forgotten, and the number is
//!   zero when all were taken. A flag could be left raised, or be lowered for two rings at once.
//!
//! `tests/interleavings.rs` goes through all orders of both sides.

use super::sync::{AtomicU64, EventCounter, Ordering};

pub(super) struct Wakeup {
    unheard: AtomicU64,
    counter: EventCounter,
}

impl Wakeup {
    pub(super) fn new(counter: EventCounter) -> Wakeup {
        Wakeup { unheard: AtomicU64::new(0), counter }
    }

    pub(super) fn ring(&self) {
        self.unheard.fetch_add(1, Ordering::SeqCst);
        if !self.counter.add_one() {
            self.unheard.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The kernel's counter is not zero, or will not be in a moment.
    pub(super) fn may_be_rung(&self) -> bool {
        self.unheard.load(Ordering::SeqCst) > 0
    }

    /// Takes all rings that have come. Whatever they were for has to be looked at after this, or a ring in between would be
    /// lost.
    pub(super) fn silence(&self) {
        let heard = self.counter.take();
        self.unheard.fetch_sub(heard, Ordering::SeqCst);
    }

    /// It is readable while there is a ring that was not taken.
    pub(super) fn counter(&self) -> &EventCounter {
        &self.counter
    }
}
