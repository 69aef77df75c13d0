//! Jobs begin and cease to wait, clients are charged, and it is said how long a wait will be.

use super::Core;
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex};
use super::jobs::{Expected, Job, JobState};
use super::queue::FairQueue;
use super::registry::Class;
use super::run_times::RunTimes;
use super::sabotage::Bug;
use super::slots::Load;
use crate::limits::RUN_UNKNOWN;
use std::time::Duration;

/// How well waits were foretold.
#[derive(Clone, Debug, Default)]
pub struct WaitEstimates {
    /// By how much the foretold wait of jobs that were started was wrong, in either direction.
    pub error: RunTimes,
    /// Jobs for which a wait was foretold and is known.
    pub checked: u64,
}

impl Core {
    /// Puts a job into the queue where its task's program finds it; if nobody offers its task, to where that is
    /// noticed.
    pub(super) fn enqueue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let Some(task) = self.registry.find(&job.task_name) else { return self.park(id) };
        let expected = self.registry.task(task).expected(job.input_bytes);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.task = Some(task);
        job.state = JobState::Queued;
        job.expected = expected;
        let (client, rank) = (job.client, job.rank(id));
        self.jobs.unpark(id);
        self.clients.waits(client, planned(expected));
        let used = self.clients.used(client);
        let program = &mut self.programs[self.registry.task(task).program];
        program.backlog += planned(expected);
        program.queue_mut(expected.class).insert(client, used, rank);
    }

    fn park(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.task = None;
        job.state = JobState::Parked;
        self.jobs.park(id);
        self.places_changed = true;
    }

    /// Takes a job out of its queue.
    pub(super) fn dequeue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (JobState::Queued, Some(task)) = (job.state, job.task) else { return };
        let (client, rank, expected) = (job.client, job.rank(id), job.expected);
        let program = &mut self.programs[self.registry.task(task).program];
        if program.queue_mut(expected.class).remove(client, rank) {
            program.backlog = program.backlog.saturating_sub(planned(expected));
            self.clients.waits_no_more(client, planned(expected));
        }
    }

    /// A job is given out: its client pays what it is expected to take.
    pub(super) fn charge_expected(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        self.clients.served(job.client);
        self.charge(id, planned(job.expected));
    }

    /// It is known what a job took: its client pays, in all, just that.
    pub(super) fn charge(&mut self, id: JobId, ran: Duration) {
        let Some(job) = self.jobs.get_mut(id).filter(|_| !self.sabotage.is(Bug::ChargeForgotten)) else {
            return;
        };
        let nanos = i64::try_from(ran.as_nanos()).unwrap_or(i64::MAX);
        let (client, more) = (job.client, nanos.saturating_sub(job.charged));
        job.charged = nanos;
        self.clients.charge(client, more);
        let used = self.clients.used(client);
        for queue in self.programs.iter_mut().flat_map(super::Program::queues_mut) {
            queue.set_used(client, used);
        }
    }

    /// What a job has run since it was started last.
    pub(super) fn ran_so_far(&self, now: Mono, id: JobId, job: &Job) -> Duration {
        match job.state {
            JobState::Parked | JobState::Queued | JobState::Assigned { .. } => Duration::ZERO,
            JobState::Running { worker, started_at } => {
                let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
                let started = load.and_then(|load| {
                    load.running.iter().chain(&load.suspended).find(|running| running.job == id)
                });
                started.map_or(now - started_at, |running| running.ran(now))
            }
        }
    }

    /// How long a job that comes now will wait, if there is anything to go by: until its client has had its turns if
    /// it waits behind others of its own, but no longer than until all that waits has been done.
    pub(super) fn expected_wait(
        &self,
        program: ProgramIndex,
        own_backlog: Duration,
        clients: usize,
    ) -> Duration {
        let slots = self.slots_of(program).filter(|&slot| self.slots[slot].is_ready()).count().max(1);
        let own_turns = own_backlog.saturating_mul(u32::try_from(clients).unwrap_or(u32::MAX));
        let ahead = self.programs[program].backlog.min(own_turns);
        (ahead + self.under_way(program)) / u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// What is left of the jobs that run, if there is no slot that could take another one at once.
    fn under_way(&self, program: ProgramIndex) -> Duration {
        if self.programs[program].open.iter().any(|(load, _)| *load == 0) {
            return Duration::ZERO;
        }
        let loads = self.slots_of(program).filter_map(|slot| self.slots[slot].load());
        let jobs = loads.flat_map(Load::jobs).filter_map(|id| self.jobs.get(id));
        // On average half of a run is over when somebody looks.
        jobs.map(|job| planned(job.expected) / 2).sum()
    }

    /// How long a job waits that comes now, behind all others.
    pub fn longest_wait(&self) -> Duration {
        (0..self.programs.len())
            .map(|program| self.expected_wait(program, Duration::MAX, 1))
            .max()
            .unwrap_or_default()
    }

    /// When it may be worth asking again, for somebody who is refused for want of room.
    pub(super) fn retry_after(&self, program: Option<ProgramIndex>) -> Duration {
        let wait = |program| self.expected_wait(program, Duration::MAX, 1);
        let longest = program.map_or_else(|| self.longest_wait(), wait);
        // A tenth of the queue makes room enough, and asking more often than this is of no use.
        (longest / 10).max(Duration::from_millis(100))
    }

    /// The job has been started: what was said of its wait can be checked.
    pub(super) fn check_estimate(&mut self, now: Mono, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let Some(foretold) = job.expected_wait.take() else { return };
        let waited = now - job.accepted_at;
        self.wait_estimates.error.add(foretold.abs_diff(waited));
        self.wait_estimates.checked += 1;
    }

    pub(super) fn slots_of(&self, program: ProgramIndex) -> impl Iterator<Item = SlotIndex> + '_ {
        (0..self.slots.len()).filter(move |&slot| self.slots[slot].program == program && !self.is_spare(slot))
    }
}

impl super::Program {
    pub(super) fn queue_mut(&mut self, class: Class) -> &mut FairQueue {
        match class {
            Class::Short => &mut self.short,
            Class::Long => &mut self.long,
        }
    }

    pub(super) fn queues_mut(&mut self) -> [&mut FairQueue; 2] {
        [&mut self.short, &mut self.long]
    }

    /// Jobs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// What a job is taken to cost as long as nobody knows better.
pub(super) fn planned(expected: Expected) -> Duration {
    expected.run.unwrap_or(RUN_UNKNOWN)
}
