//! Jobs come in, or are refused; and are cancelled.

use super::action::{Action, Actions, Kill};
use super::event::JobRequest;
use super::ids::{JobId, Mono, TaskIndex, Ticket};
use super::jobs::{Job, JobState};
use super::outcome::{self, human};
use super::sabotage::Bug;
use super::slots::Cause;
use super::{Core, Ending, Phase};
use offload_protocol::limits::TASK_NAME_MAX;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, cut, is_task_name};
use std::sync::Arc;

/// How many names of tasks are told to somebody who asked for one that is not there.
const NAMES_TOLD: usize = 16;

impl Core {
    pub(super) fn on_submit(
        &mut self,
        now: Mono,
        ticket: Ticket,
        request: JobRequest,
        actions: &mut Actions,
    ) {
        match self.admit(&request) {
            Ok(task) => {
                let job = self.accept(now, task, request);
                actions.push(Action::Accepted { ticket, job });
            }
            Err(error) => {
                self.tally.reject();
                actions.push(Action::Rejected { ticket, error });
            }
        }
    }

    /// The task, if it is known already, or why the job is refused.
    fn admit(&self, request: &JobRequest) -> Result<Option<TaskIndex>, ErrorDetail> {
        if self.phase != Phase::Running && !self.sabotage.is(Bug::DrainTakesJobs) {
            return Err(outcome::error(
                OutcomeCode::Unavailable,
                "the supervisor is ending and takes no more jobs",
            ));
        }
        let task = self.route(request)?;
        self.check_size(request)?;
        if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(outcome::error(OutcomeCode::BadRequest, "a timeout of 0 leaves no time to run"));
        }
        Ok(task)
    }

    fn route(&self, request: &JobRequest) -> Result<Option<TaskIndex>, ErrorDetail> {
        let Some(index) = self.registry.find(&request.task) else {
            return self.route_unknown(&request.task).map(|()| None);
        };
        let task = self.registry.task(index);
        if request.lane.is_some_and(|lane| lane != task.lane) {
            return Err(self.wrong_lane(index));
        }
        self.unavailable(task.program).map_or(Ok(Some(index)), Err)
    }

    pub(super) fn wrong_lane(&self, task: TaskIndex) -> ErrorDetail {
        let message = format!("task {} is not in the lane that was asked for", self.registry.task(task).name);
        outcome::error(OutcomeCode::BadRequest, message)
    }

    /// A task that nobody is known to offer may wait for a program that has not said what it offers, unless nobody
    /// could ever offer a task of this name.
    pub(super) fn route_unknown(&self, name: &str) -> Result<(), ErrorDetail> {
        if !is_task_name(name) {
            return Err(self.unknown_task(name));
        }
        let silent = || (0..self.programs.len()).filter(|&program| !self.programs[program].has_said_hello);
        if silent().any(|program| self.unavailable(program).is_none()) {
            return Ok(());
        }
        match silent().find_map(|program| self.unavailable(program)) {
            Some(error) => Err(error),
            None => Err(self.unknown_task(name)),
        }
    }

    pub(super) fn unknown_task(&self, name: &str) -> ErrorDetail {
        let mut known = self.registry.nearest(name);
        known.truncate(NAMES_TOLD);
        let known = known.join(", ");
        let name = cut(name, TASK_NAME_MAX).escape_debug();
        outcome::error(OutcomeCode::UnknownTask, format!("no worker offers '{name}'; there are: {known}"))
    }

    fn check_size(&self, request: &JobRequest) -> Result<(), ErrorDetail> {
        let config = &self.config;
        let bytes = request.input_bytes;
        if bytes > config.max_payload {
            let message = format!("input of {bytes} bytes, the limit is {} bytes", config.max_payload);
            return Err(outcome::error(OutcomeCode::TooLarge, message));
        }
        let (waiting, _) = self.waiting_and_running();
        if waiting >= config.max_jobs + usize::from(self.sabotage.is(Bug::QueueOneTooLong)) {
            let message = format!("the queue is full: {waiting} jobs wait, the limit is {}", config.max_jobs);
            return Err(outcome::error(OutcomeCode::Overloaded, message));
        }
        let held = self.jobs.input_bytes();
        if bytes > config.max_bytes.saturating_sub(held) {
            let message = format!(
                "no room for {bytes} bytes of input: {held} are held, the limit is {} bytes",
                config.max_bytes
            );
            return Err(outcome::error(OutcomeCode::Overloaded, message));
        }
        Ok(())
    }

    fn accept(&mut self, now: Mono, task: Option<TaskIndex>, request: JobRequest) -> JobId {
        self.tally.accept();
        let task_name = match task {
            Some(task) => self.registry.task(task).name.clone(),
            None => Arc::from(request.task),
        };
        let id = self.jobs.insert(Job {
            task_name,
            task,
            input_bytes: request.input_bytes,
            run_timeout: request.timeout.unwrap_or(self.config.run_timeout),
            deadline: request.deadline.map(|deadline| now + deadline),
            attempts_asked: request.attempts,
            attempts_default: self.config.max_attempts,
            lane: request.lane,
            accepted_at: now,
            attempts: 0,
            returns: 0,
            state: if task.is_some() { JobState::Queued } else { JobState::Parked },
        });
        if let Some(task) = task {
            let program = self.program_of(task);
            self.programs[program].queue.insert(id);
        }
        id
    }

    pub(super) fn on_cancel(&mut self, now: Mono, id: JobId, actions: &mut Actions) {
        let error = outcome::error(OutcomeCode::Cancelled, "cancelled on request");
        self.withdraw(now, id, Ending::of(error), actions);
    }

    /// Ends a job before its result is there, wherever it stands. What its worker may still say of it is ignored: a
    /// running one is ended, one that was not started is skipped or, if it had just begun, runs for nobody.
    pub(super) fn withdraw(&mut self, now: Mono, id: JobId, ending: Ending, actions: &mut Actions) {
        let Some(job) = self.jobs.get(id) else { return };
        let state = job.state;
        self.finish(now, id, ending, actions);
        match state {
            JobState::Parked | JobState::Queued => {}
            JobState::Assigned { worker } => actions.push(Action::CancelRun { worker, job: id }),
            JobState::Running { worker, .. } => {
                let Some(&slot) = self.places.get(&worker) else { return };
                if let Some(load) = self.slots[slot].load_mut() {
                    load.take_running();
                }
                self.leave(now, slot, Cause::JobEnded, Some(Kill::Term), actions);
            }
        }
    }

    /// Ends the jobs whose deadline has passed.
    pub(super) fn expire(&mut self, now: Mono, actions: &mut Actions) {
        while let Some((_, id)) = self.jobs.first_deadline().filter(|(when, _)| *when <= now) {
            let Some(job) = self.jobs.get(id) else { return };
            if self.sabotage.is(Bug::DeadlineOfRunningIgnored) && job.state.is_with_a_worker() {
                return;
            }
            let waited = human(now - job.accepted_at);
            let message = match job.state {
                JobState::Running { .. } => format!("the deadline passed while it ran, after {waited}"),
                _ => format!("the deadline passed before it was started, after {waited}"),
            };
            self.withdraw(now, id, Ending::of(outcome::error(OutcomeCode::Timeout, message)), actions);
        }
    }
}
