//! How long a client may have sent more ahead than there is room for, while one of its requests is answered.
//!
//! ```text
//!   Nothing ---- there is no more room ----> Much ---- the request is answered, or it was late ----> Nothing
//! ```

use crate::limits::AHEAD_TIME;
use std::cell::Cell;
use std::time::Instant;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Ahead {
    /// Since when there is no room, if there is none.
    since: Cell<Option<Instant>>,
}

impl Ahead {
    /// There is no room, perhaps for some time already.
    pub(super) fn begins(&self, now: Instant) {
        self.since.set(self.since.get().or(Some(now)));
    }

    /// There is room again, or it was late.
    pub(super) fn ends(&self) {
        self.since.set(None);
    }

    pub(super) fn limit(&self) -> Option<Instant> {
        self.since.get().map(|since| since + AHEAD_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn what_is_sent_ahead_has_its_time_from_when_there_was_no_room() {
        let (now, ahead) = (Instant::now(), Ahead::default());
        assert_eq!(ahead.limit(), None);
        ahead.begins(now);
        ahead.begins(now + seconds(5));
        assert_eq!(ahead.limit(), Some(now + AHEAD_TIME));
        ahead.ends();
        assert_eq!(ahead.limit(), None);
    }
}
