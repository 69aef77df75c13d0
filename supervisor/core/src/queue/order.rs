//! The clients whose first jobs are of one kind, in the order in which they are served.
//!
//! ```text
//!   first                others: a tree
//!   (at, rank, client)   (at, rank, client) ...
//! ```
//!
//! Most often there is one client. Its place changes with each of its jobs, and then the tree is not touched.

use super::super::clients::{ClientId, VirtualTime};
use super::Rank;
use std::collections::BTreeSet;

/// The place of a client: what it has used, less the head start of its first job; and this job.
pub(super) type Entry = (VirtualTime, Rank, ClientId);

/// See the module's documentation. It has at least one client.
#[derive(Debug)]
pub(super) struct Order {
    first: Entry,
    others: BTreeSet<Entry>,
}

impl Order {
    pub(super) fn of(entry: Entry) -> Order {
        Order { first: entry, others: BTreeSet::new() }
    }

    #[inline]
    pub(super) fn first(&self) -> &Entry {
        &self.first
    }

    /// The clients that come before this place.
    pub(super) fn before(&self, entry: Entry) -> impl Iterator<Item = &Entry> {
        let first = Some(&self.first).filter(|first| **first < entry);
        first.into_iter().chain(self.others.range(..entry))
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.others.insert(entry.max(self.first));
        self.first = entry.min(self.first);
    }

    /// Takes an entry out. False if no other is left: then nothing has changed.
    pub(super) fn remove(&mut self, entry: Entry) -> bool {
        if entry != self.first {
            self.others.remove(&entry);
            return true;
        }
        let next = self.others.pop_first();
        self.first = next.unwrap_or(self.first);
        next.is_some()
    }

    /// Puts a client from one place to another.
    #[inline]
    pub(super) fn replace(&mut self, old: Entry, new: Entry) {
        if old == self.first && self.others.first().is_none_or(|next| new < *next) {
            self.first = new;
            return;
        }
        self.insert(new);
        self.remove(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, Mono};
    use crate::rng::Rng;

    /// Entries come and go in an order that is made of chance; a tree says what there must be.
    #[test]
    fn it_holds_what_a_tree_holds() {
        let mut random = Rng::new(7);
        let mut entry = |client: u64| {
            let at = random.below(40) as i64;
            (at, Rank::new(Mono::from_nanos(random.below(3)), 0, JobId(client)), ClientId(client))
        };
        let mut places = vec![entry(0)];
        let (mut order, mut tree) = (Order::of(places[0]), BTreeSet::from([places[0]]));
        let mut random = Rng::new(8);
        for client in 1..20_000 {
            let chosen = random.below(places.len() as u64) as usize;
            match random.below(if places.len() < 20 { 3 } else { 5 }) {
                0 => {
                    places.push(entry(client));
                    order.insert(places[places.len() - 1]);
                    tree.insert(places[places.len() - 1]);
                }
                1 | 2 => {
                    let new = entry(client);
                    order.replace(places[chosen], new);
                    tree.remove(&places[chosen]);
                    tree.insert(new);
                    places[chosen] = new;
                }
                _ if places.len() > 1 => {
                    assert!(order.remove(places[chosen]));
                    tree.remove(&places.swap_remove(chosen));
                }
                _ => assert!(!order.remove(places[0]), "no other is left"),
            }
            let all: BTreeSet<Entry> = order.others.iter().copied().chain([order.first]).collect();
            assert_eq!((Some(order.first()), &all), (tree.first(), &tree));
            let last = *tree.last().unwrap_or(&order.first);
            assert_eq!(order.before(last).count(), tree.len() - 1);
        }
    }
}
