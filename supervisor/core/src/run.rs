//! Jobs in flight: a worker says that it has started or ended one, or the time of one is up.

use super::action::{Action, Kill};
use super::ids::{JobId, Mono, SlotIndex, TaskIndex, WorkerId};
use super::jobs::JobState;
use super::load::Starts;
use super::outcome::{self, human};
use super::parts::Credit;
use super::slots::{Cause, Going, Load, Retire, Running, SlotState, Tenure, Worker};
use super::trial::Shown;
use super::turn::Turn;
use super::{Charge, Core, Ending, Phase};
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::nouns::{ErrorDetail, FailureKind, OutcomeCode, Usage, cut};
use std::time::Duration;

/// What a worker reports at the end of a job.
pub(super) struct Answer {
    pub(super) job: JobId,
    pub(super) attempt: u32,
    pub(super) run: Duration,
    pub(super) usage: Usage,
    /// The length of the output in bytes; or how the task failed, and why.
    pub(super) result: Result<u64, (FailureKind, String)>,
}

/// The error of a task that failed while its worker lives on.
fn failure((kind, message): (FailureKind, String)) -> ErrorDetail {
    let (code, exit_code, signal) = match kind {
        FailureKind::AppError | FailureKind::Deliberate => (OutcomeCode::AppError, None, None),
        FailureKind::Panic => (OutcomeCode::Panic, None, None),
        FailureKind::Exited { code } => (OutcomeCode::AppError, Some(code), None),
        FailureKind::Signalled { signal } => (OutcomeCode::AppError, None, Some(signal)),
        FailureKind::TimedOut => (OutcomeCode::Timeout, None, None),
        FailureKind::OutOfMemory => (OutcomeCode::WorkerOom, None, None),
    };
    let is_for_anybody = kind == FailureKind::Deliberate;
    ErrorDetail { exit_code, signal, is_for_anybody, ..outcome::error(code, cut(&message, MESSAGE_MAX)) }
}

impl Core {
    pub(super) fn on_started(&mut self, turn: &mut Turn<'_>, worker: WorkerId, id: JobId, attempt: u32) {
        let Some(slot) = self.slot_of(worker) else { return };
        if !self.slots[slot].is_trusted() {
            return self.doubt_named(slot, id);
        }
        let is_next = self.slots[slot].load().and_then(Load::next_to_start) == Some(id);
        let expected = self.jobs.get(id).map(|job| job.attempts + 1);
        if !is_next || expected.is_some_and(|expected| expected != attempt) {
            self.doubt_named(slot, id);
            let message = format!("started a job out of turn (attempt {attempt})");
            return self.on_violation(turn, worker, message);
        }
        self.begin(turn.now, slot, worker, (id, attempt));
        while let Some(next) = self.slots[slot].load().and_then(Load::next_of_batch) {
            self.begin(turn.now, slot, worker, next);
        }
        if self.slots[slot].load().is_some_and(|load| !load.batch.is_empty()) {
            self.agree_on_time(turn.now, slot);
        }
    }

    /// A worker has started the job that was next.
    fn begin(&mut self, now: Mono, slot: SlotIndex, worker: WorkerId, (id, attempt): (JobId, u32)) {
        let before = self.starts_of(slot, id);
        if let Some(job) = self.jobs.get_mut(id) {
            job.ran_under = job.ran_under.and(job.promise);
        }
        let mut started = self.running(now, id, attempt);
        started.is_bystander = matches!(self.slots[slot].state, SlotState::Leaving { .. });
        started.before = before;
        if let Some(job) = self.jobs.get_mut(id) {
            job.attempts += 1;
            if job.past.is_there() {
                (job.past.unstarted, job.past.late_tests) = (0, 0);
            }
            self.programs[self.slots[slot].program].probation.passed(id);
            job.state = JobState::Running { worker, started_at: now };
        }
        self.check_estimate(now, id);
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.start(now, started);
        }
    }

    /// The attempt that begins. A job that was withdrawn (it is not known any more) may run for a moment, but must
    /// not hold up the others: its time limit is `kill_grace`.
    fn running(&self, now: Mono, id: JobId, attempt: u32) -> Running {
        let job = self.jobs.get(id);
        let promise = job.map(|job| job.promise).unwrap_or_default();
        // A suspect shares its worker with nobody, so no other job runs between its steps.
        let is_suspect = job.is_some_and(|job| job.is_suspect);
        let may_be_lost = job.is_some_and(|job| self.attempts_allowed(job) > 1) && !is_suspect;
        Running {
            job: id,
            attempt,
            started_at: now,
            earliest_start: match job.map(|job| job.state) {
                Some(JobState::Assigned { given_at, .. }) => given_at,
                _ => Mono::default(),
            },
            finish_by: now + job.map_or(self.config.kill_grace, |job| job.run_timeout()),
            progress_by: promise.progress().map(|promise| (now, promise)),
            lets_others_in: may_be_lost && promise.lets_others_in(),
            may_be_followed: job.is_some_and(|job| self.leads_to_another(job, promise)),
            taken_back: 0,
            yields: promise.yields,
            paid: None,
            asked_to_yield: false,
            suspended_at: None,
            stood_still: Duration::ZERO,
            credit: Credit::default(),
            is_bystander: false,
            had_company: false,
            has_begun: false,
            before: Starts::default(),
        }
    }

    /// The attempt that a worker names, if it is the one that runs there. Otherwise the worker breaks the protocol
    /// and is killed. `verb` is for the error message.
    pub(super) fn running_as_named(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        (id, attempt): (JobId, u32),
        verb: &str,
    ) -> Option<(SlotIndex, Running)> {
        let slot = self.slot_of(worker)?;
        if !self.slots[slot].is_trusted() {
            self.doubt_named(slot, id);
            return None;
        }
        let load = self.slots[slot].load();
        if load.is_some_and(|load| load.ended == Some(id)) {
            // The answer of the job for which this worker is ended comes too late: that is no mistake.
            return None;
        }
        let running = load.and_then(|load| load.answerable(id)).copied();
        let named = running.filter(|running| running.attempt == attempt);
        if named.is_none() {
            let message = format!("{verb} a job out of turn (attempt {attempt})");
            self.doubt_named(slot, id);
            self.on_violation(turn, worker, message);
        }
        let named = named?;
        // No list of slots depends on this.
        let started = self.slots[slot].load_mut().and_then(|load| load.started_mut(id));
        started.into_iter().for_each(|started| started.has_begun = true);
        Some((slot, named))
    }

    /// A task returned or failed by itself; the worker is well.
    pub(super) fn on_ran(&mut self, turn: &mut Turn<'_>, worker: WorkerId, answer: Answer) {
        let Answer { job: id, attempt, run, usage, result } = answer;
        let Some((slot, running)) = self.running_as_named(turn, worker, (id, attempt), "ended") else {
            return;
        };
        let (rest, wanted) = (result.as_ref().ok().copied(), self.jobs.get(id).map(|job| job.task));
        let result = result.map_err(failure).and_then(|rest| self.output_with_parts(id, rest));
        let (output, outcome) = (result.as_ref().ok().copied(), result.as_ref().err());
        let outcome = outcome.map_or(OutcomeCode::Ok, |error| error.code);
        self.refund_worker(running.paid);
        self.learn_tiny_cost(turn.now, slot);
        let run = self.count_run(turn.now, slot, running, run);
        self.learn(slot, id, run, output);
        self.note_short_service(turn.now, id, false);
        let output_bytes = output.unwrap_or(0);
        self.hold_output(id, output.and(rest).unwrap_or(0));
        let (run, charge, error) = (Some(run), Charge::ForTheRun, result.err());
        let ending = Ending { outcome, error, run, place: None, usage, output_bytes, charge };
        self.finish(turn, id, ending);
        self.take_next(turn.now, slot, id);
        if let Some(task) = wanted {
            self.note_outcome(turn, slot, task, output.is_some());
        }
    }

    /// A job of this task has ended well or not, and that was its worker's doing, as far as anybody can tell.
    fn note_outcome(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, task: Option<TaskIndex>, is_well: bool) {
        let shown = if is_well { Shown::Well } else { self.failure_shows(task) };
        if let Some(task) = task.filter(|_| !self.is_unproven(slot)) {
            let task = self.registry.task_mut(task);
            (task.fails, task.ends_workers) = (!is_well, false);
        }
        self.note_proof(turn, slot, shown);
    }

    /// How long the job that runs in this slot took, if its worker says `run`.
    pub(super) fn count_run(
        &mut self,
        now: Mono,
        slot: SlotIndex,
        running: Running,
        run: Duration,
    ) -> Duration {
        let counted = running.counted(now, run);
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.note_run(counted);
        }
        counted
    }

    fn learn(&mut self, slot: SlotIndex, id: JobId, run: Duration, output: Option<u64>) {
        let Some(task) = self.learn_run(id, run, output) else { return };
        // That a worker which has to prove itself fails a job is no sign that its program works.
        let proves = output.is_some() || !self.is_unproven(slot);
        if let Some(worker) = self.slots[slot].ready_worker().filter(|_| proves) {
            let program = self.program_of(task);
            self.programs[program].restarts.proved_good(worker.ready_at);
        }
    }

    /// Learns from a run how long such runs and their outputs are. Returns the task, unless the job has ended before.
    pub(super) fn learn_run(&mut self, id: JobId, run: Duration, output: Option<u64>) -> Option<TaskIndex> {
        let job = self.jobs.get(id)?;
        let (task, client) = (job.task?, job.client);
        let (bytes, ran_before) = (job.input_bytes, job.past.ran_before);
        let is_of_the_task = !job.is_streamed();
        let were_tiny = self.why_tiny(client, task);
        let run = run + ran_before;
        // One that failed may have been over at its first line: it says only that such a run takes at least so long.
        let counts =
            output.is_some() || self.registry.task(task).expected_run(bytes).is_some_and(|mean| run > mean);
        if is_of_the_task && counts {
            self.change_task(task, |task| task.ran(bytes, run));
        }
        if let Some(output) = output.filter(|_| is_of_the_task) {
            self.registry.task_mut(task).returned(bytes, output);
        }
        self.clients.returned(client, output.unwrap_or(0));
        self.tiny_changes += u64::from(self.why_tiny(client, task) != were_tiny);
        Some(task)
    }

    /// The running job is over. If the worker has another one, it has to start it in time.
    pub(super) fn take_next(&mut self, now: Mono, slot: SlotIndex, done: JobId) {
        let patience = now + self.config.start_timeout;
        let home = self.slots[slot].worker().and_then(|worker| self.home_of(worker)).unwrap_or(slot);
        self.slots[home].jobs_done += 1;
        let place = self.slot_mut(slot);
        if let Some(worker) = place.worker_mut() {
            worker.did(done);
        }
        if let Some(load) = place.load_mut() {
            load.take_started(now, done);
        }
        self.end_grace_if_all_are_wanted(slot);
        self.expect_start(slot, patience);
        self.retire_if_worn(slot);
    }

    pub(super) fn expect_start(&mut self, slot: SlotIndex, patience: Mono) {
        let place = self.slot_mut(slot);
        if let SlotState::Busy { start_by, .. } = &mut place.state {
            *start_by = patience;
        }
        place.rest_if_done();
    }

    fn retire_if_worn(&mut self, slot: SlotIndex) {
        let worker = self.slots[slot].ready_worker();
        if worker.is_some_and(Worker::is_worn_out) {
            self.retire(slot, Retire::Jobs);
        }
    }

    /// A worker has thrown away a job that it had not started. That is allowed only for a job that was withdrawn.
    pub(super) fn on_skipped(&mut self, turn: &mut Turn<'_>, worker: WorkerId, id: JobId) {
        let Some(slot) = self.trusted_slot_of(worker) else { return };
        let is_next = self.slots[slot].load().and_then(Load::next_to_start) == Some(id);
        if !is_next || self.jobs.get(id).is_some() {
            return self.on_violation(turn, worker, "skipped a job out of turn".to_owned());
        }
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.pop_waiting();
        }
        self.expect_start(slot, turn.now + self.config.start_timeout);
    }

    /// Applies all limits that are due. Limits on what workers do are applied only here, because only before a tick
    /// is everything handed over that the workers concerned have sent (see [`Event::Tick`](super::event::Event::Tick)).
    pub(super) fn on_time(&mut self, turn: &mut Turn<'_>) {
        self.expire_all(turn);
        self.end_overdue_here(turn);
        if let Phase::Draining { end_at: Some(end_at) } = self.phase
            && end_at <= turn.now
        {
            self.on_stop(turn);
        }
        self.relist();
        while let Some(&(_, slot)) = self.due.first().filter(|(when, _)| *when <= turn.now) {
            self.on_slot_deadline(turn, slot);
            self.slot_mut(slot);
            self.relist();
        }
        self.end_trials_in_time(turn);
    }

    fn on_slot_deadline(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let is_over = |when: Option<Mono>| when.is_some_and(|when| when <= turn.now);
        let worker = self.slots[slot].ready_worker();
        if is_over(worker.and_then(|worker| worker.retire_at)) && self.slots[slot].tenure == Tenure::Stays {
            return self.retire(slot, Retire::Age);
        }
        let stopped_at = worker.and_then(|worker| worker.stopped_at);
        if is_over(stopped_at.map(|since| since + self.config.hang_timeout)) {
            return self.leave(turn, slot, Cause::Stopped, Some(Kill::Kill));
        }
        match &self.slots[slot].state {
            SlotState::Vacant | SlotState::Idle { .. } => {}
            SlotState::Starting { .. } => self.leave(turn, slot, Cause::Silent, Some(Kill::Kill)),
            SlotState::Busy { load, start_by, .. } => match load.running {
                Some(_) if is_over(load.return_by) => {
                    self.leave(turn, slot, Cause::JobEnded, Some(Kill::Term));
                }
                Some(running) if running.finish_by <= turn.now => match self.is_batch_wanted(load) {
                    true => self.leave(turn, slot, Cause::TogetherTooLong, Some(Kill::Term)),
                    false => self.on_run_timeout(turn, slot, running.job),
                },
                Some(_) if load.is_answer_due && *start_by <= turn.now => {
                    let what = "it took its next job and did not answer the one that it ran".to_owned();
                    self.leave(turn, slot, Cause::Violation(what), Some(Kill::Kill));
                }
                Some(_) => self.leave(turn, slot, Cause::Hung, Some(Kill::Kill)),
                None => self.leave(turn, slot, Cause::Stuck, Some(Kill::Kill)),
            },
            SlotState::Leaving { going: Going::Asked { .. }, .. } => self.kill(turn, slot),
            SlotState::Leaving { going: Going::Killed { .. }, .. } => self.give_up(turn, slot),
        }
    }

    /// A process was asked to end and has not: SIGKILL.
    fn kill(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let reap_by = turn.now + self.config.reap_timeout;
        if let SlotState::Leaving { place, cause, going, .. } = &mut self.slot_mut(slot).state {
            *going = Going::Killed { reap_by };
            if *cause == Cause::Closed {
                *cause = Cause::ClosedAndLivedOn;
            }
            turn.push(Action::Kill { worker: place.worker, how: Kill::Kill });
        }
    }

    fn on_run_timeout(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, id: JobId) {
        match self.jobs.get(id) {
            Some(job) => {
                let task = job.task;
                let message = format!("ran longer than {}", human(job.run_timeout()));
                self.lose_to_time(turn.now, slot, id, message.clone());
                self.end_gently(turn, id, Ending::of(outcome::for_anybody(OutcomeCode::Timeout, message)));
                self.note_outcome(turn, slot, task, false);
            }
            None => {
                if let Some(load) = self.slot_mut(slot).load_mut() {
                    load.end(turn.now, id);
                }
                self.leave(turn, slot, Cause::JobEnded, Some(Kill::Term));
            }
        }
    }
}
