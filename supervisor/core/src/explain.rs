//! Explains why a job is where it is, for people who ask. That may take time in proportion to the number of jobs.

use super::Core;
use super::action::LostAttempt;
use super::clients::{ClientId, VirtualTime};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, WorkerInSlot};
use super::jobs::{Job, JobState, Progress};
use super::registry::Class;
use super::waiting::Standing;
use crate::limits::{EXPLAINED_BY, HOLDERS_TOLD};
use std::sync::Arc;
use std::time::Duration;

/// What changes of a job that has not ended while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its state.
    pub state: JobState,
    /// It waits in a queue from which nothing is started now.
    pub is_paused: bool,
    /// Number of attempts that were started, without those that were lost together with other jobs.
    pub attempts: u32,
    /// What the latest attempt has reported.
    pub progress: Option<Progress>,
}

/// What there is to say about a job that has not ended.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its state.
    pub state: JobState,
    /// Its task.
    pub task: Arc<str>,
    /// Its client.
    pub client: Arc<str>,
    /// Its priority.
    pub priority: i8,
    /// Time since it was accepted.
    pub age: Duration,
    /// The class of work that it counts as.
    pub class: Class,
    /// How long it is expected to run, if anything like it ever ran.
    pub expected_run: Option<Duration>,
    /// How often it was started, without the attempts that were lost together with other jobs.
    pub attempts: u32,
    /// How many of its attempts ended their worker, and how many are allowed to.
    pub crashes: (u32, u32),
    /// A worker that had it has ended: it is dispatched only to a worker without any other job.
    pub is_suspect: bool,
    /// How many workers in a row had no other job and ended before they had started it.
    pub unstarted: u32,
    /// Nobody wants it any more: it is not tried again.
    pub is_abandoned: bool,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<LostAttempt>,
    /// How far it is, as its worker last reported.
    pub progress: Option<Progress>,
    /// Length of the checkpoint that the next attempt goes on from; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// For a running job: where it runs, and for how long.
    pub running: Option<(WorkerInSlot, Duration)>,
    /// For a job that is done here, without a worker: for how long.
    pub here: Option<Duration>,
    /// How many jobs its worker was given together, itself included; 0 if it is alone.
    pub together: u32,
    /// For a job that was dispatched and not started: where it is.
    pub given_to: Option<WorkerInSlot>,
    /// For a job that lies in the tray of a busy worker: the job that runs there.
    pub behind: Option<JobId>,
    /// For a queued job: why it waits.
    pub waiting: Option<Waiting>,
    /// For a job that is held back: why.
    pub held: Option<Held>,
    /// The job that its key stood for before the key expired.
    pub key_before: Option<JobId>,
}

/// Why a job is held back until there is room to keep its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its client's account.
    pub account: Arc<str>,
    /// How many bytes are kept of that account's jobs that have ended.
    pub kept_bytes: u64,
    /// How many bytes are free for all clients, as far as none has more than its share.
    pub free_bytes: u64,
    /// If its share is not the reason: what all clients have, beyond their shares too, and how much that may be.
    pub of_all: Option<(u64, u64)>,
    /// It has a key, so it does not count whether somebody waits for it.
    pub has_key: bool,
    /// If somebody waits for it: the job that its account has beyond its share already.
    pub beyond: Option<JobId>,
}

/// Why a job waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// How many jobs of its own client are served before it.
    pub ahead_of_its_own: usize,
    /// How many jobs wait for the same program.
    pub all: usize,
    /// How many clients have jobs that wait.
    pub clients: usize,
    /// How many of them have their next turn before its client.
    pub clients_before: usize,
    /// The jobs for which its workers are busy, those that have run longest first: [`HOLDERS_TOLD`] at the most.
    pub holders: Vec<(JobId, Duration)>,
    /// How long it will wait from now.
    pub expected: Result<Duration, WhyUnknown>,
    /// It will be done here, without a worker: how many places there are for that, and how many are taken.
    pub here: Option<(usize, usize)>,
    /// How many slots of its program there are, how many are ready, and how many have a job.
    pub slots: (usize, usize, usize),
    /// How many idle slots are reserved for short jobs.
    pub kept_for_short: usize,
    /// Its client has not taken its outputs: how many bytes they are, expected ones included, and how many are free
    /// in total.
    pub held_back: Option<(u64, u64)>,
    /// It waits for others to run together with, for so long from now at the most.
    pub gathers: Option<Duration>,
    /// Its task is paused, or all tasks are.
    pub is_paused: bool,
    /// Why no worker can be had, if so.
    pub unavailable: Option<String>,
}

/// Why it cannot be said when a job will start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUnknown {
    /// It is held up by something whose end nobody knows: a pause, or outputs of its client that are not read, or are expected.
    HeldUp,
    /// It is on probation: the next job like it is tried after this time at the earliest; `None` if one is tried now.
    OnProbation(Option<Duration>),
    /// Of a job that may be served before it, it is not known how long it will run: nothing like it has ever run.
    JobsBefore,
    /// Of no worker that may take it is it known when it will be free.
    Workers,
    /// It needs no worker, and nobody knows when one of the threads for such jobs will be free.
    Threads,
}

/// What limits the time of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// The longest run, counted from its start.
    pub run: Option<Duration>,
    /// The time to the job's deadline; zero if that is over.
    pub to_deadline: Option<Duration>,
}

impl Core {
    /// What limits the time of a job's next attempt, as of now. Nothing if there is no such job.
    pub fn time_limits(&self, now: Mono, id: JobId) -> TimeLimits {
        self.jobs.get(id).map_or(TimeLimits::default(), |job| TimeLimits {
            run: job.run_limit.duration(),
            to_deadline: job.deadline.moment().map(|deadline| deadline - now),
        })
    }

    /// What changes of a job that has not ended, for whoever looks often: it takes the same time however many jobs there are.
    pub fn glance(&self, id: JobId) -> Option<Glance> {
        let job = self.jobs.get(id)?;
        let waits = matches!(job.state, JobState::Queued | JobState::Paused);
        let is_paused = waits && job.task.is_some_and(|task| self.pauses.holds(task));
        Some(Glance {
            state: job.state,
            is_paused,
            attempts: job.attempts_had(),
            progress: job.past.progress,
        })
    }

    /// Why the job is where it is; `None` if it has ended, or never was.
    pub fn explain(&self, now: Mono, id: JobId) -> Option<Explanation> {
        let job = self.jobs.get(id)?;
        let place = |worker| self.place(worker);
        Some(Explanation {
            state: job.state,
            task: self.task_name(job).clone(),
            client: self.account_of(job).clone(),
            priority: job.priority,
            age: now - job.accepted_at,
            class: self.class_of(job),
            expected_run: job.task.and_then(|task| self.registry.task(task).expected_run(job.input_bytes)),
            attempts: job.attempts_had(),
            crashes: (job.past.crashes, self.attempts_allowed(job)),
            is_suspect: job.is_suspect,
            unstarted: job.past.unstarted,
            is_abandoned: job.is_abandoned,
            lost: job.past.lost.clone(),
            progress: job.past.progress,
            checkpoint_bytes: job.past.checkpoint_bytes,
            running: match job.state {
                JobState::Running { worker, .. } => {
                    place(worker).map(|at| (at, self.ran_so_far(now, id, job)))
                }
                _ => None,
            },
            here: match job.state {
                JobState::Here { started_at } => Some(now - started_at),
                _ => None,
            },
            together: match job.state {
                JobState::Assigned { worker, .. } | JobState::Running { worker, .. } => self.batch_of(worker),
                _ => 0,
            },
            given_to: match job.state {
                JobState::Assigned { worker, .. } => place(worker),
                _ => None,
            },
            behind: self.runs_before(id, job.state),
            waiting: self.explain_waiting(now, id),
            held: (job.state == JobState::Held).then(|| self.explain_held(id, job)),
            key_before: job.past.key_before,
        })
    }

    fn explain_held(&self, id: JobId, job: &Job) -> Held {
        let (account, ended) = (self.account_of(job), self.promises.kept_of_ended());
        let limit = self.config.max_kept_bytes;
        Held {
            account: account.clone(),
            kept_bytes: ended.of(account).bytes,
            free_bytes: limit.saturating_sub(ended.within_shares(limit)),
            of_all: self.promises.held_by_all(account, self.config.kept_limits()),
            has_key: self.promises.is_keyed(id),
            beyond: self.promises.held_by_one_beyond(id, account, limit),
        }
    }

    /// The job that runs where this one lies in the tray.
    fn runs_before(&self, id: JobId, state: JobState) -> Option<JobId> {
        let JobState::Assigned { worker, .. } = state else { return None };
        let load = self.slots[self.slot_of(worker)?].load()?;
        load.in_tray(id).and_then(|_| load.running_job())
    }

    fn explain_waiting(&self, now: Mono, id: JobId) -> Option<Waiting> {
        let job = self.jobs.get(id)?;
        let (JobState::Queued | JobState::Paused, Some(task)) = (job.state, job.task) else { return None };
        let program = self.program_of(task);
        let queues = &self.programs[program];
        let queue = queues.queue_of(job.line(), task);
        let ahead = queue.map_or(0, |queue| queue.ahead_of_its_own(job.client, job.rank(id)));
        let clients_before = queue.map_or(0, |queue| queue.clients_before(job.client).count());
        let clients = self.clients.waiting_count();
        let evidence = self.evidence(now, program);
        let planned = self.planned_with(job, &evidence);
        let backlog = self.backlog_with(program, &evidence);
        let others = backlog.saturating_sub(planned);
        // Before each turn of its client all clients have theirs. Those before it now have a turn each, or as many as it takes
        // until they have used as much as its client.
        let turns = planned.saturating_mul(u32::try_from(ahead.saturating_mul(clients)).unwrap_or(u32::MAX));
        let average = backlog / u32::try_from(queues.waiting()).unwrap_or(u32::MAX).max(1);
        let before = queue.into_iter().flat_map(|queue| queue.clients_before(job.client));
        let before = before.map(|(client, by)| self.until_caught_up(client, by, average).max(planned));
        let turns = before.fold(turns, Duration::saturating_add);
        let is_paused = self.pauses.holds(task);
        let places: Vec<SlotIndex> =
            self.slots_of(program).filter(|slot| self.may_ever_take(*slot, id)).collect();
        let expected = if is_paused || !self.fits_into_share(job) {
            Err(WhyUnknown::HeldUp)
        } else if job.line().standing == Standing::OnProbation {
            Err(WhyUnknown::OnProbation(queues.probation.opens_in(now)))
        } else if !self.knows_what_comes_before(id, job) {
            Err(WhyUnknown::JobsBefore)
        } else if self.program_here() == Some(program) {
            Err(WhyUnknown::Threads)
        } else {
            self.foresee_start(now, program, &places, others.min(turns)).ok_or(WhyUnknown::Workers)
        };
        let slots: Vec<_> =
            places.iter().map(|slot| &self.slots[*slot]).filter(|slot| slot.is_there()).collect();
        let ready = slots.iter().filter(|slot| slot.is_ready()).count();
        let busy = slots.iter().filter(|slot| slot.load().is_some()).count();
        Some(Waiting {
            ahead_of_its_own: ahead,
            all: queues.waiting(),
            clients,
            clients_before,
            holders: self.holders(now, &places),
            expected,
            here: (self.program_here() == Some(program))
                .then(|| (self.config.here.places, self.taken_here())),
            slots: (slots.len(), ready, busy),
            kept_for_short: queues.open_reserved.iter().filter(|(load, _)| *load == 0).count(),
            held_back: (!self.fits_into_share(job)).then(|| {
                let free = self.config.max_bytes.saturating_sub(self.ledger.all().total());
                (self.ledger.of(self.account_of(job)).outputs(), free)
            }),
            gathers: job.line().gathers().then(|| queues.gatherings.ripe_in(now, task)).flatten(),
            is_paused,
            unavailable: self.unavailable(program).map(|error| error.message),
        })
    }

    /// How much worker time a client has before another one that is later by so much virtual time, if its waiting jobs run as
    /// long as this, and they are enough.
    fn until_caught_up(&self, client: ClientId, by: VirtualTime, average: Duration) -> Duration {
        let Some(account) = self.clients.get(client) else { return Duration::ZERO };
        let by = Duration::from_nanos(u64::try_from(by).unwrap_or(0)).saturating_mul(account.weight);
        by.min(average.saturating_mul(u32::try_from(account.waiting).unwrap_or(u32::MAX)))
    }

    /// The jobs that run in these slots, those that have run longest first.
    fn holders(&self, now: Mono, places: &[SlotIndex]) -> Vec<(JobId, Duration)> {
        let running = places.iter().filter_map(|slot| self.slots[*slot].load()?.running);
        let mut holders: Vec<_> = running.map(|running| (running.job, running.ran(now))).collect();
        holders.sort_by_key(|(job, ran)| (std::cmp::Reverse(*ran), *job));
        holders.truncate(HOLDERS_TOLD);
        holders
    }

    /// Whether the run time is known of all jobs that may be served before this one: the ones of its own client with
    /// a better rank, and all jobs of other clients.
    fn knows_what_comes_before(&self, id: JobId, job: &Job) -> bool {
        let rank = job.rank(id);
        let is_before = |other_id: JobId, other: &Job| {
            other.state == JobState::Queued
                && other.task.map(|task| self.program_of(task)) == job.task.map(|task| self.program_of(task))
                && (other.client != job.client || other.rank(other_id) < rank)
        };
        let is_known = |other: &Job| {
            other.task.is_some_and(|task| self.registry.task(task).expected_run(other.input_bytes).is_some())
        };
        // Of very many the oldest stand for all: nobody should have to wait for a look at the others.
        self.jobs
            .iter()
            .take(EXPLAINED_BY)
            .all(|(other_id, other)| !is_before(other_id, other) || is_known(other))
    }

    /// How long until one of these slots is free, if the work ahead is spread over them as they become free. Slots whose
    /// time is unknown are left out; `None` if it is unknown for all.
    fn foresee_start(
        &self,
        now: Mono,
        program: ProgramIndex,
        places: &[SlotIndex],
        ahead: Duration,
    ) -> Option<Duration> {
        // Of a worker that is stopped, nobody knows when it goes on.
        let ready = places.iter().copied().filter(|slot| self.slots[*slot].is_ready());
        let mut free: Vec<Duration> = ready.filter_map(|slot| self.free_in(now, program, slot)).collect();
        free.sort_unstable();
        let mut busy = ahead;
        let mut start = None;
        for (index, &free_in) in free.iter().enumerate() {
            if start.is_some_and(|start| start <= free_in) {
                break;
            }
            busy += free_in;
            start = Some(busy / u32::try_from(index + 1).unwrap_or(u32::MAX));
        }
        start
    }

    /// How long until the worker of a slot has done all that it was given, if that is known.
    fn free_in(&self, now: Mono, program: ProgramIndex, slot: SlotIndex) -> Option<Duration> {
        let Some(load) = self.slots[slot].load() else {
            return self.programs[program].open.contains(&(0, slot)).then_some(Duration::ZERO);
        };
        let left = load.jobs().map(|id| {
            let job = self.jobs.get(id)?;
            let run = self.registry.task(job.task?).expected_run(job.input_bytes)?;
            let ran = self.ran_so_far(now, id, job);
            // A job that has taken longer than expected is as likely as not to take as long again.
            Some(run.checked_sub(ran).unwrap_or(ran))
        });
        left.sum()
    }
}
