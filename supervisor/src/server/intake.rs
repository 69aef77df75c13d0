//! How much of what is ready for a client the client takes. A Unix socket is writable again only when most of its buffer is free, which
//! takes a slow reader half a minute. So what was written says little: the kernel is asked how much of it is unread.
//!
//! ```text
//!   unsent, here ---- written ----> unread, in the kernel ---- taken ----> the client
//! ```
//!
//! The kernel counts a piece of up to 36 KiB as unread until all of it was taken, and what it needs for each piece as well. So at a look a
//! reader may seem to have taken less than it has, and never more.

use std::time::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Intake {
    /// When bytes were last seen to be taken, or when there was first something to take.
    at: Instant,
    /// At the last look: all that had been written, and what was unread.
    written: u64,
    unread: usize,
}

impl Intake {
    pub(super) fn new(now: Instant) -> Intake {
        Intake { at: now, written: 0, unread: 0 }
    }

    /// Nothing was unsent, and now something is.
    pub(super) fn begin(&mut self, now: Instant) {
        self.at = now;
    }

    /// So many bytes have been written in all, and so many of them are unread. Returns how many were taken since the last look.
    pub(super) fn look(&mut self, now: Instant, written: u64, unread: usize) -> usize {
        let new = usize::try_from(written.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let taken = self.unread.saturating_add(new).saturating_sub(unread);
        (self.written, self.unread) = (written, unread);
        if taken > 0 {
            self.at = now;
        }
        taken
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_client_takes_what_is_unread_no_more_also_while_nothing_can_be_written() {
        let began = Instant::now();
        let mut intake = Intake::new(began);
        let mut look = |seconds, written, unread| {
            let taken = intake.look(began + Duration::from_secs(seconds), written, unread);
            (taken, (intake.at() - began).as_secs())
        };
        assert_eq!(look(1, 233_000, 238_000), (0, 0), "the kernel counts more than was written");
        assert_eq!(look(2, 233_000, 201_000), (37_000, 2));
        assert_eq!(look(3, 233_000, 201_000), (0, 2));
        assert_eq!(look(4, 333_000, 238_000), (63_000, 4), "the rest is written and unread");
        assert_eq!(look(5, 433_000, 338_000), (0, 4), "what is only written is not taken");
        assert_eq!(look(6, 433_000, 0), (338_000, 6));
    }
}
