//! Prefetching: the next job lies ready in the tray of a busy worker, so that the worker begins it without waiting for the
//! supervisor. Trays are described in `trays.rs`.
//!
//! A job is put into a tray if it is the one that this worker would get if it were idle now, and no worker is idle for it.
//! Both this job and the one that runs are expected to be short, and nothing is known against either. So the order of all
//! jobs stays as it is without trays, but for [`PREFETCH_RUN_MAX`]:
//!
//! ```text
//!   a job in a tray is wanted back when             then
//!   a worker is idle that could do it               it goes there
//!   a job waits that is more urgent by more than    that one is prefetched, or waits for the worker
//!     PREFETCH_RUN_MAX of worker time
//!   the job before it has run longer than that      it waits in its old place
//!   its worker leaves, is stopped, closes, ...      it waits in its old place; it was never near that worker
//!   any of these, but the worker has taken it       the worker is between two jobs: it has `start_timeout` for its answer
//!   its worker has ended the job before it          it is sent: the packet came too late
//!     and has not started it
//!   it is cancelled, or its deadline passes         it has ended already
//! ```
//!
//! A smaller difference in urgency between clients does not count. What they have used changes with every run, since the expected
//! time is corrected by the real one, and jobs would go to and fro.

use super::Core;
use super::action::Action;
use super::clients::ClientId;
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, WorkerId};
use super::jobs::Job;
use super::queue::{Next, Rank};
use super::registry::{Class, Promise};
use super::settle::Company;
use super::slots::InTray;
use super::turn::Turn;
use super::waiting::{Line, Standing};
use crate::limits::PREFETCH_RUN_MAX;
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use std::time::Duration;

/// What the shell reports of trays.
impl Core {
    pub(super) fn on_tray(&mut self, worker: WorkerId, works: bool) {
        let Some(slot) = self.slot_of(worker) else { return };
        if let Some(worker) = self.slot_mut(slot).worker_mut() {
            worker.has_tray = works;
        }
    }

    /// A job was taken out of a tray before its worker saw it: the worker never had it, whatever happens to the worker.
    pub(super) fn on_taken_back(&mut self, now: Mono, worker: WorkerId, id: JobId) {
        let Some(slot) = self.slot_of(worker) else { return };
        let mut load = self.slot_mut(slot).load_mut();
        if !load.as_mut().is_some_and(|load| load.in_tray(id).is_some() && load.take_unsent(id)) {
            return;
        }
        if let Some(running) = load.and_then(|load| load.running.as_mut()) {
            running.taken_back += 1;
        }
        self.tally.take_back();
        self.expect_start(slot, now + self.config.start_timeout);
        if self.jobs.get(id).is_some() {
            self.charge(id, Duration::ZERO);
            self.try_again(id);
        }
    }

    /// The worker has taken the job out of its tray. It will start the job, or end before.
    pub(super) fn on_not_in_tray(&mut self, turn: &mut Turn<'_>, worker: WorkerId, id: JobId) {
        let Some(slot) = self.slot_of(worker) else { return };
        let Some(load) = self.slot_mut(slot).load_mut().filter(|load| load.in_tray(id).is_some()) else {
            return;
        };
        load.tray = None;
        if load.running.is_some() {
            load.is_answer_due = true;
            self.expect_start(slot, turn.now + self.config.start_timeout);
        }
        if self.jobs.get(id).is_none() {
            turn.push(Action::CancelRun { worker, job: id });
        }
    }

    /// All that workers have sent until now was reported. Who has ended a job and not started the next one has looked into
    /// the tray too early.
    pub(super) fn on_end_of_turn(&mut self, turn: &mut Turn<'_>) {
        for program in 0..self.programs.len() {
            let untaken: Vec<SlotIndex> = self.programs[program].trays.untaken.iter().copied().collect();
            untaken.into_iter().for_each(|slot| self.want_back(turn, slot));
        }
    }
}

/// Who is put into a tray.
impl Core {
    /// Whether another job may wait behind a run that begins now. What is read from it must not hold up the other one, nor
    /// who reads it.
    pub(super) fn leads_to_another(&self, job: &Job, promise: Promise) -> bool {
        let Some(task) = job.task.map(|task| self.registry.task(task)) else { return false };
        let has_small_outputs = || {
            let client = self.clients.get(job.client);
            task.has_small_outputs() && client.is_some_and(|client| client.has_small_outputs())
        };
        let is_short = || self.class_of(job) == Class::Short;
        let is_fit = !task.is_tiny() && !promise.is_stepped && !job.is_suspect && !job.is_streamed();
        is_fit && has_small_outputs() && is_short()
    }

    /// The next job that can be given to a worker: to be run at once, or else put into its tray.
    pub(super) fn next_step(
        &self,
        now: Mono,
        program: ProgramIndex,
    ) -> Option<(JobId, SlotIndex, Option<InTray>)> {
        if let Some((job, slot)) = self.next_match(now, program) {
            return Some((job, slot, None));
        }
        let (next, slot) = self.next_prefetch(now, program)?;
        let client = self.jobs.get(next.job())?.client;
        Some((next.job(), slot, Some(InTray::new(next, client))))
    }

    /// The next job that can be put into a tray, and the slot of that. Of several slots, the one whose job began first.
    fn next_prefetch(&self, now: Mono, program: ProgramIndex) -> Option<(Next, SlotIndex)> {
        let trays = &self.programs[program].trays;
        if trays.open.is_empty() {
            return None;
        }
        let heads: Vec<(Next, Line)> = self.heads_to_start(program).collect();
        if !heads.iter().any(|&(next, line)| self.fits_into_tray(next.job(), line)) {
            return None;
        }
        let since = Mono::from_nanos(now.as_nanos().saturating_sub(nanos(PREFETCH_RUN_MAX)));
        let first = |is_reserved: bool| {
            let slots = trays.open.range((is_reserved, since, 0)..=(is_reserved, now, SlotIndex::MAX));
            let mut slots = slots.take(self.slots_to_look_at(program));
            slots.find_map(|&(_, since, slot)| Some((since, self.next_for(now, slot, &heads)?, slot)))
        };
        let found = [first(false), first(true)].into_iter().flatten().min_by_key(|(since, ..)| *since);
        found.map(|(_, next, slot)| (next, slot))
    }

    /// The job that this slot would get if it were idle, if it can be put into a tray.
    fn next_for(&self, now: Mono, slot: SlotIndex, heads: &[(Next, Line)]) -> Option<Next> {
        let &(next, line) = heads.iter().find(|head| self.could_take(now, slot, **head))?;
        self.fits_into_tray(next.job(), line)
            .then_some(next)
            .filter(|next| self.fits_beside_others(next.job()))
    }

    /// Whether a job could be dispatched to this slot if it were idle.
    pub(super) fn could_take(&self, now: Mono, slot: SlotIndex, (next, line): (Next, Line)) -> bool {
        let (place, job) = (&self.slots[slot], next.job());
        let is_short = || self.jobs.get(job).is_some_and(|job| self.class_of(job) == Class::Short);
        let may_be_here =
            || !place.is_reserved || is_short() || self.may_borrow(now, place.program, slot, job);
        self.is_line_open(place.program, line) && self.promise_to(slot, job).is_some() && may_be_here()
    }

    /// Whether a waiting job can lie in a tray: it is short, one packet takes it, and nothing is known against it.
    fn fits_into_tray(&self, id: JobId, line: Line) -> bool {
        let is_fit = line.standing == Standing::Good && !line.gathers();
        let Some(job) = self.jobs.get(id).filter(|_| is_fit) else { return false };
        let is_short = || self.class_of(job) == Class::Short;
        let needs_the_socket = job.is_streamed() || job.has_file || job.past.checkpoint_bytes > 0;
        job.input_bytes <= INLINE_PAYLOAD_MAX as u64 && !needs_the_socket && is_short()
    }
}

/// Who is wanted back.
impl Core {
    /// Wants back what must not be in a tray, or has been there for too long, before anything is dispatched.
    pub(super) fn want_unfit_and_overdue_back(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        while let Some(&slot) = self.programs[program].trays.unfit.first() {
            self.want_back(turn, slot);
            self.relist();
        }
        let now = turn.now;
        let is_overdue = |since: Mono| overdue_at(since) <= now;
        while let Some(&(_, slot)) =
            self.programs[program].trays.by_start.first().filter(|(since, _)| is_overdue(*since))
        {
            self.want_back(turn, slot);
            self.relist();
        }
    }

    /// When a job has lain in a tray for too long: what its packet says of its deadline must not grow old.
    pub(super) fn next_overdue_tray(&self) -> Option<Mono> {
        let firsts = self.programs.iter().filter_map(|program| program.trays.by_start.first());
        firsts.map(|(since, _)| overdue_at(*since)).min()
    }

    /// Wants back one job that an idle worker could do, or that is in the way of a more urgent one. One at a time: until the
    /// answer comes, it is not known what else is to be done.
    pub(super) fn rearrange_trays(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        let trays = &self.programs[program].trays;
        if trays.full.is_empty() || !trays.asked.is_empty() {
            return;
        }
        let found =
            self.tray_beside_idle(turn.now, program).or_else(|| self.tray_in_the_way(turn.now, program));
        if let Some(slot) = found {
            self.want_back(turn, slot);
            self.relist();
        }
    }

    /// The most urgent job in a tray that an idle worker could do.
    fn tray_beside_idle(&self, now: Mono, program: ProgramIndex) -> Option<SlotIndex> {
        if !self.programs[program].has_idle() {
            return None;
        }
        let has_slot = |next: Next| {
            let job = next.job();
            let line = self.jobs.get(job).map(Job::line)?;
            self.slot_for(now, program, (job, line), Company::None)
        };
        let mut full = self.programs[program].trays.full.iter();
        full.find(|(next, _)| has_slot(*next).is_some()).map(|&(_, slot)| slot)
    }

    /// The least urgent job in a tray that is in the way of a waiting job.
    fn tray_in_the_way(&self, now: Mono, program: ProgramIndex) -> Option<SlotIndex> {
        let trays = &self.programs[program].trays;
        let is_before = |head: Next, next: Next| head.is_before(next, nanos(PREFETCH_RUN_MAX));
        let mut heads = self.heads_to_start(program);
        heads.find_map(|head| {
            let client = self.jobs.get(head.0.job())?.client;
            let least = |id| (ClientId(id), Rank::FIRST, 0);
            let own = trays.by_client.range(least(client.0)..least(client.0 + 1)).rev();
            let own = own.take_while(|(_, rank, _)| head.0.is_before_its_own(*rank)).map(|&(.., slot)| slot);
            let later = trays.full.iter().rev().take_while(|(next, _)| is_before(head.0, *next));
            let is_of_another = |slot: &SlotIndex| {
                let tray = self.slots[*slot].load().and_then(|load| load.tray);
                tray.is_some_and(|tray| tray.client != client)
            };
            let others = later.map(|&(_, slot)| slot).filter(is_of_another);
            let mut later = own.chain(others);
            later.find(|slot| self.could_take(now, *slot, head))
        })
    }

    /// Asks for the job in the tray of this slot, unless that has been done.
    pub(super) fn want_back(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let worker = self.slots[slot].worker();
        let load = self.slot_mut(slot).load_mut();
        let tray = load.and_then(|load| load.tray.as_mut()).filter(|tray| !tray.is_asked);
        if let (Some(worker), Some(tray)) = (worker, tray) {
            tray.is_asked = true;
            turn.push(Action::TakeBack { worker, job: tray.job });
        }
    }

    /// A job that a worker was given and has not started has ended: it is taken out of the tray, or the worker is told.
    pub(super) fn cancel_given(&mut self, turn: &mut Turn<'_>, worker: WorkerId, id: JobId) {
        let slot = self.slot_of(worker);
        let in_tray =
            slot.filter(|&slot| self.slots[slot].load().is_some_and(|load| load.in_tray(id).is_some()));
        match in_tray {
            Some(slot) => self.want_back(turn, slot),
            None => turn.push(Action::CancelRun { worker, job: id }),
        }
    }
}

impl super::Program {
    /// Whether some slot has a worker without jobs that can take one.
    fn has_idle(&self) -> bool {
        let open = [&self.open, &self.open_reserved, &self.open_unproven];
        open.iter().any(|open| open.first().is_some_and(|(load, _)| *load == 0))
    }
}

/// When the run that began at `since` has taken too long for the job behind it.
fn overdue_at(since: Mono) -> Mono {
    since + PREFETCH_RUN_MAX + Duration::from_nanos(1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
