//! A reply that a callback gives at once or later.

use crate::problem::Problem;
use crate::respond::{IntoResponse, Response};
use offload_protocol::nouns::OutcomeCode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Replies to one request. If it is dropped without a reply, the client gets a problem with status 500.
pub struct Replier(pub(super) Rc<PendingReply>);

#[derive(Default)]
pub(super) struct PendingReply {
    response: RefCell<Option<Response>>,
    is_dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl PendingReply {
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Response> {
        if let Some(response) = self.response.take() {
            return Poll::Ready(response);
        }
        if self.is_dropped.get() {
            return Poll::Ready(
                Problem::new(OutcomeCode::Panic, "nobody replied to this request").into_response(),
            );
        }
        self.waker.replace(Some(waker.clone()));
        Poll::Pending
    }
}

impl Replier {
    /// Sends the response, which goes nowhere if the client is gone. Never blocks.
    pub fn send(self, response: impl IntoResponse) {
        self.0.response.replace(Some(response.into_response()));
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        self.0.is_dropped.set(true);
        let waker = self.0.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}
