//! A watchdog: a thread that names the callback which blocks the loop, while it still does.
//!
//! Figures that a blocked loop writes about itself come too late. The watchdog looks at the loop's
//! [pulse](super::pulse) four times in the time that a callback may take:
//!
//! ```text
//!   another callback, or none --(the same one again)--> suspected --(for the whole threshold)--> reported, once
//!             ^                                             |                                        |
//!             +---------------------------------------------+----------------(it ended)--------------+
//! ```
//!
//! It counts looks, not time: when the whole process was stopped or starved meanwhile, the callback is not blamed.
//! While the loop waits for events there is nothing to see, and the watchdog [sleeps](super::rest) as long.

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::LoopHandle;
use super::alarm::Alarm;
use super::callback::{Phase, Site};
use super::origin::Origin;
use super::pulse::{Beat, Pulse};

/// A callback that runs longer than this is worth a report: 100 ms.
pub const WATCHDOG_THRESHOLD: Duration = Duration::from_millis(100);

/// How many times a callback has to be seen again before it is reported.
const LOOKS: u32 = 4;

/// A callback that keeps the loop from going on. It is still running when this is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Where the callback was registered.
    pub site: &'static Location<'static>,
    /// The phase in which it runs.
    pub phase: Phase,
    /// How long it has run at least.
    pub at_least: Duration,
}

impl fmt::Display for Blocked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocked { site, phase, at_least } = self;
        write!(
            formatter,
            "the event loop is blocked for {} ms by the callback registered at {site} ({phase})",
            at_least.as_millis()
        )
    }
}

/// Watches over a loop while it exists; made by [`LoopHandle::watchdog`].
#[must_use = "dropping it ends the watch"]
pub struct Watchdog {
    shared: Arc<WatchdogShared>,
    thread: Option<thread::JoinHandle<()>>,
    origin: Origin,
}

/// What a watchdog and its thread share.
struct WatchdogShared {
    alarm: Arc<Alarm>,
    is_over: AtomicBool,
}

impl LoopHandle {
    /// Calls `report`, on a thread of the watchdog's own, when a callback has run for `threshold` and has not
    /// returned: once for each call, and late by up to a quarter of the threshold. A threshold below 4 ms counts as 4 ms.
    /// A chain of ticks or microtasks counts callback by callback; see
    /// [`Starvation`](super::Starvation) for those.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn watchdog(
        &self,
        threshold: Duration,
        report: impl FnMut(&Blocked) + Send + 'static,
    ) -> io::Result<Watchdog> {
        let shared =
            Arc::new(WatchdogShared { alarm: Arc::new(Alarm::new()?), is_over: AtomicBool::new(false) });
        let pulse = Arc::clone(&self.shared.pulse);
        let interval = (threshold / LOOKS).max(Duration::from_millis(1));
        let watch = Watch { pulse: Arc::clone(&pulse), shared: Arc::clone(&shared), interval, report };
        let thread = thread::Builder::new()
            .name("offload-watchdog".to_owned())
            .spawn(move || watch.until_it_is_over())?;
        pulse.add_watcher(&shared.alarm, interval);
        // The thread may have fallen asleep before it was known whom to ring for.
        shared.alarm.set(interval);
        Ok(Watchdog { shared, thread: Some(thread), origin: Origin::here() })
    }
}

impl Drop for Watchdog {
    /// Waits for a report that is being made, if one is.
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A forked child has no such thread, and its timer is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.alarm.set(Duration::ZERO);
        let thread = self.thread.take();
        // A report may drop its own watchdog.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // It has panicked if the report did, and then it has said so already.
            let _ = thread.join();
        }
    }
}

struct Watch<Report> {
    pulse: Arc<Pulse>,
    shared: Arc<WatchdogShared>,
    interval: Duration,
    report: Report,
}

impl<Report: FnMut(&Blocked)> Watch<Report> {
    fn until_it_is_over(mut self) {
        let mut suspect: Option<(Beat, u32)> = None;
        while self.sleep() {
            suspect = match (suspect, self.pulse.look()) {
                (Some((beat, looks)), Some(now)) if beat == now => Some((beat, looks.saturating_add(1))),
                (_, now) => now.map(|beat| (beat, 0)),
            };
            if let Some((beat, LOOKS)) = suspect {
                self.report(beat.site, beat.phase);
            }
        }
    }

    /// Until the next look, or until it is over: then it is false. Whoever sets the alarm at the same moment, the loop
    /// or the end, at most makes this an interval longer.
    fn sleep(&self) -> bool {
        if !self.pulse.may_be_left() {
            self.shared.alarm.set(self.interval);
        }
        if !self.shared.is_over.load(Ordering::Acquire) {
            self.shared.alarm.wait();
        }
        !self.shared.is_over.load(Ordering::Acquire)
    }

    fn report(&mut self, site: Site, phase: Phase) {
        self.pulse.count_blocked();
        (self.report)(&Blocked { site, phase, at_least: self.interval * LOOKS });
    }
}

impl<Report> Drop for Watch<Report> {
    /// Also when the report has panicked.
    fn drop(&mut self) {
        self.pulse.remove_watcher(&self.shared.alarm);
    }
}
