//! Stopping a handle for a while: it keeps its callback, its name and whether it is referenced.

use super::LoopHandle;
use super::error::LoopError;
use super::handles::HandleId;

impl LoopHandle {
    /// Stops a hook, a watcher or a handler of signals, as `uv_idle_stop` and its like do: it is not called and does not keep
    /// the loop alive until it is [resumed](LoopHandle::resume). Nothing changes if it is paused already. A handle may pause
    /// itself and others, also those whose event has come with its own: they are not called any more.
    ///
    /// What happens to a paused handle is not made up for: signals that come meanwhile are ignored (libuv gives a signal
    /// that nobody handles any more its default action back; here that never happens, as after a
    /// [close](LoopHandle::close)). If a descriptor is still ready when its watcher is resumed, the watcher is called then.
    ///
    /// # Errors
    /// [`LoopError::AlreadyClosed`]; [`LoopError::NotPausable`] for a source and for futures that wait.
    pub fn pause(&self, id: HandleId) -> Result<(), LoopError> {
        let watched = self.shared.handles.borrow_mut().pause(id.0)?;
        if let Some(watched) = watched {
            watched.end(&self.shared.poller);
        }
        Ok(())
    }

    /// Starts a paused handle again, as `uv_idle_start` and its like do, with the callback that it has. Nothing changes if it
    /// is not paused. A hook comes behind all others of its phase, and if that phase is running, it waits for the next
    /// iteration.
    ///
    /// # Errors
    /// [`LoopError::AlreadyClosed`]. [`LoopError::AlreadyWatched`] if another watcher has taken the descriptor meanwhile, and
    /// [`LoopError::OutOfDescriptors`] if the kernel has no room for another watch; the handle stays paused then.
    pub fn resume(&self, id: HandleId) -> Result<(), LoopError> {
        let watched = match self.shared.handles.borrow().get(id.0) {
            None => return Err(LoopError::AlreadyClosed),
            Some(handle) if !handle.is_paused => return Ok(()),
            Some(handle) => handle.watched(),
        };
        watched.forget_missed();
        watched.begin(&self.shared.poller, id.0)?;
        self.shared.handles.borrow_mut().resume(id.0);
        Ok(())
    }
}
