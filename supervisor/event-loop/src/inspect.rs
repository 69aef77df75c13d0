//! What there is in a loop: all its timers and handles, and whether one is active or referenced.

use super::LoopHandle;
use super::alive::AliveKind;
use super::callback::Site;
use super::handle::Referable;

/// A timer or a handle of a loop. See [`LoopHandle::handles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleInfo {
    /// What it is.
    pub what: AliveKind,
    /// Where it was registered.
    pub site: Site,
    /// Whether it is active: see [`LoopHandle::is_active`].
    pub is_active: bool,
    /// Whether it keeps the loop alive while it is active.
    pub is_referenced: bool,
}

impl LoopHandle {
    /// Every timer, hook, watcher, handler of signals, stream, listener, UDP socket and child process of this loop, also
    /// those that are paused, that nobody waits for, or that are unreferenced; futures that wait for a descriptor count as
    /// handles, too. Timers come first. What keeps the loop alive, and nothing else, is told by
    /// [`why_alive`](LoopHandle::why_alive).
    ///
    /// Like `uv_walk`, but it is a list of this moment, so handles may be closed while it is gone through; and what is
    /// closed is not in it, though the callback of its closing may still wait.
    pub fn handles(&self) -> Vec<HandleInfo> {
        let mut found = Vec::new();
        self.shared.timers.borrow().for_each(|site, is_active, is_referenced| {
            found.push(HandleInfo { what: AliveKind::Timer, site, is_active, is_referenced });
        });
        found.extend(self.shared.handles.borrow().iter().map(|handle| HandleInfo {
            what: handle.kind.name(),
            site: handle.site,
            is_active: handle.is_active(),
            is_referenced: handle.referenced,
        }));
        found
    }

    /// Whether a timer, a handle or an immediate is active, as `uv_is_active`: a timer that is armed, a hook or a handler
    /// of signals that is not paused, a watcher that neither is paused nor rests, an immediate that waits. False for what
    /// has run, was cleared or is closed.
    ///
    /// An interval is not armed while its callback runs (libuv's is): its next beat is decided when that has returned.
    pub fn is_active(&self, id: impl Into<Referable>) -> bool {
        match id.into() {
            Referable::Timer(id) => self.shared.timers.borrow().is_armed(id),
            Referable::Handle(id) => self.shared.handles.borrow().get(id.0).is_some_and(|it| it.is_active()),
            Referable::Immediate(id) => self.shared.immediates.borrow().is_referenced(id).is_some(),
        }
    }

    /// Whether a timer, a handle or an immediate is referenced, as `uv_has_ref`: it keeps the loop alive while it is active.
    /// False for what has run, was cleared or is closed; libuv's closing handles are still referenced.
    pub fn is_referenced(&self, id: impl Into<Referable>) -> bool {
        let is_referenced = match id.into() {
            Referable::Timer(id) => self.shared.timers.borrow().is_referenced(id),
            Referable::Handle(id) => self.shared.handles.borrow().get(id.0).map(|handle| handle.referenced),
            Referable::Immediate(id) => self.shared.immediates.borrow().is_referenced(id),
        };
        is_referenced.unwrap_or(false)
    }
}
