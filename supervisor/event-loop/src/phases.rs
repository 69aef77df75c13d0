//! The phases of an iteration, each in a function of its own.

use std::rc::Rc;

use rustix::event::epoll;

use super::Context;
use super::callback::{Callback, CallbackId, Current, Microtask, Phase, Queue};
use super::calls::wake_each;
use super::clock::{Nanos, nanos};
use super::config::RunMode;
use super::error::LoopError;
use super::handle::LoopHandle;
use super::handles::{Called, HandleId, HookPhase};
use super::linger::Linger;
use super::metrics::Starving;
use super::poller::Readiness;
use super::readiness::Waiter;
use super::remote::Post;
use super::requests::WaitingRequest;
use super::slab::SlabKey;
use super::state::{Shared, WAKE_TOKEN};
use super::timers::{DueCall, DueTimer};

impl LoopHandle {
    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
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
        let hooks = self.handle.shared.handles.borrow_mut().begin_run(phase);
        let mut budget = self.starvation_budget();
        for (index, &key) in hooks.iter().enumerate() {
            self.run_hook(phase, key);
            if phase == HookPhase::Idle && budget.is_spent(self, || Starving::Idle) {
                self.handle.shared.handles.borrow_mut().begin_after(phase, index + 1);
                break;
            }
        }
    }

    fn run_hook(&mut self, phase: HookPhase, key: SlabKey) {
        let taken = self.handle.shared.handles.borrow_mut().take_hook(key);
        // A hook before it in the list may have closed it.
        let Some((site, hook)) = taken else { return };
        self.call_repeated(
            Current::of(phase.phase(), site, CallbackId::Handle(HandleId(key))),
            hook,
            |hook, context| hook(context),
            |context, hook| context.handle.shared.handles.borrow_mut().restore_hook(key, hook),
        );
    }

    fn run_immediates(&mut self) {
        // An immediate that is set by an immediate waits for the next iteration.
        let end = self.handle.shared.immediates.borrow().end();
        for _ in 0..self.callbacks_per_phase() {
            let next = self.handle.shared.immediates.borrow_mut().take_before(end);
            let Some((id, callback)) = next else { break };
            self.call_named(
                Current::of(Phase::Check, callback.site, CallbackId::Immediate(id)),
                callback.run,
            );
        }
    }

    pub(super) fn run_due_timers(&mut self) {
        let now = self.clock_reading.time();
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
        self.lateness = self.clock_reading.time().saturating_sub(timer.due);
        self.handle.shared.metrics.borrow_mut().timer_was_late(self.lateness);
        let current = Current::of(Phase::Timers, timer.site, CallbackId::Timer(timer.id));
        match timer.call {
            DueCall::Once(callback) => self.call_named(current, callback),
            DueCall::Every(interval) => {
                let begun = self.clock_reading.time();
                self.call_repeated(
                    current,
                    interval,
                    |interval, context| (interval.callback)(context),
                    |context, interval| {
                        let now = context.clock_reading.time();
                        context.handle.shared.timers.borrow_mut().rearm(timer.id, interval, begun, now)
                    },
                );
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
        self.measure_turn(1);
        if self.ready.is_empty() {
            self.begin_turn();
        }
        self.handle.shared.take_posts();
        if self.ready.is_empty() {
            self.wait_for_events(mode == RunMode::NoWait)?;
            self.handle.shared.take_posts();
        }
        let time_is_up = self.clock_reading.time().saturating_add(nanos(self.config.poll_budget));
        for handled in 1.. {
            if self.ready.is_empty() && self.kernel_has_more {
                self.fetch_events(Some(0))?;
            }
            if !self.handle_one_event() {
                break;
            }
            let enough = handled >= self.config.events_per_poll || self.clock_reading.time() >= time_is_up;
            if enough || self.handle.shared.timer_is_due(self.clock_reading.time()) {
                break;
            }
        }
        // Without an event nobody has called them: what a budget has left over.
        self.drain();
        Ok(())
    }

    fn wait_for_events(&mut self, without_waiting: bool) -> Result<(), LoopError> {
        loop {
            let time_to_sleep = self.handle.shared.time_to_sleep(self.clock_reading.time());
            let timeout = if without_waiting { Some(0) } else { time_to_sleep };
            self.fetch_events(timeout)?;
            let now = self.clock_reading.time();
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
        if timeout == Some(0) && !shared.may_have_events() {
            self.begin_turn();
            return Ok(());
        }
        if !self.kernel_has_more {
            shared.polls.set(shared.polls.get() + 1);
        }
        let events = &mut self.buffers.events;
        match timeout {
            Some(0) => {
                shared.pulse.pause();
                shared.poller.wait(events, timeout)?;
            }
            Some(timeout) if shared.clock.is_virtual() => {
                shared.pulse.pause();
                shared.poller.wait(events, Some(0))?;
                if events.is_empty() {
                    shared.clock.skip(timeout);
                }
            }
            timeout => {
                let polled = poll_before_sleeping(shared, &mut self.linger, events, timeout)?;
                if events.is_empty() {
                    shared.posts.borrow_mut().free_spare();
                    shared.pulse.rest();
                    let left = timeout.map(|timeout| timeout.saturating_sub(polled));
                    let waited = shared.poller.wait(events, left);
                    shared.pulse.go_on();
                    waited?;
                }
            }
        }
        // A look that found nothing took no time worth a reading of the clock.
        if timeout != Some(0) || !events.is_empty() {
            self.clock_reading = shared.clock.reading();
        }
        self.kernel_has_more = events.len() == events.capacity();
        if !events.is_empty() {
            self.ready.extend(events.drain(..));
        }
        self.begin_turn();
        Ok(())
    }

    /// From here on whatever arrives has to wait. Posts that a limit has left over wait since before.
    fn begin_turn(&mut self) {
        if self.handle.shared.posts.borrow().is_empty() {
            self.busy_since = self.clock_reading.time();
        }
    }

    /// Posts and events take turns. False if there is neither.
    fn handle_one_event(&mut self) -> bool {
        let is_turn_of_events = std::mem::take(&mut self.is_turn_of_events) && !self.ready.is_empty();
        let post = if is_turn_of_events { None } else { self.handle.shared.posts.borrow_mut().pop() };
        if let Some(post) = post {
            self.is_turn_of_events = true;
            self.measure_wait();
            self.run_post(post);
            return true;
        }
        let Some(event) = self.ready.pop_front() else { return false };
        match event.data.u64() {
            // What it was rung for was taken when this phase began, or is when the next one does.
            WAKE_TOKEN => self.handle.shared.remote.silence(),
            token => self.run_ready(SlabKey::from_bits(token), event.flags),
        }
        true
    }

    fn run_post(&mut self, post: Post) {
        match post {
            Post::Run { site, run } => self.call(Phase::Poll, site, |context| run.run(context)),
            Post::Wake(key) => {
                self.handle.shared.microtasks.push(Microtask::Poll(key));
                self.drain();
            }
            Post::Answer { request, value } => {
                let waiting = self.handle.shared.requests.borrow_mut().remove(request);
                match waiting {
                    Some(WaitingRequest { site, answer }) => {
                        self.call(Phase::Poll, site, |context| answer(context, value));
                    }
                    None => self.drop_and_finish(value),
                }
            }
            Post::Abandon { request } => {
                let abandoned = self.handle.shared.requests.borrow_mut().remove(request);
                self.drop_and_finish(abandoned);
            }
        }
    }

    fn drop_and_finish<T>(&mut self, leftover: T) {
        let panic = self.drop_guarded(leftover);
        self.finish_call(panic);
    }

    /// The descriptor is armed for one event, so who is not woken now never is.
    fn wake_all(&mut self, waiters: &[Rc<Waiter>]) {
        let panics = wake_each(waiters.iter().map(|waiter| || waiter.wake()));
        self.finish_calls(panics);
    }

    fn run_ready(&mut self, key: SlabKey, flags: epoll::EventFlags) {
        let readiness = Readiness(flags);
        let taken = self.handle.shared.handles.borrow_mut().take_for_event(key, readiness);
        // A callback before it in the batch may have closed it.
        let Some((site, called)) = taken else { return };
        self.measure_wait();
        let current = Current::of(Phase::Poll, site, CallbackId::Handle(HandleId(key)));
        match called {
            Called::Watch(watch, readiness) => self.call_repeated(
                current,
                watch,
                |watch, context| watch(context, readiness),
                |context, watch| context.handle.shared.handles.borrow_mut().restore_watch(key, watch),
            ),
            Called::Signal(callback, signal) => self.call_repeated(
                current,
                callback,
                |callback, context| callback(context, signal),
                |context, callback| context.handle.shared.handles.borrow_mut().restore_signals(key, callback),
            ),
            Called::Wake(waiters) => self.wake_all(&waiters),
            Called::Source(source) => {
                source.on_ready(self, readiness);
                self.drain();
            }
        }
    }
}

/// Polls for events before a sleep of `timeout`, if the loop was told to linger. Returns how long that took; the first events end
/// it.
fn poll_before_sleeping(
    shared: &Shared,
    linger: &mut Linger,
    events: &mut Vec<epoll::Event>,
    timeout: Option<Nanos>,
) -> Result<Nanos, LoopError> {
    let told = if shared.clock.is_virtual() { 0 } else { shared.linger.get() };
    let time = linger.time(told, timeout);
    if time == 0 {
        return Ok(0);
    }
    shared.pulse.pause();
    let began = shared.clock.read();
    let mut polled = 0;
    while events.is_empty() && polled < time {
        std::hint::spin_loop();
        shared.poller.wait(events, Some(0))?;
        polled = shared.clock.read().saturating_sub(began);
    }
    linger.looked(!events.is_empty());
    shared.metrics.borrow_mut().looked(!events.is_empty());
    Ok(polled)
}
