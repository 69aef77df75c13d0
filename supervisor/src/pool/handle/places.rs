//! How many jobs the clients of a handle may have under way, and who waits until there may be one more.
//!
//! ```text
//!               take, or reserve while there is room             released
//!   no place ------------------------------------------> place ------------> no place; whoever waits is given it
//!      '---- reserve: waits, with a ticket ----> granted ---'
//! ```
//!
//! A place that was reserved has no bytes before its job brings them, which may then be more than there is room for.
//!
//! One client may have as many places, and as many bytes, as it leaves free. So nobody needs to know how many clients there
//! are, and there is always room for another one.

use offload_core::limits::{IDLE_SHARE, little};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

/// What the jobs of a [`PoolHandle`](crate::PoolHandle) and all its clones may take, from when they are submitted until their
/// end was taken. A client may have as much of it as it leaves free: half if it is alone, a third if there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleLimits {
    /// Most jobs. 0 counts as 1.
    pub jobs: usize,
    /// Bytes of their inputs, and of outputs that nobody has taken yet. While at most a sixteenth of it is held, one input of
    /// any size passes.
    pub bytes: u64,
}

/// What is used of the limits, and by whom.
pub(super) struct Places {
    limits: HandleLimits,
    jobs: usize,
    bytes: u64,
    /// Those that have a place or wait for one.
    clients: BTreeMap<Arc<str>, Share>,
    waiting: usize,
    last_ticket: u64,
}

/// What one client uses, and its tickets.
#[derive(Default)]
struct Share {
    jobs: usize,
    bytes: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Each of these has a place, and has not come for it yet.
    granted: BTreeSet<u64>,
}

/// Who is at fault that there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Everything is taken.
    Everything,
    /// The client has as much as it leaves free.
    ShareOfClient,
}

/// Who waits is woken when nothing is locked any more.
pub(super) type Woken = Vec<Waker>;

impl Places {
    pub(super) fn new(limits: HandleLimits) -> Places {
        let limits = HandleLimits { jobs: limits.jobs.max(1), ..limits };
        Places { limits, jobs: 0, bytes: 0, clients: BTreeMap::new(), waiting: 0, last_ticket: 0 }
    }

    /// Takes a place for a job with an input of this many bytes.
    pub(super) fn take(&mut self, client: &Arc<str>, bytes: u64) -> Result<(), Full> {
        let nothing = Share::default();
        if !self.has_room(self.clients.get(client).unwrap_or(&nothing), bytes) {
            let is_full = self.jobs >= self.limits.jobs || self.bytes >= self.limits.bytes;
            return Err(if is_full { Full::Everything } else { Full::ShareOfClient });
        }
        self.add(client, bytes);
        Ok(())
    }

    /// The job of a place that was reserved brings an input of this many bytes. By then others may have brought theirs.
    pub(super) fn bring(&mut self, client: &str, bytes: u64) -> Result<(), Full> {
        let fits = bytes == 0 || self.clients.get(client).is_none_or(|share| self.fits(share, bytes));
        if !fits {
            let is_full = self.bytes >= self.limits.bytes;
            return Err(if is_full { Full::Everything } else { Full::ShareOfClient });
        }
        if let Some(share) = self.clients.get_mut(client) {
            share.bytes += bytes;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn has_room(&self, share: &Share, bytes: u64) -> bool {
        self.fits(share, bytes) && share.jobs < self.limits.jobs.saturating_sub(self.jobs)
    }

    fn fits(&self, share: &Share, bytes: u64) -> bool {
        let own = share.bytes.saturating_add(bytes);
        own <= self.limits.bytes.saturating_sub(self.bytes)
            || own <= little(self.limits.bytes)
            || self.bytes <= self.limits.bytes / IDLE_SHARE
    }

    fn add(&mut self, client: &Arc<str>, bytes: u64) {
        let share = self.clients.entry(Arc::clone(client)).or_default();
        share.jobs += 1;
        share.bytes += bytes;
        self.jobs += 1;
        self.bytes += bytes;
    }

    /// Takes a place for a job whose input is not known yet, or a ticket with which to wait for it.
    pub(super) fn reserve(&mut self, client: &Arc<str>, waker: &Waker) -> Result<(), u64> {
        if self.take(client, 0).is_ok() {
            return Ok(());
        }
        self.last_ticket += 1;
        self.waiting += 1;
        let share = self.clients.entry(Arc::clone(client)).or_default();
        share.waiting.insert(self.last_ticket, waker.clone());
        Err(self.last_ticket)
    }

    /// Whether a ticket was granted. Then it is used up.
    pub(super) fn is_granted(&mut self, client: &str, ticket: u64) -> bool {
        self.clients.get_mut(client).is_some_and(|share| share.granted.remove(&ticket))
    }

    /// Has another waker woken when the ticket is granted. Returns the one before.
    pub(super) fn replace_waker(&mut self, client: &str, ticket: u64, waker: &Waker) -> Option<Waker> {
        let waiting = self.clients.get_mut(client)?.waiting.get_mut(&ticket)?;
        Some(std::mem::replace(waiting, waker.clone()))
    }

    /// Nobody comes for this ticket any more.
    pub(super) fn drop_ticket(&mut self, client: &str, ticket: u64) -> Woken {
        let Some(share) = self.clients.get_mut(client) else { return Woken::new() };
        if share.granted.remove(&ticket) {
            return self.release(client, 0);
        }
        let waker = share.waiting.remove(&ticket);
        self.waiting -= usize::from(waker.is_some());
        self.forget_if_nothing_is_left(client);
        // Not to be dropped under a lock: what it would have woken may be dropped with it.
        let mut woken = self.grant();
        woken.extend(waker);
        woken
    }

    /// A job with a place holds other bytes than before.
    pub(super) fn hold(&mut self, client: &str, before: u64, bytes: u64) -> Woken {
        let Some(share) = self.clients.get_mut(client) else { return Woken::new() };
        share.bytes = share.bytes - before + bytes;
        self.bytes = self.bytes - before + bytes;
        self.grant()
    }

    /// A place is free again.
    pub(super) fn release(&mut self, client: &str, bytes: u64) -> Woken {
        let Some(share) = self.clients.get_mut(client) else { return Woken::new() };
        share.jobs -= 1;
        share.bytes -= bytes;
        self.jobs -= 1;
        self.bytes -= bytes;
        self.forget_if_nothing_is_left(client);
        self.grant()
    }

    fn forget_if_nothing_is_left(&mut self, client: &str) {
        if self.clients.get(client).is_some_and(|share| share.jobs == 0 && share.waiting.is_empty()) {
            self.clients.remove(client);
        }
    }

    /// Gives what is free to those that wait: first to the client with the fewest jobs; of several, to the one that has waited
    /// for longest. It looks at all clients, and only while somebody waits.
    fn grant(&mut self) -> Woken {
        let mut woken = Woken::new();
        while self.waiting > 0 {
            let may = self.clients.iter().filter(|(_, share)| self.has_room(share, 0));
            let tickets =
                may.filter_map(|(client, share)| Some((client, share, *share.waiting.keys().next()?)));
            let Some((client, _, _)) = tickets.min_by_key(|(_, share, ticket)| (share.jobs, *ticket)) else {
                break;
            };
            let client = Arc::clone(client);
            self.add(&client, 0);
            let first = self.clients.get_mut(&client).and_then(Share::grant_first);
            self.waiting -= usize::from(first.is_some());
            woken.extend(first);
        }
        woken
    }

    /// All that wait: they are told that there will be no place.
    pub(super) fn take_waiting(&mut self) -> Woken {
        self.waiting = 0;
        let all =
            self.clients.values_mut().flat_map(|share| std::mem::take(&mut share.waiting).into_values());
        all.collect()
    }
}

impl Share {
    fn grant_first(&mut self) -> Option<Waker> {
        let (ticket, waker) = self.waiting.pop_first()?;
        self.granted.insert(ticket);
        Some(waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(jobs: usize, bytes: u64) -> Places {
        Places::new(HandleLimits { jobs, bytes })
    }

    fn name(client: &str) -> Arc<str> {
        Arc::from(client)
    }

    fn take_all(places: &mut Places, client: &str, bytes: u64) -> usize {
        (0..).take_while(|_| places.take(&name(client), bytes).is_ok()).count()
    }

    fn reserve(places: &mut Places, client: &str) -> Option<u64> {
        places.reserve(&name(client), Waker::noop()).err()
    }

    fn comes_for(places: &mut Places, client: &str, ticket: Option<u64>) -> bool {
        places.is_granted(client, ticket.expect("it waits"))
    }

    #[test]
    fn a_client_has_as_many_places_as_it_leaves_free() {
        let mut places = places(100, 1 << 20);
        assert_eq!(take_all(&mut places, "greedy", 0), 50);
        assert_eq!(take_all(&mut places, "polite", 0), 25);
        assert_eq!(places.take(&name("greedy"), 0), Err(Full::ShareOfClient));
        assert_eq!(places.take(&name("third"), 0), Ok(()));
    }

    #[test]
    fn a_client_has_as_many_bytes_as_it_leaves_free_and_others_may_still_bring_a_little() {
        let mut places = places(1000, 1 << 20);
        assert_eq!(take_all(&mut places, "greedy", 64 << 10), 8);
        // Outputs that nobody takes: memory is full.
        assert!(places.hold("greedy", 8 << 16, 1 << 20).is_empty());
        assert_eq!(places.take(&name("greedy"), 1), Err(Full::Everything));
        assert_eq!(places.take(&name("polite"), 64 << 10), Err(Full::Everything));
        assert_eq!(places.take(&name("polite"), 256), Ok(()));
    }

    #[test]
    fn one_input_of_any_size_passes_while_next_to_nothing_is_held() {
        let mut places = places(10, 1000);
        assert_eq!(places.take(&name("a"), 1 << 30), Ok(()));
        assert_eq!(places.take(&name("b"), 1 << 30), Err(Full::Everything));
        places.release("a", 1 << 30);
        assert_eq!(places.take(&name("b"), 1 << 30), Ok(()));
    }

    #[test]
    fn an_input_that_has_no_room_any_more_is_refused_although_its_place_was_reserved() {
        let mut places = places(200, 1 << 20);
        assert!((0..100).all(|_| reserve(&mut places, "greedy").is_none()));
        assert_eq!(reserve(&mut places, "polite"), None);
        assert_eq!(places.bring("greedy", 1 << 20), Ok(()), "one of any size, while next to nothing is held");
        assert_eq!(places.bring("greedy", 1 << 20), Err(Full::Everything));
        assert_eq!(places.bring("greedy", 0), Ok(()));
        assert_eq!(places.bring("polite", 256), Ok(()));
        places.release("greedy", 1 << 20);
        assert_eq!((0..99).filter(|_| places.bring("greedy", 64 << 10).is_ok()).count(), 8);
        assert_eq!(places.bring("greedy", 64 << 10), Err(Full::ShareOfClient));
    }

    #[test]
    fn whoever_has_least_is_next_and_of_equals_whoever_has_waited_for_longest() {
        let mut places = places(4, 1000);
        assert_eq!(take_all(&mut places, "z", 0), 2);
        assert_eq!(take_all(&mut places, "b", 0), 1);
        assert_eq!(take_all(&mut places, "c", 0), 1);
        let tickets = ["z", "c", "b", "a"].map(|client| (client, reserve(&mut places, client)));
        places.release("z", 0);
        let granted = tickets.map(|(client, ticket)| comes_for(&mut places, client, ticket));
        assert_eq!(granted, [false, false, false, true], "`a` has none");
        places.release("z", 0);
        let granted = [0, 1, 2].map(|at| comes_for(&mut places, tickets[at].0, tickets[at].1));
        assert_eq!(granted, [true, false, false], "`z` has none now");
    }

    #[test]
    fn a_place_that_nobody_comes_for_goes_to_the_next() {
        let mut places = places(1, 1000);
        assert_eq!(places.take(&name("a"), 0), Ok(()));
        let [first, second, third] = ["a", "b", "c"].map(|client| reserve(&mut places, client));
        places.release("a", 0);
        places.drop_ticket("b", second.expect("it waits"));
        assert!(comes_for(&mut places, "a", first));
        places.release("a", 0);
        assert!(comes_for(&mut places, "c", third));
    }

    proptest! {
        /// Whatever they do: no place is lost, none is given twice, and nobody waits while there is room for him.
        #[test]
        fn places_are_kept_account_of(steps in prop::collection::vec((0..3_usize, 0..6_usize, 0..600_u64), 1..200)) {
            let mut places = places(8, 1000);
            let names = ["a", "b", "c"];
            let mut taken: Vec<(usize, u64)> = Vec::new();
            let mut tickets: Vec<(usize, u64)> = Vec::new();
            for (client, step, bytes) in steps {
                match step {
                    0 => taken.extend(places.take(&name(names[client]), bytes).is_ok().then_some((client, bytes))),
                    1 => match reserve(&mut places, names[client]) {
                        None => taken.push((client, 0)),
                        Some(ticket) => tickets.push((client, ticket)),
                    },
                    2 if !taken.is_empty() => {
                        let (client, bytes) = taken.swap_remove(client % taken.len());
                        places.release(names[client], bytes);
                    }
                    3 if !tickets.is_empty() => {
                        let (client, ticket) = tickets.swap_remove(client % tickets.len());
                        places.drop_ticket(names[client], ticket);
                    }
                    4 if !taken.is_empty() => {
                        let held = taken.len();
                        let (client, before) = &mut taken[client % held];
                        *before += places.bring(names[*client], bytes).map_or(0, |()| bytes);
                    }
                    _ if !taken.is_empty() => {
                        let held = taken.len();
                        let (client, before) = &mut taken[client % held];
                        places.hold(names[*client], *before, bytes);
                        *before = bytes;
                    }
                    _ => {}
                }
                let (came, waiting): (Vec<_>, Vec<_>) = tickets
                    .drain(..)
                    .partition(|(client, ticket)| places.is_granted(names[*client], *ticket));
                tickets = waiting;
                taken.extend(came.into_iter().map(|(client, _)| (client, 0)));
                prop_assert_eq!(places.jobs, taken.len());
                prop_assert_eq!(places.bytes, taken.iter().map(|(_, bytes)| bytes).sum::<u64>());
                prop_assert!(places.jobs <= 8);
                for (client, _) in &tickets {
                    prop_assert!(!places.has_room(&places.clients[names[*client]], 0));
                }
            }
            for (client, bytes) in taken {
                places.release(names[client], bytes);
            }
            for (client, ticket) in tickets {
                places.drop_ticket(names[client], ticket);
            }
            prop_assert!(places.clients.is_empty() && places.waiting == 0 && places.jobs == 0 && places.bytes == 0);
        }
    }
}
