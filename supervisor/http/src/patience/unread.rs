//! How long a client may take for each answer of which there is more than it has asked for: over HTTP/2 it can keep an answer without the
//! socket being full. READ_TIME for each READ_QUOTA, shared by the answers that it reads at once.
//!
//! ```text
//!   there is more than the client has room for ---> Waiting --- it makes room, and there is more ---> Waiting, with a time for the rest
//!                                                      |
//!                                                      '--- too late: the answer is given up, or its connection if that cannot be
//! ```

use super::Patience;
use super::given_up::GivenUp;
use super::pace::{Pace, Paces};
use crate::limits::{READ_QUOTA, READ_TIME};
use std::rc::Rc;
use std::time::Instant;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct UnreadAnswers(Paces);

impl UnreadAnswers {
    /// One more, and its number.
    fn add(&self, given_up: Option<Rc<GivenUp>>, now: Instant) -> u64 {
        let mut pace = Pace::default();
        pace.wait(now);
        self.0.add(pace, given_up)
    }

    /// Who reads many answers at once has to take as much of all of them as of one alone.
    fn was_read(&self, number: u64, bytes: usize, now: Instant) {
        self.0.change(number, |pace, count| {
            pace.count(bytes, now, READ_QUOTA / count.max(1) as u64);
            pace.wait(now);
        });
    }

    pub(super) fn limit(&self) -> Option<Instant> {
        self.0.first(read_limit)
    }

    /// Gives up those that are late. Whether one of them cannot end without its connection.
    pub(super) fn give_up(&self, now: Instant) -> bool {
        self.0.give_up(now, read_limit)
    }
}

fn read_limit(pace: &Pace) -> Option<Instant> {
    pace.limit(READ_TIME)
}

impl Patience {
    /// There is more of an answer than the client has room for, until this is dropped. If it takes too long, the answer is given up, or the
    /// connection if that cannot be.
    pub(crate) fn has_unread(self: &Rc<Patience>, given_up: Option<Rc<GivenUp>>) -> Unread {
        Unread { patience: Rc::clone(self), number: self.unread.add(given_up, self.now()) }
    }
}

/// See [`Patience::has_unread`].
pub(crate) struct Unread {
    patience: Rc<Patience>,
    number: u64,
}

impl Unread {
    /// The client has made room for so much.
    pub(crate) fn was_read(&self, bytes: usize) {
        self.patience.unread.was_read(self.number, bytes, self.patience.now());
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.patience.unread.0.remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn answers_share_the_quota_and_the_first_that_is_late_counts() {
        let (now, unread) = (Instant::now(), UnreadAnswers::default());
        let [stands, flows] = [now, now + seconds(1)].map(|at| unread.add(None, at));
        unread.was_read(flows, usize::try_from(READ_QUOTA / 2).unwrap(), now + seconds(9));
        assert_eq!(unread.limit(), Some(now + READ_TIME));
        unread.0.remove(stands);
        assert_eq!(unread.limit(), Some(now + seconds(9) + READ_TIME));
    }

    #[test]
    fn only_what_is_late_is_given_up_and_its_connection_only_if_it_cannot_end_alone() {
        let (now, unread) = (Instant::now(), UnreadAnswers::default());
        let [early, late] = [(); 2].map(|()| Rc::<GivenUp>::default());
        unread.add(Some(Rc::clone(&late)), now);
        unread.add(Some(Rc::clone(&early)), now + seconds(1));
        assert!(!unread.give_up(now + READ_TIME));
        assert_eq!((late.is_it(), early.is_it()), (true, false));
        assert_eq!(unread.limit(), Some(now + seconds(1) + READ_TIME), "what was given up has no limit");
        unread.add(None, now);
        assert!(unread.give_up(now + READ_TIME));
    }
}
