//! The end of the event loop, which the hub may outlive. Nobody is told of anything any more, so whatever waits here to be told
//! is dropped: it may own the hub, which would live for ever.

use super::callbacks::Callbacks;
use super::live_jobs::LiveJob;
use super::{Hub, HubRef};
use offload_core::ids::JobId;
use offload_event_loop::{LoopHandle, OnGone};
use std::cell::RefCell;
use std::rc::Weak;

/// What only the event loop could have told or carried out.
struct Unserved {
    _jobs: Vec<(JobId, LiveJob)>,
    _callbacks: Callbacks,
}

impl Hub {
    pub(super) fn drop_unserved_with_loop(me: &Weak<RefCell<Hub>>, handle: &LoopHandle) -> OnGone {
        let me = Weak::clone(me);
        handle.on_gone(move || {
            // What is dropped may come back to the hub, so that is not borrowed then.
            let unserved = me.upgrade().and_then(|hub: HubRef| {
                let mut hub = hub.try_borrow_mut().ok()?;
                Some(hub.take_unserved())
            });
            drop(unserved);
        })
    }

    fn take_unserved(&mut self) -> Unserved {
        Unserved {
            _jobs: self.records.close_all().collect(),
            _callbacks: std::mem::take(&mut self.callbacks),
        }
    }
}
