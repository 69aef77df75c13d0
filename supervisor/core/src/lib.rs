//! The core decides what the supervisor does: events and the time go in, actions come out. It has no clock, no file
//! descriptor and no thread. Its order never depends on hashing, and all its random numbers come from one seed. So the
//! same events always give the same actions. Tests and simulations drive the core by hand; in the supervisor the hub
//! drives it and carries out the actions. Whatever drives the core is called the shell here.
//!
//! While one event is handled, a `Turn` is passed from function to function: the time of the event, and the actions so
//! far.
//!
//! ```text
//!          request, now                               a verdict, and actions, in order
//!   shell --------------> Core::submit ------------------------------------------------> shell
//!              on_submit                            submit.rs
//!
//!            event, now                                           actions, in order
//!   shell --------------> Core::handle ------------------------------------------------> shell
//!              on_cancel                            submit.rs     Finish
//!              on_collected, on_awaited, ...        promises.rs   Release
//!              on_letter_dropped                    letters.rs    ForgetLetter
//!              on_abandoned                         abandoned.rs  Finish
//!              on_started, on_ran, on_time          run.rs        Finish, Kill
//!              on_progress, on_checkpoint, ...      steps.rs      Keep
//!              on_part, on_delivered                parts.rs      Collect, PassOn, Credit
//!              on_ran_here, jobs without a worker   here.rs       RunHere, StopHere, Finish
//!              on_launched, on_spawn_failed         starts.rs     Log
//!              on_hello, on_exited, on_stopped ...  supervise.rs  Kill, Log
//!              the jobs of a worker that is gone    lose.rs       Finish
//!              reload, retire                       renew.rs      Dismiss, Yield, Reloaded
//!              on trial, taken back                 trial.rs      Log
//!              whose fault it was                   whose_fault.rs Log
//!              on_taken_back, on_end_of_turn, ...   prefetch.rs   TakeBack
//!              jobs that run together               batches.rs    Batch
//!              on_drain, on_stop                    drain.rs      Dismiss, Over
//!              on_held, on_released                 room.rs       (more or less of what waits may start)
//!              inputs that are files                files.rs      Finish
//!              on_pause, on_resume                  pauses.rs     TakeBack
//!              settle                               settle.rs     Run, Prefetch, Spawn
//! ```
//!
//! Both end in `settle`, which brings the world in line with the state: expired jobs end, the spare takes the place of
//! a lost worker, waiting jobs are dispatched to workers, and empty slots are filled. So the handler of an event need
//! not think of all that may follow from it.
//!
//! A shell that has several requests and answers at once may settle once for all of them (`drive.rs`).
//!
//! What the core guarantees:
//!
//! - Each accepted job ends exactly once.
//! - A job is started at most once unless its task is idempotent or its submitter allowed several attempts.
//! - An outcome blames only a job that ran when its worker ended.
//! - There are never more processes than slots and spare, one more of each program during a reload, and a few that hang in the kernel.
//! - Nothing that a worker sends can make the core panic.
//!
//! The time for an event grows with the logarithm of the number of jobs. An event that changes the workers or what they
//! offer may look at all slots, and at all jobs that wait for an unknown task or for a program that cannot be started. Where many jobs
//! have to move or to end for one reason, one event moves [`MOVED_MAX`](limits::MOVED_MAX) of them. There are two exceptions: a stop
//! ends all jobs, and tasks that nobody offers any more, or that go to another program, make all waiting jobs look for their queue.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abandoned;
pub mod action;
mod attempts;
pub mod batches;
mod behind;
pub mod clients;
pub mod config;
mod doubt;
mod drain;
mod drive;
mod ending;
mod estimates;
pub mod event;
pub mod exit;
mod explain;
pub mod files;
pub mod here;
pub mod ids;
mod invariants;
pub mod job_table;
pub mod jobs;
pub mod kept;
mod keys;
pub mod ledger;
pub mod letters;
pub mod limits;
mod load;
mod look;
pub mod lookup;
mod lose;
pub mod nanos;
pub mod outcome;
pub mod parts;
mod past;
pub mod pauses;
mod places;
mod prefetch;
mod probation;
pub mod promises;
pub mod queue;
mod recent;
pub mod registry;
mod renew;
pub mod restarts;
mod rng;
mod room;
mod run;
pub mod run_times;
mod settle;
mod short;
pub mod slots;
mod small_map;
mod spare;
mod starts;
mod steps;
mod submit;
mod supervise;
pub mod tally;
mod trays;
mod trial;
mod turn;
mod waiting;
mod whose_fault;

use action::{Action, Ended, Keep};
use batches::Gatherings;
use clients::Clients;
use config::CoreConfig;
use ending::{Charge, Ending};
use files::Files;
use here::Here;
use ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex, Version, WorkerId, WorkerInSlot};
use jobs::{Job, JobState, Jobs};
use ledger::Ledger;
use letters::Letters;
use pauses::Pauses;
use probation::Probation;
use promises::Promises;
use queue::FairQueue;
use registry::{Offers, OffersOfWorker, Registry};
use renew::Renewal;
use restarts::Restarts;
use rng::Rng;
use slots::Slot;
use small_map::{ByWorker, SmallSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;
use trays::TrayLists;
use turn::Turn;
use waiting::Looks;

pub use drain::Phase;
pub use estimates::WaitEstimates;
pub use explain::{Explanation, Glance, Held, Waiting, WhyUnknown};

/// The whole state of the decision maker: workers, jobs, clients and what is kept. The picture of what goes in and
/// out is at the top of this crate.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    phase: Phase,
    /// The programs that workers run and, if there is one, that of the jobs that are done here.
    programs: Vec<Program>,
    /// The slots and, if there is one, the spare.
    slots: Vec<Slot>,
    /// The place of each living process.
    places: ByWorker<SlotIndex>,
    /// Processes that were killed and are not gone: they hang in the kernel, and no longer have a place.
    hanging: BTreeMap<WorkerId, WorkerInSlot>,
    /// When the deadline of each slot is.
    due: SmallSet<(Mono, SlotIndex)>,
    /// Slots that may have changed since the lists of slots were last updated; some of them twice.
    unlisted: Vec<SlotIndex>,
    /// Empty places that are to be filled.
    vacant: SmallSet<SlotIndex>,
    jobs: Jobs,
    here: Here,
    files: Files,
    pauses: Pauses,
    clients: Clients,
    promises: Promises,
    letters: Letters,
    ledger: Ledger,
    registry: Registry,
    /// What each process that has said hello offers.
    offers: ByWorker<OffersOfWorker>,
    renewal: Renewal,
    tally: Tally,
    wait_estimates: WaitEstimates,
    /// How often it has changed which jobs of workers are tiny, and one more. While this number stays, what was found of
    /// the jobs of one worker holds, however many it has.
    tiny_changes: u64,
    looks: Looks,
    rng: Rng,
    last_worker: u64,
    /// A worker came, went or has to leave: slots may have to be filled.
    places_changed: bool,
    /// More jobs are to be held back, or released again, than one event may move.
    has_more_to_move: bool,
    /// Waiting jobs that nobody wants: they are ended before anything is dispatched.
    unwanted: Vec<JobId>,
    /// How many jobs had been accepted when late ones were ended last.
    accepted_before: u64,
    /// How many jobs were cancelled because the supervisor ended.
    cut_short: u64,
    /// The shell answers requests that may still submit jobs, which a drain waits for.
    has_requests: bool,
    /// Nothing has happened since the state was settled last.
    is_settled: bool,
}

/// One worker program, with the jobs that wait for it.
#[derive(Debug, Default)]
struct Program {
    short: FairQueue,
    long: FairQueue,
    /// Suspects among the waiting jobs: they share no worker with others.
    short_suspects: FairQueue,
    long_suspects: FairQueue,
    /// Jobs on probation among the waiting jobs: no worker has lived to start them.
    short_on_probation: FairQueue,
    long_on_probation: FairQueue,
    probation: Probation,
    /// Waiting jobs that can run together with others of their task.
    gatherings: Gatherings,
    /// How long all jobs in the queues are expected to run, in total, by the runs that have ended.
    backlog: Duration,
    /// The task and size class of each job that has run for too long to be short, as of the last look.
    overrun: Vec<(TaskIndex, u32)>,
    /// The slots that can take a job, ordered by the number of jobs that they have. Without the reserved ones.
    open: SmallSet<(usize, SlotIndex)>,
    /// The same for slots that are reserved for short work.
    open_reserved: SmallSet<(usize, SlotIndex)>,
    /// The same for slots whose worker has to prove itself: idle ones.
    open_unproven: SmallSet<(usize, SlotIndex)>,
    /// Slots whose job lets others run between its steps.
    between_steps: SmallSet<SlotIndex>,
    trays: TrayLists,
    /// Half of the expected run time of each job that a worker has, in total. On average, half of a run is over at a
    /// random moment.
    in_flight: Duration,
    /// When short work last came, began or ended.
    short_seen_at: Option<Mono>,
    /// When short work last began or ended.
    short_served_at: Option<Mono>,
    /// How long short work had to wait for a slot; slots stay reserved for as long. Zero if they need not.
    short_waited: Duration,
    restarts: Restarts,
    /// The offers of each version of which there may be a worker.
    offers: BTreeMap<Version, Arc<Offers>>,
    /// The processes of this program do not all offer the same, so it matters which process gets a job.
    offers_differ: bool,
    /// How long the start of another worker takes, on average.
    worker_cost: Duration,
    /// For how long one of its workers is occupied by a tiny job, on average.
    tiny_cost: Duration,
}

impl Program {
    /// Whether its tasks are known. False again when the only version that said hello was taken back.
    fn has_said_hello(&self) -> bool {
        !self.offers.is_empty()
    }
}

impl Core {
    /// A core without any worker; the first event makes it start them.
    ///
    /// # Errors
    /// What is wrong with the configuration, in words for people.
    pub fn new(config: CoreConfig) -> Result<Core, String> {
        config.validate()?;
        let mut core = Core {
            phase: Phase::Running,
            programs: (0..config.queues()).map(|_| Program::default()).collect(),
            slots: Vec::new(),
            places: ByWorker::default(),
            hanging: BTreeMap::new(),
            due: SmallSet::default(),
            unlisted: Vec::new(),
            vacant: SmallSet::default(),
            jobs: Jobs::default(),
            here: Here::default(),
            files: Files::default(),
            pauses: Pauses::default(),
            clients: Clients::new(config.max_resting),
            promises: Promises::default(),
            letters: Letters::default(),
            ledger: Ledger::default(),
            registry: Registry::default(),
            offers: ByWorker::default(),
            renewal: Renewal::new(config.programs),
            tally: Tally::default(),
            wait_estimates: WaitEstimates::default(),
            tiny_changes: 1,
            looks: Looks::default(),
            rng: Rng::new(config.seed),
            last_worker: 0,
            places_changed: true,
            has_more_to_move: false,
            unwanted: Vec::new(),
            accepted_before: 0,
            cut_short: 0,
            has_requests: false,
            is_settled: false,
            config,
        };
        core.make_places();
        core.offer_here();
        Ok(core)
    }

    /// Ends a job. No other code does, so each job has exactly one outcome.
    fn finish(&mut self, turn: &mut Turn<'_>, id: JobId, ending: Ending) {
        let Some(job) = self.jobs.get(id) else { return };
        let ran = self.ran_so_far(turn.now, id, job);
        self.charge(id, ending.charged(ran, self.least_charge(id, job.promise)));
        self.note_run(id);
        self.dequeue(id);
        self.leave_worker(id);
        self.release_held(id);
        self.release_paused(id);
        self.programs.iter_mut().for_each(|program| program.probation.gone(id));
        self.release_account(id);
        let Some(job) = self.jobs.remove(id) else { return };
        let (client, input_bytes, output_bytes) = (job.client, job.input_held(), ending.output_bytes);
        let was_here = matches!(job.state, JobState::Here { .. });
        let mut ended = self.ended(turn.now, id, job, ran, ending);
        self.files.release(id, &ended.account);
        self.clients.leave(client);
        self.tally.end(ended.outcome);
        self.keep_letter(turn, input_bytes, &mut ended);
        ended.keep = self.keep_promise(turn.now, &ended, output_bytes, was_here);
        let outcome = ended.outcome;
        turn.push(Action::Finish(Box::new(ended)));
        self.note_end(turn, id, outcome);
    }

    fn ended(&self, now: Mono, id: JobId, job: Job, ran: Duration, ending: Ending) -> Ended {
        let (worker, started_at) = match job.state {
            JobState::Parked | JobState::Queued | JobState::Held | JobState::Paused => (None, now),
            JobState::Assigned { worker, .. } => (Some(worker), now),
            JobState::Running { worker, started_at } => (Some(worker), started_at),
            JobState::Here { started_at } => (None, started_at),
        };
        let run = ending.run.unwrap_or(ran);
        let runs_at = worker.filter(|_| matches!(job.state, JobState::Running { .. }));
        let load = runs_at.and_then(|worker| self.slots[self.slot_of(worker)?].load());
        // It began so much before its start was heard of.
        let unheard = run.saturating_sub(now - started_at);
        Ended {
            job: id,
            task: self.task_name(&job).clone(),
            account: self.account_of(&job).clone(),
            outcome: ending.outcome,
            error: ending.error,
            attempts: job.attempts_had(),
            queued: (started_at - job.accepted_at).saturating_sub(unheard + job.past.ran_before),
            run: run + job.past.ran_before,
            together: worker.map_or(0, |worker| self.batch_of(worker)),
            alone: load.and_then(|load| load.attempt_alone(id)),
            returned: (now - started_at).saturating_sub(run),
            place: ending.place.or_else(|| worker.and_then(|worker| self.place(worker))),
            usage: ending.usage,
            tag_bytes: job.past.tag_bytes,
            lost: job.past.take_lost(),
            keep: Keep::AsCourtesy,
            letter: None,
        }
    }

    /// The slot at this index, for a change. Its entries in the lists are updated before anything is decided about
    /// it.
    fn slot_mut(&mut self, slot: SlotIndex) -> &mut Slot {
        if self.unlisted.last() != Some(&slot) {
            self.unlisted.push(slot);
        }
        &mut self.slots[slot]
    }

    /// The slot of a living process; `None` if what the process says no longer counts.
    fn trusted_slot_of(&self, worker: WorkerId) -> Option<SlotIndex> {
        self.slot_of(worker).filter(|&slot| self.slots[slot].is_trusted())
    }

    /// The program that offers a task.
    fn program_of(&self, task: TaskIndex) -> ProgramIndex {
        self.registry.task(task).program
    }
}
