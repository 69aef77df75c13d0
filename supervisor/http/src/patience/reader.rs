//! How long a client may take for what waits to be written to its socket: READ_TIME for each READ_QUOTA.
//!
//! ```text
//!   Flowing ---- the socket is full ----> Waiting ---- it took some ----> Flowing, but the time that it took stays used up
//!      ^                                     |                           until a quota is complete
//!      '------------ it took all ------------'
//! ```
//!
//! What one answer takes of it over HTTP/2 is in `unread.rs`.

use super::pace::Pace;
use crate::limits::{READ_QUOTA, READ_TIME};
use std::cell::Cell;
use std::time::Instant;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Reader(Cell<Pace>);

impl Reader {
    /// It takes no more for now.
    pub(super) fn waits(&self, now: Instant) {
        self.change(|pace| pace.wait(now));
    }

    /// It took so much.
    pub(super) fn took(&self, bytes: usize, now: Instant) {
        self.change(|pace| pace.count(bytes, now, READ_QUOTA));
    }

    /// Nothing is left to be taken.
    pub(super) fn took_all(&self) {
        self.0.set(Pace::default());
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.0.get().is_waiting()
    }

    pub(super) fn limit(&self) -> Option<Instant> {
        self.0.get().limit(READ_TIME)
    }

    fn change(&self, update: impl FnOnce(&mut Pace)) {
        let mut changed = self.0.get();
        update(&mut changed);
        self.0.set(changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn a_reader_has_a_time_for_each_quota_and_a_new_one_when_it_took_all() {
        let (now, reader) = (Instant::now(), Reader::default());
        reader.waits(now);
        reader.took(1, now + seconds(4));
        assert!(!reader.is_awaited());
        reader.waits(now + seconds(6));
        assert_eq!(reader.limit(), Some(now + seconds(6 - 4) + READ_TIME), "4 s of it are used up");
        reader.took(usize::try_from(READ_QUOTA).unwrap(), now + seconds(7));
        reader.waits(now + seconds(8));
        assert_eq!(reader.limit(), Some(now + seconds(8) + READ_TIME));
        reader.took_all();
        assert_eq!((reader.limit(), reader.is_awaited()), (None, false));
    }
}
