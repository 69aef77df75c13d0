//! The queues of waiting jobs: how jobs enter and leave them, and what clients are charged.

use super::Core;
use super::batches::patient_until;
use super::clients::{ClientId, Served, Track, VirtualTime};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex};
use super::jobs::{GivenTo, Job, JobState};
use super::queue::{FairQueue, Kind, Next};
use super::registry::{Class, Promise, size_of};
use super::slots::{Opening, SlotState};
use super::small_map::SmallSet;
use crate::limits::{LONG_RUN, TINY_COST_MEMORY, WORKER_COST_MIN};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use std::vec::IntoIter;

/// How often it was checked whether jobs of some kind may start. For tests only, and no part of the state: it prints
/// nothing.
#[derive(Clone, Default)]
pub(super) struct Looks(Cell<u64>);

impl Looks {
    pub(super) fn count(&self) {
        self.0.set(self.0.get() + 1);
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Looks")
    }
}

impl Core {
    /// How often it was checked whether waiting jobs may start. The work for one event grows with this.
    pub fn looks(&self) -> u64 {
        self.looks.0.get()
    }

    /// Puts a job into the queue of its task's program. If nobody offers its task, the job is parked, which `settle`
    /// looks into.
    pub(super) fn enqueue(&mut self, id: JobId) {
        self.expect_no_output(id);
        self.promises.is_not_beyond(id);
        self.leave_worker(id);
        self.end_if_abandoned(id);
        let Some(job) = self.jobs.get(id) else { return };
        let known = job.task.filter(|task| self.registry.is_on_offer(*task));
        let Some(task) = known.or_else(|| self.registry.find(self.task_name(job))) else {
            return self.park(id);
        };
        if self.pauses.holds(task) {
            return self.set_aside(id, task);
        }
        let class = if !job.is_streamed() && self.can_be_together(job, task) {
            Class::Together
        } else if !job.is_streamed() && self.is_short(task, size_of(job.input_bytes)) {
            Class::Short
        } else {
            Class::Long
        };
        let expected_run = self.registry.task(task).expected_run(job.input_bytes);
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.has_file {
            self.files.look_again();
        }
        job.task = Some(task);
        job.state = JobState::Queued;
        job.class = class;
        let (client, rank, line, since) = (job.client, job.rank(id), job.line(), job.waits_since());
        let bytes = job.input_bytes;
        let patient_until = patient_until(job, expected_run);
        let Some(kind) = self.jobs.get(id).map(|job| self.kind_of(job, task)) else { return };
        self.jobs.unpark(id);
        self.clients.waits(client);
        self.change_task(task, |task| task.waits(bytes));
        let (program, track) = (self.registry.task(task).program, Track::of(line.class));
        self.clients.joins(client, program, track);
        let queues = &mut self.programs[program];
        let queue = match line.gathers() {
            true => queues.gatherings.queue_for(task, since, patient_until),
            false => queues.queue_mut(line),
        };
        queue.insert(client, self.clients.share(client, program, track), rank, kind);
    }

    fn park(&mut self, id: JobId) {
        let Some(name) = self.jobs.get(id).map(|job| self.task_name(job).clone()) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.past.task_name = Some(name);
        job.task = None;
        job.state = JobState::Parked;
        self.jobs.park(id);
        self.places_changed = true;
    }

    /// Takes a job out of its queue.
    pub(super) fn dequeue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (JobState::Queued, Some(task)) = (job.state, job.task) else { return };
        let (client, rank, line, bytes) = (job.client, job.rank(id), job.line(), job.input_bytes);
        let program = self.registry.task(task).program;
        let queue = self.programs[program].queue_of_mut(line, task);
        if queue.is_some_and(|queue| queue.remove(client, rank)) {
            self.clients.goes(client, program, Track::of(line.class));
            self.clients.waits_no_more(client);
            self.change_task(task, |task| task.waits_no_more(bytes));
        }
    }

    /// A job is dispatched to a worker in this slot, or here: its client is charged the expected run time. It has waited as one
    /// of this class.
    pub(super) fn charge_expected(&mut self, id: JobId, slot: Option<SlotIndex>, waited_as: Class) {
        let Some(job) = self.jobs.get(id) else { return };
        let (client, program) = (job.client, job.given_to.program());
        let is_short = self.class_of(job) == Class::Short;
        let takes_only_short = |slot: SlotIndex| {
            self.slots[slot].is_reserved || !matches!(self.slots[slot].state, SlotState::Idle { .. })
        };
        let is_only_for_short = is_short && slot.is_some_and(takes_only_short);
        let first_kept_out = if is_only_for_short { self.first_for_idle(program) } else { None };
        let promise = slot.and_then(|slot| self.promise_to(slot, id));
        let least = promise.map_or(Duration::ZERO, |promise| self.least_charge(id, promise));
        let (track, planned) = (Track::of(waited_as), self.planned(job).max(least));
        let is_aside = first_kept_out.is_some();
        let served = Served { track, priority: job.priority, is_short, first_kept_out };
        self.clients.served(client, program, served);
        if let Some(job) = self.jobs.get_mut(id) {
            job.given_to = GivenTo::new(program, is_aside);
        }
        self.charge(id, planned);
    }

    /// A job that a worker had, or that was done here, ends: its client has been charged for that.
    pub(super) fn note_run(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.state.is_dispatched()) else { return };
        let program = job.given_to.program();
        let Some(queues) = self.programs.get(program) else { return };
        let weights = queues.queues().map(FairQueue::weights).sum();
        let tracks: &[Track] = match (job.given_to.is_aside(), self.class_of(job)) {
            (true, _) => &[Track::Short],
            (false, Class::Short) => &[Track::Idle, Track::Short],
            (false, Class::Long | Class::Together) => &[Track::Idle],
        };
        self.clients.ran(job.client, program, (job.charged, weights), tracks);
    }

    /// The turn of the first job that could be given to an idle worker and is not short.
    fn first_for_idle(&self, program: ProgramIndex) -> Option<VirtualTime> {
        if !self.programs[program].has_some_for_idle() {
            return None;
        }
        let is_one =
            |(_, line): &(Next, Line)| line.class != Class::Short && self.is_line_open(program, *line);
        self.heads_to_start(program).find(is_one).map(|(next, _)| next.turn())
    }

    /// A tiny job keeps its worker for longer than it runs. If its client were charged only the run, it could keep workers for
    /// several times as long as others.
    pub(super) fn least_charge(&self, id: JobId, promise: Promise) -> Duration {
        let program = self.jobs.get(id).map(|job| job.given_to.program());
        let program =
            program.filter(|_| self.is_tiny(id, promise)).and_then(|program| self.programs.get(program));
        program.map_or(Duration::ZERO, |program| program.tiny_cost)
    }

    /// Learns for how long a worker is occupied by a tiny job: the job that runs in this slot was answered. Answers are often heard
    /// together, so only the average says something. One between the steps of another had to wait for a step.
    pub(super) fn learn_tiny_cost(&mut self, now: Mono, slot: SlotIndex) {
        // No list of slots depends on this.
        let Some(load) = self.slots[slot].load_mut() else { return };
        let is_alone = load.suspended.is_none();
        let Some((id, occupied)) = load.running_job().zip(load.note_answer(now)) else { return };
        if is_alone && self.jobs.get(id).is_some_and(|job| self.is_tiny(id, job.promise)) {
            let average = &mut self.programs[self.slots[slot].program].tiny_cost;
            *average = (*average * (TINY_COST_MEMORY - 1) + occupied.min(LONG_RUN)) / TINY_COST_MEMORY;
        }
    }

    /// The run time of a job is known: in total, its client is charged exactly that, where the job was given to a worker.
    pub(super) fn charge(&mut self, id: JobId, ran: Duration) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let nanos = nanos(ran);
        let (client, more) = (job.client, nanos.saturating_sub(job.charged));
        let program = job.given_to.program();
        job.charged = nanos;
        self.charge_client(client, program, more);
    }

    /// A job costs its worker: its client is charged for another one.
    pub(super) fn charge_worker(&mut self, id: JobId) -> Option<PaidWorker> {
        let job = self.jobs.get(id)?;
        let (client, program) = (job.client, job.given_to.program());
        let cost = self.programs.get(program)?.worker_cost.max(WORKER_COST_MIN);
        self.charge_client(client, program, nanos(cost));
        Some(PaidWorker { client, program, cost })
    }

    /// A worker was charged in advance and lives on: the charge is given back.
    pub(super) fn refund_worker(&mut self, paid: Option<PaidWorker>) {
        if let Some(PaidWorker { client, program, cost }) = paid {
            self.charge_client(client, program, -nanos(cost));
        }
    }

    /// Learns how long a start takes: a worker in this slot was ready after `took`.
    pub(super) fn learn_worker_cost(&mut self, slot: SlotIndex, took: Duration) {
        let program = &mut self.programs[self.slots[slot].program];
        program.worker_cost = match program.worker_cost {
            Duration::ZERO => took,
            average => (average * 7 + took) / 8,
        };
    }

    fn charge_client(&mut self, client: ClientId, program: ProgramIndex, nanos: i64) {
        self.clients.charge(client, program, nanos);
        let Some(queues) = self.programs.get_mut(program) else { return };
        let [idle, short] =
            [Track::Idle, Track::Short].map(|track| self.clients.share(client, program, track).used);
        for (track, queue) in queues.queues_by_track() {
            queue.set_used(client, if track == Track::Idle { idle } else { short });
        }
    }

    /// Checks that the clients' places count the jobs in the queues, and no others.
    pub(super) fn check_tracks(&self) -> Result<(), String> {
        let mut queued: BTreeMap<(ClientId, ProgramIndex, bool), usize> = BTreeMap::new();
        for (_, job) in self.jobs.iter().filter(|(_, job)| job.state == JobState::Queued) {
            if let Some(task) = job.task {
                let is_short = Track::of(job.line().class) == Track::Short;
                *queued.entry((job.client, self.program_of(task), is_short)).or_default() += 1;
            }
        }
        let (all, counted) = (queued.values().sum::<usize>(), self.clients.all_queued());
        if all != counted {
            return Err(format!("{all} jobs are in queues, and {counted} by the clients' places"));
        }
        let wrong = queued.into_iter().find(|((client, program, is_short), count)| {
            let track = if *is_short { Track::Short } else { Track::Idle };
            self.clients.queued(*client, *program, track) != *count
        });
        match wrong {
            Some(((client, ..), count)) => {
                Err(format!("{client:?} has {count} jobs in a queue and other accounts"))
            }
            None => Ok(()),
        }
    }

    /// How long a job has run since it was last started.
    pub(super) fn ran_so_far(&self, now: Mono, id: JobId, job: &Job) -> Duration {
        match job.state {
            JobState::Parked | JobState::Queued | JobState::Held => Duration::ZERO,
            JobState::Paused | JobState::Assigned { .. } => Duration::ZERO,
            JobState::Here { started_at } => now - started_at,
            JobState::Running { worker, started_at } => {
                let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
                let started = load.and_then(|load| {
                    load.running.iter().chain(&load.suspended).find(|running| running.job == id)
                });
                started.map_or(now - started_at, |running| running.ran(now))
            }
        }
    }

    pub(super) fn slots_of(&self, program: ProgramIndex) -> impl Iterator<Item = SlotIndex> + '_ {
        (0..self.slots.len()).filter(move |&slot| self.slots[slot].program == program && !self.is_spare(slot))
    }
}

/// A client was charged for a worker that may live on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaidWorker {
    client: ClientId,
    program: ProgramIndex,
    cost: Duration,
}

/// Names one of the queues of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) class: Class,
    pub(super) standing: Standing,
}

/// What is known against a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Good,
    /// A worker that had it has ended: it is dispatched only to a worker without any other job.
    Suspect,
    /// Moreover, no worker has lived to start it (`probation.rs`).
    OnProbation,
}

impl Line {
    /// Whether it stands for jobs that gather for a batch, each with those of its task (`batches.rs`).
    pub(super) fn gathers(self) -> bool {
        self == Line::GATHERING
    }

    pub(super) const GATHERING: Line = Line { class: Class::Together, standing: Standing::Good };

    const ALL: [Line; 6] = [
        Line { class: Class::Short, standing: Standing::Good },
        Line { class: Class::Long, standing: Standing::Good },
        Line { class: Class::Short, standing: Standing::Suspect },
        Line { class: Class::Long, standing: Standing::Suspect },
        Line { class: Class::Short, standing: Standing::OnProbation },
        Line { class: Class::Long, standing: Standing::OnProbation },
    ];
}

impl super::Program {
    /// The queue of a job that waits in this line for this task; `None` if there is none.
    pub(super) fn queue_of(&self, line: Line, task: TaskIndex) -> Option<&FairQueue> {
        if line.gathers() { self.gatherings.queue(task) } else { Some(self.queue(line)) }
    }

    fn queue_of_mut(&mut self, line: Line, task: TaskIndex) -> Option<&mut FairQueue> {
        if line.gathers() { self.gatherings.queue_mut(task) } else { Some(self.queue_mut(line)) }
    }

    /// A queue of jobs of any task.
    pub(super) fn queue(&self, line: Line) -> &FairQueue {
        match (line.class, line.standing) {
            (Class::Short, Standing::Good) => &self.short,
            (Class::Long | Class::Together, Standing::Good) => &self.long,
            (Class::Short, Standing::Suspect) => &self.short_suspects,
            (Class::Long | Class::Together, Standing::Suspect) => &self.long_suspects,
            (Class::Short, Standing::OnProbation) => &self.short_on_probation,
            (Class::Long | Class::Together, Standing::OnProbation) => &self.long_on_probation,
        }
    }

    pub(super) fn queue_mut(&mut self, line: Line) -> &mut FairQueue {
        match (line.class, line.standing) {
            (Class::Short, Standing::Good) => &mut self.short,
            (Class::Long | Class::Together, Standing::Good) => &mut self.long,
            (Class::Short, Standing::Suspect) => &mut self.short_suspects,
            (Class::Long | Class::Together, Standing::Suspect) => &mut self.long_suspects,
            (Class::Short, Standing::OnProbation) => &mut self.short_on_probation,
            (Class::Long | Class::Together, Standing::OnProbation) => &mut self.long_on_probation,
        }
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &FairQueue> {
        Line::ALL.into_iter().map(|line| self.queue(line)).chain(self.gatherings.queues())
    }

    pub(super) fn queues_mut(&mut self) -> impl Iterator<Item = &mut FairQueue> {
        self.queues_by_track().map(|(_, queue)| queue)
    }

    fn queues_by_track(&mut self) -> impl Iterator<Item = (Track, &mut FairQueue)> {
        let lines = [
            (Track::Short, &mut self.short),
            (Track::Idle, &mut self.long),
            (Track::Short, &mut self.short_suspects),
            (Track::Idle, &mut self.long_suspects),
            (Track::Short, &mut self.short_on_probation),
            (Track::Idle, &mut self.long_on_probation),
        ];
        lines.into_iter().chain(self.gatherings.queues_mut().map(|queue| (Track::Idle, queue)))
    }

    /// Whether jobs wait that are not known as short.
    fn has_some_for_idle(&self) -> bool {
        let lines = [&self.long, &self.long_suspects, &self.long_on_probation];
        lines.into_iter().chain(self.gatherings.queues()).any(|queue| !queue.is_empty())
    }

    /// The queues for short jobs of any task.
    pub(super) fn queues_of_short(&self) -> impl Iterator<Item = &FairQueue> {
        [&self.short, &self.short_suspects, &self.short_on_probation].into_iter()
    }

    /// The list of slots that can take a job, of those that open in this way.
    pub(super) fn open_list(&mut self, opening: Opening) -> &mut SmallSet<(usize, SlotIndex)> {
        match opening {
            Opening::Free => &mut self.open,
            Opening::Reserved => &mut self.open_reserved,
            Opening::Unproven => &mut self.open_unproven,
        }
    }

    /// Whether any worker could be given a job.
    pub(super) fn has_openings(&self) -> bool {
        let open = [&self.open, &self.open_reserved, &self.open_unproven];
        open.iter().any(|open| !open.is_empty()) || !self.between_steps.is_empty()
    }

    /// Whether jobs on probation wait.
    pub(super) fn has_some_on_probation(&self) -> bool {
        !self.short_on_probation.is_empty() || !self.long_on_probation.is_empty()
    }

    /// The first job of each queue among the kinds for which `is_it` returns true, in the order in which they would
    /// be served. Of a queue for long jobs it is the first one that is long, and the first one that is short by now.
    pub(super) fn heads(
        &self,
        is_it: impl Fn(Kind) -> bool,
        is_short: impl Fn(Kind) -> bool,
    ) -> IntoIter<(Next, Line)> {
        let mut heads = Vec::new();
        let mut add = |next: Option<Next>, line| heads.extend(next.map(|next| (next, line)));
        for line in Line::ALL {
            let queue = self.queue(line);
            if line.class == Class::Long {
                add(queue.first_of(|kind| is_it(kind) && !is_short(kind)), line);
                add(queue.first_of(|kind| is_short(kind) && is_it(kind)), line);
            } else {
                add(queue.first_of(&is_it), line);
            }
        }
        for queue in self.gatherings.ripe() {
            add(queue.first_of(&is_it), Line::GATHERING);
        }
        heads.sort_unstable_by_key(|(next, _)| *next);
        heads.into_iter()
    }

    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        self.queues().map(FairQueue::len).sum()
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
