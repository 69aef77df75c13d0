//! What each client has used, so that none can have more than its share while others wait.
//!
//! An account is a point in *virtual time*: how many nanoseconds of worker time its client has used, divided by its
//! weight. Whoever has used least is next. This is deficit round robin (M. Shreedhar, G. Varghese, "Efficient fair
//! queueing using deficit round robin", 1995) with the deficits kept in order, so that finding the next one does not
//! take rounds: it is start-time fair queueing (P. Goyal et al., 1996). A job is charged what it is expected to take
//! when it is given out, and the difference once it is known what it took.
//!
//! A client that comes back after a rest begins where those who wait are now: rest is not saved up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A client's number. It is given anew once the client is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A point in virtual time, in nanoseconds.
pub type VirtualTime = i64;

/// Accounts without any job that are remembered for what their clients used ahead of the others.
const RESTING_MAX: usize = 1024;

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
}

/// All clients that have jobs, and some that had.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: BTreeMap<ClientId, Account>,
    by_name: BTreeMap<Arc<str>, ClientId>,
    /// Those without jobs, by what they have used: the least is forgotten first.
    resting: BTreeSet<(VirtualTime, ClientId)>,
    /// Where the one who was served last stood at that time. Never goes back.
    now: VirtualTime,
    last: u64,
    /// Clients with jobs that wait.
    waiting: usize,
}

impl Clients {
    /// The client of this name, for one more job.
    pub fn enter(&mut self, name: &str, weight: u32) -> ClientId {
        let id = self.find_or_add(name);
        let now = self.now;
        if let Some(account) = self.accounts.get_mut(&id) {
            if account.jobs == 0 {
                self.resting.remove(&(account.used, id));
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
        };
        self.accounts.insert(id, account);
        self.by_name.insert(name, id);
        id
    }

    /// One of its jobs has ended.
    pub fn leave(&mut self, id: ClientId) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.jobs = account.jobs.saturating_sub(1);
        if account.jobs > 0 {
            return;
        }
        let (used, name) = (account.used, account.name.clone());
        // One that is not ahead of the others would begin where they are anyway.
        if used <= self.now {
            return self.forget(id, &name);
        }
        self.resting.insert((used, id));
        if self.resting.len() > RESTING_MAX
            && let Some((_, least)) = self.resting.pop_first()
            && let Some(name) = self.accounts.get(&least).map(|account| account.name.clone())
        {
            self.forget(least, &name);
        }
    }

    fn forget(&mut self, id: ClientId, name: &str) {
        self.accounts.remove(&id);
        self.by_name.remove(name);
    }

    /// It is being served: where it stands is what virtual time has come to.
    pub fn served(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id) {
            self.now = self.now.max(account.used);
        }
    }

    /// Charges nanoseconds of worker time, or gives some back.
    pub fn charge(&mut self, id: ClientId, nanos: i64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.used = account.used.saturating_add(nanos / i64::from(account.weight));
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
    fn rest_is_not_saved_up() {
        let mut clients = Clients::default();
        let busy = clients.enter("busy", 1);
        clients.charge(busy, 1_000_000);
        clients.served(busy);
        let rested = clients.enter("rested", 1);
        assert_eq!(clients.used(rested), 1_000_000);
    }

    #[test]
    fn who_is_ahead_of_the_others_stays_ahead_by_leaving_and_coming_back() {
        let mut clients = Clients::default();
        let greedy = clients.enter("greedy", 1);
        clients.charge(greedy, 5_000);
        clients.leave(greedy);
        let again = clients.enter("greedy", 1);
        assert_eq!(clients.used(again), 5_000);
    }

    #[test]
    fn a_weight_of_two_pays_half() {
        let mut clients = Clients::default();
        let heavy = clients.enter("heavy", 2);
        clients.charge(heavy, 1_000);
        assert_eq!(clients.used(heavy), 500);
    }

    #[test]
    fn clients_that_come_once_and_never_again_do_not_pile_up() {
        let mut clients = Clients::default();
        for number in 0..10_000 {
            let once = clients.enter(&format!("client {number}"), 1);
            clients.charge(once, number);
            clients.leave(once);
        }
        assert!(clients.len() <= RESTING_MAX, "{}", clients.len());
    }
}
