//! Timers: their callbacks, and when they are due. The wheel keeps them in order.
//!
//! ```text
//!   started --(due)--> due --(fetched)--> running --> gone            a timeout, an interval of period 0
//!      ^                                     |
//!      +------------(next beat)--------------+                        an interval
//!   clear() leads from everywhere to gone; a running interval is dropped when its callback returns.
//! ```
//!
//! Time is counted in timer steps of 2^16 ns, about 66 us: as fine as the kernel's own timer slack (50 us), and a shift to
//! compute. (In names they are short ticks. The ticks of the loop, its callbacks, have nothing to do with them.) Due
//! times are rounded up to a step, so no timer is ever early, and are counted from a fresh reading of the clock. A timer
//! has a slack of 1/64 of its delay, at most 1 ms: that much later it may be when this saves a wake-up.

use std::time::Duration;

use super::alive::AliveKind;
use super::callback::{Repeated, Site};
use super::clock::{Nanos, nanos};
use super::inspect::HandleInfo;
use super::slab::SlabKey;
use super::wheel::Wheel;
use super::{Context, LoopHandle};

const TICK_BITS: u32 = 16;
const TICK: Nanos = 1 << TICK_BITS;
/// The part of a delay that is slack: 1/64. With 1/256, 10,000 timers spread over a second woke the loop 1,180 times
/// at 26 us of processor time each. libuv, which counts in milliseconds, wakes 1,000 times.
const SLACK_BITS: u32 = 6;

/// Names a timer of one loop, for [`clear`](super::LoopHandle::clear), `ref_` and `unref`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(pub(super) SlabKey);

/// What an interval does about the time that its callback, or another one, has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Catchup {
    /// The next beat comes one period after the callback has begun, as in Node: beats drift by their lateness. If
    /// the callback takes longer than a period, the next beat comes in the next iteration.
    Drift,
    /// Beats stay on the grid start + n x period. Beats that were missed are left out, never made up for.
    FixedRate,
}

/// When a timer is due.
#[derive(Clone, Copy)]
pub(super) struct Due {
    at: Nanos,
    delay: Nanos,
}

impl Due {
    /// What lies beyond the loop's time is at its end.
    pub(super) fn after(now: Nanos, delay: Duration) -> Due {
        let delay = nanos(delay);
        Due { at: now.saturating_add(delay), delay }
    }
}

pub(super) type OnceTimer = Box<dyn FnOnce(&mut Context)>;

enum TimerAction {
    Once(OnceTimer),
    Every(Box<Interval>),
}

pub(super) struct Interval {
    /// The exact time of the next beat, from which those after it are counted.
    due: Nanos,
    /// 0 if the next beat is the last one.
    period: Nanos,
    catchup: Catchup,
    pub(super) callback: Repeated,
}

struct Timer {
    /// Nothing while an interval is out, because its callback runs.
    action: Option<TimerAction>,
    site: Site,
    referenced: bool,
}

/// A timer whose callback has to run now.
pub(super) struct DueTimer {
    pub(super) id: TimerId,
    pub(super) site: Site,
    /// Of a timeout, rounded up to a timer step.
    pub(super) due: Nanos,
    pub(super) call: DueCall,
}

pub(super) enum DueCall {
    Once(OnceTimer),
    /// To be given back with [`Timers::rearm`] after it ran.
    Every(Box<Interval>),
}

/// The callback of a removed timer. Dropping it may run anything, so no borrow may be held then.
#[must_use]
pub(super) struct Removed {
    _action: Option<TimerAction>,
}

pub(super) struct Timers {
    wheel: Wheel<Timer>,
    /// The new period of the interval whose callback runs, if it was changed meanwhile. Only one runs at a time. It is not
    /// part of the timer, because with it starting and clearing a timer took half as long again.
    changed_period: Option<(TimerId, Nanos)>,
    referenced: usize,
    /// In virtual time timers have no slack: waking costs nothing.
    is_exact: bool,
}

impl Timers {
    pub(super) fn new(is_exact: bool) -> Timers {
        Timers { wheel: Wheel::new(), changed_period: None, referenced: 0, is_exact }
    }

    /// How many timers keep the loop alive.
    pub(super) fn referenced(&self) -> usize {
        self.referenced
    }

    pub(super) fn start_once(&mut self, due: Due, site: Site, callback: OnceTimer) -> TimerId {
        self.start(due, site, TimerAction::Once(callback))
    }

    pub(super) fn start_every(
        &mut self,
        due: Due,
        site: Site,
        catchup: Catchup,
        callback: Repeated,
    ) -> TimerId {
        let interval = Interval { due: due.at, period: due.delay.max(TICK), catchup, callback };
        self.start(due, site, TimerAction::Every(Box::new(interval)))
    }

    fn start(&mut self, due: Due, site: Site, action: TimerAction) -> TimerId {
        self.referenced += 1;
        let timer = Timer { action: Some(action), site, referenced: true };
        let slack = self.slack_of(due.delay);
        TimerId(self.wheel.start(tick_at_or_after(due.at), slack, timer))
    }

    /// In timer steps, of a timer that waits for `delay`.
    fn slack_of(&self, delay: Nanos) -> u64 {
        if self.is_exact { 0 } else { delay >> SLACK_BITS >> TICK_BITS }
    }

    pub(super) fn remove(&mut self, id: TimerId) -> Option<Removed> {
        let timer = self.wheel.remove(id.0)?;
        self.referenced -= usize::from(timer.referenced);
        Some(Removed { _action: timer.action })
    }

    /// Nothing happens if the timer has run, or was cleared.
    pub(super) fn set_referenced(&mut self, id: TimerId, referenced: bool) {
        let Some(timer) = self.wheel.get_mut(id.0) else { return };
        self.referenced += usize::from(referenced);
        self.referenced -= usize::from(std::mem::replace(&mut timer.referenced, referenced));
    }

    /// It waits for its due time, or is due and waits for its turn.
    pub(super) fn is_armed(&self, id: TimerId) -> bool {
        self.wheel.get(id.0).is_some_and(|(timer, _)| timer.is_armed())
    }

    pub(super) fn is_referenced(&self, id: TimerId) -> Option<bool> {
        self.wheel.get(id.0).map(|(timer, _)| timer.referenced)
    }

    /// When an armed timer is due: exactly, for an interval, or in whole timer steps.
    pub(super) fn due(&self, id: TimerId) -> Option<Nanos> {
        let (timer, tick) = self.wheel.get(id.0)?;
        match &timer.action {
            Some(TimerAction::Every(interval)) => Some(interval.due),
            Some(TimerAction::Once(_)) => Some(tick.saturating_mul(TICK)),
            None => None,
        }
    }

    /// Changes the period of an interval from its next beat on. False if it is none.
    pub(super) fn set_period(&mut self, id: TimerId, period: Duration) -> bool {
        let period = if period.is_zero() { 0 } else { nanos(period).max(TICK) };
        let Some(timer) = self.wheel.get_mut(id.0) else { return false };
        match &mut timer.action {
            Some(TimerAction::Every(interval)) => interval.period = period,
            Some(TimerAction::Once(_)) => return false,
            None => self.changed_period = Some((id, period)),
        }
        true
    }

    /// Finds everything that is due by `now`; [`Timers::fetch_due`] then hands it out.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.wheel.advance(now >> TICK_BITS);
        // Virtual time can come to its end, and no clock goes on from there. The wheel has steps beyond it: whatever waits
        // for one is due, those of the next step first, so that timers started there have their turn in the next iteration.
        if now == Nanos::MAX
            && let Some(next) = self.wheel.next_wake()
        {
            self.wheel.advance(next);
        }
    }

    pub(super) fn fetch_due(&mut self) -> Option<DueTimer> {
        let (key, tick) = self.wheel.fetch_due()?;
        let timer = self.wheel.get_mut(key)?;
        let (id, site, referenced) = (TimerId(key), timer.site, timer.referenced);
        match timer.action.take()? {
            TimerAction::Every(interval) => {
                Some(DueTimer { id, site, due: interval.due, call: DueCall::Every(interval) })
            }
            TimerAction::Once(callback) => {
                self.wheel.remove(key);
                self.referenced -= usize::from(referenced);
                Some(DueTimer { id, site, due: tick.saturating_mul(TICK), call: DueCall::Once(callback) })
            }
        }
    }

    /// Starts the next beat of an interval whose callback has `begun` and has run until `now`. Gives the interval
    /// back if it was cleared meanwhile.
    pub(super) fn rearm(
        &mut self,
        id: TimerId,
        mut interval: Box<Interval>,
        begun: Nanos,
        now: Nanos,
    ) -> Option<Box<Interval>> {
        let slack = self.slack_of(interval.period);
        if interval.period == 0 {
            // The timer itself has nothing left that could run anything when dropped.
            drop(self.remove(id));
            return Some(interval);
        }
        let Some(timer) = self.wheel.get_mut(id.0) else { return Some(interval) };
        interval.due = interval.next_beat(begun, now);
        if let Some((_, period)) = self.changed_period.take_if(|(changed, _)| *changed == id) {
            interval.period = period;
        }
        let tick = tick_at_or_after(interval.due);
        timer.action = Some(TimerAction::Every(interval));
        self.wheel.restart(id.0, tick, slack);
        None
    }

    /// When the loop must wake for the next timer: never too late, and too early only after another timer was stopped.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        self.wheel.next_wake().map(|tick| tick.saturating_mul(TICK))
    }

    pub(super) fn has_due(&self) -> bool {
        self.wheel.has_due()
    }

    pub(super) fn take_all(&mut self) -> Vec<Removed> {
        self.referenced = 0;
        self.wheel.take_all().into_iter().map(|timer| Removed { _action: timer.action }).collect()
    }

    pub(super) fn list(&self) -> impl Iterator<Item = HandleInfo> {
        self.wheel.iter().map(|(key, timer)| HandleInfo {
            id: TimerId(key).into(),
            what: AliveKind::Timer,
            site: timer.site,
            is_active: timer.is_armed(),
            is_referenced: timer.referenced,
        })
    }

    pub(super) fn for_each_referenced(&self, see: impl FnMut(Site)) {
        let timers = self.wheel.iter().map(|(_, timer)| timer);
        timers.filter(|timer| timer.referenced).map(|timer| timer.site).for_each(see);
    }
}

impl Interval {
    fn next_beat(&self, begun: Nanos, now: Nanos) -> Nanos {
        match self.catchup {
            Catchup::Drift => begun.saturating_add(self.period),
            Catchup::FixedRate => {
                let beats = now.saturating_sub(self.due) / self.period + 1;
                self.due.saturating_add(self.period.saturating_mul(beats))
            }
        }
    }
}

impl Timer {
    fn is_armed(&self) -> bool {
        self.action.is_some()
    }
}

impl LoopHandle {
    /// How long it is until a timer is due: zero if it is due and waits for its turn, nothing if it is not armed, because it
    /// has run, was cleared, or is an interval whose callback runs now.
    ///
    /// As `uv_timer_get_due_in`, but it counts from this call and not from the loop's time, as delays do here; and libuv arms
    /// an interval before its callback, this loop after it.
    pub fn due_in(&self, id: TimerId) -> Option<Duration> {
        let due = self.shared.timers.borrow().due(id)?;
        Some(Duration::from_nanos(due.saturating_sub(self.shared.clock.read())))
    }

    /// Changes the period of an interval. False if `id` is no interval, or was cleared.
    ///
    /// As with `uv_timer_set_repeat`, the beat that the interval waits for keeps its time, and the period counts from that
    /// one on. In the callback of the interval itself, the beat after it still comes by the old period. Zero makes the
    /// next beat the last one; any other period shorter than a timer step of 66 us counts as one. With [`Catchup::FixedRate`] the
    /// new grid begins at the next beat. Unlike in libuv, a timeout cannot be made an interval: its callback runs only once.
    pub fn set_repeat(&self, id: TimerId, period: Duration) -> bool {
        self.shared.timers.borrow_mut().set_period(id, period)
    }
}

fn tick_at_or_after(due: Nanos) -> u64 {
    due.div_ceil(TICK)
}
