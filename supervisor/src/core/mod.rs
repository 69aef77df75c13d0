//! The decision maker: events and the time go in, actions come out. No clock, no descriptor, no thread, no randomness,
//! no order that depends on hashing, so the same events always give the same actions; tests and simulations drive it
//! by hand, the hub drives it for real.
//!
//! ```text
//!            event, now                                 actions, in order
//!   shell --------------> Core::handle ---------------------------------------> shell
//!              on_submit, on_cancel       submit.rs       Accepted, Rejected, Finish
//!              on_started, on_finished    run.rs          Finish
//!              on_hello, on_exited        supervise.rs    Kill
//!              on_drain, on_stop          drain.rs        Dismiss, Over
//!              settle                     settle.rs       Run, Spawn
//! ```
//!
//! Every event ends in `settle`, which brings the world in line with the state: expired jobs are ended, the spare takes
//! the place of a lost worker, waiting jobs are given to idle workers, empty slots are filled. So no event has to think
//! of all that may follow from it.
//!
//! What is promised here: each accepted job ends exactly once; a job whose task is not idempotent is started at most
//! once; there are never more processes than slots and spare; nothing that a worker says can make it panic.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod action;
pub mod config;
mod drain;
pub mod event;
pub mod ids;
mod invariants;
pub mod jobs;
pub mod outcome;
pub mod registry;
pub mod restarts;
mod run;
pub mod sabotage;
mod settle;
pub mod slots;
mod submit;
mod supervise;
pub mod tally;

use action::{Action, Actions, Ended};
use config::CoreConfig;
use event::Event;
use ids::{JobId, Mono, Place, ProgramIndex, SlotIndex, TaskIndex, WorkerId};
use jobs::{Job, JobState, Jobs};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use registry::Registry;
use restarts::Restarts;
use sabotage::{Bug, Sabotage};
use slots::{Slot, SlotState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tally::Tally;

/// See the module's documentation.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    phase: Phase,
    programs: Vec<Program>,
    /// The slots, then the spare if there is one.
    slots: Vec<Slot>,
    /// Where each living process is.
    places: BTreeMap<WorkerId, SlotIndex>,
    jobs: Jobs,
    registry: Registry,
    tally: Tally,
    last_worker: u64,
    /// A worker came, went or is on its way out: slots may have to be filled.
    places_changed: bool,
    sabotage: Sabotage,
}

/// How far the supervisor is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Jobs are taken.
    Running,
    /// The jobs that are there are finished, no others are taken.
    Draining {
        /// When the rest is cancelled.
        end_at: Mono,
    },
    /// All jobs have ended; the workers are on their way out.
    Stopping,
    /// Nothing is left.
    Over,
}

/// One worker program with the jobs that wait for it.
#[derive(Debug, Default)]
struct Program {
    /// The jobs that wait, the oldest first; one that comes back takes its old place.
    queue: BTreeSet<JobId>,
    /// The slots that can take a job, by the number of jobs that they have.
    open: BTreeSet<(usize, SlotIndex)>,
    restarts: Restarts,
    /// Its tasks are known.
    has_said_hello: bool,
}

impl Core {
    /// A core without any worker; the first event makes it start them.
    ///
    /// # Errors
    /// What is wrong with the configuration, for people.
    pub fn new(config: CoreConfig) -> Result<Core, String> {
        config.validate()?;
        let places = config.workers + config.spares;
        let slots = (0..places).map(|place| Slot::new(place % config.workers % config.programs)).collect();
        Ok(Core {
            phase: Phase::Running,
            programs: (0..config.programs).map(|_| Program::default()).collect(),
            slots,
            places: BTreeMap::new(),
            jobs: Jobs::default(),
            registry: Registry::default(),
            tally: Tally::default(),
            last_worker: 0,
            places_changed: true,
            sabotage: Sabotage::default(),
            config,
        })
    }

    /// Takes note of what happened at `now` and appends what has to be done about it to `actions`.
    ///
    /// Total: any event is legal in any state. `now` must not go backwards.
    pub fn handle(&mut self, now: Mono, event: Event, actions: &mut Actions) {
        match event {
            Event::Submit { ticket, request } => self.on_submit(now, ticket, request, actions),
            Event::Cancel { job } => self.on_cancel(now, job, actions),
            Event::Refused => self.tally.reject(),
            Event::SpawnFailed { worker, fatal, message } => {
                self.on_spawn_failed(now, worker, fatal, &message, actions);
            }
            Event::Hello { worker, tasks } => self.on_hello(now, worker, &tasks, actions),
            Event::Unfit { worker, message } => self.on_unfit(now, worker, message, actions),
            Event::Started { worker, job, attempt } => self.on_started(now, worker, job, attempt, actions),
            Event::Finished { worker, job, attempt, run } => {
                self.on_ran(now, worker, job, attempt, run, None, actions);
            }
            Event::Failed { worker, job, attempt, run, kind, message } => {
                self.on_ran(now, worker, job, attempt, run, Some((kind, message)), actions);
            }
            Event::Skipped { worker, job } => self.on_skipped(now, worker, job, actions),
            Event::Violation { worker, message } => self.on_violation(now, worker, message, actions),
            Event::Closed { worker } => self.on_closed(now, worker),
            Event::Exited { worker, exit, last_words } => {
                self.on_exited(now, worker, exit, last_words, actions);
            }
            Event::Tick => self.on_tick(now, actions),
            Event::Drain => self.on_drain(now),
            Event::Stop => self.on_stop(now, actions),
            Event::Configure(config) => self.on_configure(&config),
        }
        self.settle(now, actions);
    }

    /// When [`Event::Tick`] is due if nothing happens before.
    pub fn next_deadline(&self) -> Option<Mono> {
        let slots = self.slots.iter().filter_map(Slot::deadline);
        let jobs = self.jobs.first_deadline().map(|(when, _)| when);
        let starts = self.next_start();
        let drain = match self.phase {
            Phase::Draining { end_at } => Some(end_at),
            _ => None,
        };
        slots.chain(jobs).chain(starts).chain(drain).min()
    }

    /// Ends a job: the one place where that happens.
    fn finish(&mut self, now: Mono, id: JobId, ending: Ending, actions: &mut Actions) {
        self.spoil(id);
        let Some(job) = self.jobs.remove(id) else { return };
        if let (JobState::Queued, Some(task)) = (job.state, job.task)
            && !(self.sabotage.is(Bug::CancelledStaysQueued) && ending.outcome == OutcomeCode::Cancelled)
        {
            let program = self.registry.task(task).program;
            self.programs[program].queue.remove(&id);
        }
        self.tally.end(ending.outcome);
        actions.push(Action::Finish(Box::new(self.ended(now, id, &job, ending))));
        actions.extend(self.sabotage.is(Bug::ToldTwice).then(|| actions.last().cloned()).flatten());
    }

    fn ended(&self, now: Mono, id: JobId, job: &Job, ending: Ending) -> Ended {
        let (worker, started_at) = match job.state {
            JobState::Parked | JobState::Queued => (None, now),
            JobState::Assigned { worker } => (Some(worker), now),
            JobState::Running { worker, started_at } => (Some(worker), started_at),
        };
        let since_start = now - started_at;
        let run = ending.run.map_or(since_start, |run| run.min(since_start));
        Ended {
            job: id,
            outcome: ending.outcome,
            error: ending.error,
            attempts: job.attempts,
            queued: started_at - job.accepted_at,
            run,
            returned: since_start.saturating_sub(run),
            place: ending.place.or_else(|| worker.and_then(|worker| self.place(worker))),
        }
    }

    /// Where a living process works, or, if it is on its way out, worked.
    fn place(&self, worker: WorkerId) -> Option<Place> {
        let &slot = self.places.get(&worker)?;
        match &self.slots[slot].state {
            SlotState::Leaving { place, .. } => Some(*place),
            _ => Some(Place { worker, slot, incarnation: self.slots[slot].incarnation }),
        }
    }

    /// The slot of a living process, unless nothing that it says counts any more.
    fn trusted_slot_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.slot_of(worker).filter(|&slot| self.slots[slot].is_trusted())
    }

    /// The program that a job waits for or runs on, once its task is known.
    fn program_of(&self, task: TaskIndex) -> ProgramIndex {
        self.registry.task(task).program
    }

    fn attempts_allowed(&self, job: &Job) -> u32 {
        let idempotent = job.task.is_some_and(|task| self.registry.task(task).idempotent)
            || self.sabotage.is(Bug::IdempotenceIgnored);
        let unasked = if idempotent { job.attempts_default } else { 1 };
        job.attempts_asked.unwrap_or(unasked).clamp(1, crate::limits::ATTEMPTS_MAX)
    }

    fn is_spare(&self, slot: SlotIndex) -> bool {
        slot >= self.config.workers
    }

    /// Why jobs of this program cannot be done for now, if they cannot.
    fn unavailable(&self, program: ProgramIndex) -> Option<ErrorDetail> {
        let restarts = &self.programs[program].restarts;
        let has_worker = self.slots.iter().any(|slot| slot.program == program && slot.is_ready());
        let refuse = restarts.is_refusing() && !has_worker;
        refuse.then(|| outcome::error(OutcomeCode::Unavailable, restarts.why()))
    }
}

/// How a job ends, as the part of the core that ends it knows.
struct Ending {
    outcome: OutcomeCode,
    error: Option<ErrorDetail>,
    /// By the worker's clock, if it said.
    run: Option<Duration>,
    /// Where it ran, if its worker is gone already.
    place: Option<Place>,
}

impl Ending {
    /// With the error's own code as the outcome.
    fn of(error: ErrorDetail) -> Ending {
        Ending { outcome: error.code, error: Some(error), run: None, place: None }
    }
}

/// What tables and tests may look at.
impl Core {
    /// As configured.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// How far on the way to the end it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The slots, then the spare.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The jobs that have not ended.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The tasks.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The books.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Living processes.
    pub fn process_count(&self) -> usize {
        self.places.len()
    }

    /// The place in which a living process is.
    pub fn slot_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.places.get(&worker).copied()
    }

    /// Jobs that wait and jobs that a worker has.
    pub fn waiting_and_running(&self) -> (usize, usize) {
        let queued: usize = self.programs.iter().map(|program| program.queue.len()).sum();
        let waiting = queued + self.jobs.parked_count();
        (waiting, self.jobs.len() - waiting)
    }

    /// The slot for which a living process works or, on its way out, worked.
    pub fn home_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.place(worker).map(|place| place.slot)
    }

    /// Why no worker of some program can be had, if so.
    pub fn degraded(&self) -> Option<String> {
        (0..self.programs.len()).find_map(|program| Some(self.unavailable(program)?.message))
    }

    /// Whether the tasks of all programs are known.
    pub fn knows_all_tasks(&self) -> bool {
        self.programs.iter().all(|program| program.has_said_hello)
    }
}
