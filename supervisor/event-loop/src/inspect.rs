//! What there is in a loop: all its timers and handles, and whether one is active or referenced.

use super::LoopHandle;
use super::alive::AliveKind;
use super::callback::Site;
use super::handle::Referable;

/// A timer or a handle of a loop. See [`LoopHandle::handles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandleInfo {
    /// Its name, by which it can be [closed](LoopHandle::close), [referenced and unreferenced](LoopHandle::unref). It is what
    /// `set_timeout`, `watch` and the like have returned, or the `handle_id` of a source, so it can be compared with those.
    pub id: Referable,
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
    ///
    /// ```
    /// use offload_event_loop::{AliveKind, EventLoop, Stream};
    /// use std::time::Duration;
    ///
    /// let mut event_loop = EventLoop::new()?;
    /// event_loop.set_interval(Duration::from_secs(1), |_| ());
    /// let (stream, _peer) = Stream::pair(&event_loop)?;
    /// stream.read_start(|_, _, _| ())?;
    ///
    /// for handle in event_loop.handles() {
    ///     if handle.id == stream.handle_id().into() {
    ///         assert_eq!(handle.what, AliveKind::Stream);
    ///     }
    ///     event_loop.close(handle.id, |_| ())?;
    /// }
    /// assert!(stream.is_closed());
    /// event_loop.run()?; // It calls what follows the closing, and then nothing is left.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handles(&self) -> Vec<HandleInfo> {
        let mut found: Vec<_> = self.shared.timers.borrow().list().collect();
        found.extend(self.shared.handles.borrow().iter().map(|(id, handle)| HandleInfo {
            id: id.into(),
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
