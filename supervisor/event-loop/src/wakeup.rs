//! The bell at the loop's door: a counter in the kernel that ends the loop's wait, and beside it the number of rings that
//! were not heard yet, so that the loop asks the kernel only when there may be one.
//!
//! ```text
//!   who rings    counts the ring --> adds to the kernel's counter
//!   the loop     takes the kernel's counter --> takes as many rings off the number
//! ```
//!
//! Each side may be interrupted between its two steps, for as long as the scheduler likes:
//! * A ring is counted first. So whenever the kernel says that there is one, the number says so, too, and the loop hears
//!   it. The other way round, a loop that lives in another one would be called for a ring that it does not look for, again
//!   and again.
//! * What the loop takes off the number is what it has heard, no more. So no ring that is on its way is forgotten, and the
//!   number is zero when all were heard. A flag could be left raised, or be lowered for two rings at once.
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

    /// The kernel may have a ring for the loop: it has one, or will have it in a moment.
    pub(super) fn may_be_rung(&self) -> bool {
        self.unheard.load(Ordering::SeqCst) > 0
    }

    /// Hears all rings that have come. Whatever they were for has to be looked at after this, or what is rung for in between
    /// goes unseen.
    pub(super) fn silence(&self) {
        let heard = self.counter.take();
        self.unheard.fetch_sub(heard, Ordering::SeqCst);
    }

    /// It is readable while a ring was not heard.
    pub(super) fn counter(&self) -> &EventCounter {
        &self.counter
    }
}
