//! The body of a request as hyper has it; and what becomes of the rest of it, if nobody wants that.
//!
//! ```text
//!   over HTTP/1: hyper reads on or ends the connection, which lingers (line.rs)
//!   over HTTP/2: the rest is read and dropped ----> it has come to its end, or it was too much, or it took too long
//! ```
//!
//! Over HTTP/2 hyper ends a stream with RST_STREAM, if it was answered and its body has not come to its end. There are clients, among
//! them curl 7.88, that take this for the failure of the request, and never look at the answer before it. So a body is not given up
//! while it is probably about to end, or the client still has to read the answer.

use crate::limits::{LINGER_TIME, STREAM_WINDOW, WRITE_BUFFER};
use crate::patience::{Left, Patience};
use bytes::Bytes;
use http::Version;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// See the module's documentation.
pub(crate) struct Arriving {
    /// Until this is dropped.
    incoming: Option<Incoming>,
    /// Of the connection, if that is one of HTTP/2.
    patience: Option<Rc<Patience>>,
}

impl Arriving {
    pub(crate) fn new(incoming: Incoming, version: Version, patience: &Rc<Patience>) -> Arriving {
        let patience = (version == Version::HTTP_2).then(|| Rc::clone(patience));
        Arriving { incoming: Some(incoming), patience }
    }

    /// How much is still to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    /// What hyper does over HTTP/1 when this is dropped depends on how much is left.
    pub(crate) fn left(&self) -> Left {
        let is_much = || self.size_hint().lower() > WRITE_BUFFER as u64;
        match self.patience.is_some() || self.is_end_stream() {
            true => Left::Nothing,
            false if is_much() => Left::Much,
            false => Left::Little,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.incoming.as_mut().map_or(Poll::Ready(None), |incoming| Pin::new(incoming).poll_frame(context))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let Some(patience) = &self.patience else { return };
        if let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) {
            let keeper = &patience.keeper;
            let clock = keeper.clock.clone();
            // The task ends with the connection, if not before.
            drop(keeper.handle.spawn(async move { read_and_drop(incoming, clock.sleep(LINGER_TIME)).await }));
        }
    }
}

/// Reads as much as a client may have sent before it got the answer: what comes behind that is of one that sends on.
async fn read_and_drop(mut incoming: Incoming, time: impl Future<Output = ()>) {
    let (mut time, mut left) = (pin!(time), STREAM_WINDOW as usize);
    poll_fn(|context| {
        loop {
            match Pin::new(&mut incoming).poll_frame(context) {
                Poll::Pending => return time.as_mut().poll(context),
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    if length > left {
                        return Poll::Ready(());
                    }
                    left -= length;
                }
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
            }
        }
    })
    .await;
}
