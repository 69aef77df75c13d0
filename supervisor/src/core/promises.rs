//! What is kept of a job beyond its end because its client was told that it would be: a key that the job was submitted
//! under, or an output that nobody has taken yet.
//!
//! ```text
//!            accepted with a key,               it ends
//!  nothing ------------------------> Open ----------------------> Kept ---- its time is over --------> forgotten
//!     |      or detached               |                           |
//!     |                                costs PROMISE_BYTES         |  costs its texts and its output as well
//!     '- refused: what is kept for its                             |
//!        owner, or in all, is at its limit                         '- has no key, and is collected --> a courtesy
//! ```
//!
//! A promise ends in one of these ways and in no other. What other jobs do, its owner's or those of others, never ends
//! one: when there is no room for another promise, the *new* job is refused, with the time at which there will be
//! room. Lengths of outputs are known only at the end, so a job whose output is to be kept is not *started* while its
//! owner's share, or the whole, is full (it is held back); what is kept can be over its limit by
//! the outputs of the jobs that workers had at that moment, and by nothing else.
//!
//! A courtesy is everything else that the shell remembers of jobs that have ended. It has bounds of its own, is
//! forgotten when they are reached, and the core knows nothing of it.

use super::action::{Action, Actions, Ended, Keep, Notice, Released};
use super::event::JobRequest;
use super::ids::{JobId, Mono, ProgramIndex};
use super::jobs::JobState;
use super::kept::{Kept, Owner};
use super::keys::{KeyName, Keys, Known};
use super::sabotage::Bug;
use super::{Core, Phase};
use crate::limits::PROMISE_BYTES;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Jobs that were held back go on when this part of the limit is free again: one in so many.
const ROOM_AGAIN: u64 = 8;

/// To say when there is room again, so many ends of promises are looked at.
const ENDS_LOOKED_AT: usize = 64;

/// All promises.
#[derive(Debug, Default)]
pub struct Promises {
    by_job: BTreeMap<JobId, Promise>,
    pub(super) keys: Keys,
    kept: Kept,
    /// Of that, what is kept of jobs that have ended.
    kept_of_ended: Kept,
    /// When the time of each that is kept is over.
    ends: BTreeSet<(Mono, JobId)>,
    /// The same by owner.
    ends_of: BTreeSet<(Owner, Mono, JobId)>,
    /// Jobs that are held back until there is room for their outputs.
    held: BTreeMap<Owner, BTreeSet<JobId>>,
    held_count: usize,
    /// There may be room that there was not.
    has_more_room: bool,
    /// When it was over, nobody had collected these.
    lost: Vec<JobId>,
}

/// One of them.
#[derive(Debug)]
pub struct Promise {
    owner: Owner,
    key: Option<KeyName>,
    bytes: u64,
    /// Somebody waits for the end of the job and there is no key: nothing will have to be kept.
    is_taken_at_once: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job has not ended.
    Open,
    /// It has.
    Kept { until: Mono },
}

impl Promises {
    /// How much they hold, by owner and in all.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Jobs that have ended and whose results nobody has collected, of those without a key: for a key a result is kept beyond
    /// that. When it is over these are the lost ones.
    pub fn uncollected(&self) -> impl Iterator<Item = JobId> {
        let is_kept = |promise: &Promise| promise.stage != Stage::Open && promise.key.is_none();
        let kept = self.by_job.iter().filter(move |(_, promise)| is_kept(promise)).map(|(job, _)| *job);
        self.lost.iter().copied().chain(kept)
    }

    /// How much of that is kept of jobs that have ended.
    pub fn kept_of_ended(&self) -> &Kept {
        &self.kept_of_ended
    }

    /// Until when this job's report, and its output if there was room for it, is kept; none if it has not ended, or
    /// nothing was promised, or not any more.
    pub fn kept_until(&self, job: JobId) -> Option<Mono> {
        match self.by_job.get(&job)?.stage {
            Stage::Open => None,
            Stage::Kept { until } => Some(until),
        }
    }

    /// When the next one's time is over.
    pub fn next_end(&self) -> Option<Mono> {
        self.ends.first().map(|(when, _)| *when)
    }

    /// Jobs that are held back until there is room for their outputs.
    pub fn held_count(&self) -> usize {
        self.held_count
    }

    /// Whether something was promised of this job.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    /// Whether a key was promised to be known.
    fn is_keyed(&self, job: JobId) -> bool {
        self.by_job.get(&job).is_some_and(|promise| promise.key.is_some())
    }

    fn keep(&mut self, job: JobId, bytes: u64, until: Mono) {
        let Some(promise) = self.by_job.get_mut(&job) else { return };
        self.kept.release(&promise.owner, promise.bytes);
        promise.bytes = bytes;
        promise.stage = Stage::Kept { until };
        self.kept.hold(&promise.owner, bytes);
        self.kept_of_ended.hold(&promise.owner, bytes);
        self.ends.insert((until, job));
        self.ends_of.insert((promise.owner.clone(), until, job));
    }

    fn end(&mut self, job: JobId) {
        let Some(promise) = self.by_job.remove(&job) else { return };
        self.kept.release(&promise.owner, promise.bytes);
        self.has_more_room = true;
        if let Stage::Kept { until } = promise.stage {
            self.kept_of_ended.release(&promise.owner, promise.bytes);
            self.ends.remove(&(until, job));
            self.ends_of.remove(&(promise.owner, until, job));
        }
        if let Some(key) = promise.key {
            self.keys.expire(&key);
        }
    }

    /// When so many bytes will be free, of this owner's or of all; the last time that was looked at if it takes longer,
    /// none if nothing will be.
    fn free_at(&self, owner: Option<&Owner>, bytes: u64) -> Option<Mono> {
        let mut freed = 0;
        let mut last = None;
        let mut is_enough = |(when, job): (Mono, JobId)| {
            freed += self.by_job.get(&job).map_or(0, |promise| promise.bytes);
            last = Some(when);
            freed >= bytes
        };
        match owner {
            None => {
                let _ = self.ends.iter().take(ENDS_LOOKED_AT).copied().any(&mut is_enough);
            }
            Some(owner) => {
                let from = (owner.clone(), Mono::default(), JobId(0));
                let own = self.ends_of.range(from..).take_while(|(whose, _, _)| whose == owner);
                let _ = own.take(ENDS_LOOKED_AT).map(|(_, when, job)| (*when, *job)).any(&mut is_enough);
            }
        }
        last
    }

    /// Whether what is kept of an owner's ended jobs, or of all, is over its limit. It will be less when some of it is
    /// collected, or its time is over. What is only reserved for jobs that have not ended does not count: for that no job
    /// could wait.
    fn is_over(&self, owner: &Owner, (of_one, of_all): (u64, u64)) -> bool {
        let ended = &self.kept_of_ended;
        ended.of(owner).bytes > of_one || ended.all().bytes > of_all
    }

    /// What is wrong with the sums, if anything is.
    pub(super) fn check(&self, is_live: impl Fn(JobId) -> bool) -> Result<(), String> {
        let mut again = Kept::default();
        let mut ended = Kept::default();
        for promise in self.by_job.values() {
            again.hold(&promise.owner, promise.bytes);
            if promise.stage != Stage::Open {
                ended.hold(&promise.owner, promise.bytes);
            }
        }
        for promise in self.by_job.values() {
            let owner = &promise.owner;
            let is_right =
                again.of(owner) == self.kept.of(owner) && ended.of(owner) == self.kept_of_ended.of(owner);
            if !is_right {
                return Err(format!("what is kept for {} does not add up", promise.owner));
            }
        }
        let open = self.by_job.iter().filter(|(_, promise)| promise.stage == Stage::Open);
        let lost = open.clone().find(|(job, _)| !is_live(**job));
        let keyed = self.by_job.values().filter(|promise| promise.key.is_some()).count();
        let figures = [
            ("kept bytes", again.all().bytes, self.kept.all().bytes),
            ("kept things", again.all().count as u64, self.kept.all().count as u64),
            ("kept bytes of ended jobs", ended.all().bytes, self.kept_of_ended.all().bytes),
            ("ends", (self.by_job.len() - open.count()) as u64, self.ends.len() as u64),
            ("ends by owner", self.ends.len() as u64, self.ends_of.len() as u64),
            ("keys", keyed as u64, self.keys.len() as u64),
        ];
        match (lost, figures.into_iter().find(|(_, here, there)| here != there)) {
            (Some((job, _)), _) => Err(format!("{job} has ended and its promise is open")),
            (None, Some((what, here, there))) => Err(format!("{what}: {here}, not {there}")),
            (None, None) => Ok(()),
        }
    }
}

impl JobRequest {
    /// Whether something of the job has to be kept beyond its end.
    fn is_to_be_kept(&self) -> bool {
        self.keeps_output || self.key.is_some()
    }
}

impl Core {
    /// What is kept of jobs that have ended because somebody was told so.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// What the key of a request stands for already, if it has one.
    pub(super) fn known(&self, request: &JobRequest) -> Option<Known> {
        let key = request.key.as_ref().filter(|_| !self.sabotage.is(Bug::KeyIgnored))?;
        self.promises.keys.find(&request.owner, key, &request.task)
    }

    /// Whether there is room for one more promise, among those of its owner and among all.
    pub(super) fn check_promises(
        &self,
        now: Mono,
        request: &JobRequest,
        program: Option<ProgramIndex>,
    ) -> Result<(), ErrorDetail> {
        if !request.is_to_be_kept() || self.sabotage.is(Bug::PromisesUnbounded) {
            return Ok(());
        }
        let owner = &request.owner;
        let own = (self.promises.kept.of(owner).bytes, self.config.kept_bytes_of_one());
        let all = (self.promises.kept.all().bytes, self.config.max_kept_bytes);
        let (code, whose, who, (kept, limit)) = match (is_full(own), is_full(all)) {
            (true, _) => (OutcomeCode::Quota, Some(owner), owner.to_string(), own),
            (false, true) => (OutcomeCode::Overloaded, None, "all clients".to_owned(), all),
            (false, false) => return Ok(()),
        };
        let free_at = self.promises.free_at(whose, kept + PROMISE_BYTES - limit);
        let wait = free_at.map_or_else(|| self.retry_after(program), |when| when - now);
        let message = format!(
            "results and idempotency keys that are kept for {who} hold {kept} bytes, the limit is {limit}; a result \
             is kept until it is collected, or its time is over"
        );
        Err(super::submit::full(code, &message, wait))
    }

    /// Something is promised of a job that was accepted. Returned is the job that its key stood for before, until its
    /// time was over, if that is known.
    pub(super) fn promise(&mut self, id: JobId, request: &JobRequest) -> Option<JobId> {
        if !request.is_to_be_kept() {
            return None;
        }
        let owner = &request.owner;
        let used = request.key.as_ref().map(|key| self.promises.keys.insert(owner, key, &request.task, id));
        let (key, before) = used.map_or((None, None), |(key, before)| (Some(key), before));
        let promise = Promise {
            owner: owner.clone(),
            key,
            bytes: PROMISE_BYTES,
            is_taken_at_once: false,
            stage: Stage::Open,
        };
        self.promises.kept.hold(owner, PROMISE_BYTES);
        self.promises.by_job.insert(id, promise);
        before
    }

    /// A job has ended: what was promised of it is kept from now on.
    pub(super) fn keep_promise(&mut self, now: Mono, ended: &Ended, output_bytes: u64) -> Keep {
        let id = ended.job;
        let Some(promise) = self.promises.by_job.get(&id) else { return Keep::AsCourtesy };
        let bytes = PROMISE_BYTES + ended.text_bytes() + output_bytes;
        let more = bytes - promise.bytes;
        // None is started that there may be no room for, but for those that somebody takes at once, and at the end.
        let is_taken = promise.is_taken_at_once && !self.sabotage.is(Bug::AwaitedKeptWithoutRoom);
        let had_room = self.phase == Phase::Running && !is_taken;
        let has_room = had_room || self.has_room_for(&promise.owner, more);
        let time = self.time_to_keep(self.promises.is_keyed(id));
        let (bytes, keep) =
            if has_room { (bytes, Keep::Promised) } else { (PROMISE_BYTES, Keep::WithoutOutput) };
        self.promises.keep(id, bytes, now + time);
        if self.sabotage.is(Bug::KeysEvictedByNumber) && self.promises.ends.len() > 4 {
            let first = self.promises.ends.first().map(|(_, job)| *job);
            first.into_iter().for_each(|job| self.promises.end(job));
        }
        keep
    }

    fn time_to_keep(&self, is_keyed: bool) -> Duration {
        let results = if self.sabotage.is(Bug::ResultForgottenEarly) {
            self.config.keep_results / 2
        } else {
            self.config.keep_results
        };
        if is_keyed { self.config.keep_keys.max(results) } else { results }
    }

    fn has_room_for(&self, owner: &Owner, more: u64) -> bool {
        let kept = &self.promises.kept;
        kept.of(owner).bytes + more <= self.config.kept_bytes_of_one()
            && kept.all().bytes + more <= self.config.max_kept_bytes
    }

    /// Promises whose time is over end.
    pub(super) fn end_promises(&mut self, now: Mono, actions: &mut Actions) {
        while let Some(&(_, job)) = self.promises.ends.first().filter(|(when, _)| *when <= now) {
            if self.sabotage.is(Bug::PromiseNeverEnds) {
                return;
            }
            self.promises.end(job);
            actions.push(Action::Release { job, why: Released::TimeIsOver });
        }
    }

    /// Somebody was given the output of a job. If that was all that was promised, the promise is kept.
    pub(super) fn on_collected(&mut self, job: JobId, actions: &mut Actions) {
        let is_due = self.promises.kept_until(job).is_some() && !self.promises.is_keyed(job);
        if is_due && !self.sabotage.is(Bug::CollectedStillKept) {
            self.promises.end(job);
            actions.push(Action::Release { job, why: Released::Collected });
        }
    }

    /// Somebody waits for a job: unless it has a key its output will be taken, so there need not be room for it.
    pub(super) fn on_awaited(&mut self, job: JobId) {
        let Some(promise) = self.promises.by_job.get_mut(&job) else { return };
        promise.is_taken_at_once = promise.key.is_none();
        if promise.is_taken_at_once && self.release_held(job) {
            self.wait_again(job);
        }
    }

    /// It is this job's turn: true if it cannot be started because there is no room for an output that is to be kept.
    /// Then it waits until there is.
    pub(super) fn hold_back(&mut self, id: JobId) -> bool {
        let Some(promise) = self.promises.by_job.get(&id) else { return false };
        let owner = promise.owner.clone();
        let limits = (self.config.kept_bytes_of_one(), self.config.max_kept_bytes);
        if promise.is_taken_at_once || self.has_room(&owner, limits) {
            return false;
        }
        self.dequeue(id);
        let Some(job) = self.jobs.get_mut(id) else { return false };
        job.state = JobState::Held;
        // It waits on, and counts among those that its client has waiting.
        self.clients.waits(job.client, Duration::ZERO);
        self.promises.held.entry(owner).or_default().insert(id);
        self.promises.held_count += 1;
        true
    }

    /// Whether an owner's job whose output is to be kept may be started.
    fn has_room(&self, owner: &Owner, limits: (u64, u64)) -> bool {
        self.phase != Phase::Running
            || self.sabotage.is(Bug::NoRoomIgnored)
            || !self.promises.is_over(owner, limits)
    }

    /// Jobs that were held back wait for their turn again if there is room. There has to be a little more of it than
    /// is needed for one job, so that thousands of jobs are not moved there and back for each one that is run.
    pub(super) fn let_go_on(&mut self) {
        if !std::mem::take(&mut self.promises.has_more_room) || self.sabotage.is(Bug::HeldForEver) {
            return;
        }
        let less = |limit: u64| limit - limit / ROOM_AGAIN;
        let limits = (less(self.config.kept_bytes_of_one()), less(self.config.max_kept_bytes));
        let with_room = self.promises.held.iter().filter(|(owner, _)| self.has_room(owner, limits));
        let free: Vec<JobId> = with_room.flat_map(|(_, jobs)| jobs.iter().copied()).collect();
        for id in free {
            self.release_held(id);
            self.wait_again(id);
        }
    }

    /// A job that was held back waits for its turn again. Meanwhile it may have become clear that nobody can do it.
    fn wait_again(&mut self, id: JobId) {
        self.enqueue(id);
        self.places_changed = true;
    }

    /// A job is not held back any more; the caller says where it goes. False if it was not.
    pub(super) fn release_held(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id).filter(|job| job.state == JobState::Held) else { return false };
        self.clients.waits_no_more(job.client, Duration::ZERO);
        if let Some(jobs) = self.promises.held.get_mut(&job.owner) {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.promises.held.remove(&job.owner);
            }
        }
        self.promises.held_count -= 1;
        true
    }

    /// Limits or the phase have changed.
    pub(super) fn look_for_room_again(&mut self) {
        self.promises.has_more_room = true;
    }

    /// It is over: nobody can come back for anything.
    pub(super) fn forget_promises(&mut self) {
        self.promises.keys.clear();
        let uncollected = self.promises.uncollected().collect();
        self.promises = Promises { lost: uncollected, ..Promises::default() };
    }

    /// Tells that a key is used again whose time was over.
    pub(super) fn note_expired_key(&self, job: JobId, before: Option<JobId>, actions: &mut Actions) {
        actions.extend(before.map(|before| Action::Log(Notice::KeyUsedAgain { job, before })));
    }
}

/// Whether one more promise is over the limit.
fn is_full((kept, limit): (u64, u64)) -> bool {
    kept + PROMISE_BYTES > limit
}

impl Ended {
    /// What the texts of the report take that is kept of it.
    pub fn text_bytes(&self) -> u64 {
        let error = self.error.as_ref().map_or(0, |error| error.message.len());
        let of_one = |lost: &super::action::LostAttempt| {
            let lines: usize = lost.last_lines.iter().map(|line| LINE_BYTES + line.len()).sum();
            LOST_BYTES + lost.what.len() + lines
        };
        (error + self.lost.iter().map(of_one).sum::<usize>()) as u64
    }
}

/// What one lost attempt takes beside its texts.
const LOST_BYTES: usize = 256;

/// What one line takes beside its text.
const LINE_BYTES: usize = 24;
