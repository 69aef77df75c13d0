//! Wrong tokens. A right one is never kept waiting, whatever else its address has sent; so nobody can lock out others by guessing.
//!
//! ```text
//!   a wrong token --> among the first GUESSES_PER_SECOND of this second --> 401 at once
//!        |             '-- no --> 401 after GUESS_DELAY. Its connection counts as waiting: it gives way to new ones
//!        '--> the GUESSES_MAXth of its connection: that ends
//! ```

use crate::limits::{GUESS_DELAY, GUESSES_PER_SECOND};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The wrong tokens of all connections of one server.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// The second that is counted, from its start.
    second: Cell<Option<(Instant, u32)>>,
}

impl Guesses {
    /// Counts a wrong token, and says how long its answer has to wait.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let is_current = |start: Instant| now.saturating_duration_since(start) < Duration::from_secs(1);
        let (start, count) = self.second.get().filter(|(start, _)| is_current(*start)).unwrap_or((now, 0));
        self.second.set(Some((start, count.saturating_add(1))));
        if count < GUESSES_PER_SECOND { Duration::ZERO } else { GUESS_DELAY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_guesses_and_the_next_one_as_many_again() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let delayed = |millis, count| {
            let now = start + Duration::from_millis(millis);
            (0..count).filter(|_| guesses.delay(now) == GUESS_DELAY).count()
        };
        assert_eq!(delayed(0, GUESSES_PER_SECOND), 0);
        assert_eq!(delayed(999, 500), 500);
        assert_eq!(delayed(1000, GUESSES_PER_SECOND + 3), 3);
    }
}
