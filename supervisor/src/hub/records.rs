//! What the hub knows of jobs and the core does not: inputs and listeners of live jobs, reports and outputs of ended
//! jobs, dead letters, and outputs that are delivered but still charged.
//!
//! ```text
//!   open: an order ---> the job lives ---> close ---> remembered (`finished.rs`)
//!                          ^    |            |
//!        checkpoints ------'    |            '------> a dead letter (`dead.rs`)
//!        listeners join --------'-- and leave
//! ```

use super::dead::DeadLetters;
use super::finished::{FinishedJobs, Record};
use super::holding::{Delivered, Undelivered};
use super::orders::{Listener, Order};
use crate::job::Finished;
use crate::limits::LISTENERS_MAX;
use crate::public_id::{Named, PublicIds};
use bytes::Bytes;
use offload_core::ids::JobId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All records. See the module's documentation.
pub(super) struct Records {
    ids: PublicIds,
    live: BTreeMap<JobId, Order>,
    finished: FinishedJobs,
    dead: DeadLetters,
    /// Outputs that were delivered or dropped, and are still charged to their clients.
    delivered: Delivered,
}

/// The result of adding a listener to a job.
pub(super) enum Listening {
    /// The listener will be called.
    Waits,
    /// The connection of the listener will be told anyway, by an earlier listener.
    WaitsAlready,
    /// The job has ended, with this report.
    Ended(Box<Finished>, Listener),
    /// The listener was not added: nothing is known of the job, its output is gone, or it has too many listeners.
    Nothing(Listener),
}

impl Records {
    pub(super) fn new() -> Records {
        Records {
            ids: PublicIds::new(),
            live: BTreeMap::new(),
            finished: FinishedJobs::default(),
            dead: DeadLetters::default(),
            delivered: Delivered::default(),
        }
    }

    /// The public id of a job.
    pub(super) fn name(&self, job: JobId) -> String {
        self.ids.name(job)
    }

    /// The job with this public id. The id may be one that no job has; None if it cannot be the id of a job of this
    /// process.
    pub(super) fn find(&self, name: &str) -> Option<JobId> {
        self.ids.find(name)
    }

    /// What a public id can stand for.
    pub(super) fn look_at(&self, name: &str) -> Named {
        self.ids.look_at(name)
    }

    /// A job was accepted.
    pub(super) fn open(&mut self, job: JobId, order: Order) {
        self.live.insert(job, order);
    }

    /// A job has ended. Returns its order.
    pub(super) fn close(&mut self, job: JobId) -> Option<Order> {
        self.live.remove(&job)
    }

    /// Removes and returns all live jobs, because nobody will run them any more.
    pub(super) fn close_all(&mut self) -> BTreeMap<JobId, Order> {
        std::mem::take(&mut self.live)
    }

    /// A job that has not ended.
    pub(super) fn live(&self, job: JobId) -> Option<&Order> {
        self.live.get(&job)
    }

    /// Whether any job has not ended.
    pub(super) fn has_live(&self) -> bool {
        !self.live.is_empty()
    }

    /// The account that a live job is charged to. Empty if the job is not live.
    pub(super) fn account_of(&self, job: JobId) -> String {
        self.live.get(&job).map_or(String::new(), |order| order.account.to_string())
    }

    /// Stores the state from which the next attempt resumes.
    pub(super) fn keep_checkpoint(&mut self, job: JobId, state: Bytes) {
        if let Some(order) = self.live.get_mut(&job) {
            order.checkpoint = Some(state);
        }
    }

    /// Adds a listener to a job.
    pub(super) fn listen(&mut self, job: JobId, listener: Listener) -> Listening {
        let Some(order) = self.live.get_mut(&job) else {
            return match self.finished.record(job).and_then(Record::finished) {
                Some(finished) => Listening::Ended(Box::new(finished), listener),
                None => Listening::Nothing(listener),
            };
        };
        let connection = listener.connection();
        if connection.is_some() && order.listeners.iter().any(|other| other.connection() == connection) {
            return Listening::WaitsAlready;
        }
        if order.listeners.len() >= LISTENERS_MAX {
            return Listening::Nothing(listener);
        }
        order.listeners.push(listener);
        Listening::Waits
    }

    /// A connection no longer waits for a job. Returns true if no listener is left because of that.
    pub(super) fn leave(&mut self, job: JobId, connection: u64) -> bool {
        let Some(order) = self.live.get_mut(&job) else { return false };
        let before = order.listeners.len();
        order.listeners.retain(|listener| listener.connection() != Some(connection));
        before > 0 && order.listeners.is_empty()
    }

    /// The jobs that have ended.
    pub(super) fn finished(&self) -> &FinishedJobs {
        &self.finished
    }

    /// The jobs that have ended, mutable.
    pub(super) fn finished_mut(&mut self) -> &mut FinishedJobs {
        &mut self.finished
    }

    /// The dead letters: jobs that were given up because every allowed attempt ended its worker.
    pub(super) fn dead(&self) -> &DeadLetters {
        &self.dead
    }

    /// The dead letters, mutable.
    pub(super) fn dead_mut(&mut self) -> &mut DeadLetters {
        &mut self.dead
    }

    /// Charges an output to the client until the returned value and all its clones are dropped.
    pub(super) fn undelivered(&self, client: &Arc<str>, bytes: u64) -> Undelivered {
        self.delivered.undelivered(client, bytes)
    }

    /// Whether charges have ended since the last call of [`Records::take_delivered`].
    pub(super) fn has_delivered(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// The bytes whose charges have ended, for each client.
    pub(super) fn take_delivered(&mut self) -> BTreeMap<Arc<str>, u64> {
        self.delivered.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use offload_event_loop::EventLoop;

    const JOB: JobId = JobId(1);

    fn with_a_live_job(test: impl FnOnce(&mut Records)) {
        let event_loop = EventLoop::new().unwrap();
        let mut records = Records::new();
        let order = Order::new(Job::new("sum").input("1"), "me", None, event_loop.handle().hold());
        records.open(JOB, order);
        test(&mut records);
    }

    fn of_connection(id: u64) -> Listener {
        Listener::of_connection(id, |_, _, _| ())
    }

    #[test]
    fn a_connection_listens_once_and_the_last_one_that_leaves_is_known() {
        with_a_live_job(|records| {
            assert!(!records.leave(JOB, 1), "nobody has waited");
            assert!(matches!(records.listen(JOB, of_connection(1)), Listening::Waits));
            assert!(matches!(records.listen(JOB, of_connection(1)), Listening::WaitsAlready));
            assert!(matches!(records.listen(JOB, of_connection(2)), Listening::Waits));
            assert!(!records.leave(JOB, 1) && records.leave(JOB, 2));
        });
    }

    #[test]
    fn nobody_waits_for_a_job_of_which_nothing_is_known() {
        with_a_live_job(|records| {
            assert_eq!(records.account_of(JOB), "me");
            assert!(records.close(JOB).is_some() && !records.has_live());
            assert!(matches!(records.listen(JOB, of_connection(1)), Listening::Nothing(_)));
            assert!(records.close(JOB).is_none(), "a job ends once");
        });
    }

    #[test]
    fn an_output_is_delivered_when_the_last_one_who_is_told_of_it_has_dropped_it() {
        let mut records = Records::new();
        let held = records.undelivered(&Arc::from("me"), 10);
        let other = held.clone();
        drop(held);
        assert!(!records.has_delivered());
        drop(other);
        assert!(records.has_delivered());
        assert_eq!(records.take_delivered(), BTreeMap::from([(Arc::from("me"), 10)]));
        assert!(!records.has_delivered());
    }
}
