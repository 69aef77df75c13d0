//! How long a head may take, from its first byte to its last one. A new connection owes one at once, and a TLS handshake is part of
//! it.
//!
//! ```text
//!   a new connection ---> Coming ------ the head is complete, or late -----> Nothing
//!                           ^                                                  |
//!                           '-------------- the first byte of another ---------'
//! ```

use crate::frames::Rest;
use crate::limits::HEAD_TIME;
use std::cell::Cell;
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Head {
    /// Since when one is coming, if one is.
    since: Cell<Option<Instant>>,
}

impl Head {
    pub(super) fn of_new_connection(now: Instant) -> Head {
        Head { since: Cell::new(Some(now)) }
    }

    /// A byte of a head has come. Whether it is the first one.
    pub(super) fn begins(&self, now: Instant) -> bool {
        let is_first = self.since.get().is_none();
        if is_first {
            self.since.set(Some(now));
        }
        is_first
    }

    /// Over HTTP/2: a portion of frames has come that ends so. What is unfinished has its time from when it began. Whether that is
    /// now.
    pub(super) fn frames_came(&self, rest: Rest, now: Instant) -> bool {
        if rest != Rest::SameAsBefore {
            self.ends();
        }
        rest != Rest::Nothing && self.begins(now)
    }

    /// It is complete, or was late.
    pub(super) fn ends(&self) {
        self.since.set(None);
    }

    pub(super) fn since(&self) -> Option<Instant> {
        self.since.get()
    }

    pub(super) fn is_coming(&self) -> bool {
        self.since.get().is_some()
    }

    pub(super) fn limit(&self) -> Option<Instant> {
        self.since.get().map(|since| since + HEAD_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn a_head_has_its_time_from_its_first_byte_however_many_follow() {
        let now = Instant::now();
        let head = Head::of_new_connection(now);
        assert!(!head.begins(now + seconds(3)), "a new connection owes one already");
        assert_eq!(head.limit(), Some(now + HEAD_TIME));
        head.ends();
        assert_eq!(head.limit(), None);
        assert!(head.begins(now + seconds(9)));
        assert_eq!(head.limit(), Some(now + seconds(9) + HEAD_TIME));
    }

    #[test]
    fn over_http2_only_what_begins_anew_has_a_time_of_its_own() {
        let now = Instant::now();
        let head = Head::of_new_connection(now);
        assert!(!head.frames_came(Rest::SameAsBefore, now + seconds(1)));
        assert_eq!(head.limit(), Some(now + HEAD_TIME));
        assert!(head.frames_came(Rest::Another, now + seconds(2)));
        assert_eq!(head.limit(), Some(now + seconds(2) + HEAD_TIME));
        assert!(!head.frames_came(Rest::Nothing, now + seconds(3)));
        assert_eq!(head.limit(), None);
        // It was forgotten when it was late, and goes on.
        assert!(head.frames_came(Rest::SameAsBefore, now + seconds(4)));
    }
}
