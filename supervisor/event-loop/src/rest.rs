//! Whether the loop waits for events, and whether its watchdogs sleep meanwhile.
//!
//! ```text
//!              the loop begins to wait             a watchdog looks
//!   Awake ----------------------------> Resting --------------------> Unwatched: it sleeps until it is rung for
//!     ^                                    |                              |
//!     '---------- the loop goes on --------'---- the loop goes on --------' and rings
//! ```
//!
//! An idle process must not be woken forty times a second to be found idle. All is decided by one word in memory, so
//! no order in which the threads meet leaves a watchdog asleep beside a loop that runs: `tests/interleavings.rs`.

use super::sync::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const RESTING: u8 = 1;
const UNWATCHED: u8 = 2;

/// See the module's documentation.
pub(super) struct Rest(AtomicU8);

impl Rest {
    /// Of a loop that does not run.
    pub(super) fn new() -> Rest {
        Rest(AtomicU8::new(RESTING))
    }

    /// The loop begins to wait. Only its own thread may say so.
    pub(super) fn begin(&self) {
        self.0.store(RESTING, Ordering::Release);
    }

    /// The loop goes on. True if nobody watches it: then it has to ring.
    #[must_use]
    pub(super) fn end(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == UNWATCHED
    }

    /// True if the loop rests: then whoever asks may sleep until it is rung for.
    #[must_use]
    pub(super) fn may_be_left(&self) -> bool {
        let left = self.0.compare_exchange(RESTING, UNWATCHED, Ordering::AcqRel, Ordering::Acquire);
        matches!(left, Ok(_) | Err(UNWATCHED))
    }
}
