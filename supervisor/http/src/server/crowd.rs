//! Who gives way when all connections are in use: of the client that has most, the connection that has waited longest for a
//! request. Those that have asked only for what everybody is answered give way before all others.
//!
//! Connections at work do not give way, so a client with very many of them could keep everybody else out. The last places are for those
//! that have few: [`shares_last_places`].
//!
//! ```text
//!   newcomers --- a request that not everybody may make ---> known
//!       '--------- first to go -----------------------------> if there is none, one of these
//! ```
//!
//! Who opens many connections to keep others out comes back as soon as one was cut. So finding it must not cost a look at all of
//! them: for each client, the few that have waited longest are remembered, and looked for again when those are used up. A
//! connection that is not among them began to wait later than all that are, or it was not waiting at all.

use crate::request::Remote;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// So many connections of a client are remembered in one look.
const REMEMBERED_MAX: usize = 64;

pub(super) type ClientKey = Result<IpAddr, Option<u32>>;

/// Connections of one machine, or of one process, are those of one client.
pub(super) fn client_key(remote: Remote) -> ClientKey {
    match remote {
        Remote::Address(address) => Ok(address.ip()),
        Remote::Process(process) | Remote::Stranger(process) => Err(process),
    }
}

/// Whether a client with so many connections gets another one of the `free` places among `most`. Of the last eighth each client gets
/// one more only while it has fewer than are left, as with places in the queue for jobs.
pub(super) fn shares_last_places(own: usize, free: usize, most: usize) -> bool {
    free > most / 8 || own < free
}

/// All connections that stay. `T` is a time.
#[derive(Debug)]
pub(super) struct Crowds<Client, T> {
    newcomers: Crowd<Client, T>,
    known: Crowd<Client, T>,
}

impl<Client, T> Default for Crowds<Client, T> {
    fn default() -> Crowds<Client, T> {
        Crowds { newcomers: Crowd::default(), known: Crowd::default() }
    }
}

impl<Client: Copy + Ord, T: Copy + Ord> Crowds<Client, T> {
    /// How many connections stay.
    pub(super) fn count(&self) -> usize {
        self.newcomers.count + self.known.count
    }

    /// A new connection of this client.
    pub(super) fn enter(&mut self, client: Client, connection: u64) {
        self.newcomers.enter(client, connection);
    }

    /// It is no newcomer any more, if it still stays.
    pub(super) fn recognize(&mut self, client: Client, connection: u64) {
        if self.newcomers.leave(client, connection) {
            self.known.enter(client, connection);
        }
    }

    /// It is gone, or about to be.
    pub(super) fn leave(&mut self, client: Client, connection: u64) {
        if !self.newcomers.leave(client, connection) {
            self.known.leave(client, connection);
        }
    }

    /// How many connections of this client stay.
    pub(super) fn count_of(&self, client: Client) -> usize {
        self.newcomers.count_of(client) + self.known.count_of(client)
    }

    /// The connection of this client that gives way, if one waits for a request.
    pub(super) fn first_to_go_of(
        &mut self,
        client: Client,
        waits_since: impl Fn(u64) -> Option<T>,
    ) -> Option<u64> {
        self.newcomers
            .first_to_go_of(client, &waits_since)
            .or_else(|| self.known.first_to_go_of(client, waits_since))
    }

    /// The connection that gives way, if one waits for a request. `waits_since` says since when a connection does.
    pub(super) fn first_to_go(&mut self, waits_since: impl Fn(u64) -> Option<T>) -> Option<(Client, u64)> {
        self.newcomers.first_to_go(&waits_since).or_else(|| self.known.first_to_go(waits_since))
    }
}

/// Some of the connections, by client.
#[derive(Debug)]
struct Crowd<Client, T> {
    clients: BTreeMap<Client, Connections<T>>,
    /// The same clients, by how many connections they have.
    by_count: BTreeSet<(usize, Client)>,
    count: usize,
}

#[derive(Debug)]
struct Connections<T> {
    all: BTreeSet<u64>,
    /// Of those, the ones that have waited longest, in that order, and since when.
    longest: VecDeque<(T, u64)>,
}

impl<Client, T> Default for Crowd<Client, T> {
    fn default() -> Crowd<Client, T> {
        Crowd { clients: BTreeMap::new(), by_count: BTreeSet::new(), count: 0 }
    }
}

impl<Client: Copy + Ord, T: Copy + Ord> Crowd<Client, T> {
    fn enter(&mut self, client: Client, connection: u64) {
        let its = self
            .clients
            .entry(client)
            .or_insert_with(|| Connections { all: BTreeSet::new(), longest: VecDeque::new() });
        let before = its.all.len();
        if its.all.insert(connection) {
            self.count += 1;
            self.by_count.remove(&(before, client));
            self.by_count.insert((before + 1, client));
        }
    }

    /// False if it was not there.
    fn leave(&mut self, client: Client, connection: u64) -> bool {
        let Some(its) = self.clients.get_mut(&client) else { return false };
        let before = its.all.len();
        if !its.all.remove(&connection) {
            return false;
        }
        self.count -= 1;
        self.by_count.remove(&(before, client));
        match before - 1 {
            0 => drop(self.clients.remove(&client)),
            left => drop(self.by_count.insert((left, client))),
        }
        true
    }

    fn count_of(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, |its| its.all.len())
    }

    fn first_to_go_of(&mut self, client: Client, waits_since: impl Fn(u64) -> Option<T>) -> Option<u64> {
        self.clients.get_mut(&client)?.longest_waiting(waits_since)
    }

    fn first_to_go(&mut self, waits_since: impl Fn(u64) -> Option<T>) -> Option<(Client, u64)> {
        let (clients, by_count) = (&mut self.clients, &self.by_count);
        by_count.iter().rev().find_map(|(_, client)| {
            let found = clients.get_mut(client)?.longest_waiting(&waits_since)?;
            Some((*client, found))
        })
    }
}

impl<T: Copy + Ord> Connections<T> {
    fn longest_waiting(&mut self, waits_since: impl Fn(u64) -> Option<T>) -> Option<u64> {
        if let Some(found) = self.still_waiting(&waits_since) {
            return Some(found);
        }
        let waiting = self.all.iter().filter_map(|number| Some((waits_since(*number)?, *number)));
        let mut waiting: Vec<_> = waiting.collect();
        if waiting.len() > REMEMBERED_MAX {
            waiting.select_nth_unstable(REMEMBERED_MAX);
            waiting.truncate(REMEMBERED_MAX);
        }
        waiting.sort_unstable();
        self.longest = waiting.into();
        self.still_waiting(waits_since)
    }

    /// The first of those that are remembered that has not left and has asked for nothing since.
    fn still_waiting(&mut self, waits_since: impl Fn(u64) -> Option<T>) -> Option<u64> {
        while let Some((since, number)) = self.longest.front() {
            if self.all.contains(number) && waits_since(*number) == Some(*since) {
                return Some(*number);
            }
            self.longest.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the module promises, by looking at everything.
    fn by_looking_at_all(
        open: &BTreeMap<u64, u8>,
        waiting: &BTreeMap<u64, u32>,
    ) -> Option<(usize, u8, u32, u64)> {
        let count = |client: u8| open.values().filter(|other| **other == client).count();
        let waiting = open.iter().filter_map(|(number, client)| {
            Some((count(*client), *client, std::cmp::Reverse((*waiting.get(number)?, *number))))
        });
        waiting
            .max()
            .map(|(count, client, std::cmp::Reverse((since, number)))| (count, client, since, number))
    }

    #[derive(Clone, Debug)]
    enum Event {
        Enters(u8),
        IsRecognized(prop::sample::Index),
        Leaves(prop::sample::Index),
        Waits(prop::sample::Index),
        Asks(prop::sample::Index),
        OneGivesWay,
    }

    fn event() -> impl Strategy<Value = Event> {
        let index = || any::<prop::sample::Index>();
        prop_oneof![
            4 => (0_u8..4).prop_map(Event::Enters),
            2 => index().prop_map(Event::IsRecognized),
            1 => index().prop_map(Event::Leaves),
            3 => index().prop_map(Event::Waits),
            2 => index().prop_map(Event::Asks),
            2 => Just(Event::OneGivesWay),
        ]
    }

    proptest! {
        #[test]
        fn it_is_the_one_that_a_look_at_all_finds(events in prop::collection::vec(event(), 1..600)) {
            let (mut crowds, mut open, mut waiting) = (Crowds::default(), BTreeMap::new(), BTreeMap::new());
            let mut known = BTreeSet::new();
            let mut now = 0_u32;
            for (number, event) in (0_u64..).zip(events) {
                now += 1;
                let chosen = |index: prop::sample::Index, open: &BTreeMap<u64, u8>| {
                    (!open.is_empty()).then(|| *open.keys().nth(index.index(open.len())).unwrap())
                };
                match event {
                    Event::Enters(client) => {
                        crowds.enter(client, number);
                        open.insert(number, client);
                        waiting.insert(number, now);
                    }
                    Event::IsRecognized(index) => if let Some(one) = chosen(index, &open) {
                        known.insert(one);
                        crowds.recognize(open[&one], one);
                    },
                    Event::Leaves(index) => if let Some(gone) = chosen(index, &open) {
                        let client = open.remove(&gone).unwrap();
                        crowds.leave(client, gone);
                        crowds.leave(client, gone);
                        crowds.recognize(client, gone);
                    },
                    Event::Waits(index) => if let Some(one) = chosen(index, &open) {
                        waiting.entry(one).or_insert(now);
                    },
                    Event::Asks(index) => if let Some(one) = chosen(index, &open) {
                        waiting.remove(&one);
                    },
                    Event::OneGivesWay => {
                        let (knowns, newcomers): (BTreeMap<_, _>, BTreeMap<_, _>) =
                            open.iter().map(|(number, client)| (*number, *client)).partition(|(number, _)| known.contains(number));
                        let expected =
                            by_looking_at_all(&newcomers, &waiting).or_else(|| by_looking_at_all(&knowns, &waiting));
                        let found = crowds.first_to_go(|number| waiting.get(&number).copied());
                        prop_assert_eq!(found, expected.map(|(_, client, _, number)| (client, number)));
                        if let Some((client, number)) = found {
                            crowds.leave(client, number);
                            open.remove(&number);
                        }
                    }
                }
                prop_assert_eq!(crowds.count(), open.len());
            }
        }
    }

    #[test]
    fn a_crowd_of_one_client_is_looked_at_once_for_many_that_give_way() {
        let mut crowd = Crowd::default();
        for number in 0..1024 {
            crowd.enter("attacker", number);
        }
        let looks = std::cell::Cell::new(0_u64);
        for expected in 0..1000 {
            let found = crowd.first_to_go(|number| {
                looks.set(looks.get() + 1);
                Some(number)
            });
            assert_eq!(found, Some(("attacker", expected)));
            crowd.leave("attacker", expected);
        }
        assert!(looks.get() < 20_000, "{} looks; each time at all of them would be 500,000", looks.get());
    }
}
