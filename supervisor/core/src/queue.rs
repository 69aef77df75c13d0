//! The jobs that wait for one class of slots: by client, and within a client by priority and age.
//!
//! ```text
//!   client with the least used  ->  its job with the best rank
//!        order: (used - head start of its first job, client)      rank: accepted_at - priority x AGEING
//! ```
//!
//! Both orders are kept in trees, so every operation is logarithmic. Priorities age by themselves: a level is worth a
//! fixed time of waiting, so each job is overtaken only by those that came less than `priority x AGEING` later, and a
//! priority of one client is worth a fixed amount of service against the others, which it pays back. Nobody starves.

use super::clients::{ClientId, VirtualTime};
use super::ids::{JobId, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What one level of priority is worth among the jobs of one client, as time spent waiting.
pub const AGEING: Duration = Duration::from_secs(1);

/// What one level of priority is worth against other clients, as worker time that they have used.
pub const HEAD_START: Duration = Duration::from_millis(100);

/// The place of a job among those of its client; the smallest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    aged: i128,
    job: JobId,
    priority: i8,
}

impl Rank {
    /// Of a job that was accepted then.
    pub fn new(accepted_at: Mono, priority: i8, job: JobId) -> Rank {
        let gained = i128::from(priority) * AGEING.as_nanos() as i128;
        Rank { aged: i128::from(accepted_at.as_nanos()) - gained, job, priority }
    }

    fn head_start(self) -> VirtualTime {
        i64::from(self.priority) * HEAD_START.as_nanos() as i64
    }
}

/// The job that is next, and how it compares with the next one of another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Next {
    at: VirtualTime,
    rank: Rank,
}

impl Next {
    /// Which job it is.
    pub fn job(self) -> JobId {
        self.rank.job
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct FairQueue {
    by_client: BTreeMap<ClientId, Waiting>,
    order: BTreeSet<(VirtualTime, Rank, ClientId)>,
    len: usize,
}

/// The jobs of one client; there is at least one.
#[derive(Debug)]
struct Waiting {
    jobs: BTreeSet<Rank>,
    /// What the client has used.
    used: VirtualTime,
    /// Where it stands in the order.
    listed: (VirtualTime, Rank),
}

impl FairQueue {
    /// Adds a job of a client that has used so much.
    pub fn insert(&mut self, client: ClientId, used: VirtualTime, rank: Rank) {
        let fresh = || Waiting { jobs: BTreeSet::new(), used, listed: (used, rank) };
        let waiting = self.by_client.entry(client).or_insert_with(fresh);
        self.len += usize::from(waiting.jobs.insert(rank));
        self.list(client, used);
    }

    /// Takes a job out. True if it was there.
    pub fn remove(&mut self, client: ClientId, rank: Rank) -> bool {
        let Some(waiting) = self.by_client.get_mut(&client) else { return false };
        let was_there = waiting.jobs.remove(&rank);
        self.len -= usize::from(was_there);
        let used = waiting.used;
        self.list(client, used);
        was_there
    }

    /// A client has used more, or less, than was known. Nothing happens if none of its jobs waits here.
    pub fn set_used(&mut self, client: ClientId, used: VirtualTime) {
        if self.by_client.contains_key(&client) {
            self.list(client, used);
        }
    }

    /// Brings the place of a client in the order in line with its jobs.
    fn list(&mut self, client: ClientId, used: VirtualTime) {
        let Some(waiting) = self.by_client.get_mut(&client) else { return };
        let (at, rank) = waiting.listed;
        self.order.remove(&(at, rank, client));
        let Some(&first) = waiting.jobs.first() else {
            self.by_client.remove(&client);
            return;
        };
        waiting.used = used;
        waiting.listed = (used.saturating_sub(first.head_start()), first);
        self.order.insert((waiting.listed.0, first, client));
    }

    /// The job that is next.
    pub fn first(&self) -> Option<Next> {
        self.order.first().map(|&(at, rank, _)| Next { at, rank })
    }

    /// The first job of each client, in the order in which they are served.
    pub fn in_order(&self) -> impl Iterator<Item = Next> + '_ {
        self.order.iter().map(|&(at, rank, _)| Next { at, rank })
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this job waits here.
    pub fn contains(&self, client: ClientId, rank: Rank) -> bool {
        self.by_client.get(&client).is_some_and(|waiting| waiting.jobs.contains(&rank))
    }

    /// Jobs of the same client that are served before this one. Takes time in proportion to them.
    pub fn ahead_of_its_own(&self, client: ClientId, rank: Rank) -> usize {
        self.by_client.get(&client).map_or(0, |waiting| waiting.jobs.range(..rank).count())
    }

    /// All of them, when it is not a queue any more.
    pub fn into_jobs(self) -> impl Iterator<Item = JobId> {
        self.by_client.into_values().flat_map(|waiting| waiting.jobs).map(|rank| rank.job)
    }

    /// All of them, in no order that means anything.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.by_client.values().flat_map(|waiting| waiting.jobs.iter().map(|rank| rank.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn rank(millis: u64, priority: i8, job: u64) -> Rank {
        Rank::new(Mono::from_nanos(millis * 1_000_000), priority, JobId(job))
    }

    /// The jobs in the order in which they are served if nothing is charged.
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
        ranks.iter().for_each(|rank| queue.insert(A, 0, *rank));
        assert_eq!(drained(queue, &[A; 3], &ranks), [3, 1, 2]);
    }

    #[test]
    fn a_priority_overtakes_only_jobs_that_have_not_waited_long() {
        let ranks = [rank(0, 0, 1), rank(1001, 1, 2), rank(1002, 0, 3)];
        let mut queue = FairQueue::default();
        ranks.iter().for_each(|rank| queue.insert(A, 0, *rank));
        assert_eq!(drained(queue, &[A; 3], &ranks), [1, 2, 3]);
    }

    #[test]
    fn the_client_that_has_used_least_is_first_whatever_the_age_of_its_jobs() {
        let mut queue = FairQueue::default();
        queue.insert(A, 100, rank(0, 0, 1));
        queue.insert(B, 50, rank(9, 0, 2));
        assert_eq!(queue.first().map(Next::job), Some(JobId(2)));
        queue.set_used(B, 101);
        assert_eq!(queue.first().map(Next::job), Some(JobId(1)));
    }

    #[test]
    fn a_priority_is_worth_a_head_start_against_other_clients() {
        let start = HEAD_START.as_nanos() as i64;
        let mut queue = FairQueue::default();
        queue.insert(A, 0, rank(0, 0, 1));
        queue.insert(B, start - 1, rank(0, 1, 2));
        assert_eq!(queue.first().map(Next::job), Some(JobId(2)));
        queue.set_used(B, start + 1);
        assert_eq!(queue.first().map(Next::job), Some(JobId(1)));
    }

    #[test]
    fn an_empty_queue_holds_nothing() {
        let mut queue = FairQueue::default();
        queue.insert(A, 0, rank(0, 0, 1));
        assert!(!queue.remove(A, rank(0, 0, 2)) && !queue.remove(B, rank(0, 0, 1)));
        assert!(queue.remove(A, rank(0, 0, 1)) && queue.is_empty() && queue.first().is_none());
        assert!(queue.by_client.is_empty() && queue.order.is_empty());
    }
}
