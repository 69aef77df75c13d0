//! Submission, cancellation and deadlines: a job is accepted or refused; it may be cancelled; and it ends when its
//! deadline passes.

use super::action::{Accepted, Action, Kill};
use super::event::JobRequest;
use super::ids::{JobId, Mono, TaskIndex};
use super::jobs::{Job, JobState};
use super::keys::Known;
use super::ledger::Holding;
use super::nanos::MaybeNanos;
use super::outcome::{self, human};
use super::parts::Wanted;
use super::past::Past;
use super::slots::Cause;
use super::turn::Turn;
use super::{Core, Ending};
use crate::limits::{ATTEMPTS_MAX, LAST_JOBS, MOVED_MAX, PRIORITY_MAX};
use offload_protocol::limits::{NAME_MAX, TASK_NAME_MAX};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, cut, is_task_name};
use std::sync::Arc;
use std::time::Duration;

impl Core {
    pub(super) fn on_submit(
        &mut self,
        turn: &mut Turn<'_>,
        request: &JobRequest,
    ) -> Result<Accepted, ErrorDetail> {
        let mut known = self.known(request);
        if let Some(Known::Same(job)) = known {
            return Ok(Accepted { job, is_known: true });
        }
        let mut verdict = self.admit(turn.now, request, known);
        if verdict.is_err() && !self.is_settled {
            // What came earlier may make room.
            self.settle_all(turn);
            known = self.known(request);
            verdict = self.admit(turn.now, request, known);
        }
        match verdict {
            Ok(task) => {
                let job = self.accept(turn, task, request);
                Ok(Accepted { job, is_known: false })
            }
            // The client sends the input itself now, so this request does not count.
            Err(error) if error.code == OutcomeCode::Unsupported => Err(error),
            Err(error) => {
                self.tally.reject(error.code);
                Err(error)
            }
        }
    }

    /// Why a job would be refused now, for a shell that asks before the input comes. Nothing changes, and nothing is counted: what
    /// has happened is to be settled before, for it may make room. A key is not looked at.
    pub fn why_refused(&self, now: Mono, request: &JobRequest) -> Option<ErrorDetail> {
        self.admit(now, request, None).err()
    }

    /// The task, if it is known already; the error says why the job is refused.
    fn admit(
        &self,
        now: Mono,
        request: &JobRequest,
        known: Option<Known>,
    ) -> Result<Option<TaskIndex>, ErrorDetail> {
        if !self.lets_in(request) {
            return Err(outcome::for_anybody(
                OutcomeCode::Unavailable,
                "the supervisor is ending and takes no more jobs: submit again when one runs",
            ));
        }
        check_sense(request)?;
        if let Some(Known::Other) = known {
            let message = "this key was used for a job with another task, another input, or another media type of the input";
            return Err(outcome::error(OutcomeCode::Conflict, message));
        }
        let task = self.route(request)?;
        self.check_size(request)?;
        self.check_room(now, request, task)?;
        self.check_promises(now, request)?;
        self.check_file(request, task)?;
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
        self.unavailable_task(index, &request.client).map_or(Ok(Some(index)), Err)
    }

    pub(super) fn wrong_lane(&self, task: TaskIndex) -> ErrorDetail {
        let name = &self.registry.task(task).name;
        let message =
            format!("task {name} is not in the lane that was asked for: name none to run it where it is");
        outcome::error(OutcomeCode::BadRequest, message)
    }

    /// Whether a job for an unknown task may wait until all programs have said which tasks they offer. It may not if
    /// no program could ever offer a task of this name.
    fn route_unknown(&self, name: &str) -> Result<(), ErrorDetail> {
        self.route_or(name, || self.unknown_task(name))
    }

    /// The same for a job that was accepted. That a task is unknown is no outcome of a job that was accepted when the
    /// task was known: its program has ceased to offer it.
    pub(super) fn no_route(&self, name: &str) -> Result<(), ErrorDetail> {
        self.route_or(name, || match self.registry.was_on_offer(name) {
            true => outcome::error(OutcomeCode::Unavailable, format!("no worker offers '{name}' any more")),
            false => self.unknown_task(name),
        })
    }

    fn route_or(&self, name: &str, unknown: impl FnOnce() -> ErrorDetail) -> Result<(), ErrorDetail> {
        if !is_task_name(name) {
            return Err(unknown());
        }
        let silent =
            || self.programs_of_workers().filter(|&program| !self.programs[program].has_said_hello());
        if silent().any(|program| self.unavailable(program).is_none()) {
            return Ok(());
        }
        Err(silent().find_map(|program| self.unavailable(program)).unwrap_or_else(unknown))
    }

    fn unknown_task(&self, name: &str) -> ErrorDetail {
        let known = self.registry.nearest(name);
        let others = self.registry.on_offer_count() - known.len();
        let more = match others {
            0 => String::new(),
            1 => ", and 1 other".to_owned(),
            _ => format!(", and {others} others"),
        };
        // A name that no task can have is refused before any worker has said what it offers.
        let known =
            if known.is_empty() { String::new() } else { format!("; there are: {}{more}", known.join(", ")) };
        let name = cut(name, TASK_NAME_MAX).escape_debug();
        outcome::error(OutcomeCode::UnknownTask, format!("no worker offers '{name}'{known}"))
    }

    fn check_size(&self, request: &JobRequest) -> Result<(), ErrorDetail> {
        let config = &self.config;
        let bytes = request.input_bytes;
        if bytes > config.max_payload {
            return Err(outcome::for_anybody(OutcomeCode::TooLarge, config.too_large(bytes)));
        }
        Ok(())
    }

    /// Whether there is room for one more job: in the whole queue, in memory, and in the client's part of both.
    fn check_room(
        &self,
        now: Mono,
        request: &JobRequest,
        task: Option<TaskIndex>,
    ) -> Result<(), ErrorDetail> {
        let wait = || self.retry_for_a_place(now, task.map(|task| self.program_of(task)));
        let (waiting, _) = self.waiting_and_running();
        let limit = self.config.max_jobs;
        if waiting >= limit {
            let message = format!("the queue is full: {waiting} jobs wait, the limit is {limit}");
            return Err(full(OutcomeCode::Overloaded, &message, wait()));
        }
        if !request.has_room {
            self.room_for(now, &request.client, request.held_bytes(), 0)?;
        }
        let own = self.clients.find(&request.client).map_or(0, |account| account.waiting);
        let most = self.config.max_jobs_of_one();
        if own >= most {
            let message = format!("{own} jobs of this client wait, the limit for one client is {most}");
            return Err(full(OutcomeCode::Quota, &message, wait()));
        }
        let free = limit.saturating_sub(waiting);
        // If a quota is configured that reaches into the last places, the configuration has asked for that.
        let are_shared_out = free <= limit / LAST_JOBS && most <= limit - limit / LAST_JOBS;
        if are_shared_out && own >= free {
            let message = format!(
                "{own} jobs of this client wait, and of the last {free} places each client gets another one only while \
                 fewer of its jobs wait than are left"
            );
            return Err(full(OutcomeCode::Quota, &message, wait()));
        }
        Ok(())
    }

    fn accept(&mut self, turn: &mut Turn<'_>, task: Option<TaskIndex>, request: &JobRequest) -> JobId {
        self.is_settled = false;
        self.tally.accept();
        let client = self.clients.enter(&request.client, self.config.weight_of(&request.client));
        let id = self.jobs.insert(Job {
            task,
            priority: request.priority,
            input_bytes: request.input_bytes,
            has_file: request.has_file,
            run_limit: limit(request.timeout.unwrap_or(self.config.run_timeout)),
            deadline: request.deadline.map(|deadline| turn.now + deadline).into(),
            attempts_asked: request.attempts.map(attempts),
            attempts_default: attempts(self.config.max_attempts),
            lane: request.lane,
            past: Past::with_tags(request.tag_bytes),
            // Where it belongs is found out at once; only a job of an unknown task is listed as parked.
            state: task.map_or(JobState::Parked, |_| JobState::Queued),
            ..Job::new(client, turn.now)
        });
        if let Some(job) = self.jobs.get_mut(id).filter(|_| task.is_none()) {
            job.past.task_name = Some(Arc::from(&*request.task));
        }
        self.ledger.hold(&request.client, Holding::Inputs, request.held_bytes());
        if request.has_file {
            self.hold_file(id);
        }
        let key_before = self.promise(id, request);
        if let Some(job) = self.jobs.get_mut(id).filter(|_| key_before.is_some() || request.stream) {
            job.past.key_before = key_before;
            job.past.parts.wanted = if request.stream { Wanted::Stream } else { Wanted::Whole };
        }
        self.note_expired_key(turn, id, key_before);
        self.estimate_wait(id, task);
        self.enqueue(id);
        self.note_short_work(turn.now, id);
        id
    }

    /// Cancels a job. The worker of a running job is told, and the job has `cancel_grace` to end by itself before its
    /// worker is ended.
    pub(super) fn on_cancel(&mut self, turn: &mut Turn<'_>, id: JobId, why: &str) {
        self.end_early(turn, id, Ending::of(outcome::for_anybody(OutcomeCode::Cancelled, why)));
    }

    /// Ends a job before its result is there. If it runs, its worker is asked first.
    pub(super) fn end_gently(&mut self, turn: &mut Turn<'_>, id: JobId, ending: Ending) {
        let Some(state) = self.jobs.get(id).map(|job| job.state) else { return };
        let JobState::Running { worker, .. } = state else { return self.withdraw(turn, id, ending) };
        // This comes before the job ends: with the job, the core may forget its client.
        let paid = self.charge_worker(id);
        self.tiny_changes += 1;
        self.finish(turn, id, ending);
        turn.push(Action::CancelRun { worker, job: id });
        let Some(&slot) = self.places.get(&worker) else { return };
        let grace = self.config.cancel_grace;
        let is_batch = self.slots[slot].load().is_some_and(|load| !load.batch.is_empty());
        if is_batch {
            self.grant_grace(turn.now, slot);
        }
        let Some(running) = self.slot_mut(slot).load_mut().and_then(|load| load.started_mut(id)) else {
            return;
        };
        running.paid = paid;
        if !is_batch {
            // The clocks of a suspended job stand still: its grace starts when it goes on.
            let over_at = running.suspended_at.unwrap_or(turn.now) + grace;
            // If its own time is up, that is why it ends: the grace comes on top.
            running.finish_by =
                if running.finish_by > turn.now { running.finish_by.min(over_at) } else { over_at };
            running.progress_by = None;
        }
    }

    /// Ends a job before its result is there, whatever its state. A running job's worker is ended. A job that was not
    /// started is skipped by its worker; if it has just begun, its result is ignored.
    pub(super) fn withdraw(&mut self, turn: &mut Turn<'_>, id: JobId, ending: Ending) {
        let Some(state) = self.jobs.get(id).map(|job| job.state) else { return };
        if let JobState::Running { worker, .. } = state {
            if self.others_are_wanted(worker, id) {
                return self.leave_batch(turn, worker, id, ending);
            }
            self.charge_worker(id);
        }
        // A worker that has the job keeps it for now; what is not known any more is not tiny.
        self.tiny_changes += u64::from(state.is_dispatched());
        self.finish(turn, id, ending);
        match state {
            JobState::Parked | JobState::Queued | JobState::Held | JobState::Paused => {}
            JobState::Assigned { worker, .. } => self.cancel_given(turn, worker, id),
            JobState::Here { .. } => self.stop_here(turn, id),
            JobState::Running { worker, .. } => {
                let Some(&slot) = self.places.get(&worker) else { return };
                if let Some(load) = self.slot_mut(slot).load_mut() {
                    load.end(turn.now, id);
                }
                self.leave(turn, slot, Cause::JobEnded, Some(Kill::Term));
            }
        }
    }

    /// Ends waiting jobs whose deadline has passed. A job that a worker has may have ended in time, with its answer
    /// still on the way, so it is not touched here. As many as came since the last time end beside those that one event may move:
    /// otherwise whoever submits late ones fast enough could keep everybody from being served. Returns how many of the latter have
    /// ended: if as many as may, others may be left.
    pub(super) fn expire_waiting(&mut self, turn: &mut Turn<'_>) -> usize {
        let accepted = self.tally.accepted();
        let new = (accepted - std::mem::replace(&mut self.accepted_before, accepted)) as usize;
        self.expire(turn, MOVED_MAX + new, |state| !state.is_dispatched()).saturating_sub(new)
    }

    /// Ends jobs whose deadline has passed, also those that a worker has. Only for a tick: all that workers sent
    /// until now has been handed over.
    pub(super) fn expire_all(&mut self, turn: &mut Turn<'_>) {
        self.expire(turn, MOVED_MAX, |_| true);
    }

    /// At most so many of them end. The others are still late, so another tick is due at once.
    fn expire(&mut self, turn: &mut Turn<'_>, most: usize, which: impl Fn(JobState) -> bool) -> usize {
        let now = turn.now;
        let is_one = |id: &JobId| self.jobs.get(*id).is_some_and(|job| which(job.state));
        let late: Vec<JobId> = self.jobs.late(now).filter(is_one).take(most).collect();
        for &id in &late {
            let Some(job) = self.jobs.get(id) else { continue };
            // It may have waited outside before: that time counts for its deadline, and is not known here.
            let since = format!("{} after it was accepted", human(now - job.accepted_at));
            let message = match job.state {
                JobState::Running { worker, .. } => {
                    let message = format!("the deadline passed while it ran, {since}");
                    if let Some(slot) = self.slot_of(worker) {
                        self.lose_to_time(now, slot, id, message.clone());
                    }
                    message
                }
                JobState::Here { .. } => format!("the deadline passed while it ran, {since}"),
                _ if job.deadline.moment() <= Some(job.accepted_at) => {
                    "the deadline had passed before it was accepted".to_owned()
                }
                _ => format!("the deadline passed before it was started, {since}"),
            };
            self.end_early(turn, id, Ending::of(outcome::for_anybody(OutcomeCode::Timeout, message)));
        }
        late.len()
    }
}

/// A limit as a job has it; nothing if it is never reached.
fn limit(time: Duration) -> MaybeNanos {
    Some(time).filter(|time| time.as_nanos() < u128::from(u64::MAX)).into()
}

/// A number of attempts as a job has it: no more than [`ATTEMPTS_MAX`] are ever made.
fn attempts(most: u32) -> u8 {
    most.min(ATTEMPTS_MAX) as u8
}

/// A refusal for lack of room, with the time after which it is worth asking again. The message has nothing but
/// numbers; who puts more into it says that it is not for anybody.
pub(super) fn full(code: OutcomeCode, message: &str, wait: Duration) -> ErrorDetail {
    // Rounded up, so that a client which comes back then is not too early.
    let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let message = format!("{message}; try again in about {}", human(wait));
    ErrorDetail { retry_after_ms: Some(millis), ..outcome::for_anybody(code, message) }
}

/// Whether the values of a request make sense.
fn check_sense(request: &JobRequest) -> Result<(), ErrorDetail> {
    let bad = |message: String| Err(outcome::error(OutcomeCode::BadRequest, message));
    if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return bad("a timeout of 0 leaves no time to run".to_owned());
    }
    if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&request.priority) {
        let priority = request.priority;
        return bad(format!("priority {priority} is out of bounds: -{PRIORITY_MAX} to {PRIORITY_MAX}"));
    }
    if let Some(attempts) = request.attempts
        && !(1..=ATTEMPTS_MAX).contains(&attempts)
    {
        return bad(format!("{attempts} attempts are out of bounds: 1 to {ATTEMPTS_MAX}"));
    }
    if request.stream && (request.keeps_output || request.key.is_some()) {
        let message =
            "nothing of a stream is kept, so its job can neither be detached nor have an idempotency key";
        return bad(message.to_owned());
    }
    match request.key.as_ref().map(|key| key.name.len()) {
        Some(0) => bad("an idempotency key has at least one byte".to_owned()),
        Some(length) if length > NAME_MAX => {
            bad(format!("an idempotency key of {length} bytes is too long: it may have {NAME_MAX}"))
        }
        _ => Ok(()),
    }
}
