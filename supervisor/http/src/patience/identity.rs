//! What a connection has shown of its client: whether that may have more than anybody, and how often it has guessed.
//!
//! ```text
//!   Unknown ---- it asks for something that not everybody is answered ----> Known: the last ones to give way to others
//!      '-------- GUESSES_MAX wrong tokens --------> Barred: its connection ends, and learns nothing more
//! ```
//!
//! A known client can be barred, too.

use super::{Late, Patience};
use crate::limits::GUESSES_MAX;
use std::cell::Cell;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Identity {
    /// The number of the connection, once it is among the others.
    connection: Cell<u64>,
    is_known: Cell<bool>,
    /// Wrong tokens.
    guesses: Cell<u32>,
}

impl Identity {
    /// A wrong token was shown. Whether it was the last one.
    fn guess_was_wrong(&self) -> bool {
        self.guesses.set(self.guesses.get() + 1);
        self.guesses.get() == GUESSES_MAX
    }

    fn is_barred(&self) -> bool {
        self.guesses.get() >= GUESSES_MAX
    }
}

impl Patience {
    /// From now on its connection has this number.
    pub(crate) fn set_connection(&self, number: u64) {
        self.identity.connection.set(number);
    }

    /// Whether its client has asked for something that not everybody is answered.
    pub(crate) fn is_known(&self) -> bool {
        self.identity.is_known.get()
    }

    /// It has. Returns the number of the connection.
    pub(crate) fn recognize(&self) -> u64 {
        self.identity.is_known.set(true);
        self.identity.connection.get()
    }

    /// A wrong token was shown. True if it was the last one: the connection is about to end.
    pub(crate) fn guess_was_wrong(&self) -> bool {
        let is_last = self.identity.guess_was_wrong();
        if is_last {
            self.tell(Late::Guesses);
        }
        is_last
    }

    /// Whether the last of these was shown.
    pub(crate) fn is_barred(&self) -> bool {
        self.identity.is_barred()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_guess_is_told_once_and_bars_for_good() {
        let identity = Identity::default();
        let last: Vec<bool> = (0..GUESSES_MAX).map(|_| identity.guess_was_wrong()).collect();
        assert_eq!(last.iter().position(|is_last| *is_last), Some(last.len() - 1));
        assert!(identity.is_barred() && !identity.guess_was_wrong() && identity.is_barred());
    }
}
