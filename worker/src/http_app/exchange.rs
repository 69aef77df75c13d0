//! One request and its answer, on a connection of their own. The answer is read while the request is sent, so an application that
//! answers before it has read holds nobody up; what it sent before its end is read before that is believed.
//!
//! ```text
//!   in the backlog ── accepted ──► something was sent ──► a byte of the answer
//!   ends here:        ends here:   ends here:             ends here:
//!   not begun         not begun    reset: perhaps begun   begun
//!                                  end of file: begun
//! ```
//!
//! A reset says that the application had not read all that was sent; how much it had read, nobody can see afterwards. An end of file
//! says that it had.
//!
//! Where a body has no length, the end of the connection ends it, and a crash looks like that, too: so it is looked at whether the
//! application is ending. A reset is such an end, too, if the application goes on: it has not read all of the request, and need not.

use super::answer::{Answer, Event, Head};
use super::backlog::{Backlog, OtherEnd};
use super::request::Request;
use crate::Bytes;
use crate::foreign::Foreign;
use crate::limits::{
    HTTP_APP_ACCEPT_LOOK_MAX, HTTP_APP_ACCEPT_LOOK_MIN, HTTP_APP_END_MAX, HTTP_APP_READ_MAX,
    HTTP_APP_RESET_MAX,
};
use bytes::Buf;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, writev};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(super) enum Broken {
    /// The application has ended.
    Ended,
    /// It takes no connection, or has closed the one that it had. A sentence without its subject.
    Closed(String),
    /// What it sent is no answer. A sentence without its subject.
    Wrong(String),
    /// Nobody wants the answer any more.
    Unwanted,
}

/// Whether the application has begun the job of a request. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    No,
    Perhaps,
    Yes,
}

/// See the module's documentation.
pub(super) struct Exchange<'a> {
    program: &'a Foreign,
    backlog: &'a Backlog,
    stream: OwnedFd,
    /// What is left of the head and of the body.
    unsent: [Bytes; 2],
    /// Since when it is waited for that the application accepts the connection. `None` if something may be sent.
    waiting_since: Option<Instant>,
    /// Since when its other end is gone, if the reset that tells it has not come.
    gone_since: Option<Instant>,
    has_sent: bool,
    has_received: bool,
    /// The connection was closed before all that was sent had been read.
    was_reset: bool,
    received: Vec<u8>,
    answer: Answer,
    /// The application sends no more.
    is_all: bool,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        program: &'a Foreign,
        backlog: &'a Backlog,
        (stream, is_accepted): (OwnedFd, bool),
        request: Request,
    ) -> Exchange<'a> {
        let Request { head, body, answer } = request;
        Exchange {
            program,
            backlog,
            stream,
            unsent: [head, body],
            waiting_since: (!is_accepted).then(Instant::now),
            gone_since: None,
            has_sent: false,
            has_received: false,
            was_reset: false,
            received: Vec::new(),
            answer: Answer::new(answer),
            is_all: false,
        }
    }

    /// Whether the application has begun what it was asked, if there is no answer.
    pub(super) fn begun(&self) -> Begun {
        match (self.has_sent, self.was_reset && !self.has_received) {
            (false, _) => Begun::No,
            (true, true) => Begun::Perhaps,
            (true, false) => Begun::Yes,
        }
    }

    /// The head of the answer.
    pub(super) fn head(&mut self) -> Result<Head, Broken> {
        match self.next()? {
            Event::Head(head) => Ok(head),
            Event::Piece(_) | Event::End => Err(Broken::Wrong("sent a body without a head".to_owned())),
        }
    }

    /// The next piece of its body, `None` behind the last one.
    pub(super) fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        match self.next()? {
            Event::Piece(piece) => Ok(Some(piece)),
            Event::Head(_) | Event::End => Ok(None),
        }
    }

    fn next(&mut self) -> Result<Event, Broken> {
        loop {
            let next = self.answer.next(&mut self.received, self.is_all).map_err(Broken::Wrong)?;
            match next {
                Some(event) => return Ok(event),
                None if self.is_all => {
                    return Err(Broken::Closed(
                        "closed the connection before its answer was complete".to_owned(),
                    ));
                }
                None => self.move_bytes()?,
            }
        }
    }

    /// How long until it has to be looked again whether the application has accepted the connection. `None` if it has, or nobody can
    /// see that. What was accepted a moment ago may be closed before something is sent: then sending fails, or ends in a reset.
    fn pause(&mut self) -> Option<Timespec> {
        let waited = self.waiting_since?.elapsed();
        let waits = match self.backlog.other_end(&self.stream) {
            OtherEnd::Unowned => true,
            // Without a reset, the connection may exist all the same: a listener that answers with SYN cookies, and whose backlog is
            // full, knows nothing of a connection until something is sent on it.
            OtherEnd::Gone => self.gone_since.get_or_insert_with(Instant::now).elapsed() < HTTP_APP_RESET_MAX,
            OtherEnd::Accepted | OtherEnd::Unknown => false,
        };
        if !waits {
            self.waiting_since = None;
            return None;
        }
        Timespec::try_from(until_next_look(waited)).ok()
    }

    /// Waits until something can be sent or was received, or the application has ended, or a little while if it has not accepted the
    /// connection.
    fn move_bytes(&mut self) -> Result<(), Broken> {
        let pause = self.pause();
        let is_sending = pause.is_none() && self.unsent.iter().any(|unsent| !unsent.is_empty());
        let flags = if is_sending { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut polled = [
            PollFd::from_borrowed_fd(self.program.process(), PollFlags::IN),
            PollFd::new(&self.stream, flags),
            PollFd::from_borrowed_fd(self.program.signals(), PollFlags::IN),
        ];
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if !polled[2].revents().is_empty() {
            self.program.heed_signals();
        }
        let has_ended = !polled[0].revents().is_empty();
        if is_sending && polled[1].revents() != PollFlags::IN {
            self.send();
        }
        // A process that it has started may have the connection, too, so the end of that may never come.
        match self.receive()? || !has_ended {
            true => Ok(()),
            false => Err(Broken::Ended),
        }
    }

    /// Who takes no more has an answer already, or is about to end.
    fn send(&mut self) {
        let [head, body] = &mut self.unsent;
        match writev(&self.stream, &[IoSlice::new(head), IoSlice::new(body)]) {
            Ok(count) => {
                self.has_sent |= count > 0;
                let of_head = count.min(head.len());
                head.advance(of_head);
                body.advance(count - of_head);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // A reset is told once, to whoever is first to ask.
                self.was_reset |= errno == Errno::CONNRESET;
                self.unsent = [Bytes::new(), Bytes::new()];
            }
        }
    }

    /// Takes what has come. False if nothing has.
    fn receive(&mut self) -> Result<bool, Broken> {
        self.received.reserve(HTTP_APP_READ_MAX);
        match read(&self.stream, spare_capacity(&mut self.received)) {
            Ok(0) => self.end_answer()?,
            Ok(_) => self.has_received = true,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => {
                self.was_reset |= errno == Errno::CONNRESET;
                if errno != Errno::CONNRESET || !self.answer.ends_with_connection() {
                    return Err(failed(errno));
                }
                self.end_answer()?;
            }
        }
        Ok(true)
    }

    /// No more will come.
    fn end_answer(&mut self) -> Result<(), Broken> {
        if self.answer.ends_with_connection() && self.program.fails_within(HTTP_APP_END_MAX) {
            return Err(Broken::Ended);
        }
        self.is_all = true;
        Ok(())
    }
}

/// After which time it is looked again whether a connection has been accepted, if that was waited for so long.
pub(super) fn until_next_look(waited: Duration) -> Duration {
    (waited / 2).clamp(HTTP_APP_ACCEPT_LOOK_MIN, HTTP_APP_ACCEPT_LOOK_MAX)
}

fn failed(errno: Errno) -> Broken {
    Broken::Closed(format!("broke the connection before its answer was complete: {errno}"))
}
