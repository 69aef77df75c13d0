//! The body of a request as hyper has it; and what becomes of the rest of it, if nobody wants that.
//!
//! ```text
//!   much is announced, or its client waits to be asked for it (HTTP/1) --> the answer says that the connection ends; it lingers (line.rs)
//!   otherwise: the rest is read and dropped --+--> it has come to its end, and the connection goes on
//!                                             '--> it was too much, or it took too long: the connection ends, over HTTP/2 the stream
//! ```
//!
//! Over HTTP/1 a client can only go on over its connection if the body is read, whoever wanted it. One that was told to come back later, or
//! that named a task that is not there, has to do that.
//!
//! Over HTTP/2 hyper ends a stream with RST_STREAM, if it was answered and its body has not come to its end. There are clients, among
//! them curl 7.88, that take this for the failure of the request, and never look at the answer before it. So a body is not given up
//! while it is probably about to end, or the client still has to read the answer.

use crate::limits::{LINGER_TIME, STREAM_WINDOW};
use crate::patience::{Left, RequestMark};
use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// See the module's documentation.
pub(crate) struct Arriving {
    /// Until nobody wants it.
    incoming: Option<Incoming>,
    is_http2: bool,
    /// Its client waits for `100 Continue`, and nothing of the body has come. hyper would send that if the rest was read.
    is_held_back: bool,
}

impl Arriving {
    pub(crate) fn new(incoming: Incoming, head: &Parts) -> Arriving {
        let is_http2 = head.version == Version::HTTP_2;
        let is_held_back = !is_http2 && head.headers.contains_key(EXPECT);
        Arriving { incoming: Some(incoming), is_http2, is_held_back }
    }

    /// How much is still to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let next = self
            .incoming
            .as_mut()
            .map_or(Poll::Ready(None), |incoming| Pin::new(incoming).poll_frame(context));
        self.is_held_back &= next.is_pending();
        next
    }

    /// Nobody wants the rest of the body of this request.
    pub(crate) fn leave(&mut self, mark: &Rc<RequestMark>) {
        let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) else {
            return;
        };
        if !self.is_http2 {
            let is_much = self.is_held_back || incoming.size_hint().lower() > u64::from(STREAM_WINDOW);
            mark.leave(if is_much { Left::Much } else { Left::Little });
            if is_much {
                return;
            }
        }
        let (keeper, is_http2) = (&mark.patience().keeper, self.is_http2);
        let (clock, its) = (keeper.clock.clone(), Rc::downgrade(mark));
        // The task ends with the connection, if not before.
        let reading = keeper.handle.spawn(async move {
            let has_ended = read_and_drop(incoming, clock.sleep(LINGER_TIME)).await;
            if let Some(mark) = its.upgrade().filter(|_| !is_http2) {
                mark.leave(if has_ended { Left::Nothing } else { Left::Much });
            }
        });
        mark.reads_rest(reading);
    }
}

/// Reads as much as a client may have sent before it got the answer: what comes behind that is of one that sends on. Returns whether that
/// was all.
async fn read_and_drop(mut incoming: Incoming, time: impl Future<Output = ()>) -> bool {
    let (mut time, mut left) = (pin!(time), STREAM_WINDOW as usize);
    poll_fn(|context| {
        loop {
            match Pin::new(&mut incoming).poll_frame(context) {
                Poll::Pending => return time.as_mut().poll(context).map(|()| false),
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    if length > left {
                        return Poll::Ready(false);
                    }
                    left -= length;
                }
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
            }
        }
    })
    .await
}
