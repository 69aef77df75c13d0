//! The phases, each in its own function, and the way in which every callback is called.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context as TaskContext, Poll};

use rustix::event::epoll;

use super::callback::{Callback, CallbackPanic, Microtask, Phase, Queue, Site};
use super::clock::{Nanos, nanos};
use super::config::RunMode;
use super::error::LoopError;
use super::handle::LoopHandle;
use super::handles::{Called, HookPhase};
use super::poller::Readiness;
use super::remote::Post;
use super::requests::WaitingRequest;
use super::slab::Key;
use super::state::{Shared, WAKE_TOKEN};
use super::timers::{DueCall, DueTimer};
use super::{Context, Current};

/// How many ticks and microtasks share one reading of the clock.
const MICROTASKS_PER_READING: usize = 32;

pub(super) type CaughtPanic = Box<dyn std::any::Any + Send>;

impl LoopHandle {
    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    pub(super) fn stop_is_done(&self) {
        self.shared.stopping.set(false);
        self.shared.remote.forget_stop();
    }
}

/// The phases, in their order.
impl Context {
    pub(super) fn run_pending(&mut self) {
        self.run_queue(Phase::Pending, |shared| &shared.pending);
    }

    pub(super) fn run_closing(&mut self) {
        self.run_queue(Phase::Closing, |shared| &shared.closing);
    }

    /// Runs what waits in a queue now. What its callbacks add waits for the next time.
    fn run_queue(&mut self, phase: Phase, queue: impl Fn(&Shared) -> &Queue<Callback>) {
        let waiting = queue(&self.handle.shared).len().min(self.callbacks_per_phase());
        for _ in 0..waiting {
            let Some(callback) = queue(&self.handle.shared).pop() else { break };
            self.call(phase, callback.site, callback.run);
        }
    }

    pub(super) fn run_idle_and_prepare(&mut self) {
        self.run_hooks(HookPhase::Idle);
        self.run_hooks(HookPhase::Prepare);
    }

    pub(super) fn run_check(&mut self) {
        self.run_hooks(HookPhase::Check);
        self.run_immediates();
    }

    fn run_hooks(&mut self, phase: HookPhase) {
        if !self.handle.shared.handles.borrow().has_hooks(phase) {
            return;
        }
        let mut hooks = std::mem::take(&mut self.buffers.hooks);
        self.handle.shared.handles.borrow().list_hooks(phase, &mut hooks);
        for key in hooks.drain(..) {
            self.run_hook(phase, key);
        }
        self.buffers.hooks = hooks;
    }

    fn run_hook(&mut self, phase: HookPhase, key: Key) {
        let taken = self.handle.shared.handles.borrow_mut().take_hook(key);
        // A hook before it in the list may have closed it.
        let Some((site, mut hook)) = taken else { return };
        let panic = self.call_guarded(phase.phase(), site, |context| hook(context));
        let closed = self.handle.shared.handles.borrow_mut().restore_hook(key, hook);
        drop(closed);
        self.finish_call(panic);
    }

    fn run_immediates(&mut self) {
        // An immediate that is set by an immediate waits for the next iteration.
        let end = self.handle.shared.immediates.borrow().end();
        for _ in 0..self.callbacks_per_phase() {
            let next = self.handle.shared.immediates.borrow_mut().take_before(end);
            let Some(callback) = next else { break };
            self.call(Phase::Check, callback.site, callback.run);
        }
    }

    pub(super) fn run_due_timers(&mut self) {
        let now = self.clock_reading;
        self.handle.shared.loop_time.set(now);
        // A callback may start a timer that is due at once. Taking the due ones out first keeps it from starving
        // the poll.
        self.handle.shared.timers.borrow_mut().advance(now);
        for _ in 0..self.callbacks_per_phase() {
            let next = self.handle.shared.timers.borrow_mut().fetch_due();
            let Some(timer) = next else { break };
            self.run_timer(timer);
        }
    }

    fn run_timer(&mut self, timer: DueTimer) {
        self.lateness = self.clock_reading.saturating_sub(timer.due);
        match timer.call {
            DueCall::Once(callback) => self.call(Phase::Timers, timer.site, callback),
            DueCall::Every(id, mut interval) => {
                let panic =
                    self.call_guarded(Phase::Timers, timer.site, |context| (interval.callback)(context));
                let now = self.clock_reading;
                let cleared = self.handle.shared.timers.borrow_mut().rearm(id, interval, now);
                drop(cleared);
                self.finish_call(panic);
            }
        }
        self.lateness = 0;
    }

    fn callbacks_per_phase(&self) -> usize {
        self.config.callbacks_per_phase.max(1)
    }
}

/// The poll phase.
impl Context {
    /// Waits for events if there is nothing else to do, then handles them: until none are left, or enough were
    /// handled, or the time is up, or a timer is due.
    pub(super) fn poll(&mut self, mode: RunMode) -> Result<(), LoopError> {
        self.end_measuring_iteration();
        if self.ready.is_empty() && self.handle.shared.posts.is_empty() {
            self.wait_for_events(mode == RunMode::NoWait)?;
        }
        let time_is_up = self.clock_reading.saturating_add(nanos(self.config.poll_budget));
        for handled in 1.. {
            if !self.handle_one_event() {
                break;
            }
            let enough = handled >= self.config.events_per_poll || self.clock_reading >= time_is_up;
            if enough || self.handle.shared.timer_is_due(self.clock_reading) {
                break;
            }
        }
        Ok(())
    }

    fn wait_for_events(&mut self, without_waiting: bool) -> Result<(), LoopError> {
        loop {
            let time_to_sleep = self.handle.shared.time_to_sleep(self.clock_reading);
            let timeout = if without_waiting { Some(0) } else { time_to_sleep };
            self.fetch_events(timeout)?;
            let now = self.clock_reading;
            self.handle.shared.loop_time.set(now);
            // The estimate of the next due time may have been too early, and a signal may interrupt the wait.
            self.handle.shared.timers.borrow_mut().advance(now);
            if !self.ready.is_empty() || timeout == Some(0) || self.handle.shared.timers.borrow().has_due() {
                return Ok(());
            }
        }
    }

    /// Asks the kernel for events, waiting at most `timeout` for the first one, but perhaps shorter.
    fn fetch_events(&mut self, timeout: Option<Nanos>) -> Result<(), LoopError> {
        let shared = &self.handle.shared;
        let events = &mut self.buffers.events;
        match timeout {
            Some(timeout) if shared.clock.is_virtual() => {
                shared.poller.wait(events, Some(0))?;
                if events.is_empty() {
                    shared.clock.skip(timeout);
                }
            }
            timeout => shared.poller.wait(events, timeout)?,
        }
        // A look that found nothing took no time worth a reading of the clock.
        if timeout != Some(0) || !events.is_empty() {
            self.clock_reading = shared.clock.read();
        }
        self.busy_since = self.clock_reading;
        self.ready.extend(events.drain(..));
        Ok(())
    }

    /// False if there is nothing to handle.
    fn handle_one_event(&mut self) -> bool {
        let post = self.handle.shared.posts.pop();
        if let Some(post) = post {
            self.run_post(post);
            return true;
        }
        let Some(event) = self.ready.pop_front() else { return false };
        match event.data.u64() {
            WAKE_TOKEN => self.receive_posts(),
            token => self.run_ready(Key::from_bits(token), event.flags),
        }
        true
    }

    fn receive_posts(&mut self) {
        let shared = &self.handle.shared;
        shared.remote.silence();
        shared.posts.append(shared.remote.take(Vec::new()));
    }

    fn run_post(&mut self, post: Post) {
        match post {
            Post::Run { site, run } => self.call(Phase::Poll, site, run),
            Post::Wake(key) => {
                self.handle.shared.microtasks.push(Microtask::Poll(key));
                self.drain();
            }
            Post::Answer { request, value } => {
                let waiting = self.handle.shared.requests.borrow_mut().remove(request);
                if let Some(WaitingRequest { site, answer }) = waiting {
                    self.call(Phase::Poll, site, |context| answer(context, value));
                }
            }
            Post::Abandon { request } => {
                let abandoned = self.handle.shared.requests.borrow_mut().remove(request);
                drop(abandoned);
            }
        }
    }

    fn run_ready(&mut self, key: Key, flags: epoll::EventFlags) {
        let readiness = Readiness(flags);
        let taken = self.handle.shared.handles.borrow_mut().take_for_event(key, readiness);
        // A callback before it in the batch may have closed it.
        let Some((site, called)) = taken else { return };
        match called {
            Called::Watch(mut watch) => {
                let panic = self.call_guarded(Phase::Poll, site, |context| watch(context, readiness));
                let closed = self.handle.shared.handles.borrow_mut().restore_watch(key, watch);
                drop(closed);
                self.finish_call(panic);
            }
            Called::Signal(mut callback, signal) => {
                let panic = self.call_guarded(Phase::Poll, site, |context| callback(context, signal));
                let closed = self.handle.shared.handles.borrow_mut().restore_signals(key, callback);
                drop(closed);
                self.finish_call(panic);
            }
            Called::Wake(wakers) => {
                wakers.into_iter().for_each(std::task::Waker::wake);
                self.drain();
            }
            Called::Source(source) => {
                source.on_ready(self, readiness);
                self.drain();
            }
        }
    }
}

/// Calling callbacks.
impl Context {
    #[inline]
    pub(super) fn call(&mut self, phase: Phase, site: Site, callback: impl FnOnce(&mut Context)) {
        let panic = self.call_guarded(phase, site, callback);
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
        self.current = Current { phase, site };
        let result = catch_unwind(AssertUnwindSafe(|| callback(self)));
        self.measure(site, phase);
        result.err()
    }

    #[inline]
    pub(super) fn finish_call(&mut self, panic: Option<CaughtPanic>) {
        if let Some(panic) = panic {
            self.report_panic(panic);
        }
        self.drain();
    }

    /// Runs all ticks, then all microtasks, until there are neither.
    #[inline]
    pub(super) fn drain(&mut self) {
        while self.handle.shared.has_microtasks() {
            self.drain_some();
        }
        self.is_in_microtasks = false;
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
        self.current = Current { phase: Phase::Microtasks, site: callback.site };
        (callback.run)(self);
    }

    fn poll_task(&mut self, key: Key, first: &mut Option<Site>) {
        let taken = self.handle.shared.tasks.borrow_mut().take(key);
        let Some(mut task) = taken else { return };
        first.get_or_insert(task.site);
        self.current = Current { phase: Phase::Microtasks, site: task.site };
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
        let Some(mut handler) = self.panic_handler.take() else { self.let_panic_out(payload) };
        let Current { site, phase } = self.current;
        let panic = CallbackPanic { site, phase, payload };
        let result = catch_unwind(AssertUnwindSafe(|| handler(self, panic)));
        // The handler may have set another one in its place.
        self.panic_handler.get_or_insert(handler);
        if let Err(payload) = result {
            self.let_panic_out(payload);
        }
    }

    fn let_panic_out(&mut self, payload: CaughtPanic) -> ! {
        self.is_running = false;
        resume_unwind(payload)
    }
}

/// Measuring.
impl Context {
    pub(super) fn start_measuring(&mut self) {
        self.clock_reading = self.handle.shared.clock.read();
        self.handle.shared.loop_time.set(self.clock_reading);
        self.busy_since = self.clock_reading;
    }

    fn end_measuring_iteration(&mut self) {
        let busy = self.clock_reading.saturating_sub(self.busy_since);
        self.handle.shared.metrics.borrow_mut().iteration(busy);
    }

    /// One reading of the clock a callback: the end of one is the start of the next.
    #[inline]
    fn measure(&mut self, site: Site, phase: Phase) {
        let now = self.handle.shared.clock.read();
        let duration = now.saturating_sub(self.clock_reading);
        self.clock_reading = now;
        let slowest = &self.handle.shared.slowest;
        if duration > slowest.get() {
            slowest.set(duration);
            self.handle.shared.metrics.borrow_mut().slowest(site, phase, duration);
        }
    }
}
