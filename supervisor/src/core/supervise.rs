//! Workers come, break rules, and go.

use super::action::{Action, Actions, Kill, Notice};
use super::ids::{JobId, Mono, Place, ProgramIndex, SlotIndex, WorkerId};
use super::jobs::JobState;
use super::outcome::{self, Loss};
use super::sabotage::Bug;
use super::slots::{Cause, Load, SlotState, Worker};
use super::{Core, Ending};
use crate::exit::Exit;
use crate::limits::RETURNS_MAX;
use offload_protocol::limits::TASKS_OFFERED_MAX;
use offload_protocol::nouns::{OutcomeCode, TaskOffer, is_task_name};

/// The exit code with which a worker says that starting it again is pointless.
const EXIT_DO_NOT_RESTART: i32 = 64;

/// No process does this to itself by mistake.
const KILLED: Exit = Exit::Signal(9);

impl Core {
    pub(super) fn on_hello(
        &mut self,
        now: Mono,
        id: WorkerId,
        tasks: &[TaskOffer<'static>],
        actions: &mut Actions,
    ) {
        let Some(&slot) = self.places.get(&id) else { return };
        if !matches!(self.slots[slot].state, SlotState::Starting { .. }) {
            return self.on_violation(now, id, "said hello again".to_owned(), actions);
        }
        if tasks.len() > TASKS_OFFERED_MAX || !tasks.iter().all(|task| is_task_name(&task.name)) {
            return self.on_unfit(
                now,
                id,
                "it offers too many tasks, or one without a proper name".to_owned(),
                actions,
            );
        }
        self.slots[slot].state = SlotState::Idle { worker: Worker { id, ready_at: now, jobs_done: 0 } };
        self.places_changed = true;
        actions.push(Action::Log(Notice::WorkerReady { worker: id, slot }));
        self.list(slot);
        self.learn_tasks(self.slots[slot].program, tasks, actions);
    }

    fn learn_tasks(&mut self, program: ProgramIndex, tasks: &[TaskOffer<'static>], actions: &mut Actions) {
        if self.programs[program].restarts.said_hello() {
            actions.push(Action::Log(Notice::Recovered { program }));
        }
        self.programs[program].has_said_hello = true;
        let changes = self.registry.offer(program, tasks);
        if changes.has_moved || !changes.gone.is_empty() {
            self.queue_anew();
        }
    }

    /// Tasks have changed hands: every job that waits is brought to where its task is now.
    fn queue_anew(&mut self) {
        let queues = self.programs.iter_mut().map(|program| std::mem::take(&mut program.queue));
        let waiting: Vec<JobId> = queues.flatten().collect();
        waiting.into_iter().for_each(|id| self.requeue(id));
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        now: Mono,
        worker: WorkerId,
        fatal: bool,
        message: &str,
        actions: &mut Actions,
    ) {
        let Some(&slot) = self.places.get(&worker) else { return };
        let is_leaving = match self.slots[slot].state {
            SlotState::Starting { .. } => false,
            SlotState::Leaving { was: None, .. } => true,
            _ => return,
        };
        self.places.remove(&worker);
        self.slots[slot].state = SlotState::Vacant;
        self.places_changed = true;
        if is_leaving {
            return;
        }
        self.start_failed(now, self.slots[slot].program, fatal, message, actions);
    }

    pub(super) fn on_unfit(&mut self, now: Mono, worker: WorkerId, message: String, actions: &mut Actions) {
        if let Some(&slot) = self.places.get(&worker) {
            self.leave(now, slot, Cause::Unfit(message), Some(Kill::Kill), actions);
        }
    }

    /// Never answered, never mended: the worker is killed.
    pub(super) fn on_violation(
        &mut self,
        now: Mono,
        worker: WorkerId,
        message: String,
        actions: &mut Actions,
    ) {
        if let Some(&slot) = self.places.get(&worker)
            && !self.sabotage.is(Bug::ViolatorTrusted)
        {
            self.leave(now, slot, Cause::Violation(message), Some(Kill::Kill), actions);
        }
    }

    /// Usually the process has ended as well, and its exit, which decides everything, is about to be known.
    pub(super) fn on_closed(&mut self, now: Mono, worker: WorkerId) {
        if let Some(&slot) = self.places.get(&worker) {
            self.leave(now, slot, Cause::Closed, None, &mut Vec::new());
        }
    }

    /// Puts a worker on its way out, unless it is on it already: then its time limit stands.
    pub(super) fn leave(
        &mut self,
        now: Mono,
        slot: SlotIndex,
        cause: Cause,
        how: Option<Kill>,
        actions: &mut Actions,
    ) {
        let Some(place) = self.slots[slot].worker().and_then(|worker| self.place(worker)) else { return };
        let kill_at = match (how, &cause) {
            (Some(Kill::Kill), _) => None,
            (_, Cause::Closed) => Some(now + self.config.closed_grace),
            _ => Some(now + self.config.kill_grace),
        };
        let (was, load) = match std::mem::take(&mut self.slots[slot].state) {
            SlotState::Busy { worker, load, .. } => (Some(worker), load),
            SlotState::Idle { worker } => (Some(worker), Load::default()),
            SlotState::Vacant | SlotState::Starting { .. } => (None, Load::default()),
            leaving @ SlotState::Leaving { .. } => {
                self.slots[slot].state = leaving;
                return;
            }
        };
        if let Some(why) = why(&cause) {
            actions.push(Action::Log(Notice::WorkerKilled { worker: place.worker, slot, why }));
        }
        actions.extend(how.map(|how| Action::Kill { worker: place.worker, how }));
        self.slots[slot].state = SlotState::Leaving { place, was, load, cause, kill_at };
        self.places_changed = true;
        self.list(slot);
    }

    pub(super) fn on_exited(
        &mut self,
        now: Mono,
        worker: WorkerId,
        exit: Exit,
        last_words: Option<String>,
        actions: &mut Actions,
    ) {
        let place = self.place(worker);
        let Some(slot) = self.places.remove(&worker) else { return };
        let home = place.map_or(slot, |place| place.slot);
        self.places_changed = true;
        let program = self.slots[slot].program;
        let state = std::mem::take(&mut self.slots[slot].state);
        self.slots[home].ended += 1;
        self.slots[home].last_exit = Some(exit.to_string());
        self.list(slot);
        let words = last_words.map_or(String::new(), |words| format!("; it printed last: {words}"));
        let (was, load, cause) = match state {
            SlotState::Vacant => return,
            SlotState::Starting { .. } => (None, Load::default(), None),
            SlotState::Idle { worker } => (Some(worker), Load::default(), None),
            SlotState::Busy { worker, load, .. } => (Some(worker), load, None),
            SlotState::Leaving { was, load, cause, .. } => (was, load, Some(cause)),
        };
        if was.is_some() && matches!(cause, None | Some(Cause::Closed | Cause::ClosedAndLivedOn)) {
            self.log_death(home, worker, exit, load.running_job(), actions);
        }
        match was {
            None => self.blame_start(now, program, cause.as_ref(), exit, &words, actions),
            Some(worker) if load.running.is_none() && is_unasked(cause.as_ref()) => {
                self.on_idle_death(now, program, worker, exit, &words, actions);
            }
            Some(_) => {}
        }
        self.lose(now, load, &loss_of(cause.as_ref(), exit, place), actions);
    }

    /// A worker ended before it said hello.
    fn blame_start(
        &mut self,
        now: Mono,
        program: ProgramIndex,
        cause: Option<&Cause>,
        exit: Exit,
        words: &str,
        actions: &mut Actions,
    ) {
        let (fatal, message) = match cause {
            Some(Cause::Dismissed) => return,
            Some(Cause::Unfit(what)) => (true, format!("not a worker for this supervisor: {what}{words}")),
            Some(Cause::Silent) => (false, format!("a worker did not say hello in time{words}")),
            Some(Cause::Violation(what)) => {
                (false, format!("a worker broke the protocol at start-up: {what}{words}"))
            }
            None | Some(Cause::Closed | Cause::ClosedAndLivedOn | Cause::Stuck | Cause::JobEnded) => (
                exit == Exit::Code(EXIT_DO_NOT_RESTART),
                format!("a worker ended at start-up with {exit}{words}"),
            ),
        };
        self.start_failed(now, program, fatal, &message, actions);
    }

    fn log_death(
        &self,
        slot: SlotIndex,
        worker: WorkerId,
        exit: Exit,
        job: Option<JobId>,
        actions: &mut Actions,
    ) {
        actions.push(Action::Log(Notice::WorkerDied { worker, slot, how: exit.to_string(), job }));
    }

    /// A worker that dies of itself, young and without having done anything, is as bad as one that never started. SIGKILL
    /// comes from outside: the start was good.
    fn on_idle_death(
        &mut self,
        now: Mono,
        program: ProgramIndex,
        worker: Worker,
        exit: Exit,
        words: &str,
        actions: &mut Actions,
    ) {
        if exit != KILLED && worker.jobs_done == 0 && now - worker.ready_at < self.config.window {
            let message = format!("a worker ended with {exit} before it had done a job{words}");
            self.start_failed(now, program, false, &message, actions);
        }
    }

    fn start_failed(
        &mut self,
        now: Mono,
        index: ProgramIndex,
        fatal: bool,
        why: &str,
        actions: &mut Actions,
    ) {
        let restarts = &mut self.programs[index].restarts;
        let was_refusing = restarts.is_refusing();
        let again_in = match fatal {
            true => {
                restarts.broke(why);
                None
            }
            false => Some(restarts.failed(why, now, &self.config)),
        };
        let failures = restarts.failures();
        let is_refusing = restarts.is_refusing();
        let why = why.to_owned();
        actions.push(Action::Log(Notice::StartFailed {
            program: index,
            failures,
            why: why.clone(),
            again_in,
        }));
        if is_refusing && !was_refusing {
            actions.push(Action::Log(Notice::Degraded { program: index, why }));
        }
    }

    /// The jobs of a worker that has ended: the one that ran dies with it or is tried again, the others never began.
    fn lose(&mut self, now: Mono, mut load: Load, loss: &Loss, actions: &mut Actions) {
        if let Some((job, _)) = load.take_running() {
            self.lose_running(now, job, loss, actions);
        }
        for job in load.assigned {
            self.give_back(now, job, loss, actions);
        }
    }

    fn lose_running(&mut self, now: Mono, id: JobId, loss: &Loss, actions: &mut Actions) {
        let Some(job) = self.jobs.get(id) else { return };
        let allowed = self.attempts_allowed(job);
        if job.attempts < allowed + u32::from(self.sabotage.is(Bug::AttemptTooMany)) {
            return self.requeue(id);
        }
        let error = loss.error(job.attempts, allowed);
        let outcome = if allowed > 1 { OutcomeCode::Poison } else { loss.code };
        self.finish(now, id, Ending { outcome, error: Some(error), run: None, place: loss.place }, actions);
    }

    fn give_back(&mut self, now: Mono, id: JobId, loss: &Loss, actions: &mut Actions) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.returns += u32::from(!self.sabotage.is(Bug::ReturnsNotCounted));
        if job.returns < RETURNS_MAX {
            return self.requeue(id);
        }
        let message =
            format!("{RETURNS_MAX} workers ended before they started it, the last with {}", loss.exit);
        self.finish(now, id, Ending::of(outcome::error(OutcomeCode::WorkerCrashed, message)), actions);
    }

    /// Puts a job back to where it waited; if nobody offers its task any more, to where that is noticed.
    fn requeue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        match self.registry.find(&job.task_name) {
            Some(task) => {
                job.task = Some(task);
                job.state = JobState::Queued;
                let program = self.program_of(task);
                if !self.sabotage.is(Bug::RequeueLost) {
                    self.programs[program].queue.insert(id);
                }
            }
            None => {
                job.task = None;
                job.state = JobState::Parked;
                self.jobs.park(id);
                self.places_changed = true;
            }
        }
    }
}

/// What to tell the log about a worker that is put on its way out; nothing where that is no news.
fn why(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Dismissed | Cause::Closed | Cause::ClosedAndLivedOn => None,
        Cause::JobEnded => Some("its job timed out or was cancelled".to_owned()),
        Cause::Silent => Some("it did not say hello in time".to_owned()),
        Cause::Stuck => Some("it had a job and did not start it".to_owned()),
        Cause::Violation(what) => Some(format!("it broke the protocol: {what}")),
        Cause::Unfit(what) => Some(format!("it is not a worker for this supervisor: {what}")),
    }
}

/// Whether a worker that ended with this behind it was not asked to.
fn is_unasked(cause: Option<&Cause>) -> bool {
    !matches!(cause, Some(Cause::Dismissed | Cause::JobEnded))
}

fn loss_of(cause: Option<&Cause>, exit: Exit, place: Option<Place>) -> Loss {
    let (code, what) = match cause {
        Some(Cause::Violation(what)) => (OutcomeCode::WorkerProtocol, format!("broke the protocol ({what})")),
        Some(Cause::ClosedAndLivedOn) => {
            (OutcomeCode::WorkerCrashed, format!("closed its channel and was ended, {exit},"))
        }
        _ => (OutcomeCode::WorkerCrashed, exit.to_string()),
    };
    Loss { code, what, exit, place }
}
