//! What is registered with a server: handlers and checks. They may own the server, which owns them, and it would live for ever. So they
//! are dropped when no request can come any more, and with the loop.

use super::{Handler, Inner};
use crate::problem::Problem;
use crate::request::Remote;
use crate::router::{Found, Router};
use http::request::Parts;
use offload_event_loop::{LoopHandle, OnGone};
use std::rc::{Rc, Weak};

/// Decides whether a request is answered.
type Check = Rc<dyn Fn(&Parts, Remote) -> Result<(), Problem>>;

/// Finds routes that are not in the server's own router.
type LookUp = Rc<dyn Fn(&mut Parts) -> Found<Handler>>;

#[derive(Default)]
pub(super) struct Registered {
    pub(super) router: Router<Handler>,
    pub(super) look_ups: Vec<LookUp>,
    pub(super) checks: Rc<Vec<Check>>,
}

impl Inner {
    /// When the loop is gone, no request can come, and nothing waits for the end of the server.
    pub(super) fn drop_with_loop(me: &Weak<Inner>, handle: &LoopHandle) -> OnGone {
        let me = Weak::clone(me);
        handle.on_gone(move || {
            if let Some(server) = me.upgrade() {
                server.drop_registered();
                let done = server.done.take();
                drop(done);
            }
        })
    }

    /// On a loop that is gone nothing is registered.
    pub(super) fn register<R>(&self, register: impl FnOnce(&mut Registered) -> R) -> R {
        let registered = register(&mut self.registered.borrow_mut());
        if self.handle.is_gone() {
            self.drop_registered();
        }
        registered
    }

    /// What is dropped may come back to the server, so that is not borrowed then.
    pub(super) fn drop_registered(&self) {
        let registered = self.registered.take();
        drop(registered);
    }
}
