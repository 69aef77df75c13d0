//! How long one side has kept us waiting for bytes: for a quota of them, and for all of them.
//!
//! ```text
//!   wait ---> since ---- bytes come ----> waited --- a quota of bytes is there ---> 0, for the next quota
//!                                          '-------- in all: never less
//! ```

use super::GivenUp;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// When a quota of bytes has come, the next one has the same time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    waited: Duration,
    bytes: u64,
    in_all: (Duration, u64),
}

impl Pace {
    pub(super) fn wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(super) fn count(&mut self, bytes: usize, now: Instant, quota: u64) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited += waited;
        self.bytes += bytes as u64;
        self.in_all = (self.in_all.0 + waited, self.in_all.1 + bytes as u64);
        if self.bytes >= quota {
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// When a quota of bytes will have taken so long.
    pub(super) fn limit(&self, time: Duration) -> Option<Instant> {
        self.since.map(|since| since + time.saturating_sub(self.waited))
    }

    /// When all bytes together will have taken longer than `first` and a second for each `rate` of them.
    pub(super) fn limit_in_all(&self, first: Duration, rate: u64) -> Option<Instant> {
        let (waited, bytes) = self.in_all;
        self.since.map(|since| since + (first + Duration::from_secs(bytes / rate)).saturating_sub(waited))
    }
}

/// Bodies that are under way at the same time over HTTP/2, each with a pace of its own: one that flows is no excuse for one that stands.
#[derive(Debug, Default)]
pub(super) struct Paces(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    /// Nearly always there is one.
    each: Vec<Counted>,
    last: u64,
}

#[derive(Debug)]
struct Counted {
    number: u64,
    pace: Pace,
    /// None, if it cannot end without its connection.
    given_up: Option<Rc<GivenUp>>,
}

impl Counted {
    /// What was given up has no limit any more.
    fn limit(&self, limit: impl Fn(&Pace) -> Option<Instant>) -> Option<Instant> {
        let is_given_up = self.given_up.as_ref().is_some_and(|given_up| given_up.is_it());
        limit(&self.pace).filter(|_| !is_given_up)
    }
}

impl Paces {
    /// One more, and its number.
    pub(super) fn add(&self, pace: Pace, given_up: Option<Rc<GivenUp>>) -> u64 {
        let mut state = self.0.borrow_mut();
        state.last += 1;
        let number = state.last;
        state.each.push(Counted { number, pace, given_up });
        number
    }

    pub(super) fn remove(&self, number: u64) {
        self.0.borrow_mut().each.retain(|its| its.number != number);
    }

    /// Changes one of them. `update` is told how many there are.
    pub(super) fn change(&self, number: u64, update: impl FnOnce(&mut Pace, usize)) {
        let mut state = self.0.borrow_mut();
        let count = state.each.len();
        if let Some(its) = state.each.iter_mut().find(|its| its.number == number) {
            update(&mut its.pace, count);
        }
    }

    /// The first of these limits.
    pub(super) fn first(&self, limit: impl Fn(&Pace) -> Option<Instant>) -> Option<Instant> {
        self.0.borrow().each.iter().filter_map(|its| its.limit(&limit)).min()
    }

    /// Gives up those whose limit has passed. Whether one of them cannot end without its connection.
    pub(super) fn give_up(&self, now: Instant, limit: impl Fn(&Pace) -> Option<Instant>) -> bool {
        let late: Vec<Option<Rc<GivenUp>>> = {
            let state = self.0.borrow();
            let is_late = |its: &&Counted| its.limit(&limit).is_some_and(|at| at <= now);
            state.each.iter().filter(is_late).map(|its| its.given_up.clone()).collect()
        };
        late.iter().flatten().for_each(|given_up| given_up.give_up());
        late.iter().any(Option::is_none)
    }
}
