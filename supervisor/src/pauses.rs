//! Times in which this process did not run, because it was stopped, or its machine was. They are recognized by how late
//! a timer is.
//!
//! ```text
//!    0 ... LATE_MIN        late because of work: the time counts for everybody
//!   LATE_MIN ... GAP_MIN   a short pause
//!   GAP_MIN ...            a long one
//! ```
//!
//! This says whether there was a pause. What follows from it is decided where time limits are applied. The hub has a
//! clock of its own for the core: it leaves a long pause out, and measures each wait of jobs in parts, because a job's
//! limits and its receipt must be exact (`hub/gaps.rs`). The server has limits of seconds and minutes for clients, and
//! gives all of them one more chance (`server/patience.rs`). Fronts that wait for their clients by a [`RunningClock`] leave
//! a long pause out. All of them bound how much they excuse in a row, so that limits apply also on a machine that is
//! always late.

use crate::limits::{CLOCK_LOOK, GAP_MIN, LATE_MIN};
use offload_event_loop::{LoopHandle, TimerId};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What the lateness of a timer says of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It ran.
    None,
    /// It did not run for less than [`GAP_MIN`].
    Short,
    /// It did not run for [`GAP_MIN`] or longer.
    Long,
}

impl Pause {
    /// The pause before a timer that fired this late.
    pub(crate) fn behind(late: Duration) -> Pause {
        match late {
            late if late < LATE_MIN => Pause::None,
            late if late < GAP_MIN => Pause::Short,
            _ => Pause::Long,
        }
    }
}

/// A clock that stands still while this process does not run, for limits on what others do. It looks at the time once a
/// second while somebody holds a [`Running`]; each second in which the loop runs counts, so a limit is reached however
/// often the process pauses. Cheap to clone: all clones are the same clock.
#[must_use = "the clock notices pauses only while this is held"]
#[derive(Clone)]
pub struct RunningClock(Rc<Ticking>);

struct Ticking {
    handle: LoopHandle,
    time: Cell<RunningTime>,
    /// How many hold it running, and the timer that looks at it for them.
    holders: Cell<usize>,
    timer: Cell<Option<TimerId>>,
}

/// While this is held, the clock notices pauses.
pub struct Running(Rc<Ticking>);

impl fmt::Debug for RunningClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunningClock").field("now", &self.0.time.get().last).finish_non_exhaustive()
    }
}

impl RunningClock {
    /// A clock of this loop.
    pub fn new(handle: &LoopHandle) -> RunningClock {
        let time = RunningTime { gaps: Duration::ZERO, due: None, last: handle.now() };
        RunningClock(Rc::new(Ticking {
            handle: handle.clone(),
            time: Cell::new(time),
            holders: Cell::new(0),
            timer: Cell::new(None),
        }))
    }

    /// The time of the loop without the pauses of a second or longer.
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// Lets the clock notice pauses until the result is dropped.
    pub fn hold(&self) -> Running {
        let ticking = &self.0;
        ticking.holders.set(ticking.holders.get() + 1);
        if ticking.timer.get().is_none() {
            ticking.look();
            let me = Rc::downgrade(ticking);
            let timer = ticking.handle.set_interval(CLOCK_LOOK, move |_| {
                me.upgrade().into_iter().for_each(|ticking| ticking.look());
            });
            ticking.handle.unref(timer);
            ticking.timer.set(Some(timer));
        }
        Running(Rc::clone(ticking))
    }

    /// Waits for so long by this clock.
    pub async fn sleep(&self, time: Duration) {
        let _running = self.hold();
        let end = self.now() + time;
        loop {
            let left = end.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            self.0.handle.sleep(left).await;
        }
    }
}

impl Ticking {
    fn now(&self) -> Instant {
        let (mut time, now) = (self.time.get(), self.handle.now());
        if now == time.last {
            // A pause can only show when time has moved on.
            return time.without_gaps();
        }
        let running = time.advance(now);
        self.time.set(time);
        running
    }

    /// Notices a pause, and says when the clock is looked at next.
    fn look(&self) {
        self.now();
        let due = Some(self.handle.now() + CLOCK_LOOK);
        self.time.set(RunningTime { due, ..self.time.get() });
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ticking = &self.0;
        ticking.holders.set(ticking.holders.get() - 1);
        if ticking.holders.get() == 0
            && let Some(timer) = ticking.timer.take()
        {
            ticking.handle.clear(timer);
            ticking.time.set(RunningTime { due: None, ..ticking.time.get() });
        }
    }
}

#[derive(Clone, Copy)]
struct RunningTime {
    /// The total of the pauses.
    gaps: Duration,
    /// When somebody looks at the clock, if somebody does.
    due: Option<Instant>,
    /// When somebody looked last.
    last: Instant,
}

impl RunningTime {
    /// The time without the pauses, when the machine's is this. It never goes back.
    fn advance(&mut self, now: Instant) -> Instant {
        if let Some(due) = self.due
            && Pause::behind(now.saturating_duration_since(due)) == Pause::Long
        {
            self.gaps += now - due.max(self.last);
            self.due = Some(now);
        }
        self.last = self.last.max(now);
        self.without_gaps()
    }

    /// When somebody looked last, without the pauses.
    fn without_gaps(&self) -> Instant {
        self.last - self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::{EventLoop, LoopConfig, Time};

    #[test]
    fn a_pause_is_known_by_how_late_a_timer_is() {
        let behind = |millis| Pause::behind(Duration::from_millis(millis));
        assert_eq!([0, 99].map(behind), [Pause::None; 2]);
        assert_eq!([100, 999].map(behind), [Pause::Short; 2]);
        assert_eq!([1000, 3_600_000].map(behind), [Pause::Long; 2]);
    }

    #[test]
    fn a_running_clock_leaves_long_pauses_out_and_never_goes_back() {
        let began = Instant::now();
        let mut time = RunningTime { gaps: Duration::ZERO, due: Some(began + CLOCK_LOOK), last: began };
        let mut at = |millis| (time.advance(began + Duration::from_millis(millis)) - began).as_millis();
        assert_eq!(at(900), 900);
        assert_eq!(at(1900), 1900, "so late it may be because of work");
        assert_eq!(at(12_000), 1900, "and this was a pause");
        assert_eq!(at(12_500), 2400, "from then on time goes on");
    }

    #[test]
    fn a_running_clock_goes_on_however_late_this_process_always_is() {
        for late in [0, 99, 999, 1000, 60_000] {
            let (began, late) = (Instant::now(), Duration::from_millis(late));
            let mut time = RunningTime { gaps: Duration::ZERO, due: None, last: began };
            let mut now = began;
            for _ in 0..10 {
                time.due = Some(now + CLOCK_LOOK);
                now += CLOCK_LOOK + late;
                time.advance(now);
            }
            assert!(time.advance(now) - began >= 10 * CLOCK_LOOK, "late by {late:?}");
        }
    }

    #[test]
    fn a_sleep_by_a_running_clock_ends_and_nothing_keeps_the_loop_alive_behind_it() {
        let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
        let mut event_loop = EventLoop::with(config).unwrap();
        let handle = event_loop.handle().clone();
        let (clock, began) = (RunningClock::new(&handle), handle.now());
        let slept = clock.clone();
        drop(handle.spawn(async move { slept.sleep(Duration::from_secs(5)).await }));
        event_loop.run().unwrap();
        // The wheel of timers has ticks of its own.
        let slept = clock.now() - began;
        assert!(slept >= Duration::from_secs(5) && slept < Duration::from_millis(5100), "{slept:?}");
        assert!(clock.0.timer.get().is_none());
    }
}
