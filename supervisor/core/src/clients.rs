//! Fair shares: how much worker time each client has used, so that no client gets more than its share while others
//! wait.
//!
//! An account is a point in *virtual time*: the worker time that its client has used, in nanoseconds, divided by the
//! client's weight. The client with the least is served next. This is deficit round robin (M. Shreedhar, G. Varghese,
//! "Efficient fair queueing using deficit round robin", 1995), but the deficits are kept in order, so the next client
//! is found without going round all of them: it is start-time fair queueing (P. Goyal et al., 1996). When a job is
//! dispatched, its client is charged the expected run time; once the real run time is known, the difference is
//! charged or given back.
//!
//! The core also learns how long the outputs of each client are. A new client may have long ones, whatever its task
//! has returned to others. So until its first output has come, no other job is dispatched to a worker behind one of
//! its jobs (head-of-line blocking).
//!
//! A client that comes back after a pause starts at the virtual time that the waiting clients have reached: a pause
//! earns nothing. These are the clients in the queue that its first job enters. Others may have used much more because they have
//! workers to themselves; who started there would wait until all of its queue had caught up with them.

use super::lookup::Lookup;
use super::queue::{Share, head_start};
use super::registry::likely_output;
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// A client's number. A client that was forgotten and comes back gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A point in virtual time, in nanoseconds.
pub type VirtualTime = i64;

/// One client.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name that the client gave itself.
    pub name: Arc<str>,
    /// Its share of worker time relative to the others; 1 unless configured.
    pub weight: u32,
    /// Worker time that it has used, divided by its weight.
    pub used: VirtualTime,
    /// It has come, and none of its jobs has entered a queue: what it had used before.
    had_used: Option<VirtualTime>,
    /// How many of its jobs have not ended.
    pub jobs: usize,
    /// How many of its jobs wait.
    pub waiting: usize,
    /// The likely length of its next output in bytes; `None` until the first output has come.
    likely_output: Option<u64>,
}

impl Account {
    /// Whether its outputs have been so small that jobs of other clients may wait behind one of them.
    pub fn has_small_outputs(&self) -> bool {
        self.likely_output.is_some_and(|bytes| bytes <= INLINE_PAYLOAD_MAX as u64)
    }
}

/// All clients that have jobs, and some that had jobs before.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: Lookup<ClientId, Account>,
    by_name: Lookup<Arc<str>, ClientId>,
    /// Clients without jobs, ordered by what they have used: the one with the least is forgotten first. All code that
    /// changes `used` or `jobs` goes through [`Clients::wake`] and [`Clients::rest`], so no client is listed under an
    /// outdated value.
    resting: BTreeSet<(VirtualTime, ClientId)>,
    /// How many clients without jobs are remembered at most.
    resting_max: usize,
    /// The current virtual time: `used` of the client that was served last, at the moment when it was served, less the
    /// head start that its priority gave it. Never goes back.
    now: VirtualTime,
    last: u64,
    /// How many clients have jobs that wait.
    waiting: usize,
}

impl Clients {
    /// No clients yet; at most `resting_max` clients without jobs will be remembered.
    pub fn new(resting_max: usize) -> Clients {
        Clients { resting_max, ..Clients::default() }
    }

    /// Changes how many clients without jobs are remembered, and forgets those that are now too many.
    pub fn remember_at_most(&mut self, resting_max: usize) {
        self.resting_max = resting_max;
        self.forget_some();
    }

    /// Finds or adds the client of this name, and counts one more job for it.
    pub fn enter(&mut self, name: &str, weight: u32) -> ClientId {
        let id = self.find_or_add(name);
        let now = self.now;
        self.wake(id);
        if let Some(account) = self.accounts.get_mut(&id) {
            if account.jobs == 0 {
                account.had_used = Some(account.used);
                account.used = account.used.max(now);
            }
            account.weight = weight.max(1);
            account.jobs += 1;
        }
        id
    }

    /// One of the client's jobs enters a queue. The client that is first there has used so much; `None` if no job waits there.
    pub fn joins(&mut self, id: ClientId, first_used: Option<VirtualTime>) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        if let Some((had_used, first_used)) = account.had_used.take().zip(first_used) {
            account.used = account.used.min(first_used.max(had_used));
        }
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
            used: VirtualTime::MIN,
            had_used: None,
            jobs: 0,
            waiting: 0,
            likely_output: None,
        };
        self.accounts.insert(id, account);
        self.by_name.insert(name, id);
        id
    }

    /// One of the client's jobs has ended.
    pub fn leave(&mut self, id: ClientId) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.jobs = account.jobs.saturating_sub(1);
        self.rest(id);
        self.forget_some();
    }

    /// Takes the client off the list of those without jobs: it gets a job, or `used` is about to change.
    fn wake(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get(&id).filter(|account| account.jobs == 0) {
            self.resting.remove(&(account.used, id));
        }
    }

    /// Puts the client on the list of those without jobs, if it has none.
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
            self.by_name.remove(&*account.name);
        }
    }

    /// The client is being served, with a job of this priority: virtual time advances to what it has used. What it has
    /// because of the priority, before its turn, is left out: the others have not had that. A client that comes now would
    /// otherwise have to wait until all of them have caught up.
    pub fn served(&mut self, id: ClientId, priority: i8) {
        if let Some(account) = self.accounts.get(&id) {
            let before_its_turn = head_start(priority, account.weight).max(0);
            self.now = self.now.max(account.used.saturating_sub(before_its_turn));
        }
    }

    /// Charges worker time in nanoseconds. A negative amount is given back. The client need not have jobs any more.
    pub fn charge(&mut self, id: ClientId, nanos: i64) {
        self.wake(id);
        if let Some(account) = self.accounts.get_mut(&id) {
            account.used = account.used.saturating_add(nanos / i64::from(account.weight));
        }
        self.rest(id);
    }

    /// One of the client's jobs has returned an output of this length.
    pub fn returned(&mut self, id: ClientId, output_bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.likely_output = Some(likely_output(account.likely_output, output_bytes));
        }
    }

    /// One of the client's jobs begins to wait.
    pub fn waits(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting += usize::from(account.waiting == 0);
            account.waiting += 1;
        }
    }

    /// One of the client's jobs no longer waits.
    pub fn waits_no_more(&mut self, id: ClientId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.waiting -= usize::from(account.waiting == 1);
            account.waiting = account.waiting.saturating_sub(1);
        }
    }

    /// The account, while the client is remembered.
    pub fn get(&self, id: ClientId) -> Option<&Account> {
        self.accounts.get(&id)
    }

    /// The client's name; empty if the client is not known. All that have jobs are.
    pub(super) fn name_of(&self, id: ClientId) -> &Arc<str> {
        static NONE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        self.accounts.get(&id).map_or(&NONE, |account| &account.name)
    }

    /// The number of the client of this name, if it is remembered.
    pub fn id_of(&self, name: &str) -> Option<ClientId> {
        self.by_name.get(name).copied()
    }

    /// The account of the client of this name, if it is remembered.
    pub fn find(&self, name: &str) -> Option<&Account> {
        self.accounts.get(self.by_name.get(name)?)
    }

    /// What the client has used; the current virtual time if the client is not known.
    pub fn used(&self, id: ClientId) -> VirtualTime {
        self.accounts.get(&id).map_or(self.now, |account| account.used)
    }

    /// What the client has used, and its weight.
    pub fn share(&self, id: ClientId) -> Share {
        Share { used: self.used(id), weight: self.accounts.get(&id).map_or(1, |account| account.weight) }
    }

    /// The clients that have jobs.
    pub fn active(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().filter(|account| account.jobs > 0)
    }

    /// How many clients have jobs that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// Checks the accounts against `jobs`: the client, and its name, of every job that has not ended. An error says
    /// what is wrong.
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
                || self.by_name.get(&*account.name) != Some(id)
        };
        match self.accounts.iter().find(differs) {
            Some((_, account)) => Err(format!("{} has other jobs than it is said to have", account.name)),
            None if idle != self.resting => Err("a client is listed under what it had used before".into()),
            None if self.by_name.len() != self.accounts.len() => Err("a name has no account".into()),
            None if idle.len() > self.resting_max => Err("too many clients without jobs".into()),
            None => Ok(()),
        }
    }

    /// How many clients are remembered.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether no client is remembered.
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
    fn a_pause_earns_a_client_no_worker_time() {
        let mut clients = Clients::new(10);
        let busy = clients.enter("busy", 1);
        clients.charge(busy, 1_000_000);
        clients.served(busy, 0);
        let rested = clients.enter("rested", 1);
        assert_eq!(clients.used(rested), 1_000_000);
    }

    #[test]
    fn a_client_does_not_start_where_another_is_that_had_more_before_its_turn() {
        let mut clients = Clients::new(10);
        let urgent = clients.enter("urgent", 2);
        clients.charge(urgent, 2 * 500_000_000);
        clients.served(urgent, 3);
        let new = clients.enter("new", 1);
        assert_eq!(
            clients.used(new),
            350_000_000,
            "300 ms of worker time are half as much for a weight of two"
        );
    }

    #[test]
    fn a_client_starts_where_those_are_that_it_waits_with_if_these_have_had_less_than_others() {
        let mut clients = Clients::new(10);
        let busy = clients.enter("busy", 1);
        clients.charge(busy, 1_000_000);
        clients.served(busy, 0);
        let new = clients.enter("new", 1);
        clients.joins(new, Some(2_000));
        clients.joins(new, Some(1_000));
        assert_eq!(clients.used(new), 2_000, "only its first job counts");
        clients.charge(new, 500_000);
        clients.leave(new);
        let again = clients.enter("new", 1);
        clients.joins(again, Some(2_000));
        assert_eq!(clients.used(again), 502_000, "nothing of what it has used is forgotten");
        let late = clients.enter("late", 1);
        clients.joins(late, Some(3_000_000));
        assert_eq!(clients.used(late), 1_000_000);
    }

    #[test]
    fn a_client_that_leaves_and_comes_back_keeps_its_used_worker_time() {
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
    fn a_client_that_used_more_worker_time_is_remembered_longer() {
        let mut clients = Clients::new(1);
        let team = clients.enter("team", 1);
        clients.charge(team, 5_000);
        clients.leave(team);
        let behind = clients.enter("behind", 1);
        clients.leave(behind);
        assert!(clients.find("team").is_some() && clients.find("behind").is_none());
    }
}
