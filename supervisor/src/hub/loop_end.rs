//! The end of the event loop, which the hub may outlive. Nobody is told of anything any more, so whatever waits here to be told
//! is dropped: it may own the hub, which would live for ever.

use super::callbacks::Callbacks;
use super::live_jobs::LiveJob;
use super::{Hub, HubRef};
use offload_core::ids::JobId;
use std::cell::RefCell;
use std::rc::Weak;

/// Part of a callback that is registered for as long as the hub exists, so it is dropped with the loop or with the hub.
pub(super) struct LoopEnd(Weak<RefCell<Hub>>);

/// What only the event loop could have told or carried out.
struct Unserved {
    _jobs: Vec<(JobId, LiveJob)>,
    _callbacks: Callbacks,
}

impl Hub {
    pub(super) fn loop_end(&self) -> LoopEnd {
        LoopEnd(self.me.clone())
    }

    fn take_unserved(&mut self) -> Unserved {
        Unserved {
            _jobs: self.records.close_all().collect(),
            _callbacks: std::mem::take(&mut self.callbacks),
        }
    }
}

impl Drop for LoopEnd {
    fn drop(&mut self) {
        // What is dropped may come back to the hub, so that is not borrowed then.
        let unserved = self.0.upgrade().and_then(|hub: HubRef| {
            let mut hub = hub.try_borrow_mut().ok()?;
            hub.handle.is_gone().then(|| hub.take_unserved())
        });
        drop(unserved);
    }
}
