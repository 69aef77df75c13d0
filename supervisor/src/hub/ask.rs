//! Questions to the hub: the names and states of jobs, the configuration, and who waits for what.

use super::Hub;
use super::finished::Record;
use super::holding::Undelivered;
use super::orders::{self, Listener};
use super::records::Listening;
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

    /// The job of this public id, if it can be one.
    pub(crate) fn find(&self, name: &str) -> Option<JobId> {
        self.records.find(name)
    }

    /// Whether the job has not ended.
    pub(crate) fn is_live(&self, job: JobId) -> bool {
        self.records.live(job).is_some()
    }

    /// Adds a listener to a job; one that has ended, and is remembered with its output, tells it at once. A connection
    /// that listens to the job already is told once.
    ///
    /// # Errors
    /// The listener, if there is nothing to tell it.
    pub(crate) fn listen(&mut self, job: JobId, listener: Listener) -> Result<(), Listener> {
        match self.records.listen(job, listener) {
            Listening::Waits => self.tell(Event::Awaited { job }),
            Listening::WaitsAlready => {}
            Listening::Ended(finished, listener) => {
                let held = Undelivered::nothing();
                self.handle.set_pending_at(listener.site(), move |cx| listener.call(*finished, held, cx));
            }
            Listening::Nothing(listener) => return Err(listener),
        }
        Ok(())
    }

    /// A connection does not wait for a job any more: the one place where somebody leaves who waited.
    pub(crate) fn leave(&mut self, job: JobId, connection: u64) {
        if self.records.leave(job, connection) {
            self.tell(Event::Abandoned { job });
        }
    }

    /// The process id of a worker that lives, or has just ended.
    pub(crate) fn pid_of(&self, worker: WorkerId) -> Option<u32> {
        self.processes.pid(worker)
    }

    /// The name of a program: that of its newest version.
    pub(crate) fn program_name(&self, program: ProgramIndex) -> &str {
        self.launches.program_name(program)
    }

    /// How a job ended, as far as that is remembered; its output too, if that was kept.
    pub(crate) fn look_up(&self, job: JobId) -> Option<&Record> {
        self.records.finished().record(job)
    }

    /// Somebody who asked for the output of a job has been given all of it.
    pub(crate) fn collected(&mut self, job: JobId) {
        if self.keeps_result_of(job) {
            self.tell(Event::Collected { job });
        }
    }

    /// Whether a job has ended and its result is kept because that was promised.
    pub(crate) fn keeps_result_of(&self, job: JobId) -> bool {
        self.core.promises().kept_until(job).is_some()
    }

    /// Why nothing is known of the job of this name: it never was, it is forgotten, or it was not one of ours.
    pub(crate) fn why_unknown(&self, name: &str) -> String {
        let config = self.core.config();
        let (results, keys) = (human(config.keep_results), human(config.keep_keys));
        let shown = cut(name, MESSAGE_MAX / 16).escape_debug();
        match self.records.look_at(name) {
            Named::Job(job) if job <= self.core.jobs().last() => format!(
                "there is no job '{shown}' any more: it has ended and is forgotten; the result of a detached job is \
                 kept for {results}, that of a job with an idempotency key for {keys}, other jobs while there is room"
            ),
            Named::Job(_) => format!("there is no job '{shown}' and never was"),
            Named::ElsewhereOrBefore => format!(
                "there is no job '{shown}' here: it was given its id by another supervisor, or by this one before it \
                 was started again; jobs and results do not outlive their supervisor"
            ),
            Named::NoId => format!("there is no job '{shown}': this is not the id of a job"),
        }
    }

    /// How many processes there may be at a time, those among them that a smaller configuration has still to end.
    pub(crate) fn processes_max(&self) -> usize {
        self.core.config().processes_max().max(self.core.slots().len() + HANGING_MAX)
    }

    /// Whether a worker has the privilege to look into any process, this one too.
    pub(crate) fn has_worker_that_can_trace(&self) -> bool {
        self.processes.has_one_that_can_trace()
    }

    /// As configured.
    pub(crate) fn config(&self) -> &CoreConfig {
        self.core.config()
    }

    /// CPU time of all workers, dead and living.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes.cpu_time()
    }

    /// A report about a job that was refused.
    pub(crate) fn refusal(task: &str, error: ErrorDetail) -> Finished {
        orders::refusal(task, error)
    }
}
