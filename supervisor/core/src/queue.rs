//! The waiting jobs of one queue: ordered by client, and within a client by priority and age.
//!
//! ```text
//!   client that has used least  ->  its job with the best rank
//!        order: (used - head start of its first job, client)      rank: accepted_at - priority x AGEING
//! ```
//!
//! The first order is in `queue/order.rs`, the second one in `queue/ranked.rs`. Memory may forbid clients to start their
//! jobs, and there may be thousands of such clients. But whether a job may start depends only on its [`Kind`]. So each
//! kind has an order of its own, and the search for the first job that may start looks only at the first job of each
//! kind.
//!
//! Priorities age by themselves, so nobody starves. Among the jobs of one client, a level of priority is worth a
//! fixed time of waiting: a job is overtaken only by jobs that came less than `priority x AGEING` later. Against
//! other clients, a level is worth a fixed amount of worker time, which the client has before its turn, once: it gets that
//! again only after the others have caught up. A client that comes meanwhile does not have to wait for them to do so.

mod order;
mod ranked;

use super::clients::{ClientId, VirtualTime};
use super::ids::{JobId, Mono, TaskIndex};
use super::ledger::Level;
use super::lookup::Lookup;
use super::small_map::SmallMap;
use order::Order;
use ranked::Ranked;
use std::time::Duration;

/// What one level of priority is worth among the jobs of one client: this much time spent waiting.
pub const AGEING: Duration = Duration::from_secs(1);

/// What one level of priority is worth against other clients: this much worker time, as if the client had not used
/// it. Even with the highest priority that is one second.
pub const HEAD_START: Duration = Duration::from_millis(100);

/// The position of a job among the jobs of its client. The smallest rank is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    aged: i64,
    job: JobId,
    priority: i8,
}

impl Rank {
    /// No rank comes before this one.
    pub(super) const FIRST: Rank = Rank { aged: i64::MIN, job: JobId(0), priority: i8::MIN };

    /// The rank of a job that was accepted at this time.
    pub fn new(accepted_at: Mono, priority: i8, job: JobId) -> Rank {
        let gained = i64::from(priority) * AGEING.as_nanos() as i64;
        let accepted_at = i64::try_from(accepted_at.as_nanos()).unwrap_or(i64::MAX);
        Rank { aged: accepted_at.saturating_sub(gained), job, priority }
    }
}

/// What a priority is worth against other clients, in virtual time.
pub(super) fn head_start(priority: i8, weight: u32) -> VirtualTime {
    i64::from(priority) * HEAD_START.as_nanos() as i64 / i64::from(weight.max(1))
}

/// The first job of a queue. `Next` values of several queues compare: the smallest is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Next {
    at: VirtualTime,
    rank: Rank,
}

impl Next {
    /// The job that is next.
    pub fn job(self) -> JobId {
        self.rank.job
    }

    pub(super) fn rank(self) -> Rank {
        self.rank
    }

    /// When it is served, in virtual time.
    pub(super) fn turn(self) -> VirtualTime {
        self.at
    }

    /// Whether it comes before another one by more than this much worker time, in nanoseconds.
    pub(super) fn is_before(self, other: Next, by: u64) -> bool {
        self.at.saturating_add_unsigned(by) < other.at
    }

    /// Whether it comes before another one of the same client. What a priority is worth against other clients does not count
    /// then: an old job comes before a new one of a higher priority.
    pub(super) fn is_before_its_own(self, other: Rank) -> bool {
        self.rank < other
    }
}

/// What a client has had of a program, and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its place in virtual time: worker time that it has used, divided by its weight.
    pub used: VirtualTime,
    /// Its share of worker time relative to the others.
    pub weight: u32,
}

/// What decides whether memory lets a job start. The first two fields predict the length of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The job's task.
    pub task: TaskIndex,
    /// The size class of the job's input, in powers of sixteen (see `registry::size_of`).
    pub size: u32,
    /// How many bytes of outputs the job's client holds, rounded.
    pub level: Level,
}

/// One queue of waiting jobs, fair between clients.
#[derive(Debug, Default)]
pub struct FairQueue {
    by_client: Lookup<ClientId, Waiting>,
    /// Each client once, under the kind of its first job. Empty orders are removed.
    by_kind: SmallMap<Kind, Order>,
    len: usize,
    /// The weights of all clients.
    weights: u64,
}

/// The position of a client: its kind, and the entry in the order of this kind.
type Listed = (Kind, VirtualTime, Rank);

/// The waiting jobs of one client; at least one.
#[derive(Debug)]
struct Waiting {
    /// The task and the input's size class of each job.
    jobs: Ranked,
    share: Share,
    /// How many bytes of outputs the client holds, rounded.
    level: Level,
    /// The client's position, once it has one.
    listed: Option<Listed>,
}

impl FairQueue {
    /// Adds a job. `share` is what the client has used until now; `kind` also sets the level of all its jobs.
    pub fn insert(&mut self, client: ClientId, share: Share, rank: Rank, kind: Kind) {
        let level = kind.level;
        if self.by_client.get(&client).is_none() {
            self.by_client.insert(client, Waiting { jobs: Ranked::default(), share, level, listed: None });
            self.weights += u64::from(share.weight);
        }
        let Some(waiting) = self.by_client.get_mut(&client) else { return };
        self.len += usize::from(waiting.jobs.insert(rank, (kind.task, kind.size)));
        self.weights = self.weights - u64::from(waiting.share.weight) + u64::from(share.weight);
        (waiting.share, waiting.level) = (share, level);
        self.list(client);
    }

    /// Takes a job out. True if it was there.
    pub fn remove(&mut self, client: ClientId, rank: Rank) -> bool {
        let Some(waiting) = self.by_client.get_mut(&client) else { return false };
        let was_there = waiting.jobs.remove(rank);
        self.len -= usize::from(was_there);
        self.list(client);
        was_there
    }

    /// Changes what a client has used. No effect if none of its jobs waits here.
    pub fn set_used(&mut self, client: ClientId, used: VirtualTime) {
        if let Some(waiting) = self.by_client.get_mut(&client) {
            waiting.share.used = used;
            self.list(client);
        }
    }

    /// Changes the level of a client's outputs. No effect if none of its jobs waits here.
    pub fn set_level(&mut self, client: ClientId, level: Level) {
        if let Some(waiting) = self.by_client.get_mut(&client).filter(|waiting| waiting.level != level) {
            waiting.level = level;
            self.list(client);
        }
    }

    /// The output level under which the client is listed, if any of its jobs waits here.
    pub fn level_of(&self, client: ClientId) -> Option<Level> {
        self.by_client.get(&client).map(|waiting| waiting.level)
    }

    /// Moves the client to its right place in the orders after a change, or removes it if no job is left. Most changes
    /// leave it where it is.
    fn list(&mut self, client: ClientId) {
        let Some(waiting) = self.by_client.get_mut(&client) else { return };
        let old = waiting.listed;
        let Some((first, (task, size))) = waiting.jobs.first() else {
            self.weights -= u64::from(waiting.share.weight);
            self.by_client.remove(&client);
            return self.unlist(client, old);
        };
        let kind = Kind { task, size, level: waiting.level };
        let Share { used, weight } = waiting.share;
        let new = (kind, used.saturating_sub(head_start(first.priority, weight)), first);
        if old == Some(new) {
            return;
        }
        waiting.listed = Some(new);
        let entry = (new.1, first, client);
        let order = self.by_kind.get_mut(&kind);
        match (old, order) {
            (Some((old_kind, at, rank)), Some(order)) if old_kind == kind => {
                return order.replace((at, rank, client), entry);
            }
            (_, Some(order)) => order.insert(entry),
            (_, None) => self.by_kind.insert(kind, Order::of(entry)),
        }
        self.unlist(client, old);
    }

    fn unlist(&mut self, client: ClientId, listed: Option<Listed>) {
        let Some((kind, at, rank)) = listed else { return };
        let Some(order) = self.by_kind.get_mut(&kind) else { return };
        if !order.remove((at, rank, client)) {
            self.by_kind.remove(&kind);
        }
    }

    /// The job that is next.
    pub fn first(&self) -> Option<Next> {
        self.first_of(|_| true)
    }

    /// The next job among the kinds for which `is_it` returns true. Takes time in proportion to the number of kinds.
    pub fn first_of(&self, is_it: impl Fn(Kind) -> bool) -> Option<Next> {
        let orders = self.by_kind.iter().filter(|(kind, _)| is_it(*kind));
        orders.map(|(_, order)| order.first()).min().map(|&(at, rank, _)| Next { at, rank })
    }

    /// How many jobs wait here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The weights of all clients whose jobs wait here, added up.
    pub fn weights(&self) -> u64 {
        self.weights
    }

    /// Whether no job waits here.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this job waits here.
    pub fn contains(&self, client: ClientId, rank: Rank) -> bool {
        self.by_client.get(&client).is_some_and(|waiting| waiting.jobs.contains(rank))
    }

    /// The other clients that have a job which is served before the first one of this client, and by how much virtual time they
    /// are before it.
    pub fn clients_before(&self, client: ClientId) -> impl Iterator<Item = (ClientId, VirtualTime)> + '_ {
        let listed = self.by_client.get(&client).and_then(|waiting| waiting.listed);
        let before = move |(_, at, rank): Listed| {
            let clients = self.by_kind.iter().flat_map(move |(_, order)| order.before((at, rank, client)));
            clients.map(move |&(of_other, _, other)| (other, at.saturating_sub(of_other)))
        };
        listed.into_iter().flat_map(before)
    }

    /// How many jobs of the same client are served before this one.
    pub fn ahead_of_its_own(&self, client: ClientId, rank: Rank) -> usize {
        self.by_client.get(&client).map_or(0, |waiting| waiting.jobs.before(rank))
    }

    /// All jobs, from a queue that is given up. The order means nothing.
    pub fn into_jobs(self) -> impl Iterator<Item = JobId> {
        self.by_client.into_values().flat_map(|waiting| waiting.jobs.jobs().collect::<Vec<_>>())
    }

    /// All jobs. The order means nothing.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.by_client.values().flat_map(|waiting| waiting.jobs.jobs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn used(used: VirtualTime) -> Share {
        Share { used, weight: 1 }
    }

    fn rank(millis: u64, priority: i8, job: u64) -> Rank {
        Rank::new(Mono::from_nanos(millis * 1_000_000), priority, JobId(job))
    }

    /// The jobs in the order in which they are served if no worker time is charged.
    fn drained(mut queue: FairQueue, clients: &[ClientId], ranks: &[Rank]) -> Vec<u64> {
        std::iter::from_fn(|| {
            let next = queue.first()?;
            let index = ranks.iter().position(|rank| rank.job == next.job())?;
            assert!(queue.remove(clients[index], ranks[index]));
            Some(next.job().0)
        })
        .collect()
    }

    #[test]
    fn the_older_job_of_a_client_is_first_unless_a_priority_says_otherwise() {
        let ranks = [rank(0, 0, 1), rank(1, 0, 2), rank(2, 1, 3)];
        let mut queue = FairQueue::default();
        ranks.iter().for_each(|rank| queue.insert(A, used(0), *rank, Kind::default()));
        assert_eq!(drained(queue, &[A; 3], &ranks), [3, 1, 2]);
    }

    #[test]
    fn a_priority_overtakes_only_jobs_that_have_not_waited_long() {
        let ranks = [rank(0, 0, 1), rank(1001, 1, 2), rank(1002, 0, 3)];
        let mut queue = FairQueue::default();
        ranks.iter().for_each(|rank| queue.insert(A, used(0), *rank, Kind::default()));
        assert_eq!(drained(queue, &[A; 3], &ranks), [1, 2, 3]);
    }

    #[test]
    fn the_client_that_has_used_least_is_first_whatever_the_age_of_its_jobs() {
        let mut queue = FairQueue::default();
        queue.insert(A, used(100), rank(0, 0, 1), Kind::default());
        queue.insert(B, used(50), rank(9, 0, 2), Kind::default());
        assert_eq!(queue.first().map(Next::job), Some(JobId(2)));
        queue.set_used(B, 101);
        assert_eq!(queue.first().map(Next::job), Some(JobId(1)));
    }

    #[test]
    fn a_priority_is_worth_a_head_start_against_other_clients() {
        let start = HEAD_START.as_nanos() as i64;
        let mut queue = FairQueue::default();
        queue.insert(A, used(0), rank(0, 0, 1), Kind::default());
        queue.insert(B, used(start - 1), rank(0, 1, 2), Kind::default());
        assert_eq!(queue.first().map(Next::job), Some(JobId(2)));
        queue.set_used(B, start + 1);
        assert_eq!(queue.first().map(Next::job), Some(JobId(1)));
    }

    #[test]
    fn the_head_start_of_a_priority_is_worker_time_whatever_the_weight() {
        let start = HEAD_START.as_nanos() as i64;
        let mut queue = FairQueue::default();
        queue.insert(A, used(0), rank(0, 0, 1), Kind::default());
        queue.insert(B, Share { used: start / 4 + 1, weight: 4 }, rank(0, 1, 2), Kind::default());
        assert_eq!(queue.first().map(Next::job), Some(JobId(1)));
        assert_eq!(queue.clients_before(B).collect::<Vec<_>>(), [(A, 1)]);
    }

    #[test]
    fn an_empty_queue_holds_nothing() {
        let mut queue = FairQueue::default();
        queue.insert(A, used(0), rank(0, 0, 1), Kind::default());
        assert!(!queue.remove(A, rank(0, 0, 2)) && !queue.remove(B, rank(0, 0, 1)));
        assert!(queue.remove(A, rank(0, 0, 1)) && queue.is_empty() && queue.first().is_none());
        assert!(queue.by_client.is_empty() && queue.by_kind.is_empty() && queue.weights == 0);
    }

    #[test]
    fn of_thousands_that_may_not_start_only_one_of_each_kind_is_looked_at() {
        let mut queue = FairQueue::default();
        let kind = |task| Kind { task, ..Kind::default() };
        for client in 1..=10_000 {
            queue.insert(
                ClientId(client),
                used(0),
                rank(client, 0, client),
                kind(u32::from(client % 2 == 0)),
            );
        }
        let (looks, may_start) = (std::cell::Cell::new(0), std::cell::Cell::new(7));
        let first = || {
            queue.first_of(|kind| {
                looks.set(looks.get() + 1);
                kind.task == may_start.get()
            })
        };
        assert_eq!((first(), looks.take()), (None, 2));
        may_start.set(1);
        assert_eq!((first().map(Next::job), looks.take()), (Some(JobId(2)), 2));
    }

    #[test]
    fn a_client_is_found_under_what_its_first_job_is_and_what_it_holds_now() {
        let mut queue = FairQueue::default();
        let held = Level::of(500);
        let is_held = |kind: Kind| kind.level == held;
        let large = Kind { size: 4, ..Kind::default() };
        queue.insert(A, used(0), rank(0, 0, 1), Kind::default());
        queue.insert(A, used(0), rank(1, 0, 2), large);
        assert_eq!(queue.first_of(|kind| kind == large), None, "the large job is not its first one");
        queue.remove(A, rank(0, 0, 1));
        assert_eq!(queue.first_of(|kind| kind == large).map(Next::job), Some(JobId(2)));
        queue.set_level(A, held);
        assert_eq!(queue.first_of(is_held).map(Next::job), Some(JobId(2)));
        queue.set_level(A, Level::default());
        assert_eq!(queue.first_of(is_held), None);
    }
}
