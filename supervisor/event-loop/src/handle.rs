//! Registering things with a loop, from callbacks, futures and structs on its thread.

use std::os::fd::AsFd;
use std::panic::Location;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Context;
use super::callback::{Callback, Microtask, Site};
use super::clock::nanos;
use super::error::LoopError;
use super::handles::{HandleId, HandleKind, HookPhase, PollerEntry};
use super::immediates::ImmediateId;
use super::limits::LINGER_MAX;
use super::metrics::{LoopMetrics, Metrics};
use super::poller::{Interest, Poller, Readiness};
use super::readiness::Ready;
use super::remote::Remote;
use super::signals::SignalPipe;
use super::slab::SlabKey;
use super::state::Shared;
use super::timers::{Catchup, Due, TimerId};

/// A handle to the loop, for futures and for structs that outlive a callback: it needs no `&mut Context`. Cheap to clone; it
/// stays on the loop's thread. [`Context`] dereferences to it, so a callback can call all of this on its context.
///
/// Once the loop is dropped, nothing that is registered here runs any more: it is dropped at once, and its identifier
/// names nothing. What may fail says so, with [`LoopError::Gone`] or [`SourceError::Closed`](super::SourceError::Closed).
/// An identifier means something only to the loop that gave it out.
#[derive(Clone)]
pub struct LoopHandle {
    pub(super) shared: Rc<Shared>,
}

/// What [`LoopHandle::clear`] can cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearable {
    /// A timeout or an interval.
    Timer(TimerId),
    /// An immediate.
    Immediate(ImmediateId),
}

impl From<TimerId> for Clearable {
    fn from(id: TimerId) -> Clearable {
        Clearable::Timer(id)
    }
}

impl From<ImmediateId> for Clearable {
    fn from(id: ImmediateId) -> Clearable {
        Clearable::Immediate(id)
    }
}

/// What [`LoopHandle::ref_`], [`LoopHandle::unref`] and [`LoopHandle::close`] apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referable {
    /// A timeout or an interval.
    Timer(TimerId),
    /// A hook, a watcher, a signal handler or a source.
    Handle(HandleId),
    /// An immediate.
    Immediate(ImmediateId),
}

impl From<TimerId> for Referable {
    fn from(id: TimerId) -> Referable {
        Referable::Timer(id)
    }
}

impl From<HandleId> for Referable {
    fn from(id: HandleId) -> Referable {
        Referable::Handle(id)
    }
}

impl From<ImmediateId> for Referable {
    fn from(id: ImmediateId) -> Referable {
        Referable::Immediate(id)
    }
}

/// Keeps the loop alive while it exists, for as long as an answer is awaited from elsewhere.
#[must_use = "dropping it lets the loop end"]
pub struct Hold {
    shared: Rc<Shared>,
    key: SlabKey,
}

impl Clone for Hold {
    #[track_caller]
    fn clone(&self) -> Hold {
        Hold::new(&self.shared, Location::caller())
    }
}

impl Hold {
    fn new(shared: &Rc<Shared>, site: Site) -> Hold {
        Hold { key: shared.holds.borrow_mut().insert(site), shared: Rc::clone(shared) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.holds.borrow_mut().remove(self.key);
    }
}

/// Has the loop poll for events for a while before it goes to sleep, and ends that when it is dropped. Of several, the one that
/// wants it for longest decides. It does not keep the loop alive.
#[must_use = "dropping it ends the polling"]
pub struct Lingerer {
    shared: Rc<Shared>,
    key: SlabKey,
}

impl Lingerer {
    /// From now on, the loop polls for up to so long before it sleeps, as long as that pays: after a poll in vain it sleeps
    /// without, and more often each time. It uses its core meanwhile, so ask for it only while an answer is expected soon and
    /// that core has nothing better to do. Zero, as at first, is not at all; longer than a second counts as a second. In virtual
    /// time nothing takes time, and the loop does not poll. What came of it is in [`LoopMetrics::lingering`].
    pub fn set(&self, time: Duration) {
        let time = nanos(time.min(LINGER_MAX));
        if let Some(own) = self.shared.lingerers.borrow_mut().get_mut(self.key) {
            if *own == time {
                return;
            }
            *own = time;
        }
        self.shared.linger_as_told();
    }
}

impl Drop for Lingerer {
    fn drop(&mut self) {
        self.shared.lingerers.borrow_mut().remove(self.key);
        self.shared.linger_as_told();
    }
}

/// Time and timers.
impl LoopHandle {
    /// The loop's time, which stands still while the callbacks of one phase run.
    pub fn now(&self) -> Instant {
        self.shared.clock.instant(self.shared.loop_time.get())
    }

    /// How often the loop has asked the kernel which descriptors are ready. Before it asks again, the callback of every
    /// watcher is called whose descriptor was ready. So between two callbacks with the same number there was no other
    /// poll, and what was ready at the poll of a smaller number was told then.
    pub fn polls(&self) -> u64 {
        self.shared.polls.get()
    }

    /// Sets the loop's time to the clock's, for a callback that has run long.
    pub fn update_time(&self) {
        self.shared.loop_time.set(self.shared.clock.read());
    }

    /// Runs `callback` once, as soon as possible after `delay`, never earlier. The delay counts from this call,
    /// not from the loop's time, and is rounded up to a timer step of 66 us. Timers share wake-ups: one may be late by 1/64
    /// of its delay, at most by 1 ms, when nothing else wakes the loop. Their order is that of their due times.
    #[track_caller]
    pub fn set_timeout(&self, delay: Duration, callback: impl FnOnce(&mut Context) + 'static) -> TimerId {
        let due = Due::after(self.shared.clock.read(), delay);
        let id = self.shared.timers.borrow_mut().start_once(due, Location::caller(), Box::new(callback));
        self.shared.drop_if_gone();
        id
    }

    /// Runs `callback` again and again; the next period starts when the callback begins. See
    /// [`LoopHandle::set_interval_with`].
    #[track_caller]
    pub fn set_interval(&self, period: Duration, callback: impl FnMut(&mut Context) + 'static) -> TimerId {
        self.set_interval_with(period, Catchup::Drift, callback)
    }

    /// Runs `callback` again and again, the first time after one period. A period shorter than a timer step of 66 us
    /// counts as one.
    #[track_caller]
    pub fn set_interval_with(
        &self,
        period: Duration,
        catchup: Catchup,
        callback: impl FnMut(&mut Context) + 'static,
    ) -> TimerId {
        let due = Due::after(self.shared.clock.read(), period);
        let site = Location::caller();
        let id = self.shared.timers.borrow_mut().start_every(due, site, catchup, Box::new(callback));
        self.shared.drop_if_gone();
        id
    }

    /// Cancels a timer or an immediate. False if it has run, or was cleared, before.
    pub fn clear(&self, id: impl Into<Clearable>) -> bool {
        // The callback is dropped after the borrow: its drop may come back here.
        match id.into() {
            Clearable::Timer(id) => {
                let removed = self.shared.timers.borrow_mut().remove(id);
                removed.is_some()
            }
            Clearable::Immediate(id) => {
                let cancelled = self.shared.immediates.borrow_mut().cancel(id);
                cancelled.is_some()
            }
        }
    }
}

/// Immediates, ticks, microtasks, and callbacks of the pending phase.
impl LoopHandle {
    /// Runs `callback` in the check phase, right after the poll. Inside the check phase that means the next
    /// iteration's.
    #[track_caller]
    pub fn set_immediate(&self, callback: impl FnOnce(&mut Context) + 'static) -> ImmediateId {
        let callback = Callback::new(Location::caller(), callback);
        let id = self.shared.immediates.borrow_mut().push(callback);
        self.shared.drop_if_gone();
        id
    }

    /// Runs `callback` after the current callback, before the loop goes on. A tick that always queues another one
    /// keeps the loop from ever going on: prefer [`LoopHandle::set_immediate`].
    #[track_caller]
    pub fn next_tick(&self, callback: impl FnOnce(&mut Context) + 'static) {
        self.shared.ticks.push(Callback::new(Location::caller(), callback));
        self.shared.drop_if_gone();
    }

    /// Runs `callback` after the current callback and all its ticks, before the loop goes on.
    #[track_caller]
    pub fn queue_microtask(&self, callback: impl FnOnce(&mut Context) + 'static) {
        self.shared.microtasks.push(Microtask::Run(Callback::new(Location::caller(), callback)));
        self.shared.drop_if_gone();
    }

    /// Runs `callback` in the pending phase: for a result that is known at once, such as a refused connection, and should
    /// reach its callback asynchronously all the same.
    #[track_caller]
    pub fn set_pending(&self, callback: impl FnOnce(&mut Context) + 'static) {
        self.shared.pending.push(Callback::new(Location::caller(), callback));
        self.shared.drop_if_gone();
    }

    /// As [`LoopHandle::set_pending`], for a callback that was registered at `site`: a library that keeps its users'
    /// callbacks passes their place on, so that a slow one is reported under it.
    pub fn set_pending_at(
        &self,
        site: &'static Location<'static>,
        callback: impl FnOnce(&mut Context) + 'static,
    ) {
        self.shared.pending.push(Callback::new(site, callback));
        self.shared.drop_if_gone();
    }
}

/// Handles.
impl LoopHandle {
    /// Runs `callback` in every iteration, before the poll, which does not wait as long as an idle hook exists.
    #[track_caller]
    pub fn idle(&self, callback: impl FnMut(&mut Context) + 'static) -> HandleId {
        self.add_hook(HookPhase::Idle, Location::caller(), callback)
    }

    /// Runs `callback` in every iteration right before the poll.
    #[track_caller]
    pub fn prepare(&self, callback: impl FnMut(&mut Context) + 'static) -> HandleId {
        self.add_hook(HookPhase::Prepare, Location::caller(), callback)
    }

    /// Runs `callback` in every iteration right after the poll, before the immediates.
    #[track_caller]
    pub fn check(&self, callback: impl FnMut(&mut Context) + 'static) -> HandleId {
        self.add_hook(HookPhase::Check, Location::caller(), callback)
    }

    fn add_hook(
        &self,
        phase: HookPhase,
        site: Site,
        callback: impl FnMut(&mut Context) + 'static,
    ) -> HandleId {
        let kind = HandleKind::Hook { phase, resumed_in: None, callback: Some(Box::new(callback)) };
        let id = self.shared.handles.borrow_mut().insert(kind, site);
        self.shared.drop_if_gone();
        id
    }

    /// Runs `callback` whenever `source` is ready, for as long as it is (level triggered). The source is kept until
    /// the handle is closed, so its descriptor cannot come to mean another file while it is watched.
    ///
    /// An event may be out of date when its turn comes, because another callback has read meanwhile: the source should
    /// be non-blocking, and a read that would block be no error.
    ///
    /// # Errors
    /// [`LoopError::AlreadyWatched`], [`LoopError::NotWatchable`] or [`LoopError::OutOfDescriptors`].
    #[track_caller]
    pub fn watch(
        &self,
        source: impl AsFd + 'static,
        interest: Interest,
        callback: impl FnMut(&mut Context, Readiness) + 'static,
    ) -> Result<HandleId, LoopError> {
        let source: Rc<dyn AsFd> = Rc::new(source);
        let watched = Rc::clone(&source);
        let kind = HandleKind::Watch { source, interest, callback: Some(Box::new(callback)) };
        self.insert_watched(kind, Location::caller(), |poller, key| match interest.is_none() {
            true => Ok(()),
            false => poller.add(watched.as_fd(), key.to_bits(), interest),
        })
    }

    /// Changes in which directions a watcher looks. With [`Interest::NONE`] it rests. For one that is
    /// [paused](LoopHandle::pause) it counts from the moment when it is resumed.
    ///
    /// # Errors
    /// [`LoopError::AlreadyClosed`], [`LoopError::NotAWatcher`], or what the kernel says.
    pub fn set_interest(&self, id: HandleId, interest: Interest) -> Result<(), LoopError> {
        let (source, current) = self.watched(id)?;
        if let Some(current) = current {
            self.shared.poller.change(source.as_fd(), id.0.to_bits(), current, interest)?;
        }
        self.shared.handles.borrow_mut().change(id.0, |handle| {
            if let HandleKind::Watch { interest: current, .. } = &mut handle.kind {
                *current = interest;
            }
        });
        Ok(())
    }

    /// What a watcher looks at and, unless it is paused, in which directions.
    fn watched(&self, id: HandleId) -> Result<(Rc<dyn AsFd>, Option<Interest>), LoopError> {
        let handles = self.shared.handles.borrow();
        let handle = handles.get(id.0).ok_or(LoopError::AlreadyClosed)?;
        match &handle.kind {
            HandleKind::Watch { source, interest, .. } => {
                Ok((Rc::clone(source), (!handle.is_paused).then_some(*interest)))
            }
            _ => Err(LoopError::NotAWatcher),
        }
    }

    /// Runs `callback` with the signal's number whenever one of `signals` came. Equal signals that come while one
    /// is waiting count as one, and so does a signal that is named twice. After the handle is closed the signals are ignored.
    ///
    /// # Errors
    /// [`LoopError::UnusableSignal`] for SIGKILL and the like, [`LoopError::OutOfDescriptors`]. The signals mean what they meant
    /// before. Only if the system refuses a signal that exists, as valgrind does with those it needs, are the ones
    /// before it in `signals` ignored from here on.
    #[track_caller]
    pub fn on_signal(
        &self,
        signals: &[i32],
        callback: impl FnMut(&mut Context, i32) + 'static,
    ) -> Result<HandleId, LoopError> {
        let is_new = |&(place, signal): &(usize, &i32)| !signals[..place].contains(signal);
        let different = signals.iter().enumerate().filter(is_new).map(|(_, &signal)| signal);
        let opened = different.map(SignalPipe::open).collect::<Result<Vec<_>, _>>()?;
        let (pipes, handlers): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let pipes: Rc<[_]> = pipes.into();
        let watched = PollerEntry::Signals(Rc::clone(&pipes));
        let kind = HandleKind::Signals { pipes: Rc::clone(&pipes), callback: Some(Box::new(callback)) };
        self.insert_watched(kind, Location::caller(), |poller, key| {
            watched.begin(poller, key)?;
            // Last of all, because it cannot be taken back.
            let caught = pipes.iter().zip(handlers).try_for_each(|(pipe, handler)| pipe.catch(handler));
            caught.inspect_err(|_| watched.end(poller))
        })
    }

    fn insert_watched(
        &self,
        kind: HandleKind,
        site: Site,
        register: impl FnOnce(&Poller, SlabKey) -> Result<(), LoopError>,
    ) -> Result<HandleId, LoopError> {
        self.shared.check_not_gone()?;
        let id = self.shared.handles.borrow_mut().insert(kind, site);
        if let Err(error) = register(&self.shared.poller, id.0) {
            let failed = self.shared.handles.borrow_mut().forget(id.0);
            drop(failed);
            return Err(error);
        }
        Ok(id)
    }
}

/// What keeps the loop alive, and everything about the loop as a whole.
impl LoopHandle {
    /// Lets the loop end although this timer, handle or immediate is still there. An immediate that is unreferenced does
    /// not keep the poll from waiting either: it runs after it. Calling it twice changes nothing.
    pub fn unref(&self, id: impl Into<Referable>) {
        self.set_referenced(id.into(), false);
    }

    /// Undoes [`LoopHandle::unref`].
    pub fn ref_(&self, id: impl Into<Referable>) {
        self.set_referenced(id.into(), true);
    }

    fn set_referenced(&self, id: Referable, referenced: bool) {
        match id {
            Referable::Timer(id) => {
                self.shared.timers.borrow_mut().set_referenced(id, referenced);
            }
            Referable::Handle(id) => {
                self.shared.handles.borrow_mut().change(id.0, |handle| handle.referenced = referenced);
            }
            Referable::Immediate(id) => {
                self.shared.immediates.borrow_mut().set_referenced(id, referenced);
            }
        }
    }

    /// Keeps the loop alive while the returned guard, or a clone of it, exists.
    #[track_caller]
    pub fn hold(&self) -> Hold {
        Hold::new(&self.shared, Location::caller())
    }

    /// Whether something is left to run or to wait for.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// Whether the loop was dropped: whatever is registered from here on is dropped at once.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone.get()
    }

    /// Makes `run` return after the current iteration, or the next `run` at once if none is under way.
    pub fn stop(&self) {
        self.shared.stopping.set(true);
    }

    /// A way into the loop for other threads.
    pub fn remote(&self) -> Remote {
        self.shared.remote.clone()
    }

    /// Somebody who may have the loop poll for events before it goes to sleep.
    pub fn lingerer(&self) -> Lingerer {
        Lingerer { key: self.shared.lingerers.borrow_mut().insert(0), shared: Rc::clone(&self.shared) }
    }

    /// What the loop has measured: times of callbacks and phases, lateness, starvation.
    pub fn metrics(&self) -> LoopMetrics {
        self.shared.metrics.borrow().picture(self.shared.pulse.blocked())
    }

    /// Sets all figures of [`LoopHandle::metrics`] back to zero.
    pub fn reset_metrics(&self) {
        *self.shared.metrics.borrow_mut() = Metrics::new();
        self.shared.slowest.set(0);
        self.shared.pulse.reset_blocked();
    }

    /// Resolves when a read from `source` will not block.
    #[track_caller]
    pub fn readable<S: AsFd + Unpin>(&self, source: S) -> Ready<S> {
        Ready::new(self.clone(), source, Interest::READ, Location::caller())
    }

    /// Resolves when a write to `source` will not block.
    #[track_caller]
    pub fn writable<S: AsFd + Unpin>(&self, source: S) -> Ready<S> {
        Ready::new(self.clone(), source, Interest::WRITE, Location::caller())
    }
}
