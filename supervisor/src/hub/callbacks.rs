//! Callbacks that wait for an event: a worker is ready, the hub has ended, memory is free, a reload is over. The hub
//! takes them out of here and has the event loop call them. They are never called from inside the hub, so a callback
//! may call the hub again.

use super::{Hub, OnNoWorker, OnReloaded, Then};
use offload_core::ids::Version;
use std::collections::BTreeMap;

/// The waiting callbacks. See the module's documentation.
#[derive(Default)]
pub(super) struct Callbacks {
    ready: Vec<Then>,
    ended: Vec<Then>,
    room: Vec<Then>,
    /// The ledger's count of releases when the callbacks that wait for room were last taken.
    releases_told: u64,
    no_worker: Option<OnNoWorker>,
    reloaded: BTreeMap<Version, OnReloaded>,
}

impl Callbacks {
    /// Adds a callback for when a worker is ready.
    pub(super) fn on_ready(&mut self, then: Then) {
        self.ready.push(then);
    }

    /// A worker is ready: takes out the callbacks that wait for that.
    pub(super) fn take_ready(&mut self) -> Vec<Then> {
        std::mem::take(&mut self.ready)
    }

    /// Adds a callback for when no job and no worker is left.
    pub(super) fn on_ended(&mut self, then: Then) {
        self.ended.push(then);
    }

    /// No job and no worker is left: takes out the callbacks that wait for that.
    pub(super) fn take_ended(&mut self) -> Vec<Then> {
        std::mem::take(&mut self.ended)
    }

    /// Adds a callback for when bytes are released.
    pub(super) fn on_room(&mut self, then: Then) {
        self.room.push(then);
    }

    /// Takes out the callbacks that wait for released bytes, if the count of releases has changed since the last call.
    pub(super) fn take_room(&mut self, releases: u64) -> Vec<Then> {
        match std::mem::replace(&mut self.releases_told, releases) != releases {
            true => std::mem::take(&mut self.room),
            false => Vec::new(),
        }
    }

    /// Sets the callback for when the first worker of a program cannot be started.
    pub(super) fn on_no_worker(&mut self, then: OnNoWorker) {
        self.no_worker = Some(then);
    }

    /// The first worker of a program cannot be started: takes out the callback. It is called only once.
    pub(super) fn take_no_worker(&mut self) -> Option<OnNoWorker> {
        self.no_worker.take()
    }

    /// Adds a callback for the end of the reload to this version.
    pub(super) fn on_reloaded(&mut self, version: Version, then: OnReloaded) {
        self.reloaded.insert(version, then);
    }

    /// The reload to this version has ended: takes out its callback.
    pub(super) fn take_reloaded(&mut self, version: Version) -> Option<OnReloaded> {
        self.reloaded.remove(&version)
    }
}

impl Hub {
    /// Calls `then` once a worker is ready. If one is ready already, `then` is called soon.
    pub(crate) fn when_ready(&mut self, then: Then) {
        if self.core.slots().iter().any(offload_core::slots::Slot::is_ready) {
            return self.handle.set_pending(then);
        }
        self.callbacks.on_ready(then);
    }

    /// Calls `then` with the reason if a start fails and its program has had no worker yet.
    pub(crate) fn when_no_worker_starts(&mut self, then: OnNoWorker) {
        self.callbacks.on_no_worker(then);
    }

    /// Has those called who wait for room, if bytes were released.
    pub(super) fn tell_of_room(&mut self) {
        let told = self.callbacks.take_room(self.core.ledger().releases());
        self.call_soon(told);
    }

    /// Has the event loop call these callbacks.
    pub(super) fn call_soon(&self, all: Vec<Then>) {
        all.into_iter().for_each(|then| self.handle.set_pending(then));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_room_is_told_once_for_each_release_and_not_of_one_before() {
        let mut callbacks = Callbacks::default();
        assert!(callbacks.take_room(1).is_empty());
        callbacks.on_room(Box::new(|_| ()));
        assert!(callbacks.take_room(1).is_empty(), "that was before");
        assert_eq!(callbacks.take_room(2).len(), 1);
        assert!(callbacks.take_room(3).is_empty(), "it has been told");
    }

    #[test]
    fn everybody_is_told_once() {
        let mut callbacks = Callbacks::default();
        callbacks.on_ready(Box::new(|_| ()));
        callbacks.on_ready(Box::new(|_| ()));
        callbacks.on_ended(Box::new(|_| ()));
        callbacks.on_reloaded(1, Box::new(|_, _| ()));
        assert_eq!((callbacks.take_ready().len(), callbacks.take_ready().len()), (2, 0));
        assert_eq!((callbacks.take_ended().len(), callbacks.take_ended().len()), (1, 0));
        assert!(callbacks.take_reloaded(2).is_none() && callbacks.take_reloaded(1).is_some());
        assert!(callbacks.take_reloaded(1).is_none());
    }
}
