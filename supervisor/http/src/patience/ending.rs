//! How a connection ends with its last request when the server ends.
//!
//! ```text
//!   is to end ---> held by requests, and by answers that are not written ---> free ---> 2 s later: cut, if it is still there
//! ```

use super::Patience;
use crate::limits::LINGER_TIME;
use std::rc::Rc;

impl Patience {
    /// The client is told that the connection is to end. When its requests are answered, it has some time to take note of that. What it
    /// sends meanwhile gives it no more time.
    pub(crate) fn begins_to_end(self: &Rc<Patience>) {
        if self.is_ending.replace(true) {
            return;
        }
        self.note_freedom();
        let at = self.now() + LINGER_TIME;
        if self.timer.get().is_none_or(|(_, planned)| planned > at) {
            self.look_again_at(at);
        }
    }

    /// To be called when a request has ended, or a piece was written: perhaps nothing holds the connection any more.
    pub(super) fn note_freedom(&self) {
        let is_held = self.requests.get() > 0 || self.unwritten.get() > 0;
        if self.is_ending.get() && !is_held && self.free_to_end_since.get().is_none() {
            self.free_to_end_since.set(Some(self.now()));
        }
    }

    /// HTTP/2 has taken a piece of an answer, and may keep it until the client makes room. It is unwritten until this is dropped.
    pub(crate) fn takes_piece(self: &Rc<Patience>) -> UnwrittenPiece {
        self.unwritten.set(self.unwritten.get() + 1);
        UnwrittenPiece(Rc::clone(self))
    }
}

/// See [`Patience::takes_piece`].
pub(crate) struct UnwrittenPiece(Rc<Patience>);

impl Drop for UnwrittenPiece {
    fn drop(&mut self) {
        self.0.unwritten.set(self.0.unwritten.get() - 1);
        self.0.note_freedom();
    }
}
