//! Batches: jobs of one task that a worker is given together, because that costs less than one after another.
//!
//! ```text
//!   jobs of the task ---> gathering ---> ripe ---------------------> a worker without jobs gets the first one, with as
//!                          (no worker    there are `max`, or         many behind it as the queue would serve next
//!                          gets them)    `wait` is over since the    and may go with it, up to `max`
//!                                        first one came, or no
//!                                        others can come
//! ```
//!
//! A job with a deadline does not wait for others until it is late: the average run is subtracted from the time to its deadline, and it
//! waits for at most half of the rest.
//!
//! While all workers are busy, jobs wait anyway, so `wait` costs nothing then. Jobs in a batch are picked in the order of the
//! queue, each client being charged for each of its jobs: shares, priorities and age count as they do without batches. The
//! first job that may not go with those before it ends the batch, so none is overtaken.
//!
//! Together go jobs of one task whose time limit is the same, which holds for the whole batch: nobody's tight limit ends what
//! others wait for. They are small, have no file, checkpoint or reader of parts. Jobs of different clients go together only if
//! their outputs have been small, because one client's outputs may have to wait for room. A worker that has to prove itself gets one
//! job at a time.
//!
//! Whose fault it is if the worker ends, nobody knows. So nobody is blamed: an attempt in a batch costs none of those that a job may
//! have. The jobs that were answered have ended, and the others run again in halves:
//!
//! ```text
//!   a batch of n is lost ---> each of its jobs may be one of n/2 at the most ---> ... ---> one alone: it is blamed
//! ```
//!
//! So a job ends at most log2(max) batches, whatever it does, and then as many workers as it may have attempts. As suspects, they
//! go together only with others of which the same is true. All of that takes tasks that may be run twice, and only these have
//! batches. Too long a run of a batch is the same as its worker's end.
//!
//! A job that is cancelled, or whose deadline passes, has ended, and its answer is thrown away. Its worker has a grace to answer it: that
//! of a job that is alone, but no less than the batch has run already, nor than its jobs usually take twice.
//!
//! ```text
//!   one is not wanted any more ---> the worker answers that one in time ---> the others go on
//!                              '--> the grace is over ---> the worker is ended, the others run again in halves
//! ```
//!
//! So nobody's hanging job holds up others for longer than the grace. Whoever cancels pays for the worker, and the halves bound what
//! others can lose by that: a job loses at most log2(max) runs, then it is alone.

use super::action::Action;
use super::clients::ClientId;
use super::ids::{JobId, Mono, SlotIndex, TaskIndex, WorkerId};
use super::jobs::{Job, JobState, RanUnder};
use super::nanos::MaybeNanos;
use super::queue::FairQueue;
use super::registry::{Class, Task};
use super::slots::{InTray, Load, Role, SlotState};
use super::small_map::SmallMap;
use super::turn::Turn;
use super::waiting::Line;
use super::{Core, Ending, Phase};
use crate::limits::UNSTARTED_MAX;
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use offload_protocol::nouns::Batching;
use std::time::Duration;

/// Lower limits for the batches of one task than those that its workers offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most jobs in one batch; 1 for none.
    pub max: Option<u32>,
    /// How long the first job of a batch waits for others at most.
    pub wait: Option<Duration>,
}

impl BatchLimits {
    /// What is offered, within these limits.
    fn lower(self, offered: Batching) -> Batching {
        let wait_us = self.wait.map_or(u32::MAX, |wait| u32::try_from(wait.as_micros()).unwrap_or(u32::MAX));
        Batching { max: offered.max.min(self.max.unwrap_or(u32::MAX)), wait_us: offered.wait_us.min(wait_us) }
    }
}

/// The waiting jobs that can go together, by their task.
#[derive(Debug, Default)]
pub(super) struct Gatherings(SmallMap<TaskIndex, Gathering>);

#[derive(Debug, Default)]
struct Gathering {
    queue: FairQueue,
    /// Since when there have been some.
    since: Mono,
    /// Until when the one with the least patience waits for others; `None` if all can wait.
    patient_until: Option<Mono>,
    /// When they go, however few they are; `None` if they can go now.
    ripe_at: Option<Mono>,
}

impl Gathering {
    fn ripen(&mut self, now: Mono, batching: Option<Batching>) {
        let waits_until = batching
            .filter(|batching| self.queue.len() < batching.max as usize)
            .map(|batching| self.since + batching.wait())
            .map(|until| self.patient_until.map_or(until, |patient_until| patient_until.min(until)));
        self.ripe_at = waits_until.filter(|until| *until > now);
    }
}

impl Gatherings {
    pub(super) fn queue(&self, task: TaskIndex) -> Option<&FairQueue> {
        self.0.get(&task).map(|gathering| &gathering.queue)
    }

    pub(super) fn queue_mut(&mut self, task: TaskIndex) -> Option<&mut FairQueue> {
        self.0.get_mut(&task).map(|gathering| &mut gathering.queue)
    }

    /// The queue for a job of this task, which has waited since `since` and waits for others until `patient_until`.
    pub(super) fn queue_for(
        &mut self,
        task: TaskIndex,
        since: Mono,
        patient_until: Option<Mono>,
    ) -> &mut FairQueue {
        let gathering = self.0.get_or_add(task);
        if gathering.queue.is_empty() {
            (gathering.since, gathering.patient_until) = (since, patient_until);
        }
        gathering.since = gathering.since.min(since);
        let patience = [gathering.patient_until, patient_until];
        gathering.patient_until = patience.into_iter().flatten().min();
        &mut gathering.queue
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &FairQueue> {
        self.0.iter().map(|(_, gathering)| &gathering.queue)
    }

    pub(super) fn queues_mut(&mut self) -> impl Iterator<Item = &mut FairQueue> {
        self.0.values_mut().map(|gathering| &mut gathering.queue)
    }

    /// Frees what is kept for tasks of which no jobs wait.
    pub(super) fn forget_empty(&mut self) {
        self.0.retain(|gathering| !gathering.queue.is_empty());
    }

    /// The queues of jobs that can go now.
    pub(super) fn ripe(&self) -> impl Iterator<Item = &FairQueue> {
        let is_ripe = |gathering: &&Gathering| gathering.ripe_at.is_none() && !gathering.queue.is_empty();
        self.0.iter().map(|(_, gathering)| gathering).filter(is_ripe).map(|gathering| &gathering.queue)
    }

    /// When the next jobs can go that have to wait for others now.
    fn next_ripe(&self) -> Option<Mono> {
        let waiting = self.0.iter().filter(|(_, gathering)| !gathering.queue.is_empty());
        waiting.filter_map(|(_, gathering)| gathering.ripe_at).min()
    }

    /// How long jobs of this task have to wait for others at the most; `None` if they need not.
    pub(super) fn ripe_in(&self, now: Mono, task: TaskIndex) -> Option<Duration> {
        self.0.get(&task)?.ripe_at.map(|ripe_at| ripe_at - now)
    }
}

/// Who goes when, and with whom.
impl Core {
    /// How several jobs of a task go together, by the newest offer and the configuration; `None` if they do not.
    pub fn batching_of(&self, task: &Task) -> Option<Batching> {
        let lowered = task.batching.map(|offered| self.within_limits(&task.name, offered));
        lowered.filter(|batching| batching.max > 1)
    }

    fn batching(&self, task: TaskIndex) -> Option<Batching> {
        self.batching_of(self.registry.task(task))
    }

    fn within_limits(&self, task: &str, offered: Batching) -> Batching {
        self.config.batches.get(task).map_or(offered, |limits| limits.lower(offered))
    }

    /// Whether a job that begins to wait can go together with others of its task.
    pub(super) fn can_be_together(&self, job: &Job, task: TaskIndex) -> bool {
        let is_plain = !job.has_file && !job.is_streamed() && job.past.checkpoint_bytes == 0;
        let is_small = job.input_bytes <= INLINE_PAYLOAD_MAX as u64;
        let is_good = !job.is_suspect || (job.past.together_most > 1 && job.past.unstarted < UNSTARTED_MAX);
        is_plain && is_small && is_good && self.batching(task).is_some()
    }

    /// Finds out which gathered jobs can go now.
    pub(super) fn ripen(&mut self, now: Mono) {
        let can_others_come = self.phase == Phase::Running;
        for program in 0..self.programs.len() {
            // While they are looked at, nothing else is done with them.
            let mut gatherings = std::mem::take(&mut self.programs[program].gatherings);
            for (task, gathering) in gatherings.0.iter_mut() {
                gathering.ripen(now, self.batching(task).filter(|_| can_others_come));
            }
            self.programs[program].gatherings = gatherings;
        }
    }

    /// When gathered jobs can go that have to wait now.
    pub(super) fn next_ripe_batch(&self) -> Option<Mono> {
        self.programs.iter().filter_map(|program| program.gatherings.next_ripe()).min()
    }

    /// Gives a job to a worker: to be run, alone or together with others, or to lie in its tray.
    pub(super) fn give(&mut self, turn: &mut Turn<'_>, id: JobId, slot: SlotIndex, tray: Option<InTray>) {
        let most = if tray.is_some() { 1 } else { self.together_most(id, slot) };
        if most == 1 {
            self.hand_over(turn.now, id, slot, tray);
            return self.send_one(turn, slot, id);
        }
        let mut members = vec![id];
        let mut group = self.jobs.get(id).and_then(|first| Group::of(first, most));
        self.hand_over(turn.now, id, slot, tray);
        while let Some(next) = group.as_ref().and_then(|group| self.next_of(slot, group, members.len())) {
            if !self.fits_beside_others(next) || self.hold_back(next) {
                break;
            }
            if let Some((group, job)) = group.as_mut().zip(self.jobs.get(next)) {
                group.add(job);
            }
            self.hand_over(turn.now, next, slot, None);
            members.push(next);
        }
        self.send(turn, slot, &members);
        self.ripen(turn.now);
    }

    /// How many jobs may go to this slot together if this one is the first.
    fn together_most(&self, id: JobId, slot: SlotIndex) -> usize {
        let Some(job) = self.jobs.get(id).filter(|job| job.class == Class::Together) else { return 1 };
        let must_prove_itself = self.is_unproven(slot) || self.slots[slot].role == Role::Trial;
        // What a worker with several jobs says is left unread while memory is full.
        let is_full = self.ledger.is_over(self.config.max_bytes);
        let worker = self.slots[slot].worker().filter(|_| !must_prove_itself && !is_full);
        let name = self.task_name(job);
        let offered = worker.and_then(|worker| self.offers.get(&worker)?.batching_of(name));
        let most = offered.map_or(1, |offered| self.within_limits(name, offered).max as usize);
        most.min(usize::try_from(self.slots[slot].left_to_give()).unwrap_or(usize::MAX)).max(1)
    }

    /// The next job of the queue, if it may go with so many others.
    fn next_of(&self, slot: SlotIndex, group: &Group, members: usize) -> Option<JobId> {
        if members >= group.most {
            return None;
        }
        let queue = self.programs[self.slots[slot].program].queue_of(group.line, group.task)?;
        let next = queue.first_of(|kind| {
            self.looks.count();
            kind.task == group.task && self.may_start_kind(kind)
        })?;
        let job = self.jobs.get(next.job())?;
        let are_small = |client: ClientId| self.why_tiny(client, group.task)[0];
        let outputs_are_small = || {
            let of_the_task = self.registry.task(group.task).has_small_outputs();
            of_the_task && are_small(job.client) && are_small(group.client)
        };
        let is_one_client = group.is_of_one_client && job.client == group.client;
        let is_alike = job.class == Class::Together && job.run_limit == group.run_limit;
        let fits = is_alike && members < together_most_of(job) && (is_one_client || outputs_are_small());
        fits.then(|| next.job())
    }

    /// The worker of this slot has the job from now on: it is told by the action that follows.
    fn hand_over(&mut self, now: Mono, id: JobId, slot: SlotIndex, tray: Option<InTray>) {
        self.dequeue(id);
        // What was taken for long was not kept waiting as short work.
        let waited_as = self.jobs.get(id).map_or(Class::Long, |job| job.class);
        self.note_class(id);
        self.note_lending(now, id, slot);
        self.note_short_service(now, id, waited_as == Class::Short);
        self.note_expected_run(id, self.slots[slot].program);
        self.charge_expected(id, Some(slot), waited_as);
        self.expect_output(id);
        let patience = now + self.config.start_timeout;
        let place = self.slot_mut(slot);
        let worker = match &mut place.state {
            SlotState::Idle { worker } => {
                let worker = *worker;
                place.state = SlotState::Busy { worker, load: Load::of(id), start_by: patience };
                worker.id
            }
            SlotState::Busy { worker, load, .. } => {
                load.waiting.push_back(id);
                load.put_into_tray(tray);
                worker.id
            }
            _ => unreachable!("only ready slots are listed as open"),
        };
        let promise = self.promise_to(slot, id).unwrap_or_default();
        if let Some(job) = self.jobs.get_mut(id) {
            job.state = JobState::Assigned { worker, given_at: now };
            job.promise = promise;
            if job.past.is_there() {
                job.past.was_together = false;
            }
            if job.past.unstarted >= UNSTARTED_MAX {
                self.programs[self.slots[slot].program].probation.test(id);
            }
        }
    }

    /// Tells the worker of this slot of jobs that were handed over together.
    fn send(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, members: &[JobId]) {
        let attempt = |id: &JobId| Some((*id, self.jobs.get(*id)?.attempts + 1));
        let given: Vec<(JobId, u32)> = members.iter().filter_map(attempt).collect();
        let Some(worker) = self.slots[slot].worker() else { return };
        if given.len() > 1 {
            turn.push(Action::Batch { worker, jobs: given.len() as u32 });
            self.tally.batch(given.len() as u64);
        }
        given.iter().for_each(|(job, _)| self.send_one(turn, slot, *job));
        if let Some(load) = self.slot_mut(slot).load_mut().filter(|_| given.len() > 1) {
            load.batch = given;
        }
    }

    /// Tells the worker of this slot of a job that was handed over.
    fn send_one(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, id: JobId) {
        let place = &self.slots[slot];
        let (Some(worker), Some(job)) = (place.worker(), self.jobs.get(id)) else { return };
        let (attempt, resume) = (job.attempts + 1, job.past.checkpoint_bytes > 0);
        if place.load().is_some_and(|load| load.in_tray(id).is_some()) {
            self.tally.prefetch();
            turn.push(Action::Prefetch { worker, job: id, attempt });
        } else {
            turn.push(Action::Run { worker, job: id, attempt, resume });
        }
    }
}

/// Jobs that are about to go together.
struct Group {
    task: TaskIndex,
    line: Line,
    /// The limit of one run.
    run_limit: MaybeNanos,
    /// Of the first of them.
    client: ClientId,
    is_of_one_client: bool,
    /// Most of them.
    most: usize,
}

impl Group {
    fn of(first: &Job, most: usize) -> Option<Group> {
        let most = most.min(together_most_of(first));
        let (line, run_limit, client) = (first.line(), first.run_limit, first.client);
        Some(Group { task: first.task?, line, run_limit, client, is_of_one_client: true, most })
    }

    fn add(&mut self, job: &Job) {
        self.most = self.most.min(together_most_of(job));
        self.is_of_one_client &= job.client == self.client;
    }
}

/// Until when a job with a deadline waits for others: for half of the time that it has, without the `usual` time of its run.
pub(super) fn patient_until(job: &Job, usual: Option<Duration>) -> Option<Mono> {
    let (since, deadline) = (job.waits_since(), job.deadline.moment()?);
    let usual = usual.unwrap_or_default();
    Some(since + (deadline - since).saturating_sub(usual) / 2)
}

/// As one of how many jobs this one may run together.
fn together_most_of(job: &Job) -> usize {
    if job.is_suspect { job.past.together_most as usize } else { usize::MAX }
}

impl Load {
    /// The next job of a batch that has begun, with the number of its attempt.
    pub(super) fn next_of_batch(&self) -> Option<(JobId, u32)> {
        let next = self.waiting.front()?;
        self.batch.iter().find(|(job, _)| job == next).copied()
    }
}

/// Who leaves a batch that runs, and what becomes of one whose worker has ended.
impl Core {
    /// How many jobs a worker was given together; 0 if they were not.
    pub fn batch_of(&self, worker: WorkerId) -> u32 {
        let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
        load.map_or(0, |load| load.batch.len() as u32)
    }

    /// The jobs of this slot that were given together have begun. Those that nobody wants any more have the time of the others, and
    /// no more than the grace.
    pub(super) fn agree_on_time(&mut self, now: Mono, slot: SlotIndex) {
        let Some(load) = self.slots[slot].load() else { return };
        let mut begun = load.running.iter().chain(&load.together);
        let wanted = begun.find(|running| self.jobs.get(running.job).is_some());
        let Some(finish_by) = wanted.map(|running| running.finish_by) else { return };
        let return_by = self.holds_unwanted(load).then(|| now + self.grace_of(now, load));
        if let Some(load) = self.slot_mut(slot).load_mut() {
            let begun = load.running.iter_mut().chain(&mut load.together);
            begun.for_each(|running| running.finish_by = finish_by);
            load.return_by = return_by;
        }
    }

    /// A job that runs together with others is not wanted any more. The grace of an earlier one is not prolonged by that:
    /// otherwise one client after another could hold up the others.
    pub(super) fn grant_grace(&mut self, now: Mono, slot: SlotIndex) {
        let Some(return_by) = self.slots[slot].load().map(|load| now + self.grace_of(now, load)) else {
            return;
        };
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.return_by.get_or_insert(return_by);
        }
    }

    /// How long the worker with these jobs may still take to answer one that nobody wants any more. It may be about to answer all of
    /// them: so it is no less than they have run already, and than they usually take twice.
    fn grace_of(&self, now: Mono, load: &Load) -> Duration {
        let ran = load.running.map_or(Duration::ZERO, |running| running.ran(now));
        let jobs = load.jobs().filter_map(|job| self.jobs.get(job));
        let usual: Duration = jobs.filter_map(|job| job.expected_run.duration()).sum();
        self.config.cancel_grace.max(ran).max((usual * 2).saturating_sub(ran))
    }

    /// The worker of this slot has answered a job. If no unwanted job is left in the batch, the grace ends, and the others keep their
    /// time limit.
    pub(super) fn end_grace_if_all_are_wanted(&mut self, slot: SlotIndex) {
        let load = self.slots[slot].load().filter(|load| load.return_by.is_some());
        if load.is_some_and(|load| !self.holds_unwanted(load))
            && let Some(load) = self.slot_mut(slot).load_mut()
        {
            load.return_by = None;
        }
    }

    /// Whether the worker with these jobs has some that nobody wants any more.
    fn holds_unwanted(&self, load: &Load) -> bool {
        load.jobs().any(|job| self.jobs.get(job).is_none())
    }

    /// Whether several jobs were given together here, and somebody still wants one of them.
    pub(super) fn is_batch_wanted(&self, load: &Load) -> bool {
        !load.batch.is_empty() && load.jobs().any(|job| self.jobs.get(job).is_some())
    }

    /// Whether a worker runs this job together with others that somebody wants.
    pub(super) fn others_are_wanted(&self, worker: WorkerId, id: JobId) -> bool {
        let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
        let Some(load) = load.filter(|load| !load.batch.is_empty()) else { return false };
        load.jobs().any(|other| other != id && self.jobs.get(other).is_some())
    }

    /// A job that runs together with others ends before its answer is there. The others go on.
    pub(super) fn leave_batch(&mut self, turn: &mut Turn<'_>, worker: WorkerId, id: JobId, ending: Ending) {
        self.finish(turn, id, ending);
        turn.push(Action::CancelRun { worker, job: id });
    }

    /// The worker of these jobs has ended. If they were given together, and several have no answer, they run again in halves. One
    /// that was alone, or with others that had not begun, is alone from now on.
    pub(super) fn halve(&mut self, load: &Load) {
        let was_batch = !load.batch.is_empty();
        let left: Vec<JobId> = load.jobs().filter(|job| self.jobs.get(*job).is_some()).collect();
        let half = if was_batch { left.len().div_ceil(2) as u32 } else { 0 };
        if half > 0 {
            self.tally.halve();
        }
        for id in left {
            if let Some(job) = self.jobs.get_mut(id).filter(|job| was_batch || job.past.is_there()) {
                (job.past.together_most, job.past.was_together) = (half, was_batch);
            }
        }
    }

    /// Whether a job that is lost and not blamed may run again because it ran together with others: its task may be run twice,
    /// however many attempts it was allowed.
    pub(super) fn is_lost_with_its_batch(&self, job: &Job) -> bool {
        job.past.was_together && job.ran_under == RanUnder::Idempotent && !job.has_delivered()
    }
}
