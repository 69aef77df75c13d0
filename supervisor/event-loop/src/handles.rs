//! Handles: hooks, which run in every iteration, watchers, which are called when a descriptor is ready, and signal handlers.
//! The loop keeps them until they are closed.
//!
//! ```text
//!   paused <--pause(), resume()--> active --close()--> gone: its slot is empty and no event finds it; the
//!                                   |  ^                     callback of close() runs in the closing phase
//!                               (event) (callback returns)
//!                                   v  |
//!                                  running: its callback is out of the slot, so it may pause or close itself or
//!                                           anybody else
//! ```

use std::collections::HashMap;
use std::os::fd::{AsFd, RawFd};
use std::rc::Rc;

use super::Context;
use super::alive::AliveKind;
use super::callback::{Phase, Repeated, Site};
use super::error::LoopError;
use super::poller::{Interest, Poller, Readiness};
use super::readiness::{Waiter, Waiters};
use super::signals::{SignalCallback, SignalPipe};
use super::slab::{Slab, SlabKey};
use super::sources::{Registered, Registration};

/// Names a handle of one loop: a hook, a watcher, a signal handler or a [source](super::Stream::handle_id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleId(pub(super) SlabKey);

pub(super) type WatchCallback = Box<dyn FnMut(&mut Context, Readiness)>;

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookPhase {
    Idle,
    Prepare,
    Check,
}

impl HookPhase {
    pub(super) fn phase(self) -> Phase {
        match self {
            HookPhase::Idle => Phase::Idle,
            HookPhase::Prepare => Phase::Prepare,
            HookPhase::Check => Phase::Check,
        }
    }
}

/// What a handle does. A callback is `None` while it runs.
pub(super) enum HandleKind {
    Hook {
        phase: HookPhase,
        /// The run of its phase in which it was resumed. It waits for the next one, as a new hook does.
        resumed_in: Option<u64>,
        callback: Option<Repeated>,
    },
    Watch {
        /// Shared, so that its descriptor can be asked for without a borrow: that may be anybody's code.
        source: Rc<dyn AsFd>,
        interest: Interest,
        callback: Option<WatchCallback>,
    },
    Signals {
        pipes: Rc<[SignalPipe]>,
        callback: Option<SignalCallback>,
    },
    /// Futures that wait for one descriptor.
    Waiters(Waiters),
    /// A stream, a listener or the like, which calls its callbacks itself.
    Source(Registration),
}

impl HandleKind {
    pub(super) fn name(&self) -> AliveKind {
        match self {
            HandleKind::Hook { .. } => AliveKind::Hook,
            HandleKind::Watch { .. } => AliveKind::Watcher,
            HandleKind::Signals { .. } => AliveKind::SignalHandler,
            HandleKind::Waiters(_) => AliveKind::WaitingFuture,
            HandleKind::Source(registration) => registration.kind,
        }
    }
}

pub(super) struct Handle {
    pub(super) kind: HandleKind,
    pub(super) referenced: bool,
    /// It keeps its callback and its name, and nothing calls it.
    pub(super) is_paused: bool,
    pub(super) site: Site,
}

/// What a handle has in the poller. The descriptor is asked for without a borrow, because that may be anybody's code.
pub(super) enum PollerEntry {
    Nothing,
    Source(Rc<dyn AsFd>, Interest),
    Signals(Rc<[SignalPipe]>),
}

impl PollerEntry {
    pub(super) fn end(&self, poller: &Poller) {
        match self {
            PollerEntry::Nothing => {}
            PollerEntry::Source(_, interest) if interest.is_none() => {}
            PollerEntry::Source(source, _) => poller.remove(source.as_fd()),
            PollerEntry::Signals(pipes) => pipes.iter().for_each(|pipe| poller.remove(pipe.as_fd())),
        }
    }

    /// Signals that came while nobody was to hear them.
    pub(super) fn forget_missed(&self) {
        if let PollerEntry::Signals(pipes) = self {
            for pipe in pipes.iter() {
                pipe.drain();
            }
        }
    }

    /// # Errors
    /// What the poller says; nothing is watched then.
    pub(super) fn begin(&self, poller: &Poller, key: SlabKey) -> Result<(), LoopError> {
        match self {
            PollerEntry::Nothing => Ok(()),
            PollerEntry::Source(_, interest) if interest.is_none() => Ok(()),
            PollerEntry::Source(source, interest) => poller.add(source.as_fd(), key.to_bits(), *interest),
            PollerEntry::Signals(pipes) => {
                let add = |pipe: &SignalPipe| poller.add(pipe.as_fd(), key.to_bits(), Interest::READ);
                pipes.iter().try_for_each(add).inspect_err(|_| self.end(poller))
            }
        }
    }
}

impl Handle {
    /// Ends the watching of a handle that was taken out.
    pub(super) fn unwatch(&self, poller: &Poller) {
        if !self.is_paused {
            self.watched().end(poller);
        }
    }

    /// What the handle has in the poller unless it is paused.
    pub(super) fn watched(&self) -> PollerEntry {
        match &self.kind {
            HandleKind::Watch { interest, source, .. } => PollerEntry::Source(Rc::clone(source), *interest),
            HandleKind::Signals { pipes, .. } => PollerEntry::Signals(Rc::clone(pipes)),
            // Only its futures, or the source, have the descriptor, and they leave by forget().
            HandleKind::Hook { .. } | HandleKind::Waiters(_) | HandleKind::Source(_) => PollerEntry::Nothing,
        }
    }

    /// An event, or its turn, would call it.
    pub(super) fn is_active(&self) -> bool {
        match &self.kind {
            _ if self.is_paused => false,
            HandleKind::Watch { interest, .. } => !interest.is_none(),
            HandleKind::Source(registration) => registration.is_active(),
            HandleKind::Waiters(waiters) => !waiters.is_cancelled(),
            HandleKind::Hook { .. } | HandleKind::Signals { .. } => true,
        }
    }

    fn keeps_alive(&self) -> bool {
        match &self.kind {
            HandleKind::Source(registration) => registration.keeps_alive(self.referenced),
            _ => self.referenced && self.is_active(),
        }
    }
}

pub(super) struct Handles {
    slab: Slab<Handle>,
    alive: usize,
    /// The hooks of each phase that are not paused. A list that is shared with a run of its phase is copied before it is
    /// changed, which is rare; copying it for each run cost a tenth of a short iteration.
    hooks: [Rc<Vec<SlabKey>>; 3],
    /// How often the hooks of each phase have run.
    hook_runs: [u64; 3],
    /// The handle behind which the futures wait that wait for this descriptor.
    pub(super) waiting: HashMap<RawFd, SlabKey>,
}

impl Handles {
    pub(super) fn new() -> Handles {
        Handles {
            slab: Slab::new(),
            alive: 0,
            hooks: Default::default(),
            hook_runs: [0; 3],
            waiting: HashMap::new(),
        }
    }

    /// How many handles keep the loop alive.
    pub(super) fn alive(&self) -> usize {
        self.alive
    }

    pub(super) fn insert(&mut self, kind: HandleKind, site: Site) -> HandleId {
        let handle = Handle { kind, referenced: true, is_paused: false, site };
        self.alive += usize::from(handle.keeps_alive());
        let hook = match &handle.kind {
            HandleKind::Hook { phase, .. } => Some(*phase),
            _ => None,
        };
        let key = self.slab.insert(handle);
        if let Some(phase) = hook {
            self.hooks_to_change(phase).push(key);
        }
        HandleId(key)
    }

    /// Takes the handle out. The caller unwatches and drops it when no borrow is held: both may run anything.
    #[must_use]
    pub(super) fn remove(&mut self, key: SlabKey) -> Option<Handle> {
        let handle = self.slab.remove(key)?;
        self.alive -= usize::from(handle.keeps_alive());
        if let HandleKind::Hook { phase, .. } = &handle.kind {
            self.hooks_to_change(*phase).retain(|&hook| hook != key);
        }
        Some(handle)
    }

    /// Takes out the place of futures that wait no more, or of a source that has left the poller.
    #[must_use]
    pub(super) fn forget(&mut self, key: SlabKey) -> Option<Handle> {
        let handle = self.slab.remove(key)?;
        self.alive -= usize::from(handle.keeps_alive());
        if let HandleKind::Waiters(waiters) = &handle.kind {
            self.waiting.remove(&waiters.descriptor());
        }
        Some(handle)
    }

    pub(super) fn get(&self, key: SlabKey) -> Option<&Handle> {
        self.slab.get(key)
    }

    /// Changes a handle and keeps the count of those alive.
    pub(super) fn change<R>(&mut self, key: SlabKey, change: impl FnOnce(&mut Handle) -> R) -> Option<R> {
        let handle = self.slab.get_mut(key)?;
        let before = usize::from(handle.keeps_alive());
        let result = change(handle);
        self.alive = self.alive + usize::from(handle.keeps_alive()) - before;
        Some(result)
    }

    pub(super) fn has_hooks(&self, phase: HookPhase) -> bool {
        !self.hooks[phase as usize].is_empty()
    }

    /// Nothing calls the handle from here on. What it had in the poller is returned, to be ended without a borrow; `None`
    /// if it is paused already.
    pub(super) fn pause(&mut self, key: SlabKey) -> Result<Option<PollerEntry>, LoopError> {
        let handle = self.slab.get(key).ok_or(LoopError::AlreadyClosed)?;
        if handle.is_paused {
            return Ok(None);
        }
        if matches!(handle.kind, HandleKind::Source(_) | HandleKind::Waiters(_)) {
            return Err(LoopError::NotPausable);
        }
        let watched = handle.watched();
        if let HandleKind::Hook { phase, .. } = handle.kind {
            self.hooks_to_change(phase).retain(|&hook| hook != key);
        }
        self.change(key, |handle| handle.is_paused = true);
        Ok(Some(watched))
    }

    /// Undoes a pause, after what the handle watches is in the poller again.
    pub(super) fn resume(&mut self, key: SlabKey) {
        let hook_runs = self.hook_runs;
        let resumed = self.change(key, |handle| {
            let was_paused = std::mem::replace(&mut handle.is_paused, false);
            match &mut handle.kind {
                HandleKind::Hook { phase, resumed_in, .. } if was_paused => {
                    *resumed_in = Some(hook_runs[*phase as usize]);
                    Some(*phase)
                }
                _ => None,
            }
        });
        if let Some(Some(phase)) = resumed {
            self.hooks_to_change(phase).push(key);
        }
    }

    /// The hooks of this phase in the order of their start. Its next run begins.
    pub(super) fn begin_run(&mut self, phase: HookPhase) -> Rc<Vec<SlabKey>> {
        self.hook_runs[phase as usize] += 1;
        Rc::clone(&self.hooks[phase as usize])
    }

    fn hooks_to_change(&mut self, phase: HookPhase) -> &mut Vec<SlabKey> {
        Rc::make_mut(&mut self.hooks[phase as usize])
    }

    /// Lets the hooks of this phase begin with another one in the next iteration: the one after the first `done`.
    pub(super) fn begin_after(&mut self, phase: HookPhase, done: usize) {
        let hooks = self.hooks_to_change(phase);
        let done = done.min(hooks.len());
        hooks.rotate_left(done);
    }

    /// Nothing if the hook was closed or paused since the hooks were listed.
    pub(super) fn take_hook(&mut self, key: SlabKey) -> Option<(Site, Repeated)> {
        let handle = self.slab.get_mut(key)?;
        let HandleKind::Hook { phase, resumed_in, callback } = &mut handle.kind else { return None };
        if handle.is_paused || *resumed_in == Some(self.hook_runs[*phase as usize]) {
            return None;
        }
        Some((handle.site, callback.take()?))
    }

    /// Gives a callback back to its handle after it ran. Returns it if the handle was closed meanwhile.
    pub(super) fn restore_hook(&mut self, key: SlabKey, hook: Repeated) -> Option<Repeated> {
        match self.slab.get_mut(key) {
            Some(Handle { kind: HandleKind::Hook { callback, .. }, .. }) => callback.replace(hook),
            _ => Some(hook),
        }
    }

    /// What an event on this handle leads to; nothing if the handle was closed before.
    pub(super) fn take_for_event(&mut self, key: SlabKey, readiness: Readiness) -> Option<(Site, Called)> {
        let handle = self.slab.get_mut(key).filter(|handle| !handle.is_paused)?;
        let called = match &mut handle.kind {
            // The interest may have changed since the kernel reported the event.
            HandleKind::Watch { interest, callback, .. } => {
                let readiness = readiness.within(*interest)?;
                Called::Watch(callback.take()?, readiness)
            }
            // Each pipe has an event of its own, so one signal an event is enough.
            HandleKind::Signals { callback, pipes } => {
                let signal = pipes.iter().find(|pipe| pipe.drain())?.signal();
                Called::Signal(callback.take()?, signal)
            }
            HandleKind::Waiters(waiters) => Called::Wake(waiters.fire(readiness)),
            HandleKind::Source(registration) => Called::Source(registration.source()?),
            HandleKind::Hook { .. } => return None,
        };
        Some((handle.site, called))
    }

    pub(super) fn restore_watch(&mut self, key: SlabKey, watch: WatchCallback) -> Option<WatchCallback> {
        match self.slab.get_mut(key) {
            Some(Handle { kind: HandleKind::Watch { callback, .. }, .. }) => callback.replace(watch),
            _ => Some(watch),
        }
    }

    pub(super) fn restore_signals(
        &mut self,
        key: SlabKey,
        signals: SignalCallback,
    ) -> Option<SignalCallback> {
        match self.slab.get_mut(key) {
            Some(Handle { kind: HandleKind::Signals { callback, .. }, .. }) => callback.replace(signals),
            _ => Some(signals),
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<Handle> {
        self.alive = 0;
        self.hooks = Default::default();
        self.waiting.clear();
        self.slab.take_all()
    }

    /// Without those that were closed and only have to be left by their futures.
    pub(super) fn iter(&self) -> impl Iterator<Item = (HandleId, &Handle)> {
        let is_there = |handle: &Handle| match &handle.kind {
            HandleKind::Waiters(waiters) => !waiters.is_cancelled(),
            _ => true,
        };
        let all = self.slab.iter_with_keys().map(|(key, handle)| (HandleId(key), handle));
        all.filter(move |(_, handle)| is_there(handle))
    }

    pub(super) fn for_each_alive(&self, mut see: impl FnMut(AliveKind, Site)) {
        for handle in self.slab.iter().filter(|handle| handle.keeps_alive()) {
            see(handle.kind.name(), handle.site);
        }
    }
}

/// The callback that an event belongs to, taken out of its handle.
pub(super) enum Called {
    Watch(WatchCallback, Readiness),
    Signal(SignalCallback, i32),
    Wake(Vec<Rc<Waiter>>),
    Source(Rc<dyn Registered>),
}
