//! What the loop's thread tells a [watchdog](super::Watchdog) before each callback: whose turn it is.
//!
//! Writing it down costs three plain stores and no lock, so it is done always, watched or not.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::atomic::AtomicCell;

use super::callback::{Phase, Site};

pub(super) struct Pulse {
    /// Counts the callbacks, so that two calls of the same one can be told apart.
    beats: AtomicU64,
    site: AtomicCell<Option<Site>>,
    phase: AtomicCell<Phase>,
    /// How often a watchdog has found the loop blocked.
    blocked: AtomicU64,
}

/// One look at a loop that runs a callback.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Beat {
    number: u64,
    pub(super) site: Site,
    pub(super) phase: Phase,
}

impl Pulse {
    pub(super) fn new() -> Pulse {
        Pulse {
            beats: AtomicU64::new(0),
            site: AtomicCell::new(None),
            phase: AtomicCell::new(Phase::Entry),
            blocked: AtomicU64::new(0),
        }
    }

    /// A callback begins. Only the loop's thread may say so.
    #[inline]
    pub(super) fn begin(&self, site: Site, phase: Phase) {
        self.site.store(Some(site));
        self.phase.store(phase);
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store(beats.wrapping_add(1), Ordering::Release);
    }

    /// The loop waits for events, or does not run.
    pub(super) fn rest(&self) {
        self.site.store(None);
    }

    /// The callback that runs now. A look that falls into the middle of [`Pulse::begin`] may mix two callbacks, so
    /// only what is seen twice counts.
    pub(super) fn look(&self) -> Option<Beat> {
        let number = self.beats.load(Ordering::Acquire);
        let site = self.site.load()?;
        Some(Beat { number, site, phase: self.phase.load() })
    }

    pub(super) fn count_blocked(&self) {
        self.blocked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn blocked(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    pub(super) fn reset_blocked(&self) {
        self.blocked.store(0, Ordering::Relaxed);
    }
}
