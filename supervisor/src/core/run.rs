//! A worker says how its job fares, or its time is up.

use super::action::{Actions, Kill};
use super::ids::{JobId, Mono, SlotIndex, WorkerId};
use super::jobs::JobState;
use super::outcome::{self, human};
use super::sabotage::Bug;
use super::slots::{Cause, Load, Running, SlotState};
use super::{Core, Ending};
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::nouns::{FailureKind, OutcomeCode, cut};
use std::time::Duration;

impl Core {
    pub(super) fn on_started(
        &mut self,
        now: Mono,
        worker: WorkerId,
        id: JobId,
        attempt: u32,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.trusted_slot_of(worker) else { return };
        let is_next = self.slots[slot].load().and_then(Load::next_to_start) == Some(id)
            || self.sabotage.is(Bug::StartedTwice);
        let expected = self.jobs.get(id).map(|job| job.attempts + 1);
        if !is_next || expected.is_some_and(|expected| expected != attempt) {
            return self.on_violation(
                now,
                worker,
                format!("started {id}, attempt {attempt}, out of turn"),
                actions,
            );
        }
        // Nobody waits for a job that has been withdrawn: it may run on for a moment, and not hold the others up.
        let mut run_timeout = self.config.kill_grace;
        if let Some(job) = self.jobs.get_mut(id) {
            job.attempts += 1;
            job.state = JobState::Running { worker, started_at: now };
            run_timeout = job.run_timeout;
            if self.sabotage.is(Bug::RunHasNoLimit) {
                run_timeout = Duration::MAX;
            }
        }
        if let Some(load) = self.slots[slot].load_mut() {
            load.running = Some(Running { attempt, started_at: now, finish_by: now + run_timeout });
        }
    }

    /// A task returned (`failure` is none) or failed by itself; the worker is well.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one message")]
    pub(super) fn on_ran(
        &mut self,
        now: Mono,
        worker: WorkerId,
        id: JobId,
        attempt: u32,
        run: Duration,
        failure: Option<(FailureKind, String)>,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.trusted_slot_of(worker) else { return };
        let running =
            self.slots[slot].load().and_then(|load| Some((load.running_job()?, load.running?.attempt)));
        if running != Some((id, attempt)) {
            return self.on_violation(
                now,
                worker,
                format!("ended {id}, attempt {attempt}, out of turn"),
                actions,
            );
        }
        self.learn(slot, id, run);
        let (outcome, error) = match failure {
            None => (OutcomeCode::Ok, None),
            Some((kind, message)) => {
                let code = match kind {
                    FailureKind::AppError => OutcomeCode::AppError,
                    FailureKind::Panic => OutcomeCode::Panic,
                };
                (code, Some(outcome::error(code, cut(&message, MESSAGE_MAX))))
            }
        };
        self.finish(now, id, Ending { outcome, error, run: Some(run), place: None }, actions);
        self.take_next(now, slot);
    }

    fn learn(&mut self, slot: SlotIndex, id: JobId, run: Duration) {
        let Some(task) = self.jobs.get(id).and_then(|job| job.task) else { return };
        self.registry.task_mut(task).ran(run);
        let program = self.program_of(task);
        if let Some(worker) = self.slots[slot].ready_worker()
            && !self.sabotage.is(Bug::FailuresNotForgotten)
        {
            self.programs[program].restarts.proved_good(worker.ready_at);
        }
    }

    /// The job that ran is over: the next one of the worker's, if it has one, has to be started.
    fn take_next(&mut self, now: Mono, slot: SlotIndex) {
        let start_by = now + self.config.start_timeout;
        let home = self.slots[slot].worker().and_then(|worker| self.home_of(worker)).unwrap_or(slot);
        self.slots[home].jobs_done += 1;
        let place = &mut self.slots[slot];
        match &mut place.state {
            SlotState::Busy { worker, load, start_by: patience } => {
                worker.jobs_done += 1;
                load.take_running();
                if !self.sabotage.is(Bug::PatienceNotRenewed) {
                    *patience = start_by;
                }
                if load.assigned.is_empty() {
                    place.state = SlotState::Idle { worker: *worker };
                }
            }
            SlotState::Leaving { load, .. } => drop(load.take_running()),
            SlotState::Vacant | SlotState::Starting { .. } | SlotState::Idle { .. } => {}
        }
        if self.sabotage.is(Bug::SlotNotListed) {
            return;
        }
        self.list(slot);
    }

    /// A worker threw away a job that it had not started. It may do so only with one that was withdrawn.
    pub(super) fn on_skipped(&mut self, now: Mono, worker: WorkerId, id: JobId, actions: &mut Actions) {
        let Some(slot) = self.trusted_slot_of(worker) else { return };
        let is_next = self.slots[slot].load().and_then(Load::next_to_start) == Some(id);
        if !is_next || self.jobs.get(id).is_some() {
            return self.on_violation(now, worker, format!("skipped {id} out of turn"), actions);
        }
        if let Some(load) = self.slots[slot].load_mut()
            && !self.sabotage.is(Bug::SkippedStillExpected)
        {
            load.assigned.pop_front();
        }
        if let SlotState::Busy { worker, load, start_by } = &mut self.slots[slot].state {
            *start_by = now + self.config.start_timeout;
            if load.assigned.is_empty() {
                self.slots[slot].state = SlotState::Idle { worker: *worker };
            }
        }
        self.list(slot);
    }

    pub(super) fn on_tick(&mut self, now: Mono, actions: &mut Actions) {
        if let super::Phase::Draining { end_at } = self.phase
            && end_at <= now
        {
            self.on_stop(now, actions);
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].deadline().is_some_and(|deadline| deadline <= now) {
                self.on_slot_deadline(now, slot, actions);
            }
        }
    }

    fn on_slot_deadline(&mut self, now: Mono, slot: SlotIndex, actions: &mut Actions) {
        match &mut self.slots[slot].state {
            SlotState::Vacant | SlotState::Idle { .. } => {}
            SlotState::Starting { .. } => self.leave(now, slot, Cause::Silent, Some(Kill::Kill), actions),
            SlotState::Busy { load, .. } => match load.running_job() {
                Some(job) => self.on_run_timeout(now, slot, job, actions),
                None => self.leave(now, slot, Cause::Stuck, Some(Kill::Kill), actions),
            },
            SlotState::Leaving { place, cause, kill_at, .. } => {
                *kill_at = None;
                if *cause == Cause::Closed {
                    *cause = Cause::ClosedAndLivedOn;
                }
                if !self.sabotage.is(Bug::NeverKilled) {
                    actions.push(super::Action::Kill { worker: place.worker, how: Kill::Kill });
                }
            }
        }
    }

    fn on_run_timeout(&mut self, now: Mono, slot: SlotIndex, id: JobId, actions: &mut Actions) {
        match self.jobs.get(id) {
            Some(job) => {
                let message = format!("ran longer than {}", human(job.run_timeout));
                self.withdraw(now, id, Ending::of(outcome::error(OutcomeCode::Timeout, message)), actions);
            }
            None => {
                if let Some(load) = self.slots[slot].load_mut() {
                    load.take_running();
                }
                self.leave(now, slot, Cause::JobEnded, Some(Kill::Term), actions);
            }
        }
    }
}
