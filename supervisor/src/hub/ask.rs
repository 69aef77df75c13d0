//! Read access to the hub (names and states of jobs, the configuration), and subscribers that join or leave a job.

use super::Hub;
use super::finished::Record;
use super::holding::OutputCharge;
use super::live_jobs::{self, Subscriber};
use super::records::Subscription;
use crate::job::Finished;
use crate::public_id::Named;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::{JobId, ProgramIndex, WorkerId};
use offload_core::limits::HANGING_MAX;
use offload_core::outcome::human;
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::nouns::{ErrorDetail, cut};
use std::time::Duration;

impl Hub {
    /// The public id of a job.
    pub(crate) fn name(&self, job: JobId) -> String {
        self.records.name(job)
    }

    /// The job with this public id. The id may be one that no job has; None if it cannot be the id of a job of this
    /// process.
    pub(crate) fn find(&self, name: &str) -> Option<JobId> {
        self.records.find(name)
    }

    /// Whether the job has not ended.
    pub(crate) fn is_live(&self, job: JobId) -> bool {
        self.records.live(job).is_some()
    }

    /// How many subscribers a job has that has not ended.
    pub(crate) fn subscribers(&self, job: JobId) -> usize {
        self.records.live(job).map_or(0, |live_job| live_job.subscribers.len())
    }

    /// Adds a subscriber to a job. If the job has ended and its output is remembered, the subscriber is called soon. If
    /// the subscriber's connection has subscribed to the job already, the new subscriber is dropped, because the
    /// connection is told once.
    ///
    /// # Errors
    /// The subscriber, if there is nothing to tell it, or the job has too many subscribers.
    pub(crate) fn subscribe(&mut self, job: JobId, subscriber: Subscriber) -> Result<(), Subscriber> {
        match self.records.subscribe(job, subscriber) {
            Subscription::Added => self.handle_event(Event::Awaited { job }),
            Subscription::AlreadyThere => {}
            Subscription::JobEnded(finished, subscriber) => {
                let held = OutputCharge::none();
                self.handle.set_pending_at(subscriber.site(), move |cx| subscriber.call(finished, held, cx));
            }
            Subscription::Refused(subscriber) => return Err(subscriber),
        }
        Ok(())
    }

    /// A connection no longer waits for a job. This is the only place where a subscriber leaves. When the last one
    /// leaves, or the reader of a stream, the core is told that the job is abandoned: one without a promise then ends if it waits,
    /// and one with an idempotency key goes on. The returned subscribers are to be dropped when the hub is no longer borrowed.
    #[must_use]
    pub(crate) fn leave(&mut self, job: JobId, connection: u64) -> Vec<Subscriber> {
        let (left, is_abandoned) = self.records.leave(job, connection);
        if is_abandoned {
            self.handle_event(Event::Abandoned { job });
        }
        left
    }

    /// The process id of a worker that is alive or has ended recently.
    pub(crate) fn pid_of(&self, worker: WorkerId) -> Option<u32> {
        self.processes.pid(worker)
    }

    /// The name of the newest version of a program.
    pub(crate) fn program_name(&self, program: ProgramIndex) -> &str {
        self.launches.program_name(program)
    }

    /// How a job ended, if that is remembered. The record also holds the output if it was kept.
    pub(crate) fn look_up(&self, job: JobId) -> Option<&Record> {
        self.records.finished().record(job)
    }

    /// A client that asked for the output of a job has received all of it.
    pub(crate) fn collected(&mut self, job: JobId) {
        if self.keeps_result_of(job) {
            self.handle_event(Event::Collected { job });
        }
    }

    /// Whether a job has ended and its result is kept because that was promised.
    pub(crate) fn keeps_result_of(&self, job: JobId) -> bool {
        self.core.promises().kept_until(job).is_some()
    }

    /// Whether the result that is kept takes no more room than its client may have.
    pub(crate) fn is_within_its_share(&self, job: JobId) -> bool {
        self.core.is_within_its_share(job)
    }

    /// Explains to a user why there is no job of this name: there never was one, it is forgotten, or its id is not
    /// from this process.
    pub(crate) fn why_unknown(&self, name: &str) -> String {
        let config = self.core.config();
        let (results, keys) = (human(config.keep_results), human(config.keep_keys));
        let shown = cut(name, MESSAGE_MAX / 16).escape_debug();
        match self.records.classify(name) {
            Named::Job(job) if job <= self.core.jobs().last() => format!(
                "there is no job '{shown}' any more: it has ended and is forgotten; the result of a detached job is \
                 kept for {results}, that of a job with an idempotency key for {keys}, other jobs while there is room"
            ),
            Named::Job(_) => {
                format!("there is no job '{shown}' and never was; `offload jobs` shows those that are known")
            }
            Named::OfOtherSupervisor => format!(
                "there is no job '{shown}' here: it was given its id by another supervisor, or by this one before it \
                 was started again; jobs and results do not outlive their supervisor"
            ),
            Named::NotAnId => format!(
                "there is no job '{shown}': this is not the id of a job, and no known one begins or ends so; `offload jobs` \
                 shows those that are known"
            ),
        }
    }

    /// The maximum number of processes at a time. It includes processes that a smaller configuration has yet to end.
    pub(crate) fn processes_max(&self) -> usize {
        self.core.config().processes_max().max(self.core.slots().len() + HANGING_MAX)
    }

    /// Whether a worker has the privilege to look into any process, including this one.
    pub(crate) fn has_worker_that_can_trace(&self) -> bool {
        self.processes.any_can_trace()
    }

    /// The configuration of the core.
    pub(crate) fn config(&self) -> &CoreConfig {
        self.core.config()
    }

    /// CPU time of all workers, dead and living.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes.cpu_time()
    }

    /// The report for a job that was refused.
    pub(crate) fn refusal(task: &str, error: ErrorDetail) -> Finished {
        live_jobs::refusal(task, error)
    }
}
