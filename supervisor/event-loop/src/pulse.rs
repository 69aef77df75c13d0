//! Which callback runs now, for the loop's [watchdogs](super::Watchdog) to read from their threads.
//!
//! Storing it before each callback costs three plain stores and no lock, so it is always done, watched or not. While the loop
//! waits for events its watchdogs [sleep](super::rest); when the loop goes on, it sets their timers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

use super::alarm::Alarm;
use super::callback::{Phase, Site};
use super::rest::Rest;

pub(super) struct Pulse {
    /// Counts the callbacks, so that two calls of the same one can be told apart.
    beats: AtomicU64,
    site: AtomicCell<Option<Site>>,
    phase: AtomicCell<Phase>,
    /// How often a watchdog has found the loop blocked.
    blocked: AtomicU64,
    rest: Rest,
    watchers: Mutex<Vec<Watcher>>,
}

/// A watchdog, which looks again this long after the loop has gone on.
struct Watcher {
    alarm: Arc<Alarm>,
    interval: Duration,
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
            rest: Rest::new(),
            watchers: Mutex::new(Vec::new()),
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

    /// The callback that runs now goes on at another site. Returns the site before. Only the loop's thread may say so.
    pub(super) fn change_site(&self, site: Option<Site>) -> Option<Site> {
        let before = self.site.load();
        self.site.store(site);
        before
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.load()
    }

    /// No callback runs for a moment.
    pub(super) fn pause(&self) {
        self.site.store(None);
    }

    /// The loop waits for events, or does not run.
    pub(super) fn rest(&self) {
        self.pause();
        self.rest.begin();
    }

    /// The loop goes on after a rest.
    pub(super) fn go_on(&self) {
        if self.rest.end() {
            self.watchers().iter().for_each(|watcher| watcher.alarm.set(watcher.interval));
        }
    }

    /// True if the loop rests: then the watchers' alarms are set when it goes on, and not before.
    pub(super) fn may_be_left(&self) -> bool {
        self.rest.may_be_left()
    }

    pub(super) fn add_watcher(&self, alarm: &Arc<Alarm>, interval: Duration) {
        self.watchers().push(Watcher { alarm: Arc::clone(alarm), interval });
    }

    pub(super) fn remove_watcher(&self, alarm: &Arc<Alarm>) {
        self.watchers().retain(|watcher| !Arc::ptr_eq(&watcher.alarm, alarm));
    }

    /// Held for a few instructions only, and never when a loop that is watched has anything to do.
    fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
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
