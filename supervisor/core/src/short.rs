//! Which jobs are short, and which slots are kept for them.
//!
//! A job is as short as is known when it could be given to a worker, and not as it was known when it was accepted: a backlog of jobs
//! that turn out to be long must not keep the slots of others. Two things follow:
//!
//! - Of each queue for long jobs, the first one that is short by now may start as well. A job that waits in a queue for
//!   short ones and is long by now goes to the other queue when it is first. It never comes back, so each moves once.
//! - A job that has run for longer than [`LONG_RUN`] counts among the runs of its kind before it is over. If it is in a reserved slot,
//!   that slot is lost for now; the first other one that is idle is reserved in its stead.

use super::Core;
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex};
use super::jobs::Job;
use super::queue::Next;
use super::registry::{Class, size_of};
use super::slots::Role;
use super::waiting::Line;
use crate::limits::{LONG_RUN, SHORT_MEMORY, SHORT_MEMORY_MAX};
use std::time::Duration;

impl Core {
    /// The class of a job, as is known now.
    pub(super) fn class_of(&self, job: &Job) -> Class {
        match job.task {
            _ if job.class == Class::Together => Class::Together,
            Some(task) if !job.is_streamed() && self.is_short(task, size_of(job.input_bytes)) => Class::Short,
            _ => Class::Long,
        }
    }

    /// The job is about to be given to a worker: its class is what is known now.
    pub(super) fn note_class(&mut self, id: JobId) {
        let Some(class) = self.jobs.get(id).map(|job| self.class_of(job)) else { return };
        self.jobs.get_mut(id).into_iter().for_each(|job| job.class = class);
    }

    /// Whether jobs of this task and size class are short, as is known now.
    pub(super) fn is_short(&self, task: TaskIndex, size: u32) -> bool {
        let task_now = self.registry.task(task);
        let overrun = &self.programs[task_now.program].overrun;
        let longer = overrun.iter().filter(|kind| **kind == (task, size)).count();
        task_now.is_short(size, u32::try_from(longer).unwrap_or(u32::MAX / 2))
    }

    /// Finds out which jobs have run for too long to be short, if jobs wait for which that matters.
    pub(super) fn note_overrun(&mut self, now: Mono, program: ProgramIndex) {
        let mut overrun = std::mem::take(&mut self.programs[program].overrun);
        overrun.clear();
        if self.programs[program].waiting() > 0 {
            let long = self.slots_of(program).filter_map(|slot| self.overrun_in(now, slot));
            let kind = |id| self.jobs.get(id).and_then(|job| Some((job.task?, size_of(job.input_bytes))));
            overrun.extend(long.filter_map(kind));
        }
        self.programs[program].overrun = overrun;
    }

    /// The job that runs in this slot, if it has run for too long to be short. Neither jobs that run together nor streams say how long
    /// one of their kind takes.
    fn overrun_in(&self, now: Mono, slot: SlotIndex) -> Option<JobId> {
        let load = self.slots[slot].load().filter(|load| load.batch.is_empty())?;
        let running = load.running.as_ref().filter(|running| running.ran(now) > LONG_RUN)?;
        let is_stream = self.jobs.get(running.job).is_some_and(Job::is_streamed);
        (!is_stream).then_some(running.job)
    }

    /// Reserves idle slots in the stead of those in which a long job runs.
    pub(super) fn exchange_reserved(&mut self, now: Mono, program: ProgramIndex) {
        while let Some((lost, idle)) = self.next_exchange(now, program) {
            self.slot_mut(lost).is_reserved = false;
            self.slot_mut(idle).is_reserved = true;
            self.relist();
        }
    }

    /// A reserved slot in which a long job runs that lets no others in, and an idle slot that is not reserved.
    pub(super) fn next_exchange(&self, now: Mono, program: ProgramIndex) -> Option<(SlotIndex, SlotIndex)> {
        let is_work = |slot: &SlotIndex| self.slots[*slot].role == Role::Work;
        let idle = self.programs[program].open.iter().take_while(|(load, _)| *load == 0);
        let idle = idle.map(|(_, slot)| *slot).find(is_work)?;
        let is_lost = |slot: &SlotIndex| {
            let place = &self.slots[*slot];
            let lets_in = || self.programs[program].between_steps.contains(slot);
            place.is_reserved && is_work(slot) && self.overrun_in(now, *slot).is_some() && !lets_in()
        };
        Some((self.slots_of(program).find(is_lost)?, idle))
    }

    /// Jobs that are first in a queue for short ones, and are long by now, go to the queue for long ones; at most so many. Returns
    /// how many.
    pub(super) fn requeue_long(&mut self, program: ProgramIndex, most: usize) -> usize {
        let mut moved = 0;
        while let Some(id) = self.first_long_among_short(program) {
            if moved == most {
                self.has_more_to_move = true;
                break;
            }
            self.dequeue(id);
            self.enqueue(id);
            moved += 1;
        }
        moved
    }

    fn first_long_among_short(&self, program: ProgramIndex) -> Option<JobId> {
        let mut short = self.programs[program].queues_of_short().filter(|queue| !queue.is_empty());
        short.find_map(|queue| queue.first_of(|kind| !self.is_short(kind.task, kind.size))).map(Next::job)
    }
}

/// The slots that are kept for short jobs, and lent.
impl Core {
    pub(super) fn may_borrow(&self, now: Mono, program: ProgramIndex, slot: SlotIndex, job: JobId) -> bool {
        let is_suspect = self.jobs.get(job).is_some_and(|job| job.is_suspect);
        let promise = self.promise_to(slot, job).filter(|_| !is_suspect);
        promise.is_some_and(|promise| promise.lets_others_in()) || self.is_lent(now, program)
    }

    /// Whether reserved slots are lent to long jobs now.
    pub(super) fn is_lent(&self, now: Mono, program: ProgramIndex) -> bool {
        self.lent_from(program).is_none_or(|from| from <= now)
    }

    /// When reserved slots are lent to long jobs, if no short work comes before.
    fn lent_from(&self, program: ProgramIndex) -> Option<Mono> {
        let program = &self.programs[program];
        program
            .short_seen_at
            .map(|seen_at| seen_at + program.short_waited.clamp(SHORT_MEMORY, SHORT_MEMORY_MAX))
    }

    /// Short work has come: some slots stay reserved for more of it.
    pub(super) fn note_short_work(&mut self, now: Mono, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        if let (Class::Short, Some(task)) = (job.class, job.task) {
            let program = self.program_of(task);
            self.programs[program].short_seen_at = Some(now);
        }
    }

    /// A long job takes a reserved slot, so no short work has come for as long as slots were kept for it. How long
    /// short work once had to wait no longer counts.
    pub(super) fn note_lending(&mut self, now: Mono, id: JobId, slot: SlotIndex) {
        let is_long = self.jobs.get(id).is_some_and(|job| job.class != Class::Short);
        let program = self.slots[slot].program;
        if is_long && self.slots[slot].is_reserved && self.lent_from(program).is_some_and(|from| from <= now)
        {
            self.programs[program].short_waited = Duration::ZERO;
        }
    }

    /// Short work is dispatched, or has ended. If it had to wait for a slot, slots are reserved for the same length
    /// of time from now on: otherwise short work that comes every other second would wait for a long job each time.
    /// So the reservation costs others no more than the short work had to wait.
    pub(super) fn note_short_service(&mut self, now: Mono, id: JobId, waited_as_short: bool) {
        let Some(job) = self.jobs.get(id).filter(|job| self.class_of(job) == Class::Short) else { return };
        let Some(program) = job.task.map(|task| self.registry.task(task).program) else { return };
        let program = &mut self.programs[program];
        let waited_since = program.short_served_at.map_or(job.waits_since(), |at| at.max(job.waits_since()));
        if waited_as_short {
            program.short_waited = program.short_waited.max(now - waited_since);
        }
        (program.short_seen_at, program.short_served_at) = (Some(now), Some(now));
    }

    /// When a waiting long job could borrow a reserved slot.
    pub(super) fn next_lending(&self) -> Option<Mono> {
        let waits_for_it = |program: &ProgramIndex| {
            let kept = self.programs[*program].open_reserved.iter().take_while(|(load, _)| *load == 0);
            let is_kept_from = |job| kept.clone().any(|(_, slot)| self.promise_to(*slot, job).is_some());
            let is_its_turn = |line: Line| self.is_line_open(*program, line);
            if self.programs[*program].open_reserved.is_empty() {
                return false;
            }
            let is_long = |id: JobId| self.jobs.get(id).is_some_and(|job| self.class_of(job) != Class::Short);
            let mut heads = self.heads_to_start(*program).filter(|(next, _)| is_long(next.job()));
            heads.any(|(next, line)| is_its_turn(line) && is_kept_from(next.job()))
        };
        (0..self.programs.len()).filter(waits_for_it).filter_map(|program| self.lent_from(program)).min()
    }
}

impl Core {
    /// Checks that as many slots are reserved as are to be, and that no long job hides short ones.
    pub(super) fn check_short(&self) -> Result<(), String> {
        for program in self.programs_of_workers() {
            let work = self.slots_of(program).filter(|&slot| self.slots[slot].role == Role::Work);
            let (all, reserved) = work.fold((0, 0), |(all, reserved), slot| {
                (all + 1, reserved + usize::from(self.slots[slot].is_reserved))
            });
            if reserved != self.config.reserved_of(all) {
                return Err(format!("{reserved} of {all} slots are reserved"));
            }
            let hides = self.first_long_among_short(program);
            if let Some(id) = hides.filter(|_| !self.has_more_to_move) {
                return Err(format!("{id} is long, and first in a queue of short jobs"));
            }
        }
        Ok(())
    }
}
