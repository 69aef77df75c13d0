//! Read access to the state of the core: for status tables, for tests, and for the shell before it carries out an
//! action.

use super::{Core, Phase, Program, WaitEstimates};
use crate::clients::Clients;
use crate::config::CoreConfig;
use crate::ids::{SlotIndex, WorkerId};
use crate::jobs::{Job, Jobs};
use crate::ledger::Ledger;
use crate::registry::Registry;
use crate::slots::Slot;
use crate::tally::Tally;
use std::sync::{Arc, LazyLock};

impl Core {
    /// The configuration.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// How far the supervisor is on its way to the end.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The slots, the spare included, each with its role.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The jobs that have not ended.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The clients, and how much worker time they have used.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The tasks.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The name of the task that a job asked for.
    pub fn task_name<'a>(&'a self, job: &'a Job) -> &'a Arc<str> {
        static NONE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        let known = job.task.map(|task| &self.registry.task(task).name);
        known.or(job.past.task_name.as_ref()).unwrap_or(&NONE)
    }

    /// The name of the account that a job's bytes are charged to: that of its client.
    pub fn account_of(&self, job: &Job) -> &Arc<str> {
        self.clients.name_of(job.client)
    }

    /// What is held in memory, and for whom.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The counts of jobs and starts.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How good the estimates of waiting times were.
    pub fn wait_estimates(&self) -> &WaitEstimates {
        &self.wait_estimates
    }

    /// How many processes live, including those that hang in the kernel.
    pub fn process_count(&self) -> usize {
        self.places.len() + self.hanging.len()
    }

    /// The place that holds a living process.
    pub fn slot_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.places.get(&worker).copied()
    }

    /// How many jobs wait, and how many a worker has.
    pub fn waiting_and_running(&self) -> (usize, usize) {
        let queued: usize = self.programs.iter().map(Program::waiting).sum();
        let waiting =
            queued + self.jobs.parked_count() + self.promises.held_count() + self.pauses.waiting_count();
        (waiting, self.jobs.len() - waiting)
    }

    /// The slot that a living process works for or, if it is leaving, worked for.
    pub fn home_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.place(worker).map(|place| place.slot)
    }
}
