//! Closing anything by its name: a timer, an immediate, a hook, a watcher, a handler of signals, a source, or the futures that
//! wait for a descriptor.
//!
//! Each kind is taken out in its own way, but `on_closed` always runs in the closing phase, and only if there was something
//! to close.

use std::panic::Location;
use std::rc::Rc;

use super::callback::{Callback, OnClosed, Site};
use super::error::LoopError;
use super::handle::Referable;
use super::handles::{HandleId, HandleKind};
use super::readiness::Waiter;
use super::sources::Registered;
use super::{Context, LoopHandle};

/// Who has to take a handle out of the loop.
enum Owner {
    /// The loop: nobody else has anything of it.
    Loop,
    /// The source itself, which tells everybody who waits for it.
    Source(Rc<dyn Registered>),
    /// The futures, each of which leaves when it is polled or dropped.
    Futures(Vec<Rc<Waiter>>),
}

impl LoopHandle {
    /// Closes a handle: nothing of it runs from here on, and what it watched is dropped. `on_closed` runs in the closing
    /// phase of this iteration. It takes every name that the list of [`handles`](LoopHandle::handles) has, as `uv_close` takes
    /// every handle:
    ///
    /// - A hook, a watcher or a handler of signals is gone, and its callback is dropped.
    /// - A source is closed as by its own `close`, for example [`Stream::close`](super::Stream::close): whoever waits for a
    ///   write is told. A child process runs on.
    /// - A timer or an immediate is cancelled, as by [`clear`](LoopHandle::clear).
    /// - Futures that wait for a descriptor end with [`LoopError::Cancelled`].
    ///
    /// # Errors
    /// [`LoopError::AlreadyClosed`], also for what has run or was cleared; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(
        &self,
        id: impl Into<Referable>,
        on_closed: impl FnOnce(&mut Context) + 'static,
    ) -> Result<(), LoopError> {
        let (site, on_closed) = (Location::caller(), Box::new(on_closed));
        match id.into() {
            Referable::Handle(id) => self.close_handle(id, site, on_closed),
            Referable::Timer(id) => self.closed(self.clear(id), site, on_closed),
            Referable::Immediate(id) => self.closed(self.clear(id), site, on_closed),
        }
    }

    fn close_handle(&self, id: HandleId, site: Site, on_closed: OnClosed) -> Result<(), LoopError> {
        match self.owner(id)? {
            Owner::Loop => {
                let removed = self.shared.handles.borrow_mut().remove(id.0);
                self.closed(removed.is_some(), site, on_closed)?;
                if let Some(handle) = removed {
                    handle.unwatch(&self.shared.poller);
                }
                Ok(())
            }
            Owner::Source(source) => source.close(site, on_closed).map_err(|_| LoopError::AlreadyClosed),
            Owner::Futures(waiters) => {
                self.shared.handles.borrow_mut().change(id.0, |_| waiters.iter().for_each(|it| it.cancel()));
                waiters.iter().for_each(|waiter| waiter.wake());
                self.closed(true, site, on_closed)
            }
        }
    }

    fn owner(&self, id: HandleId) -> Result<Owner, LoopError> {
        let handles = self.shared.handles.borrow();
        let handle = handles.get(id.0).ok_or(LoopError::AlreadyClosed)?;
        match &handle.kind {
            HandleKind::Hook { .. } | HandleKind::Watch { .. } | HandleKind::Signals { .. } => {
                Ok(Owner::Loop)
            }
            HandleKind::Source(source) => source.source().map(Owner::Source).ok_or(LoopError::AlreadyClosed),
            HandleKind::Waiters(waiters) if waiters.is_cancelled() => Err(LoopError::AlreadyClosed),
            HandleKind::Waiters(waiters) => Ok(Owner::Futures(waiters.all())),
        }
    }

    fn closed(&self, was_there: bool, site: Site, on_closed: OnClosed) -> Result<(), LoopError> {
        if !was_there {
            return Err(LoopError::AlreadyClosed);
        }
        self.shared.closing.push(Callback { site, run: on_closed });
        self.shared.drop_if_gone();
        Ok(())
    }
}
