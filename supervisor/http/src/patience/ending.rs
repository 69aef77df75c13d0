//! How a connection ends with its last request when the server ends, and how it lingers.
//!
//! ```text
//!   Open ---- is to end ----> Held by requests, and by answers that are not written
//!                               '----> Free ---- 2 s later: the same as of an idle connection, if it is still there
//!
//!   from everywhere: everything is written ----> Lingering ---- 2 s later: cut, if the client has not closed it
//! ```
//!
//! The 2 s begin when the last answer is written, if only the rest of a body that nobody wants was read since then.

use super::Patience;
use crate::limits::LINGER_TIME;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// It is to end with its last request.
    Held,
    /// Nothing holds it since then: no request is under way, and no answer is unwritten. What the client sends meanwhile gives it no more
    /// time.
    Free { since: Instant },
    /// Everything is written.
    Lingering { since: Instant },
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Ending {
    state: Cell<State>,
    /// Pieces of answers that HTTP/2 has taken and not written.
    unwritten: Cell<usize>,
}

impl Ending {
    /// It is to end. Whether that is news.
    fn begins(&self) -> bool {
        let is_news = self.state.get() == State::Open;
        if is_news {
            self.state.set(State::Held);
        }
        is_news
    }

    /// To be called when a request has ended, or a piece was written: perhaps nothing holds the connection any more.
    fn note_freedom(&self, has_requests: bool, now: Instant) {
        if self.state.get() == State::Held && !has_requests && self.unwritten.get() == 0 {
            self.state.set(State::Free { since: now });
        }
    }

    fn lingers(&self, since: Instant) {
        self.state.set(State::Lingering { since });
    }

    /// Whether it is to end.
    pub(super) fn has_begun(&self) -> bool {
        self.state.get() != State::Open
    }

    /// When it has stayed too long without a request, though it is to end.
    pub(super) fn idle_limit(&self) -> Option<Instant> {
        match self.state.get() {
            State::Free { since } => Some(since + LINGER_TIME),
            State::Open | State::Held | State::Lingering { .. } => None,
        }
    }

    /// When it is no longer waited for the client to close it.
    pub(super) fn linger_limit(&self) -> Option<Instant> {
        match self.state.get() {
            State::Lingering { since } => Some(since + LINGER_TIME),
            State::Open | State::Held | State::Free { .. } => None,
        }
    }
}

impl Patience {
    /// The client is told that the connection is to end. When its requests are answered, it has some time to take note of that. What it
    /// sends meanwhile gives it no more time.
    pub(crate) fn begins_to_end(self: &Rc<Patience>) {
        if self.ending.begins() {
            // No request follows it.
            if !self.is_answering() {
                self.requests.read_no_rest();
            }
            self.note_freedom();
            self.look_by(self.now() + LINGER_TIME);
        }
    }

    /// Whether it is known that the connection ends when its requests are answered.
    pub(crate) fn is_to_end(&self) -> bool {
        self.ending.has_begun() || self.is_barred()
    }

    pub(super) fn note_freedom(&self) {
        self.ending.note_freedom(self.is_answering(), self.now());
    }

    /// HTTP/2 has taken a piece of an answer, and may keep it until the client makes room. It is unwritten until this is dropped.
    pub(crate) fn takes_piece(self: &Rc<Patience>) -> UnwrittenPiece {
        self.ending.unwritten.set(self.ending.unwritten.get() + 1);
        UnwrittenPiece(Rc::clone(self))
    }

    /// Everything is written, and the connection is to end.
    pub(crate) fn lingers(self: &Rc<Patience>) {
        let since = self.requests.only_reads_rest_since().unwrap_or(self.now());
        self.ending.lingers(since);
        self.look_again_at(since + LINGER_TIME);
    }
}

/// See [`Patience::takes_piece`].
pub(crate) struct UnwrittenPiece(Rc<Patience>);

impl Drop for UnwrittenPiece {
    fn drop(&mut self) {
        self.0.ending.unwritten.set(self.0.ending.unwritten.get() - 1);
        self.0.note_freedom();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn it_is_free_when_neither_a_request_nor_a_piece_holds_it_and_stays_so() {
        let (now, ending) = (Instant::now(), Ending::default());
        ending.note_freedom(false, now);
        assert!(!ending.has_begun());
        assert!(ending.begins() && ending.has_begun() && !ending.begins());
        ending.note_freedom(true, now);
        ending.unwritten.set(1);
        ending.note_freedom(false, now);
        assert_eq!(ending.idle_limit(), None);
        ending.unwritten.set(0);
        ending.note_freedom(false, now + seconds(1));
        // Another request comes all the same, and ends.
        ending.note_freedom(true, now + seconds(2));
        ending.note_freedom(false, now + seconds(3));
        assert_eq!(ending.idle_limit(), Some(now + seconds(1) + LINGER_TIME));
    }

    #[test]
    fn when_everything_is_written_only_the_client_is_waited_for() {
        let (now, ending) = (Instant::now(), Ending::default());
        ending.lingers(now);
        assert!(!ending.begins(), "it is at its end already");
        ending.note_freedom(false, now + seconds(1));
        assert_eq!((ending.idle_limit(), ending.linger_limit()), (None, Some(now + LINGER_TIME)));
    }
}
