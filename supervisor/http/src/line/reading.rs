//! What is read from a connection, and what hyper gets of it.
//!
//! ```text
//!   hyper reads
//!      |-- the guard has passed something --> hyper gets it
//!      |-- all that comes is refused -------> what was passed before is answered, the rest is thrown away; then the end
//!      |-- the client has ended ------------> the end
//!      |-- in a body with a length, or over HTTP/2 --> it goes into hyper's memory directly
//!      |-- a request is under way ----------> the next one waits until it is answered
//!      '-- otherwise -----------------------> the guard looks at what is there, or more is read into the buffer; and again
//! ```

use super::Line;
use super::incoming::Incoming;
use crate::limits::{CHUNK_COST, FRAME_COST, HEAD_COST, HEAD_MAX};
use hyper::rt::ReadBufCursor;
use std::io;
use std::task::{Context, Poll, ready};

impl Line {
    /// What hyper reads: heads that are sound, and bodies.
    pub(super) fn poll_read(
        &self,
        context: &Context<'_>,
        cursor: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut incoming = self.incoming.borrow_mut();
            if incoming.cleared > 0 {
                incoming.hand_over(cursor);
                return Poll::Ready(Ok(()));
            }
            if self.is_refusing() {
                drop(incoming);
                // What was passed on before is answered first.
                let owes_answer = self.patience.owes_answer(context);
                return if owes_answer { self.poll_until_gone(context) } else { Poll::Ready(Ok(())) };
            }
            if incoming.is_empty() {
                if self.is_over.get() {
                    return Poll::Ready(Ok(()));
                }
                if let Some(most) = incoming.most_to_read_directly(cursor.remaining()) {
                    return self.poll_read_directly(context, &mut incoming, cursor, most);
                }
            }
            let is_between_requests = incoming.is_between_requests();
            drop(incoming);
            if is_between_requests && self.patience.has_request(context) {
                // The next request waits here until this one is answered.
                ready!(self.poll_gone(context));
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_clear(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Lets the guard look at what has come, and reads more if that is too little. False if the client has ended in the middle of a
    /// request.
    fn poll_clear(&self, context: &Context<'_>) -> Poll<io::Result<bool>> {
        let mut incoming = self.incoming.borrow_mut();
        let is_head = incoming.guard.awaits_head();
        let has_begun = is_head && !incoming.is_empty();
        if has_begun {
            ready!(self.transport.socket().poll_turn(context, HEAD_COST));
        } else if incoming.guard.is_in_chunks() {
            ready!(self.transport.socket().poll_turn(context, 0));
        }
        match incoming.clear() {
            Ok(true) if is_head && incoming.frames.is_none() => self.patience.head_is_there(),
            Ok(true) => self.transport.socket().pay(CHUNK_COST * incoming.guard.take_chunks()),
            Err(violation) if is_head => self.refuse_all(violation),
            // The answer to this request is hyper's, if it is still to be given.
            Err(violation) => return Poll::Ready(Err(io::Error::other(violation))),
            Ok(false) if self.is_over.get() => return Poll::Ready(Ok(false)),
            Ok(false) => {
                if has_begun {
                    self.patience.head_begins();
                }
                drop(incoming);
                ready!(self.poll_fill(context))?;
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Reads without looking at what comes, but for its frames.
    fn poll_read_directly(
        &self,
        context: &Context<'_>,
        incoming: &mut Incoming,
        cursor: &mut ReadBufCursor<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        let socket = self.transport.socket();
        if incoming.frames.is_some() {
            ready!(socket.poll_turn(context, 0));
        }
        let (frames, patience) = (&mut incoming.frames, &self.patience);
        let seen = |bytes: &[u8]| {
            if let Some(frames) = frames {
                let passed = frames.pass(bytes);
                socket.pay(FRAME_COST * passed.frames);
                patience.frames_came(passed);
            }
        };
        let count = ready!(self.transport.poll_read_into(context, most, cursor, seen))?;
        self.traffic.receive(count);
        self.is_over.set(count == 0);
        incoming.came_directly(count);
        Poll::Ready(Ok(()))
    }

    /// Reads more into the buffer.
    pub(super) fn poll_fill(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut incoming = self.incoming.borrow_mut();
        let room = incoming.make_room();
        let bytes = &mut incoming.bytes;
        let count = ready!(self.transport.poll_read(context, room, bytes))?;
        self.traffic.receive(count);
        self.is_over.set(count == 0);
        let is_head = count > 0 && incoming.frames.is_none() && incoming.guard.awaits_head();
        // The time for the next head begins when the request under way is answered.
        if is_head && !self.patience.is_answering() {
            self.patience.head_begins();
        }
        Poll::Ready(Ok(()))
    }

    /// While a request over HTTP/1 is under way: waits until the client is gone, and keeps what it sends ahead.
    pub(crate) fn poll_gone(&self, context: &Context<'_>) -> Poll<()> {
        loop {
            let incoming = self.incoming.borrow();
            let is_between_requests = incoming.is_between_requests();
            // hyper reads nothing behind a body that nobody wants.
            let is_behind_a_body = !is_between_requests && self.patience.is_body_left();
            if !(is_between_requests || is_behind_a_body) || !self.patience.is_answering() {
                return Poll::Pending;
            }
            let length = incoming.length();
            drop(incoming);
            if self.is_over.get() {
                return self.poll_unawaited(context);
            }
            let is_lost = if self.is_refusing() {
                ready!(self.poll_until_gone(context)).is_err()
            } else if length >= HEAD_MAX || is_behind_a_body {
                // The end of a client may not be seen behind what it has sent and nobody reads: it has limited time to hide in.
                self.patience.much_is_ahead();
                ready!(self.transport.socket().poll_hang_up(context));
                return self.poll_unawaited(context);
            } else {
                // It may have been a body that nobody wanted, which has been read meanwhile.
                self.patience.little_is_ahead();
                ready!(self.poll_fill(context)).is_err()
            };
            if is_lost {
                self.is_over.set(true);
                self.is_awaited.set(Some(false));
            }
        }
    }

    /// Throws away what comes, until the client is gone.
    fn poll_until_gone(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = Vec::with_capacity(HEAD_MAX);
        loop {
            let count = ready!(self.transport.poll_discard(context, &mut scratch))?;
            self.traffic.receive(count);
            if count == 0 {
                self.is_over.set(true);
                return Poll::Ready(Ok(()));
            }
        }
    }
}
