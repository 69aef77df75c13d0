//! How long jobs will wait, as far as is known now: by the runs that have ended, and by those that go on.
//!
//! What is expected of the jobs that wait is a sum for each task (`registry/backlog.rs`), which changes with everything that is
//! learned. A job that has run for longer than was expected says how long such jobs take at least. Before the first of them has
//! ended, that is all that is known.

use super::Core;
use super::ids::{JobId, Mono, ProgramIndex, TaskIndex};
use super::jobs::{GivenTo, Job, JobState};
use super::load::Load;
use super::registry::{Overdue, Task, size_of};
use super::run_times::RunTimes;
use super::small_map::SmallMap;
use crate::limits::{RETRY_AFTER_MAX, RETRY_AFTER_MIN, RETRY_AFTER_OTHERS, RUN_UNKNOWN};
use std::time::Duration;

/// How good the estimates of waiting times were.
#[derive(Clone, Debug, Default)]
pub struct WaitEstimates {
    /// By how much the estimated wait of started jobs was wrong, in either direction.
    pub error: RunTimes,
    /// How many estimates were checked.
    pub checked: u64,
}

/// What the jobs say that have run for longer than was expected of them.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    by_task: SmallMap<TaskIndex, Vec<Overdue>>,
    /// By how much all of them together exceed what `in_flight` has for them.
    beyond: Duration,
    /// How long the one has run that has run longest.
    longest: Duration,
}

impl Evidence {
    fn of(&self, task: TaskIndex) -> &[Overdue] {
        self.by_task.get(&task).map_or(&[], Vec::as_slice)
    }
}

impl Core {
    /// Changes how many jobs of a task wait, or what is known of it. The backlog of its program follows.
    pub(super) fn change_task(&mut self, task: TaskIndex, change: impl FnOnce(&mut Task)) {
        let known = self.registry.task_mut(task);
        let before = known.backlog();
        change(known);
        let backlog = &mut self.programs[known.program].backlog;
        *backlog = backlog.saturating_sub(before).saturating_add(known.backlog());
    }

    /// The run time that is assumed for a job: the expected one, or [`RUN_UNKNOWN`].
    pub(super) fn planned(&self, job: &Job) -> Duration {
        let expected = job.task.and_then(|task| self.registry.task(task).expected_run(job.input_bytes));
        expected.unwrap_or(RUN_UNKNOWN)
    }

    /// How long the job is assumed to run if all that run now ended.
    pub(super) fn planned_with(&self, job: &Job, evidence: &Evidence) -> Duration {
        let of_task =
            |task| self.registry.task(task).planned_with(size_of(job.input_bytes), evidence.of(task));
        job.task.map_or(RUN_UNKNOWN, of_task)
    }

    /// What the jobs say that this program runs now.
    pub(super) fn evidence(&self, now: Mono, program: ProgramIndex) -> Evidence {
        let mut evidence = Evidence::default();
        let loads = self.slots_of(program).filter_map(|slot| self.slots[slot].load());
        // Of jobs that run together nobody knows which one takes so long.
        let running = loads.filter(|load| load.batch.is_empty());
        let running = running.flat_map(|load| load.running.iter().map(|running| running.job));
        let here = self.jobs_here().filter(|_| self.program_here() == Some(program));
        for id in running.chain(here) {
            let Some((task, job)) = self.jobs.get(id).and_then(|job| Some((job.task?, job))) else {
                continue;
            };
            let (planned, ran) = (self.planned(job), self.ran_so_far(now, id, job));
            // How long a stream runs is up to its reader.
            if ran > planned && !job.is_streamed() {
                let overdue = Overdue { size: size_of(job.input_bytes), ran };
                evidence.by_task.get_or_add(task).push(overdue);
                evidence.beyond += ran.saturating_sub(job.expected_run.duration().unwrap_or_default() / 2);
                evidence.longest = evidence.longest.max(ran);
            }
        }
        evidence
    }

    /// How long all waiting jobs of a program are expected to run, if all that run now ended.
    pub(super) fn backlog_with(&self, program: ProgramIndex, evidence: &Evidence) -> Duration {
        let mut backlog = self.programs[program].backlog;
        for (task, overdue) in evidence.by_task.iter() {
            let task = self.registry.task(task);
            // Its jobs may have gone to another program since this one was started.
            if task.program == program {
                backlog = backlog.saturating_sub(task.backlog()).saturating_add(task.backlog_with(overdue));
            }
        }
        backlog
    }

    /// How long a job that is accepted now will wait. If jobs of its own client wait before it (`own_backlog`), each has to
    /// wait for the turns of all `clients`; but the wait is no longer than all waiting work takes.
    pub(super) fn expected_wait(
        &self,
        program: ProgramIndex,
        own_backlog: Duration,
        clients: usize,
    ) -> Duration {
        let own_turns = own_backlog.saturating_mul(u32::try_from(clients).unwrap_or(u32::MAX));
        let ahead = self.programs[program].backlog.min(own_turns);
        let under_way =
            if self.has_free_slot(program) { Duration::ZERO } else { self.programs[program].in_flight };
        ahead.saturating_add(under_way) / self.slot_count(program)
    }

    /// How long a job that comes now would wait behind all others of its program.
    fn wait_behind_all(&self, now: Mono, program: ProgramIndex) -> (Duration, Evidence) {
        if self.has_free_slot(program) {
            let wait = self.programs[program].backlog / self.slot_count(program);
            return (wait, Evidence::default());
        }
        let evidence = self.evidence(now, program);
        let under_way = self.programs[program].in_flight.saturating_add(evidence.beyond);
        let all = self.backlog_with(program, &evidence).saturating_add(under_way);
        (all / self.slot_count(program), evidence)
    }

    /// Whether a slot could take another job at once.
    fn has_free_slot(&self, program: ProgramIndex) -> bool {
        self.programs[program].open.iter().any(|(load, _)| *load == 0)
    }

    fn slot_count(&self, program: ProgramIndex) -> u32 {
        u32::try_from(self.places_of(program).max(1)).unwrap_or(u32::MAX)
    }

    /// How long a job that comes now would wait behind all others.
    pub fn longest_wait(&self, now: Mono) -> Duration {
        let waits = (0..self.programs.len()).map(|program| self.wait_behind_all(now, program).0);
        waits.max().unwrap_or_default()
    }

    /// When it may be worth asking again, for a client that is refused for lack of room.
    pub(super) fn retry_after(&self, now: Mono, program: Option<ProgramIndex>) -> Duration {
        // Room is there when a tenth of the queue is done, or one job of a short queue.
        let (waiting, _) = self.waiting_and_running();
        let steps = u32::try_from(waiting.clamp(1, 10)).unwrap_or(10);
        let of_one = |program| {
            let (wait, evidence) = self.wait_behind_all(now, program);
            // A job that has taken longer than expected is as likely as not to take as long again. So whoever asks again and again
            // is told ever longer times.
            (wait / steps).max(evidence.longest / self.slot_count(program))
        };
        let of_all = || (0..self.programs.len()).map(of_one).max().unwrap_or_default();
        program.map_or_else(of_all, of_one).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }

    /// The same for a client that is refused because too many jobs wait.
    pub(super) fn retry_for_a_place(&self, now: Mono, program: Option<ProgramIndex>) -> Duration {
        let (waiting, _) = self.waiting_and_running();
        match waiting == self.promises.held_count() + self.pauses.waiting_count() {
            true => RETRY_AFTER_OTHERS,
            false => self.retry_after(now, program),
        }
    }

    /// Estimates how long the job will wait, so that the estimate can be checked later. No estimate if nothing like
    /// it ever ran.
    pub(super) fn estimate_wait(&mut self, id: JobId, task: Option<TaskIndex>) {
        let Some((task, job)) = task.zip(self.jobs.get(id)) else { return };
        let task = self.registry.task(task);
        let Some(run) = task.expected_run(job.input_bytes) else { return };
        let own = self.clients.get(job.client).map_or(0, |account| account.waiting);
        let own = run.saturating_mul(u32::try_from(own).unwrap_or(u32::MAX));
        let wait = self.expected_wait(task.program, own, self.clients.waiting_count().max(1));
        if let Some(job) = self.jobs.get_mut(id) {
            job.expected_wait = wait.into();
        }
    }

    /// The job has been started: the estimate of its wait can be checked.
    pub(super) fn check_estimate(&mut self, now: Mono, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let Some(foretold) = std::mem::take(&mut job.expected_wait).duration() else { return };
        let waited = now - job.accepted_at;
        self.wait_estimates.error.add(foretold.abs_diff(waited));
        self.wait_estimates.checked += 1;
    }

    /// The job is about to be given to this program. Stores the run time that is assumed for it, and adds half of that to what is in
    /// flight.
    pub(super) fn note_expected_run(&mut self, id: JobId, program: ProgramIndex) {
        let Some(planned) = self.jobs.get(id).map(|job| self.planned(job)) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.expected_run = planned.into();
        job.given_to = GivenTo::new(program, false);
        self.programs[program].in_flight += planned / 2;
    }

    /// No worker has the job any more, if one had it: what it is expected to run is not in flight.
    pub(super) fn leave_worker(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.state.is_dispatched()) else { return };
        let (program, planned) = (job.given_to.program(), job.expected_run.duration());
        if let (Some(program), Some(planned)) = (self.programs.get_mut(program), planned) {
            program.in_flight = program.in_flight.saturating_sub(planned / 2);
        }
    }

    /// Checks that the backlogs are those of the jobs that wait.
    pub(super) fn check_estimates(&self) -> Result<(), String> {
        let mut backlogs = vec![Duration::ZERO; self.programs.len()];
        for (_, job) in self.jobs.iter().filter(|(_, job)| job.state == JobState::Queued) {
            if let Some(task) = job.task {
                backlogs[self.program_of(task)] += self.planned(job);
            }
        }
        let wrong =
            self.programs.iter().zip(&backlogs).find(|(program, backlog)| program.backlog != **backlog);
        if let Some((program, backlog)) = wrong {
            return Err(format!("a backlog of {:?}, and what waits takes {backlog:?}", program.backlog));
        }
        self.check_in_flight()
    }

    /// Checks that each program has in flight what its workers have.
    fn check_in_flight(&self) -> Result<(), String> {
        let planned = |id: JobId| {
            let job = self.jobs.get(id).filter(|job| job.state.is_dispatched())?;
            job.expected_run.duration()
        };
        let mut in_flight = vec![Duration::ZERO; self.programs.len()];
        for slot in &self.slots {
            let jobs = slot.load().into_iter().flat_map(Load::jobs);
            in_flight[slot.program] += jobs.filter_map(planned).map(|planned| planned / 2).sum::<Duration>();
        }
        if let Some(program) = self.program_here() {
            in_flight[program] +=
                self.jobs_here().filter_map(planned).map(|planned| planned / 2).sum::<Duration>();
        }
        match self.programs.iter().zip(&in_flight).find(|(program, there)| program.in_flight != **there) {
            Some((program, there)) => {
                Err(format!("{:?} in flight, and what workers have takes {there:?}", program.in_flight))
            }
            None => Ok(()),
        }
    }
}
