//! What each client has used, so that none can have more than its share while others wait.
//!
//! An account is a point in *virtual time*: how many nanoseconds of worker time its client has used, divided by its
//! weight. Whoever has used least is next. This is deficit round robin (M. Shreedhar, G. Varghese, "Efficient fair
//! queueing using deficit round robin", 1995) with the deficits kept in order, so that finding the next one does not
//! take rounds: it is start-time fair queueing (P. Goyal et al., 1996). A job is charged what it is expected to take
//! when it is given out, and the difference once it is known what it took.
//!
//! An account also remembers how long its client's outputs have been. Those of a new client may be long, whatever its task
//! returned to others: until its first output is here, no job is given to a worker behind one of its jobs.
//!
//! A client that comes back after a rest begins where those who wait are now: rest is not saved up.

use super::registry::likely_output;
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A client's number. It is given anew once the client is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A point in virtual time, in nanoseconds.
pub type VirtualTime = i64;

/// One client.
#[derive(Clone, Debug)]
pub struct Account {
    /// As it calls itself.
    pub name: Arc<str>,
    /// Its share relative to others; 1 unless configured.
    pub weight: u32,
    /// What it has used.
    pub used: VirtualTime,
    /// Jobs of its that have not ended.
    pub jobs: usize,
    /// Jobs of its that wait.
    pub waiting: usize,
    /// What its waiting jobs are expected to take.
    pub backlog: Duration,
    /// How long its outputs are likely to be; nothing is known before it has had one.
    likely_output: Option<u64>,
}

impl Account {
    /// Whether its outputs have been so small that others may wait behind one.
    pub fn has_small_outputs(&self) -> bool {
        self.likely_output.is_some_and(|bytes| bytes <= INLINE_PAYLOAD_MAX as u64)
    }
}

/// All clients that have jobs, and some that had.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: BTreeMap<ClientId, Account>,
    by_name: BTreeMap<Arc<str>, ClientId>,
    /// Those without jobs, by what they have used: the least is forgotten first. Whatever changes one of the two goes
    /// through [`Clients::wake`] and [`Clients::rest`], so that nobody is listed under what he had used before.
    resting: BTreeSet<(VirtualTime, ClientId)>,
    /// Most of those.
    resting_max: usize,
    /// Where the one who was served last stood at that time. Never goes back.
    now: VirtualTime,
    last: u64,
    /// Clients with jobs that wait.
    waiting: usize,
}

impl Clients {
    /// None yet. So many of those without jobs are remembered, at the most.
    pub fn new(resting_max: usize) -> Clients {
        Clients { resting_max, ..Clients::default() }
    }

    /// Another number of them is remembered.
    pub fn remember_at_most(&mut self, resting_max: usize) {
        self.resting_max = resting_max;
        self.forget_some();
    }

    /// The client of this name, for one more job.
    pub fn enter(&mut self, name: &str, weight: u32) -> ClientId {
        let id = self.find_or_add(name);
        let now = self.now;
        self.wake(id);
        if let Some(account) = self.accounts.get_mut(&id) {
            if account.jobs == 0 {
                account.used = account.used.max(now);
            }
            account.weight = weight.max(1);
            account.jobs += 1;
        }
        id
    }

    fn find_or_add(&mut self, name: &str) -> ClientId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        self.last += 1;
        let id = ClientId(self.last);
        let name: Arc<str> = Arc::from(name);
        let account = Account {
            name: name.clone(),
            weight: 1,
            used: self.now,
            jobs: 0,
            waiting: 0,
            backlog: Duration::ZERO,
            likely_output: None,
        };
        self.accounts.insert(id, account);
        self.by_name.insert(name, id);
        id
    }

    /// One of its jobs has ended.
    pub fn leave(&mut self, id: ClientId) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.jobs = account.jobs.saturating_sub(1);
        self.rest(id);
        self.forget_some();
    }

    /// The account is not listed among those without jobs any more: it has one, or what it has used will change.
    fn wake(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id) {
            self.resting.remove(&(account.used, id));
        }
    }

    /// If the account has no jobs it is listed among those.
    fn rest(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id).filter(|account| account.jobs == 0) {
            self.resting.insert((account.used, id));
        }
    }

    fn forget_some(&mut self) {
        while self.resting.len() > self.resting_max {
            let Some((_, least)) = self.resting.pop_first() else { return };
            self.forget(least);
        }
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.by_name.remove(&account.name);
        }
    }

    /// It is being served: where it stands is what virtual time has come to.
    pub fn served(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id) {
            self.now = self.now.max(account.used);
        }
    }

    /// Charges nanoseconds of worker time, or gives some back, also to a client that has no jobs any more.
    pub fn charge(&mut self, id: ClientId, nanos: i64) {
        self.wake(id);
        if let Some(account) = self.accounts.get_mut(&id) {
            account.used = account.used.saturating_add(nanos / i64::from(account.weight));
        }
        self.rest(id);
    }

    /// The mistake of that name.
    pub(super) fn charge_where_it_is_listed(&mut self, id: ClientId, nanos: i64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.used = account.used.saturating_add(nanos / i64::from(account.weight));
        }
    }

    /// A job of its has returned so much.
    pub fn returned(&mut self, id: ClientId, output_bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.likely_output = Some(likely_output(account.likely_output, output_bytes));
        }
    }

    /// A job of its begins to wait.
    pub fn waits(&mut self, id: ClientId, expected: Duration) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting += usize::from(account.waiting == 0);
            account.waiting += 1;
            account.backlog = account.backlog.saturating_add(expected);
        }
    }

    /// A job of its has ceased to wait.
    pub fn waits_no_more(&mut self, id: ClientId, expected: Duration) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting -= usize::from(account.waiting == 1);
            account.waiting = account.waiting.saturating_sub(1);
            account.backlog = account.backlog.saturating_sub(expected);
        }
    }

    /// The account, while the client has jobs.
    pub fn get(&self, id: ClientId) -> Option<&Account> {
        self.accounts.get(&id)
    }

    /// The number of the account of this name.
    pub fn id_of(&self, name: &str) -> Option<ClientId> {
        self.by_name.get(name).copied()
    }

    /// The account of this name.
    pub fn find(&self, name: &str) -> Option<&Account> {
        self.accounts.get(self.by_name.get(name)?)
    }

    /// Where a client stands.
    pub fn used(&self, id: ClientId) -> VirtualTime {
        self.accounts.get(&id).map_or(self.now, |account| account.used)
    }

    /// Clients that have jobs.
    pub fn active(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().filter(|account| account.jobs > 0)
    }

    /// How many clients have jobs that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// What is wrong with it, if anything is, where clients have these jobs.
    pub(super) fn check<'a>(
        &self,
        jobs: impl Iterator<Item = (ClientId, &'a Arc<str>)>,
    ) -> Result<(), String> {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        for (id, name) in jobs {
            *counts.entry(id).or_default() += 1;
            if self.accounts.get(&id).is_none_or(|account| account.name != *name) {
                return Err(format!("{name} has jobs and no account"));
            }
        }
        let idle = self.accounts.iter().filter(|(_, account)| account.jobs == 0);
        let idle: BTreeSet<_> = idle.map(|(id, account)| (account.used, *id)).collect();
        let differs = |(id, account): &(&ClientId, &Account)| {
            counts.get(id).copied().unwrap_or(0) != account.jobs
                || self.by_name.get(&account.name) != Some(id)
        };
        match self.accounts.iter().find(differs) {
            Some((_, account)) => Err(format!("{} has other jobs than it is said to have", account.name)),
            None if idle != self.resting => Err("a client is listed under what it had used before".into()),
            None if self.by_name.len() != self.accounts.len() => Err("a name has no account".into()),
            None if idle.len() > self.resting_max => Err("too many clients without jobs".into()),
            None => Ok(()),
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_small_outputs_when_it_has_had_some_and_not_after_a_large_one() {
        let mut clients = Clients::new(10);
        let client = clients.enter("client", 1);
        let has_small = |clients: &Clients| clients.get(client).is_some_and(Account::has_small_outputs);
        assert!(!has_small(&clients), "nothing is known yet");
        clients.returned(client, 10);
        assert!(has_small(&clients));
        clients.returned(client, 1 << 20);
        assert!(!has_small(&clients));
    }

    #[test]
    fn rest_is_not_saved_up() {
        let mut clients = Clients::new(10);
        let busy = clients.enter("busy", 1);
        clients.charge(busy, 1_000_000);
        clients.served(busy);
        let rested = clients.enter("rested", 1);
        assert_eq!(clients.used(rested), 1_000_000);
    }

    #[test]
    fn who_is_ahead_of_the_others_stays_ahead_by_leaving_and_coming_back() {
        let mut clients = Clients::new(10);
        let greedy = clients.enter("greedy", 1);
        clients.charge(greedy, 5_000);
        clients.leave(greedy);
        let again = clients.enter("greedy", 1);
        assert_eq!(clients.used(again), 5_000);
    }

    #[test]
    fn a_weight_of_two_pays_half() {
        let mut clients = Clients::new(10);
        let heavy = clients.enter("heavy", 2);
        clients.charge(heavy, 1_000);
        assert_eq!(clients.used(heavy), 500);
    }

    #[test]
    fn clients_that_come_once_and_never_again_do_not_pile_up() {
        let mut clients = Clients::new(10);
        for number in 0..10_000 {
            let once = clients.enter(&format!("client {number}"), 1);
            clients.charge(once, number);
            clients.leave(once);
        }
        assert_eq!(clients.len(), 10);
    }

    #[test]
    fn a_client_with_jobs_is_not_forgotten_because_it_was_given_back_some_of_what_it_had_paid() {
        let mut clients = Clients::new(1);
        let team = clients.enter("team", 1);
        clients.charge(team, 5_000);
        clients.leave(team);
        clients.charge(team, -1_000);
        assert_eq!(clients.enter("team", 1), team);
        let other = clients.enter("other", 1);
        clients.charge(other, 9_000);
        clients.leave(other);
        assert_eq!(clients.get(team).map(|account| account.used), Some(4_000));
        assert_eq!(clients.check([(team, &Arc::from("team"))].into_iter()), Ok(()));
    }

    #[test]
    fn who_is_ahead_is_remembered_longer_than_who_is_not() {
        let mut clients = Clients::new(1);
        let team = clients.enter("team", 1);
        clients.charge(team, 5_000);
        clients.leave(team);
        let behind = clients.enter("behind", 1);
        clients.leave(behind);
        assert!(clients.find("team").is_some() && clients.find("behind").is_none());
    }
}
