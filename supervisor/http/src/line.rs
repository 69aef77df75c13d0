//! One connection as bytes: what comes in passes the [`Guard`], and what goes out is written as far as the client reads.
//!
//! ```text
//!   transport --> buffer (heads, and what came with them) --> Guard --> hyper
//!      |                                                                  ^
//!      '-------- the rest of a body with a length, directly --------------'
//! ```
//!
//! hyper sees a head only when all of it is there and sound. To hyper a violation is the end of what the client sends; the answer
//! to it is written here, when hyper has written all others. What is read when is in `line/reading.rs`.

mod half_closed;
mod incoming;
mod reading;

use crate::frames::{self, Frames};
use crate::guard::Violation;
use crate::limits::HEAD_MAX;
use crate::patience::{Late, Patience, Timekeeper};
use crate::problem;
use crate::refused::{FirstLine, Refused};
use crate::socket::Socket;
use crate::tls::{Session, TlsVersion};
use crate::traffic::Traffic;
use crate::transport::{Security, Transport};
use half_closed::{Grace, Stage};
use hyper::rt::{Read, ReadBufCursor, Write};
use incoming::Incoming;
use offload_event_loop::{LoopError, LoopHandle};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD_IS_LATE: Violation =
    Violation { status: 408, reason: "the head of the request did not come in time" };

const NOT_AGREED: Violation =
    Violation { status: 400, reason: "HTTP/2 was agreed on (ALPN): speak it, or offer http/1.1 or nothing" };

const NOT_TLS: Violation =
    Violation { status: 400, reason: "this port speaks TLS: write https:// in place of http://" };

/// Why nothing that comes is answered any more. What the client still sends is read only to see its end, and thrown away.
#[derive(Clone, Copy)]
enum Refusal {
    /// The client has sent too much ahead for too long.
    TooMuchAhead,
    /// It is answered with this, when hyper has written all other answers.
    Violation(Violation),
}

/// What the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// See the module's documentation.
pub(crate) struct Line {
    transport: Transport,
    patience: Rc<Patience>,
    traffic: Rc<Traffic>,
    incoming: RefCell<Incoming>,
    refusal: Cell<Option<Refusal>>,
    /// Nothing more is read, because the client ended or because it is to end.
    is_over: Cell<bool>,
    /// No further request is answered.
    is_ending: Cell<bool>,
    /// Of the answer to the request under way, over HTTP/1.
    stage: Cell<Stage>,
    /// Whether somebody waits for it, once the client sends no more.
    is_awaited: Cell<Option<bool>>,
    /// Once the client sends no more, the answer has a short time to come before the client is asked whether it waits. This says how
    /// much of that time is over.
    grace: Rc<Cell<Grace>>,
    handle: LoopHandle,
}

impl Line {
    /// A connection that was just accepted, with TLS if there is a session for it.
    ///
    /// # Errors
    /// What the loop says, if it cannot watch the socket.
    pub(crate) fn new(
        keeper: &Rc<Timekeeper>,
        descriptor: OwnedFd,
        tls: Option<Session>,
        traffic: &Rc<Traffic>,
    ) -> Result<Rc<Line>, LoopError> {
        let line = Rc::new(Line {
            transport: Transport::new(Socket::new(&keeper.handle, descriptor)?, tls),
            patience: Patience::new(keeper),
            traffic: Rc::clone(traffic),
            incoming: RefCell::default(),
            refusal: Cell::new(None),
            is_over: Cell::new(false),
            is_ending: Cell::new(false),
            stage: Cell::default(),
            is_awaited: Cell::new(None),
            grace: Rc::default(),
            handle: keeper.handle.clone(),
        });
        traffic.open();
        let me = Rc::downgrade(&line);
        line.patience.watch(move |late| {
            if let Some(line) = me.upgrade() {
                line.be_late(late);
            }
        });
        Ok(line)
    }

    pub(crate) fn patience(&self) -> &Rc<Patience> {
        &self.patience
    }

    /// Where this connection is counted.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The version of TLS, if there is any.
    pub(crate) fn tls_version(&self) -> Option<TlsVersion> {
        if let Security::Secure(version) = self.transport.security() { Some(version) } else { None }
    }

    /// Waits until it is clear what the client speaks. None if it says nothing that could be answered.
    pub(crate) async fn greet(&self) -> Option<Protocol> {
        let protocol = poll_fn(|context| self.poll_greet(context)).await;
        if let (Some(_), Some(version)) = (protocol, self.tls_version()) {
            self.traffic.complete_handshake(version);
        }
        protocol
    }

    fn poll_greet(&self, context: &Context<'_>) -> Poll<Option<Protocol>> {
        loop {
            let mut incoming = self.incoming.borrow_mut();
            let (bytes, agreed) = (incoming.unseen(), self.transport.agreed());
            let (is_http2, may_be_http2) = match agreed {
                Some(Protocol::Http1) => (false, bytes.is_empty()),
                Some(Protocol::Http2) | None => (bytes.starts_with(PREFACE), PREFACE.starts_with(bytes)),
            };
            if is_http2 {
                let mut frames = Frames::default();
                self.patience.frames_came(frames.pass(&bytes[PREFACE.len()..]));
                incoming.frames = Some(frames);
                return Poll::Ready(Some(Protocol::Http2));
            }
            if !may_be_http2 && agreed == Some(Protocol::Http2) {
                self.refuse_all(NOT_AGREED);
            } else if !may_be_http2 {
                match incoming.clear() {
                    Ok(true) => {
                        self.patience.head_is_there();
                        return Poll::Ready(Some(Protocol::Http1));
                    }
                    Ok(false) => {}
                    Err(violation) => self.refuse_all(violation),
                }
            }
            drop(incoming);
            if self.is_at_end() || ready!(self.poll_fill(context)).is_err() {
                if self.transport.security() == Security::OtherProtocol {
                    self.refuse_all(NOT_TLS);
                }
                return Poll::Ready(None);
            }
        }
    }

    /// Why the connection is about to end, if the client is to blame.
    fn violation(&self) -> Option<Violation> {
        match self.refusal.get() {
            Some(Refusal::Violation(violation)) => Some(violation),
            Some(Refusal::TooMuchAhead) | None => None,
        }
    }

    /// If the client has violated the rules: what it is still to be told, which is nothing without a way to tell it, and what there is to
    /// log.
    pub(crate) fn farewell(&self) -> Option<(Vec<u8>, Refused)> {
        let violation = self.violation()?;
        let incoming = self.incoming.borrow();
        let is_http2 = incoming.frames.is_some() || self.transport.agreed() == Some(Protocol::Http2);
        let first_line = match self.transport.text_without_tls() {
            Some(text) => FirstLine::of(&text),
            None if is_http2 => FirstLine::default(),
            None => FirstLine::of(incoming.unseen()),
        };
        let (farewell, bytes) = match (is_http2, self.transport.can_answer()) {
            (_, false) => (Vec::new(), 0),
            (true, true) => (goodbye(incoming.frames.as_ref(), violation), 0),
            (false, true) => problem::raw(violation, first_line.is_head()),
        };
        let refused = Refused { status: violation.status, bytes, first_line, tls: self.tls_version() };
        Some((farewell, refused))
    }

    /// From now on nothing that comes is answered but for this.
    fn refuse_all(&self, violation: Violation) {
        self.refusal.set(Some(Refusal::Violation(violation)));
    }

    /// Tells the client what it is still to be told, and then waits for it to close the connection, so that it can read that.
    /// All of this has its time, or a client that reads nothing could keep the connection for ever.
    pub(crate) async fn end(&self, farewell: Option<Vec<u8>>) {
        self.patience.lingers();
        let mut rest = farewell.as_deref().unwrap_or_default();
        while !rest.is_empty() {
            match poll_fn(|context| self.transport.poll_write(context, &[IoSlice::new(rest)])).await {
                Ok(written) => {
                    self.traffic.send(written);
                    rest = &rest[written..];
                }
                Err(_) => return,
            }
        }
        self.transport.close();
        if poll_fn(|context| self.transport.poll_flush(context)).await.is_err() {
            return;
        }
        self.transport.socket().shut_down();
        let mut scratch = Vec::with_capacity(HEAD_MAX);
        while matches!(poll_fn(|context| self.transport.poll_discard(context, &mut scratch)).await, Ok(1..)) {
        }
    }

    /// Whether the connection is to end when its requests are answered.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// From now on it is: a client over HTTP/2 is told so, and does not hold up the end by not taking note of it.
    pub(crate) fn begin_to_end(&self) {
        self.is_ending.set(true);
        self.patience.begins_to_end();
    }

    /// Whether nothing more is read, or what is read is not answered.
    fn is_at_end(&self) -> bool {
        self.is_over.get() || self.is_refusing()
    }

    /// Whether nothing that comes is answered any more.
    fn is_refusing(&self) -> bool {
        self.refusal.get().is_some()
    }

    /// Answers a connection for which there is no room, as far as the socket takes that at once, and says what there is to log. With TLS
    /// nothing can be told without a handshake.
    pub(crate) fn refuse(&self, violation: Violation) -> Refused {
        let mut refused =
            Refused { status: violation.status, bytes: 0, first_line: FirstLine::default(), tls: None };
        if self.transport.can_answer() {
            let (answer, length) = problem::raw(violation, false);
            // If the client is gone, nobody misses the answer.
            let _ = self.transport.socket().write_at_once(&answer);
            refused.bytes = length;
        }
        refused
    }

    /// From now on the connection is of no use.
    pub(crate) fn cut(&self) {
        self.transport.socket().cut();
    }

    /// Whether the beginning of a request has come that nobody has looked at, because it came in this turn, while this process was
    /// paused, or behind many others. Of a client that is not known only the first bytes count (with TLS, those of the handshake):
    /// otherwise anybody could keep a connection by sending on.
    pub(crate) fn has_unseen_request(&self) -> bool {
        let is_known = self.patience.is_known();
        let is_ahead = is_known && !self.incoming.borrow().is_empty() && !self.patience.awaits_rest_of_head();
        is_ahead || self.transport.socket().has_news(!is_known)
    }

    /// Whether it is of no use any more, and about to be gone.
    pub(crate) fn is_cut(&self) -> bool {
        self.transport.socket().is_cut()
    }

    fn be_late(&self, late: Late) {
        let is_http1 = self.incoming.borrow().frames.is_none();
        match late {
            Late::Head => {
                self.refuse_all(HEAD_IS_LATE);
                self.transport.socket().wake_reader();
            }
            Late::Ahead => {
                self.refusal.set(self.refusal.get().or(Some(Refusal::TooMuchAhead)));
                self.transport.socket().wake_reader();
            }
            Late::Guesses => {
                self.is_ending.set(true);
                self.transport.socket().wake_reader();
            }
            Late::Idle if is_http1 => {
                self.is_over.set(true);
                self.transport.socket().wake_reader();
            }
            // The client is told, because a request of its may be under way; if it does not answer, there is a second time.
            Late::Idle if !self.is_ending.replace(true) => self.transport.socket().wake_reader(),
            Late::Idle | Late::Reader | Late::Linger => self.transport.socket().cut(),
        }
    }
}

/// What a client is told over HTTP/2. Without frames nothing was said yet, so that has to begin as it should.
fn goodbye(frames: Option<&Frames>, violation: Violation) -> Vec<u8> {
    let code = if violation.status == 408 { frames::TOO_SLOW } else { frames::NOT_HTTP2 };
    match frames {
        Some(frames) => frames.goodbye(code, violation.reason),
        None => [&frames::PREFACE[..], &Frames::default().goodbye(code, violation.reason)].concat(),
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if matches!(self.transport.security(), Security::Handshake | Security::OtherProtocol) {
            self.traffic.fail_handshake();
        }
        self.traffic.close();
    }
}

/// The line as hyper uses it.
pub(crate) struct Wire(pub(crate) Rc<Line>);

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(context, &mut cursor)
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.0.transport.poll_flush(context);
        match &flushed {
            // hyper has written all that it had.
            Poll::Ready(Ok(())) => self.0.patience.nothing_is_left(),
            Poll::Ready(Err(_)) => self.0.patience.connection_ends(),
            Poll::Pending => self.0.patience.answer_waits(),
        }
        flushed
    }

    /// The line itself ends the connection, when a violation was answered.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0.transport.poll_write(context, pieces) {
            Poll::Ready(Ok(count)) => {
                self.0.traffic.send(count);
                self.0.patience.answer_was_taken(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => {
                self.0.patience.connection_ends();
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                self.0.patience.answer_waits();
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;
