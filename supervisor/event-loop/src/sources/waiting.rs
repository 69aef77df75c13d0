//! Futures that wait for a source: for room to write, for the end of a child process, or to read.

use std::collections::BTreeMap;
use std::task::Waker;

use super::base::Source;

/// Any number of futures that wait for the same thing.
#[derive(Default)]
pub(super) struct WaitingFutures {
    /// By their tickets: the first to come is the first to be woken.
    wakers: BTreeMap<u64, Waker>,
}

impl WaitingFutures {
    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    pub(super) fn contains(&self, ticket: u64) -> bool {
        self.wakers.contains_key(&ticket)
    }

    /// Whether a future waits that has come before the one with this ticket.
    pub(super) fn has_one_before(&self, ticket: u64) -> bool {
        self.wakers.first_key_value().is_some_and(|(&first, _)| first < ticket)
    }

    /// Lets the future with this ticket wait. Drop the waker that it had before only when no borrow is held.
    #[must_use]
    pub(super) fn insert(&mut self, ticket: u64, waker: Waker) -> Option<Waker> {
        self.wakers.insert(ticket, waker)
    }

    /// The future with this ticket waits no more. Drop its waker only when no borrow is held.
    #[must_use]
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waker> {
        self.wakers.remove(&ticket)
    }

    /// All of them, to be woken when no borrow is held. Each has to ask again.
    #[must_use]
    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}

/// The place of one future among those that wait for a source. Dropping it ends its waiting.
pub(super) struct WaitingPlace<'a, S> {
    source: &'a S,
    pub(super) ticket: u64,
    leave: fn(&S, u64),
}

impl<'a, S: Source> WaitingPlace<'a, S> {
    /// `leave` makes the source forget the future with this ticket.
    pub(super) fn new(source: &'a S, leave: fn(&S, u64)) -> WaitingPlace<'a, S> {
        WaitingPlace { source, ticket: source.base().next_ticket(), leave }
    }
}

impl<S> Drop for WaitingPlace<'_, S> {
    fn drop(&mut self) {
        (self.leave)(self.source, self.ticket);
    }
}
