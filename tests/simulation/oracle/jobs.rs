//! Records of jobs: what was promised for each, what was done about it, and which outcomes that allows.

use super::behind::Before;
use super::parts::PartsBook;
use super::workers::WorkerBook;
use super::{Failure, Oracle, Submission, demand};
use crate::script::FakeTask;
use offload_core::action::{Accepted, Ended};
use offload_core::event::{Event, JobRequest};
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::limits::{ATTEMPTS_MAX, EXCUSED_MAX, PRIORITY_MAX};
use offload_protocol::nouns::{FailureKind, OutcomeCode, is_task_name};
use std::collections::BTreeSet;
use std::time::Duration;

/// So many workers, and the first one before them, end before they have started a job until it may be given up.
const HOPELESS_AFTER: u32 = 12;

/// How a run really ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// With a result.
    Well,
    /// With a failure of its own.
    Failed(FailureKind),
}

/// One job that was accepted.
#[derive(Clone, Debug)]
pub(super) struct JobBook {
    pub(super) task: String,
    /// Bytes of memory that its input takes.
    pub(super) bytes: u64,
    /// Its input is a file, which takes none.
    pub(super) has_file: bool,
    /// Length of its checkpoint.
    pub(super) checkpoint: u64,
    pub(super) client: String,
    pub(super) deadline: Option<Mono>,
    pub(super) timeout: Duration,
    pub(super) priority: i8,
    /// Most attempts, if the submitter said so, and otherwise, if it may be run again.
    asked: Option<u32>,
    unasked: u32,
    /// It was started by a process that did not promise that it may be run twice.
    pub(super) must_not_run_again: bool,
    /// What was known of it before it was last started.
    pub(super) before: Before,
    /// How often it was believed that what its worker's program did had to do with another job.
    pub(super) bystander: u32,
    wish: usize,
    pub(super) accepted_at: Mono,
    /// Starts that the core was told of by workers that it trusts.
    pub(super) starts: u32,
    /// Starts that really happened, whatever the core was told of them.
    executions: u32,
    /// Runs that were really done.
    runs: Vec<(WorkerId, u32, Ran)>,
    pub(super) holder: Option<WorkerId>,
    /// The shell does it itself.
    pub(super) is_here: bool,
    pub(super) running_since: Option<Mono>,
    /// A worker has ended that had it.
    pub(super) is_suspect: bool,
    /// Workers in a row that had nothing else and ended before they had started it.
    pub(super) unstarted: u32,
    pub(super) excused: u32,
    /// It is abandoned: nobody waits for it any more.
    pub(super) is_abandoned: bool,
    /// It runs in steps, and its worker promised that it may be lost.
    pub(super) lets_others_in: bool,
    /// It was really run by a process that did not promise that it may be run twice.
    ran_once: bool,
    /// It was given back with a checkpoint: to go on from there is not to run it twice.
    goes_on: bool,
    /// How often it was lost because of another job while it ran.
    pub(super) innocent_losses: u32,
    /// Since when another one runs between its steps.
    pub(super) suspended_since: Option<Mono>,
    /// How long others ran, in this attempt.
    pub(super) stood_still: Duration,
    /// When it was started, or last said how far it is, or later by the time in which others ran since.
    pub(super) heard_at: Mono,
    /// How often it was given back in the middle, as was wanted.
    pub(super) yields: u32,
    /// The numbers of the attempts whose workers ended while it ran there, was not suspended, and was the reason.
    pub(super) blamed: BTreeSet<u32>,
    /// When it was started there, its worker had been told to end.
    pub(super) is_bystander: bool,
    /// A worker that breaks rules had it: what was said of it since is not known to be true.
    pub(super) is_doubtful: bool,
    outcome: Option<OutcomeCode>,
    pub(super) parts: PartsBook,
}

impl JobBook {
    pub(super) fn is_late(&self, now: Mono) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn has_run_too_long(&self, now: Mono) -> bool {
        let now = self.suspended_since.unwrap_or(now);
        self.running_since.is_some_and(|since| since + self.timeout + self.stood_still <= now)
    }

    /// Whether it runs and has been silent for so long, and had promised not to be.
    pub(super) fn is_silent(&self, now: Mono, hang_timeout: Duration) -> bool {
        let promise = FakeTask::find(&self.task).map_or(Duration::ZERO, |task| task.promise);
        let is_running = self.running_since.is_some() && self.suspended_since.is_none();
        is_running && !promise.is_zero() && self.heard_at + promise + hang_timeout <= now
    }

    /// How many attempts may end their workers, of a job that was started.
    pub(super) fn allowed(&self) -> u32 {
        if self.parts.delivered > 0 {
            return 1;
        }
        let unasked = if self.must_not_run_again { 1 } else { self.unasked };
        self.asked.unwrap_or(unasked).clamp(1, ATTEMPTS_MAX)
    }

    /// Whether it may be lost with a worker that promises this of its task.
    pub(super) fn may_be_lost(&self, is_idempotent: bool) -> bool {
        let mut book = self.clone();
        book.must_not_run_again |= !is_idempotent;
        book.allowed() > 1
    }

    /// Its worker says that it has started it, and had promised this of its task.
    pub(super) fn start(&mut self, now: Mono, is_idempotent: bool) {
        self.before = Before::of(self);
        self.must_not_run_again |= !is_idempotent;
        self.starts += 1;
        self.parts.start();
        self.unstarted = 0;
        self.running_since = Some(now);
        self.lets_others_in = self.is_stepped() && is_idempotent && self.allowed() > 1 && !self.is_suspect;
        (self.suspended_since, self.stood_still, self.heard_at) = (None, Duration::ZERO, now);
    }

    /// Its worker has ended, which had this many jobs.
    pub(super) fn lose(&mut self, jobs: usize, is_because_of_another: bool, has_done_others: bool) {
        let has_started = self.running_since.is_some();
        let is_innocent = self.suspended_since.is_some() || is_because_of_another || self.is_bystander;
        self.blamed.extend((has_started && !is_innocent).then_some(self.starts));
        // What a worker has begun that breaks rules is not known.
        self.innocent_losses += u32::from((has_started && is_innocent) || self.is_doubtful);
        // A worker that was ended because of another job says nothing of this one, even if it answered that one late.
        let is_unstarted = !has_started && jobs == 1 && !is_because_of_another;
        // Nor does one that had done others say much of it, unless there are many of them.
        let is_excused = has_done_others && !self.is_on_probation() && self.excused < EXCUSED_MAX;
        match is_unstarted && is_excused {
            true => self.excused += 1,
            false => self.unstarted += u32::from(is_unstarted),
        }
        self.is_suspect = true;
        self.stop_running();
    }

    /// Workers end again and again before they have started it.
    pub(super) fn is_on_probation(&self) -> bool {
        self.unstarted > 1
    }

    pub(super) fn is_stepped(&self) -> bool {
        FakeTask::find(&self.task).is_some_and(|task| task.is_stepped)
    }

    pub(super) fn suspend(&mut self, now: Mono) {
        self.suspended_since = self.running_since.map(|_| now);
    }

    pub(super) fn resume(&mut self, now: Mono) {
        if let Some(since) = self.suspended_since.take() {
            self.stood_still += now - since;
            self.heard_at = self.heard_at + (now - since);
        }
    }

    /// How long it has run in this attempt.
    pub(super) fn ran(&self, now: Mono) -> Duration {
        let until = self.suspended_since.unwrap_or(now);
        self.running_since.map_or(Duration::ZERO, |since| (until - since).saturating_sub(self.stood_still))
    }

    /// Its attempt is over, and it is not.
    pub(super) fn stop_running(&mut self) {
        (self.holder, self.is_bystander) = (None, false);
        (self.running_since, self.suspended_since) = (None, None);
    }
}

impl Oracle {
    /// A worker has begun a job. Whether the core knows it is another question.
    ///
    /// # Errors
    /// If it was begun more often than it may be.
    pub(crate) fn really_started(&mut self, job: JobId, is_idempotent: bool) -> Result<(), Failure> {
        let Some(book) = self.jobs.get_mut(&job) else { return Ok(()) };
        let goes_on = std::mem::take(&mut book.goes_on);
        demand(!book.ran_once || book.asked.is_some() || goes_on, "O3", || {
            format!("{job} is run again, and was run by a process that does not allow that")
        })?;
        book.ran_once |= !is_idempotent;
        book.executions += 1;
        // One that may be tried again may also be lost because of others.
        let most = book.asked.unwrap_or(book.unasked).clamp(1, ATTEMPTS_MAX);
        let allowed = most + book.yields + if most > 1 { book.innocent_losses } else { 0 };
        demand(book.executions <= allowed, "O3", || {
            format!("{job} was run {} times, {allowed} are allowed", book.executions)
        })
    }

    /// A worker has done a job.
    pub(crate) fn really_ended(&mut self, worker: WorkerId, job: JobId, attempt: u32, how: Ran) {
        if let Some(book) = self.jobs.get_mut(&job) {
            book.runs.push((worker, attempt, how));
        }
    }

    /// A job has a checkpoint.
    pub(super) fn keep(&mut self, id: JobId, event: Option<&Event>) -> Result<(), Failure> {
        let Some(Event::Checkpoint { bytes, job, .. } | Event::Yielded { bytes, job, .. }) = event else {
            return Err(Failure { rule: "O2", what: format!("no checkpoint of {id} came") });
        };
        demand(*job == id && self.live.contains(&id), "O2", || format!("a checkpoint of {job} for {id}"))?;
        let Some(book) = self.jobs.get_mut(&id) else { return Ok(()) };
        book.checkpoint = *bytes;
        if matches!(event, Some(Event::Yielded { .. })) {
            book.yields += 1;
            book.goes_on = true;
            book.stop_running();
        }
        Ok(())
    }

    pub(super) fn judge_acceptance(
        &mut self,
        now: Mono,
        Submission { wish, request, .. }: &Submission,
        Accepted { job: id, is_known }: Accepted,
    ) -> Result<(), Failure> {
        let known = self.known(request);
        if is_known {
            return demand(known == Some((id, true)), "O12", || format!("{id} is not known: {request:?}"));
        }
        let is_legal = self.lets_in(request)
            && known.is_none()
            && self.is_full_of_promises(request) == (false, false)
            && !self.is_queue_full()
            && self.has_room(&request.client, request.held_bytes(), false)
            && self.may_take_file(request)
            && request.input_bytes <= self.config.max_payload
            && request.timeout != Some(Duration::ZERO)
            && is_task_name(&request.task);
        demand(is_legal, "O12", || format!("{id} should have been refused: {request:?}"))?;
        demand(!self.jobs.contains_key(&id), "O1", || format!("{id} exists already"))?;
        self.accepted += 1;
        self.live.insert(id);
        self.promise(id, request);
        let book = self.open_book(now, *wish, request.clone());
        self.jobs.insert(id, book);
        Ok(())
    }

    fn open_book(&self, now: Mono, wish: usize, request: JobRequest) -> JobBook {
        JobBook {
            wish,
            bytes: request.held_bytes(),
            has_file: request.has_file,
            checkpoint: 0,
            client: request.client.to_string(),
            deadline: request.deadline.map(|deadline| now + deadline),
            timeout: request.timeout.unwrap_or(self.config.run_timeout),
            priority: request.priority,
            asked: request.attempts,
            unasked: self.config.max_attempts,
            must_not_run_again: false,
            before: Before::default(),
            bystander: 0,
            task: request.task,
            accepted_at: now,
            starts: 0,
            executions: 0,
            runs: Vec::new(),
            holder: None,
            is_here: false,
            running_since: None,
            is_suspect: false,
            unstarted: 0,
            excused: 0,
            is_abandoned: false,
            lets_others_in: false,
            ran_once: false,
            goes_on: false,
            innocent_losses: 0,
            suspended_since: None,
            stood_still: Duration::ZERO,
            heard_at: now,
            yields: 0,
            blamed: BTreeSet::new(),
            is_bystander: false,
            is_doubtful: false,
            outcome: None,
            parts: PartsBook::asked(request.stream),
        }
    }

    pub(super) fn judge_refusal(&mut self, request: &JobRequest, code: OutcomeCode) -> Result<(), Failure> {
        self.rejected += u64::from(code != OutcomeCode::Unsupported);
        let is_legal = match code {
            OutcomeCode::Unsupported => self.may_refuse_file(request),
            OutcomeCode::Unavailable => {
                !self.lets_in(request)
                    || self.programs.iter().any(|program| program.may_refuse(self.least_restarts))
            }
            OutcomeCode::TooLarge => request.input_bytes > self.config.max_payload,
            OutcomeCode::Overloaded => {
                self.is_queue_full()
                    || !self.has_room(&request.client, request.held_bytes(), true)
                    || self.is_full_of_promises(request).1
            }
            OutcomeCode::BadRequest => {
                request.timeout == Some(Duration::ZERO)
                    || request.lane.is_some()
                    || request.priority > PRIORITY_MAX
                    || request.attempts.is_some_and(|most| !(1..=ATTEMPTS_MAX).contains(&most))
                    || (request.stream && (request.keeps_output || request.key.is_some()))
                    || request.key.as_ref().is_some_and(|key| key.name.is_empty())
            }
            OutcomeCode::Quota => {
                self.waiting_of(&request.client) >= self.config.max_jobs_of_one()
                    || !self.has_room(&request.client, request.held_bytes(), true)
                    || self.is_full_of_promises(request).0
            }
            OutcomeCode::Conflict => self.known(request).is_some_and(|(_, is_same)| !is_same),
            OutcomeCode::UnknownTask => self.is_unknown(&request.task),
            _ => false,
        };
        demand(is_legal, "O12", || format!("refused with {code}: {request:?}"))
    }

    pub(super) fn judge_outcome(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        ended: &Ended,
    ) -> Result<(), Failure> {
        let id = ended.job;
        demand(self.live.contains(&id), "O1", || format!("{id} ends again, or never lived"))?;
        let book = &self.jobs[&id];
        let is_legal = self.is_legal(now, event, id, book, ended);
        demand(is_legal, "O2", || format!("{id} must not end like that: {ended:?}\n{book:?}"))?;
        demand(book.is_doubtful || ended.attempts == book.starts, "O2", || {
            format!("{id} was started {} times, not {}", book.starts, ended.attempts)
        })?;
        let has_its_names = *ended.task == *book.task && *ended.account == *book.client;
        demand(has_its_names, "O2", || format!("{id} ends under other names: {ended:?}"))?;
        self.judge_blame(now, ended, book)?;
        let is_watched = self.innocents.as_ref().is_some_and(|innocents| innocents.contains(&book.wish));
        // One that must not run twice may have run when its worker was ended for another.
        let is_fine = matches!(ended.outcome, OutcomeCode::Ok | OutcomeCode::Indeterminate);
        demand(!is_watched || is_fine, "O15", || {
            format!("{id} has done nothing wrong, and ended: {ended:?}")
        })?;
        let age = ended.queued + ended.run + ended.returned;
        demand(age == now - book.accepted_at, "O2", || format!("{id} did not take {age:?}"))?;
        demand(ended.error.is_none() == (ended.outcome == OutcomeCode::Ok), "O2", || {
            format!("{id} is {} with {:?}", ended.outcome, ended.error)
        })?;
        if let (OutcomeCode::Ok, Some(Event::Finished { worker, output_bytes, .. })) = (ended.outcome, event)
        {
            self.note_proof_of_a_liar(*worker);
            self.memory.returned(&self.jobs[&id].client, *output_bytes);
            self.memory.was_long(self.jobs[&id].parts.sent + output_bytes);
        }
        self.note_end_here(event, ended);
        self.note_last_test(now, id);
        self.live.remove(&id);
        *self.ended.entry(ended.outcome).or_default() += 1;
        self.jobs.entry(id).and_modify(|book| book.outcome = Some(ended.outcome));
        Ok(())
    }

    /// Whether so many workers have ended before they had started a job, with the one that has just ended, that it may be
    /// given up.
    fn is_hopeless(&self, book: &JobBook) -> bool {
        let tests = if self.is_draining { 1 } else { HOPELESS_AFTER };
        book.is_doubtful || (book.running_since.is_none() && book.unstarted > tests - 1)
    }

    /// Whether what really happened allows this outcome at this event.
    fn is_legal(&self, now: Mono, event: Option<&Event>, id: JobId, book: &JobBook, ended: &Ended) -> bool {
        let has_run = |of: WorkerId, named: u32, how: Ran| {
            book.holder == Some(of) && book.runs.contains(&(of, named, how))
        };
        let is_its_exit = book.holder.is_some_and(|worker| self.gone.contains(&worker));
        let is_free = !book.is_out() || is_its_exit;
        let holder = book.holder.and_then(|worker| self.workers.get(&worker));
        let was_lost = book.is_doubtful || book.running_since.is_some();
        let is_for_another = holder.is_some_and(|holder| holder.is_ended_for_a_job) || book.is_bystander;
        let may_have_begun = holder.is_some_and(|holder| holder.may_have_begun(id));
        match (ended.outcome, event) {
            (OutcomeCode::Ok, Some(Event::Finished { worker, job, attempt, .. })) => {
                *job == id && has_run(*worker, *attempt, Ran::Well)
            }
            (OutcomeCode::AppError, Some(Event::Finished { worker, job, attempt, output_bytes, .. })) => {
                let is_its_own = *job == id && has_run(*worker, *attempt, Ran::Well);
                is_its_own && self.is_too_long(id, *output_bytes)
            }
            (OutcomeCode::AppError, Some(Event::Part { worker, job, .. })) => {
                *job == id && book.holder == Some(*worker) && self.is_too_long(id, 0)
            }
            (OutcomeCode::AppError, Some(Event::Failed { worker, job, attempt, .. })) => {
                *job == id && has_run(*worker, *attempt, Ran::Failed(FailureKind::AppError))
            }
            (OutcomeCode::Panic, Some(Event::Failed { worker, job, attempt, .. })) => {
                *job == id && has_run(*worker, *attempt, Ran::Failed(FailureKind::Panic))
            }
            (outcome, Some(Event::RanHere { job, result })) if *job == id => {
                book.may_end_here(outcome, result) || self.may_lack_room_here(id, outcome, result)
            }
            (OutcomeCode::Timeout, _) => {
                let was_stopped =
                    is_its_exit && holder.is_some_and(|holder| holder.was_stopped || holder.has_hung);
                // An answer that came in time may not have been read before the tick.
                let is_certain = is_free || matches!(event, Some(Event::Tick));
                is_certain
                    && (book.is_late(now) || book.has_run_too_long(now) || book.is_doubtful || was_stopped)
            }
            (OutcomeCode::Cancelled, Some(Event::Cancel { job } | Event::ClientGone { job })) => *job == id,
            (OutcomeCode::Cancelled, _) => self.is_stopping || (is_free && book.is_abandoned),
            (OutcomeCode::WorkerCrashed, _) => {
                let is_innocent = book.suspended_since.is_some() || is_for_another;
                let is_guilty = book.allowed() == 1 && !is_innocent;
                let is_otherwise = holder.is_some_and(|holder| holder.has_broken_program);
                is_its_exit && was_lost && (book.is_doubtful || (is_guilty && !is_otherwise))
            }
            (OutcomeCode::WorkerProtocol, _) => {
                let is_last = book.allowed() == 1 || book.is_doubtful;
                let is_innocent = book.suspended_since.is_some() || is_for_another;
                let is_by_program = was_lost && !is_innocent;
                let has_broken =
                    |holder: &WorkerBook| holder.is_liar || (holder.has_broken_program && is_by_program);
                is_its_exit && is_last && holder.is_some_and(has_broken)
            }
            (OutcomeCode::Poison, _) => {
                let is_innocent = book.suspended_since.is_some() || is_for_another;
                let is_blamed = !is_innocent && book.blamed.len() + 1 >= book.allowed() as usize;
                let is_often = ended.attempts >= book.allowed() && is_blamed && book.allowed() > 1;
                is_its_exit && was_lost && (is_often || book.is_doubtful)
            }
            (OutcomeCode::Indeterminate, _) => {
                let is_last = book.allowed() == 1 || book.is_doubtful;
                let was_lost_so = was_lost && is_last && is_for_another;
                is_its_exit && (was_lost_so || may_have_begun)
            }
            (OutcomeCode::Unavailable, _) => {
                let no_worker = self.programs.iter().any(|program| program.may_refuse(self.least_restarts));
                let is_gone = self.was_offered(&book.task) && self.is_unknown(&book.task);
                is_free && (no_worker || is_gone || (is_its_exit && self.is_hopeless(book)))
            }
            (OutcomeCode::UnknownTask, _) => {
                is_free && self.is_unknown(&book.task) && !self.was_offered(&book.task)
            }
            (OutcomeCode::BadRequest, _) => is_free,
            (OutcomeCode::Unsupported, _) => is_free && book.has_file && self.may_lack_files(),
            _ => false,
        }
    }
}
