//! How every callback is called: its panic is caught, its time is measured, and all ticks and microtasks run after it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context as TaskContext, Poll};

use super::Context;
use super::callback::{Callback, CallbackPanic, Current, Microtask, Phase, Site};
use super::clock::{Nanos, nanos};
use super::config::OnStarvation;
use super::metrics::Starving;
use super::slab::SlabKey;

/// How many ticks and microtasks share one reading of the clock.
const MICROTASKS_PER_READING: usize = 32;

pub(super) type CaughtPanic = Box<dyn std::any::Any + Send>;

/// Wakers may be anybody's code. All are woken, whichever of them panics; the panics are handed back, so that nothing is lost that
/// has to be done before they go on.
pub(super) fn wake_each(wakers: impl Iterator<Item = impl FnOnce()>) -> Vec<CaughtPanic> {
    wakers.filter_map(|wake| catch_unwind(AssertUnwindSafe(wake)).err()).collect()
}

/// How long callbacks that always come first may keep the others waiting.
pub(super) struct Budget {
    end: Nanos,
    is_counted: bool,
}

impl Budget {
    /// True if it is time to let others have their turn. That it would be time is counted once.
    #[inline]
    pub(super) fn is_spent(&mut self, context: &Context, who: impl FnOnce() -> Starving) -> bool {
        if context.clock_reading.time() <= self.end {
            return false;
        }
        if !std::mem::replace(&mut self.is_counted, true) {
            context.handle.shared.metrics.borrow_mut().starved_by(who());
        }
        context.config.on_starvation == OnStarvation::Budget
    }
}

/// Calling callbacks.
impl Context {
    #[inline]
    pub(super) fn call(&mut self, phase: Phase, site: Site, callback: impl FnOnce(&mut Context)) {
        self.call_named(Current::nameless(phase, site), callback);
    }

    #[inline]
    pub(super) fn call_named(&mut self, current: Current, callback: impl FnOnce(&mut Context)) {
        let panic = self.call_named_guarded(current, callback);
        self.finish_call(panic);
    }

    /// Calls a callback and measures it. Its panic is handed back, so that the caller can first put away what it
    /// took out.
    #[inline]
    pub(super) fn call_guarded(
        &mut self,
        phase: Phase,
        site: Site,
        callback: impl FnOnce(&mut Context),
    ) -> Option<CaughtPanic> {
        self.call_named_guarded(Current::nameless(phase, site), callback)
    }

    #[inline]
    fn call_named_guarded(
        &mut self,
        current: Current,
        callback: impl FnOnce(&mut Context),
    ) -> Option<CaughtPanic> {
        self.begin(current);
        let result = catch_unwind(AssertUnwindSafe(|| callback(self)));
        self.measure(current.site, current.phase);
        result.err()
    }

    /// Calls a callback that stays: `put_back` gives it back to where it was taken from, or returns it if it was closed
    /// meanwhile.
    #[inline]
    pub(super) fn call_repeated<C>(
        &mut self,
        current: Current,
        mut callback: C,
        call: impl FnOnce(&mut C, &mut Context),
        put_back: impl FnOnce(&Context, C) -> Option<C>,
    ) {
        let panic = self.call_named_guarded(current, |context| call(&mut callback, context));
        let closed = put_back(self, callback);
        let dropped = self.drop_guarded(closed);
        self.finish_call(panic.or(dropped));
    }

    /// Drops what belongs to a callback. A panic of that goes the way of the callback's own.
    #[inline]
    #[must_use]
    pub(super) fn drop_guarded<T>(&mut self, leftover: T) -> Option<CaughtPanic> {
        catch_unwind(AssertUnwindSafe(|| drop(leftover))).err()
    }

    #[inline]
    fn begin(&mut self, current: Current) {
        self.current = current;
        self.handle.shared.pulse.begin(current.site, current.phase);
    }

    #[inline]
    pub(super) fn finish_call(&mut self, panic: Option<CaughtPanic>) {
        if let Some(panic) = panic {
            self.report_panic(panic);
        }
        self.drain();
    }

    /// As [`Context::finish_call`] after several calls. Without a panic handler the first panic goes on.
    pub(super) fn finish_calls(&mut self, panics: Vec<CaughtPanic>) {
        panics.into_iter().for_each(|panic| self.report_panic(panic));
        self.drain();
    }

    /// Runs all ticks, then all microtasks, until there are neither, or a budget is spent.
    #[inline]
    pub(super) fn drain(&mut self) {
        if self.handle.shared.has_microtasks() {
            self.drain_all();
        }
    }

    fn drain_all(&mut self) {
        let mut budget = self.starvation_budget();
        while self.handle.shared.has_microtasks() {
            self.drain_some();
            if budget.is_spent(self, || self.starving_queue()) {
                // The other queue goes on next time, or one would starve the other.
                self.is_in_microtasks = !self.is_in_microtasks;
                return;
            }
        }
        self.is_in_microtasks = false;
    }

    fn starving_queue(&self) -> Starving {
        if self.is_in_microtasks { Starving::Microtasks } else { Starving::Ticks }
    }

    pub(super) fn starvation_budget(&self) -> Budget {
        let end = self.clock_reading.time().saturating_add(nanos(self.config.starvation_budget));
        Budget { end, is_counted: false }
    }

    fn drain_some(&mut self) {
        let mut first = None;
        let result = catch_unwind(AssertUnwindSafe(|| self.run_some_microtasks(&mut first)));
        if let Some(site) = first {
            self.measure(site, Phase::Microtasks);
        }
        if let Err(panic) = result {
            self.report_panic(panic);
        }
    }

    /// A tick that was queued by a microtask waits for the whole queue of microtasks.
    fn run_some_microtasks(&mut self, first: &mut Option<Site>) {
        for _ in 0..MICROTASKS_PER_READING {
            if !self.is_in_microtasks {
                match self.handle.shared.ticks.pop() {
                    Some(tick) => self.run_microtask(tick, first),
                    None => self.is_in_microtasks = true,
                }
                continue;
            }
            let microtask = self.handle.shared.microtasks.pop();
            match microtask {
                Some(Microtask::Run(callback)) => self.run_microtask(callback, first),
                Some(Microtask::Poll(key)) => self.poll_task(key, first),
                None => {
                    self.is_in_microtasks = false;
                    return;
                }
            }
        }
    }

    fn run_microtask(&mut self, callback: Callback, first: &mut Option<Site>) {
        first.get_or_insert(callback.site);
        self.begin(Current::nameless(Phase::Microtasks, callback.site));
        (callback.run)(self);
    }

    fn poll_task(&mut self, key: SlabKey, first: &mut Option<Site>) {
        let taken = self.handle.shared.tasks.borrow_mut().take(key);
        let Some(mut task) = taken else { return };
        first.get_or_insert(task.site);
        self.begin(Current::nameless(Phase::Microtasks, task.site));
        let mut task_context = TaskContext::from_waker(&task.waker);
        let result = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut task_context)));
        if matches!(result, Ok(Poll::Pending)) {
            let cancelled = self.handle.shared.tasks.borrow_mut().restore(key, task.future);
            drop(cancelled);
            return;
        }
        let finished = self.handle.shared.tasks.borrow_mut().remove(key);
        drop(finished);
        if let Err(panic) = result {
            resume_unwind(panic);
        }
    }

    fn report_panic(&mut self, payload: CaughtPanic) {
        // Whoever leaves `run` this way puts everything in order in run_mode.
        let Some(mut handler) = self.panic_handler.take() else { resume_unwind(payload) };
        let Current { site, phase, .. } = self.current;
        let panic = CallbackPanic { site, phase, payload };
        let result = catch_unwind(AssertUnwindSafe(|| handler(self, panic)));
        // The handler may have set another one in its place.
        self.panic_handler.get_or_insert(handler);
        if let Err(payload) = result {
            resume_unwind(payload);
        }
    }
}

/// Measuring.
impl Context {
    pub(super) fn start_measuring(&mut self) {
        self.clock_reading = self.handle.shared.clock.reading();
        self.handle.shared.attributed.set(0);
        self.handle.shared.loop_time.set(self.clock_reading.time());
        self.busy_since = self.clock_reading.time();
    }

    /// From poll to poll, or to the end of `run`, where no iteration begins.
    pub(super) fn measure_turn(&mut self, iterations: u64) {
        let busy = self.clock_reading.time().saturating_sub(self.busy_since);
        self.handle.shared.metrics.borrow_mut().turn(iterations, busy, &mut self.phase_times);
    }

    /// The callback that comes next has waited since the poll has ended.
    #[inline]
    pub(super) fn measure_wait(&self) {
        let waited = self.clock_reading.time().saturating_sub(self.busy_since);
        self.handle.shared.metrics.borrow_mut().event_was_late(waited);
    }

    /// At most one reading of the clock a callback: the end of one is the start of the next. Of several callbacks within a
    /// microsecond, the last one counts for all.
    #[inline]
    fn measure(&mut self, site: Site, phase: Phase) {
        let now = self.handle.shared.clock.reading_after(self.clock_reading);
        let duration = now.time().saturating_sub(self.clock_reading.time());
        self.clock_reading = now;
        self.phase_times.add(phase, duration);
        let (slowest, attributed) = (&self.handle.shared.slowest, self.handle.shared.attributed.take());
        let own = duration.saturating_sub(attributed);
        if own > slowest.get() {
            slowest.set(own);
            self.handle.shared.metrics.borrow_mut().slowest(site, phase, own);
        }
    }
}
