//! What the hub knows of jobs and the core does not: inputs and subscribers of live jobs, reports and outputs of ended
//! jobs, dead letters, and outputs that are delivered but still charged.
//!
//! ```text
//!   open: a job is accepted ---> live (`live_jobs.rs`) ---> close ---> remembered (`finished.rs`)
//!                                 ^    |                      |
//!        checkpoints -------------'    |                      '------> a dead letter (`dead.rs`)
//!        subscribers join -------------'-- and leave
//! ```

mod ended_workers;

use super::dead::DeadLetters;
use super::finished::{FinishedJobs, Record};
use super::holding::{EndedCharges, OutputCharge, ReadOutputs};
use super::live_jobs::{LiveJob, Subscriber};
use crate::job::Finished;
use crate::limits::SUBSCRIBERS_MAX;
use crate::public_id::{Named, PublicId, PublicIds};
use bytes::Bytes;
use ended_workers::EndedWorkers;
use offload_core::ids::JobId;
use offload_core::job_table::JobTable;
use offload_event_loop::{Hold, LoopHandle};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// All records. See the module's documentation.
pub(super) struct Records {
    ids: PublicIds,
    live: JobTable<LiveJob>,
    /// Keeps the event loop alive while there is a live job.
    hold: Option<Hold>,
    finished: FinishedJobs,
    dead: DeadLetters,
    ended_workers: EndedWorkers,
    /// Outputs that were delivered or dropped, and are still charged to their clients.
    ended_charges: EndedCharges,
    pub(super) read_outputs: ReadOutputs,
}

/// The result of adding a subscriber to a job.
pub(super) enum Subscription {
    /// The subscriber will be called.
    Added,
    /// The connection of the subscriber will be told anyway, by an earlier subscriber.
    AlreadyThere,
    /// The job has ended, with this report.
    JobEnded(Box<Finished>, Subscriber),
    /// The subscriber was not added: nothing is known of the job, its output is gone, or it has too many subscribers.
    Refused(Subscriber),
}

impl Records {
    /// `ask` has the hub come to release what was charged.
    pub(super) fn new(ask: impl Fn() + 'static) -> Records {
        Records {
            ids: PublicIds::new(),
            live: JobTable::default(),
            hold: None,
            finished: FinishedJobs::default(),
            dead: DeadLetters::default(),
            ended_workers: EndedWorkers::default(),
            ended_charges: EndedCharges::new(ask),
            read_outputs: ReadOutputs::default(),
        }
    }

    /// The public id of a job.
    pub(super) fn name(&self, job: JobId) -> String {
        self.ids.name(job)
    }

    /// The same, before it is written as a text.
    pub(super) fn public_id(&self, job: JobId) -> PublicId {
        self.ids.id(job)
    }

    /// The job with this public id. The id may be one that no job has; None if it cannot be the id of a job of this
    /// process.
    pub(super) fn find(&self, name: &str) -> Option<JobId> {
        self.ids.find(name)
    }

    /// The numbers of the jobs whose ids begin with this text. None if no id of this process does.
    pub(super) fn beginning_with(&self, text: &str) -> Option<RangeInclusive<u64>> {
        self.ids.beginning_with(text)
    }

    /// The numbers, up to `last`, of the jobs whose ids end with this text, the greatest first. None if none can.
    pub(super) fn ending_with(&self, text: &str, last: JobId) -> Option<impl Iterator<Item = u64> + use<>> {
        self.ids.ending_with(text, last)
    }

    /// What a public id can stand for.
    pub(super) fn classify(&self, name: &str) -> Named {
        self.ids.classify(name)
    }

    /// A job was accepted. The event loop stays alive until it has ended.
    pub(super) fn open(&mut self, job: JobId, live_job: LiveJob, handle: &LoopHandle) {
        self.hold.get_or_insert_with(|| handle.hold());
        self.live.insert(job, live_job);
    }

    /// A job has ended. Returns what was known of it.
    pub(super) fn close(&mut self, job: JobId) -> Option<LiveJob> {
        let live_job = self.live.remove(job);
        if self.live.is_empty() {
            self.hold = None;
        }
        live_job
    }

    /// Removes and returns all live jobs, because nobody will run them any more.
    pub(super) fn close_all(&mut self) -> impl Iterator<Item = (JobId, LiveJob)> + use<> {
        self.hold = None;
        std::mem::take(&mut self.live).into_jobs()
    }

    /// A job that has not ended.
    pub(super) fn live(&self, job: JobId) -> Option<&LiveJob> {
        self.live.get(job)
    }

    /// A job that has not ended, mutable.
    pub(super) fn live_mut(&mut self, job: JobId) -> Option<&mut LiveJob> {
        self.live.get_mut(job)
    }

    /// Whether any job has not ended.
    pub(super) fn has_live(&self) -> bool {
        !self.live.is_empty()
    }

    /// Stores the state from which the next attempt resumes.
    pub(super) fn keep_checkpoint(&mut self, job: JobId, state: Bytes) {
        if let Some(live_job) = self.live.get_mut(job) {
            live_job.early_mut().checkpoint = Some(state);
        }
    }

    /// Adds a subscriber to a job.
    pub(super) fn subscribe(&mut self, job: JobId, subscriber: Subscriber) -> Subscription {
        let Some(live_job) = self.live.get_mut(job) else {
            return match self.finished.record(job).and_then(Record::finished) {
                Some(finished) => Subscription::JobEnded(Box::new(finished), subscriber),
                None => Subscription::Refused(subscriber),
            };
        };
        if subscriber.connection().is_some_and(|connection| live_job.is_awaited_by(connection)) {
            return Subscription::AlreadyThere;
        }
        if live_job.subscribers.len() >= SUBSCRIBERS_MAX {
            return Subscription::Refused(subscriber);
        }
        live_job.subscribers.push(subscriber);
        Subscription::Added
    }

    /// A connection no longer waits for a job. Returns its subscribers, and true if no subscriber is left because of that, or if
    /// it was the one that read the output: whoever else waits cannot read it.
    pub(super) fn leave(&mut self, job: JobId, connection: u64) -> (Vec<Subscriber>, bool) {
        let Some(live_job) = self.live.get_mut(job) else { return (Vec::new(), false) };
        let was_reader = live_job.is_read_by(connection);
        let left = live_job.subscribers.leave(connection);
        let was_last = !left.is_empty() && live_job.subscribers.len() == 0;
        (left, was_reader || was_last)
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
    pub(super) fn charge_output(&self, client: &Arc<str>, bytes: u64) -> OutputCharge {
        self.ended_charges.charge(client, bytes)
    }

    /// Whether charges have ended since the last call of [`Records::take_ended_charges`].
    pub(super) fn has_ended_charges(&self) -> bool {
        !self.ended_charges.is_empty()
    }

    /// The bytes whose charges have ended, for each client.
    pub(super) fn take_ended_charges(&mut self) -> BTreeMap<Arc<str>, u64> {
        self.ended_charges.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use offload_event_loop::EventLoop;
    use std::cell::Cell;
    use std::rc::Rc;

    const JOB: JobId = JobId(1);

    fn with_a_live_job(test: impl FnOnce(&mut Records)) {
        let event_loop = EventLoop::new().unwrap();
        let mut records = Records::new(|| ());
        let live_job = LiveJob::new(Job::new("sum").input("1"), None);
        records.open(JOB, live_job, &event_loop.handle());
        test(&mut records);
    }

    fn of_connection(id: u64) -> Subscriber {
        Subscriber::of_connection(id, |_, _, _| ())
    }

    #[test]
    fn a_connection_listens_once_and_the_last_one_that_leaves_is_known() {
        with_a_live_job(|records| {
            assert!(!records.leave(JOB, 1).1, "nobody has waited");
            assert!(matches!(records.subscribe(JOB, of_connection(1)), Subscription::Added));
            assert!(matches!(records.subscribe(JOB, of_connection(1)), Subscription::AlreadyThere));
            assert!(matches!(records.subscribe(JOB, of_connection(2)), Subscription::Added));
            assert!(!records.leave(JOB, 1).1 && records.leave(JOB, 2).1);
        });
    }

    #[test]
    fn nobody_waits_for_a_job_of_which_nothing_is_known() {
        with_a_live_job(|records| {
            assert!(records.close(JOB).is_some() && !records.has_live());
            assert!(matches!(records.subscribe(JOB, of_connection(1)), Subscription::Refused(_)));
            assert!(records.close(JOB).is_none(), "a job ends once");
        });
    }

    #[test]
    fn an_output_is_delivered_when_the_last_one_who_is_told_of_it_has_dropped_it() {
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        let mut records = Records::new(move || count.set(count.get() + 1));
        drop(records.charge_output(&Arc::from("me"), 5));
        let mut held = records.charge_output(&Arc::from("me"), 10);
        let other = held.share();
        drop(held);
        assert_eq!((records.take_ended_charges(), asked.get()), (BTreeMap::from([(Arc::from("me"), 5)]), 1));
        drop(other);
        assert!(records.has_ended_charges());
        assert_eq!((records.take_ended_charges(), asked.get()), (BTreeMap::from([(Arc::from("me"), 10)]), 2));
        assert!(!records.has_ended_charges());
    }
}
