//! A client that sends no more may wait for its answer (it has shut down its writing side), or be gone, and then its job is
//! cancelled. Over TCP both look the same until something is sent: whoever is gone answers that with a reset.
//!
//! ```text
//!   the end of what it sends ---- nothing of the answer was sent ----> 100 ms later: `100 Continue` is sent --- a reset ---> gone
//!            |                                                                          '---- nothing ----> it gets its answer
//!            |------------------- all of the answer is there --------> writing it shows who is there
//!            '------------------- otherwise -------------------------> gone
//! ```
//!
//! Otherwise is: over HTTP/1.0, where no interim answer may be sent, over TLS, where the end of what a client sends is the end of a
//! session, and in the middle of a stream, where nothing can be sent that is not part of it.

use super::Line;
use crate::body::Body;
use crate::limits::{HALF_CLOSED_GRACE, HALF_CLOSED_PROBE};
use crate::transport::Security;
use http::Version;
use http_body::Body as _;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What a client that waits passes over.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How far the answer to a request over HTTP/1 is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none, and an interim one may not be sent.
    #[default]
    Mute,
    /// There is none, and an interim one may be sent.
    Open,
    /// It is being sent, and all of it is there.
    Whole,
    /// It is being sent, and the rest of it may come at any time.
    Stream,
}

/// How much of [`HALF_CLOSED_GRACE`] is over. Most answers come before its end, and then the client is sent nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Grace {
    #[default]
    NotBegun,
    Running,
    Over,
}

impl Line {
    /// A request of this version is under way.
    pub(crate) fn request_begins(&self, version: Version) {
        self.is_awaited.set(None);
        self.stage.set(if version == Version::HTTP_11 { Stage::Open } else { Stage::Mute });
    }

    /// Its answer has this body.
    pub(crate) fn answer_begins(&self, body: &Body) {
        let is_whole = body.size_hint().exact().is_some();
        self.stage.set(if is_whole { Stage::Whole } else { Stage::Stream });
    }

    /// The client sends no more: waits until it is gone, or takes it for gone at once.
    pub(super) fn poll_unawaited(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_awaited.get().is_none() && self.stage.get() == Stage::Open && self.is_in_grace(context) {
            return self.transport.socket().poll_broken(context);
        }
        let is_awaited = self.is_awaited.get().unwrap_or_else(|| self.is_somebody_there());
        self.is_awaited.set(Some(is_awaited));
        match is_awaited {
            true => self.transport.socket().poll_broken(context),
            false => Poll::Ready(()),
        }
    }

    fn is_in_grace(&self, context: &Context<'_>) -> bool {
        if self.grace.get() == Grace::NotBegun {
            self.grace.set(Grace::Running);
            let (grace, waker) = (Rc::clone(&self.grace), context.waker().clone());
            let timer = self.handle.set_timeout(HALF_CLOSED_GRACE, move |_| {
                grace.set(Grace::Over);
                waker.wake();
            });
            self.handle.unref(timer);
        }
        self.grace.get() == Grace::Running
    }

    fn is_somebody_there(&self) -> bool {
        match self.stage.get() {
            Stage::Whole => true,
            Stage::Mute | Stage::Stream => false,
            Stage::Open => self.ask(),
        }
    }

    /// Sends what whoever is gone answers with a reset, if it can be sent now.
    fn ask(&self) -> bool {
        let socket = self.transport.socket();
        let can_ask = self.transport.security() == Security::Plain && !self.patience.is_unwritten();
        let is_asked = can_ask && socket.write_at_once(INTERIM);
        if is_asked {
            self.traffic.send(INTERIM.len());
            // A client that goes away later sends nothing any more.
            socket.keep_asking(HALF_CLOSED_PROBE);
        }
        is_asked
    }
}
