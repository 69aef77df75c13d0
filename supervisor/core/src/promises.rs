//! What is kept of a job beyond its end because its client was told that it would be: a key that the job was submitted
//! under, or an output that nobody has taken yet.
//!
//! ```text
//!            accepted with a key,               it ends
//!  nothing ------------------------> Open ----------------------> Kept ---- its time is over --------> forgotten
//!     |      or detached               |                           |
//!     |                                costs PROMISE_BYTES         |  costs its texts and its output as well
//!     '- refused: what is kept for its                             |
//!        client, or in all, is at its limit                        '- has no key, and is collected --> a courtesy
//! ```
//!
//! A promise ends in one of these ways and in no other. What other jobs do, those of the same client or of others, never
//! ends one: when there is no room for another promise, the *new* job is refused, with the time at which there will be
//! room. A client may have as much kept as it leaves free (`kept.rs`). Lengths of outputs are known only at the end, so
//! a job whose output is to be kept is not *started* while its client's share, or the whole, is full (it is held back);
//! what is kept can be over its limit by the outputs of the jobs that workers had at that moment, and by nothing else.
//!
//! Who has jobs that are held back starts no younger ones either until those go on: for both the mark is a little lower,
//! and below it all go on, the oldest first.
//!
//! A job that somebody waits for is soon collected: it is started although its client's share is full, and only the
//! limit of all holds it back. What becomes of its output does not depend on whether the waiter is there in the end:
//! it is kept until somebody has been given all of it.
//!
//! A courtesy is everything else that the shell remembers of jobs that have ended. It has bounds of its own, is
//! forgotten when they are reached, and the core knows nothing of it.

mod held;

use super::action::{Action, Ended, Keep, Notice, Released};
use super::event::JobRequest;
use super::ids::{JobId, Mono, ProgramIndex};
use super::kept::{Kept, share, whose};
use super::keys::{KeyName, Keys, Known};
use super::ledger::Short;
use super::turn::Turn;
use super::{Core, Phase};
use crate::limits::PROMISE_BYTES;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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
    /// The same by account.
    ends_of: BTreeSet<(Arc<str>, Mono, JobId)>,
    /// Jobs that are held back until there is room for their outputs on their account, and among all.
    held: BTreeMap<Arc<str>, BTreeSet<JobId>>,
    /// Jobs that are held back until there is room among all: somebody waits for them.
    held_awaited: BTreeSet<JobId>,
    held_count: usize,
    /// Some are held back for want of room among all and for nothing else.
    waits_for_all: bool,
    /// There may be room that there was not.
    has_more_room: bool,
    /// When it was over, nobody had collected these.
    lost: Vec<JobId>,
}

/// How much of a limit may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// All of it.
    High,
    /// A little less: jobs are held back, and go on below this.
    Low,
}

impl Mark {
    fn of(self, limit: u64) -> u64 {
        match self {
            Mark::High => limit,
            Mark::Low => limit - limit / ROOM_AGAIN,
        }
    }
}

/// One of them.
#[derive(Debug)]
pub struct Promise {
    account: Arc<str>,
    key: Option<KeyName>,
    bytes: u64,
    /// Somebody waits for the end of the job and there is no key: nothing will have to be kept for long.
    is_awaited: bool,
    /// Somebody was given all of the output, which is kept beyond that for the key.
    was_collected: bool,
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
    /// How much they hold, by account and in all.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Jobs that have ended and whose results nobody has collected. When it is over these are the lost ones.
    pub fn uncollected(&self) -> impl Iterator<Item = JobId> {
        let is_kept = |promise: &Promise| promise.stage != Stage::Open && !promise.was_collected;
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

    fn note_collected(&mut self, job: JobId) {
        self.by_job.entry(job).and_modify(|promise| promise.was_collected = true);
    }

    fn keep(&mut self, job: JobId, bytes: u64, until: Mono) {
        let Some(promise) = self.by_job.get_mut(&job) else { return };
        self.kept.release(&promise.account, promise.bytes);
        promise.bytes = bytes;
        promise.stage = Stage::Kept { until };
        self.kept.hold(&promise.account, bytes);
        self.kept_of_ended.hold(&promise.account, bytes);
        self.ends.insert((until, job));
        self.ends_of.insert((promise.account.clone(), until, job));
    }

    fn end(&mut self, job: JobId) {
        let Some(promise) = self.by_job.remove(&job) else { return };
        self.kept.release(&promise.account, promise.bytes);
        self.has_more_room = true;
        if let Stage::Kept { until } = promise.stage {
            self.kept_of_ended.release(&promise.account, promise.bytes);
            self.ends.remove(&(until, job));
            self.ends_of.remove(&(promise.account, until, job));
        }
        if let Some(key) = promise.key {
            self.keys.expire(&key);
        }
    }

    /// When so many bytes will be free, of this account's or of all; the last time that was looked at if it takes longer,
    /// none if nothing will be.
    fn free_at(&self, account: Option<&str>, bytes: u64) -> Option<Mono> {
        let mut freed = 0;
        let mut last = None;
        let mut is_enough = |(when, job): (Mono, JobId)| {
            freed += self.by_job.get(&job).map_or(0, |promise| promise.bytes);
            last = Some(when);
            freed >= bytes
        };
        match account {
            None => {
                let _ = self.ends.iter().take(ENDS_LOOKED_AT).copied().any(&mut is_enough);
            }
            Some(account) => {
                let from = (Arc::from(account), Mono::default(), JobId(0));
                let own = self.ends_of.range(from..).take_while(|(whose, _, _)| **whose == *account);
                let _ = own.take(ENDS_LOOKED_AT).map(|(_, when, job)| (*when, *job)).any(&mut is_enough);
            }
        }
        last
    }

    /// Whether what is kept of an account's ended jobs is over its share. It will be less when some of it is collected,
    /// or its time is over. What is only reserved for jobs that have not ended does not count: for that no job could
    /// wait.
    fn is_over_its_share(&self, account: &str, mark: Mark, limit: u64) -> bool {
        let ended = &self.kept_of_ended;
        ended.of(account).bytes > mark.of(limit.saturating_sub(ended.all().bytes))
    }

    /// The same of all that is kept.
    fn is_over(&self, mark: Mark, limit: u64) -> bool {
        self.kept_of_ended.all().bytes > mark.of(limit)
    }

    /// What is wrong with what is held back under this limit, if anything is: each of these has a reason. While they are
    /// let go on a few at a time, the last ones are still held.
    pub(super) fn check_held(&self, limit: u64, is_moving: bool) -> Result<(), String> {
        let is_over = is_moving || self.is_over(Mark::Low, limit);
        let without =
            self.held.keys().find(|account| !is_over && !self.is_over_its_share(account, Mark::Low, limit));
        let count: usize = self.held.values().map(BTreeSet::len).sum();
        match without {
            Some(account) => Err(format!("jobs of {account} are held back, and there is room")),
            None if !is_over && !self.held_awaited.is_empty() => {
                Err("a job that somebody waits for is held back".into())
            }
            None if count + self.held_awaited.len() != self.held_count => {
                Err("held jobs do not add up".into())
            }
            None => Ok(()),
        }
    }

    /// What is wrong with the sums, if anything is.
    pub(super) fn check(&self, is_live: impl Fn(JobId) -> bool) -> Result<(), String> {
        let mut again = Kept::default();
        let mut ended = Kept::default();
        for promise in self.by_job.values() {
            again.hold(&promise.account, promise.bytes);
            if promise.stage != Stage::Open {
                ended.hold(&promise.account, promise.bytes);
            }
        }
        for promise in self.by_job.values() {
            let account = &promise.account;
            let is_right = again.of(account) == self.kept.of(account)
                && ended.of(account) == self.kept_of_ended.of(account);
            if !is_right {
                return Err(format!("what is kept for {account} does not add up"));
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
            ("ends by account", self.ends.len() as u64, self.ends_of.len() as u64),
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
        let key = request.key.as_ref()?;
        self.promises.keys.find(&request.owner, key, &request.task)
    }

    /// Whether there is room for one more promise, in its client's share and among all.
    pub(super) fn check_promises(
        &self,
        now: Mono,
        request: &JobRequest,
        program: Option<ProgramIndex>,
    ) -> Result<(), ErrorDetail> {
        if !request.is_to_be_kept() {
            return Ok(());
        }
        let account = &*request.client;
        let (own, all) = (self.promises.kept.of(account).bytes, self.promises.kept.all().bytes);
        let limit = self.config.max_kept_bytes;
        let Err(short) = share(own, all, PROMISE_BYTES, limit) else { return Ok(()) };
        let lacking = (own + all + 2 * PROMISE_BYTES).saturating_sub(limit);
        let (code, whose_ends, lacking, state) = match short {
            Short::OfItsShare => {
                let free = limit.saturating_sub(all);
                let state = format!(
                    "{} hold {own} bytes, {free} of {limit} are free, and one client may keep as much as it leaves \
                     free",
                    whose(account)
                );
                // What is collected of its own is less for it, and more that is free.
                (OutcomeCode::Quota, Some(account), lacking.div_ceil(2), state)
            }
            Short::OfRoom => {
                let state = format!("all clients hold {all} bytes, the limit is {limit}");
                (OutcomeCode::Overloaded, None, lacking, state)
            }
        };
        let free_at = self.promises.free_at(whose_ends, lacking);
        let wait = free_at.map_or_else(|| self.retry_after(program), |when| when - now);
        let message = format!(
            "results and idempotency keys that are kept for {state}; a result is kept until it is collected, or its \
             time is over"
        );
        Err(super::submit::full(code, &message, wait))
    }

    /// Something is promised of a job that was accepted. Returned is the job that its key stood for before, until its
    /// time was over, if that is known.
    pub(super) fn promise(&mut self, id: JobId, request: &JobRequest) -> Option<JobId> {
        if !request.is_to_be_kept() {
            return None;
        }
        let (owner, account) = (&request.owner, Arc::from(&*request.client));
        let used = request.key.as_ref().map(|key| self.promises.keys.insert(owner, key, &request.task, id));
        let (key, before) = used.map_or((None, None), |(key, before)| (Some(key), before));
        self.promises.kept.hold(&account, PROMISE_BYTES);
        let promise = Promise {
            account,
            key,
            bytes: PROMISE_BYTES,
            is_awaited: false,
            was_collected: false,
            stage: Stage::Open,
        };
        self.promises.by_job.insert(id, promise);
        before
    }

    /// A job has ended: what was promised of it is kept from now on.
    pub(super) fn keep_promise(&mut self, now: Mono, ended: &Ended, output_bytes: u64) -> Keep {
        let id = ended.job;
        let Some(promise) = self.promises.by_job.get(&id) else { return Keep::AsCourtesy };
        let bytes = PROMISE_BYTES + ended.text_bytes() + output_bytes;
        // None is started that there is no room for, except at the end. Whether anybody waits for it at this moment says
        // nothing: he may go away before he has been given it.
        let is_kept =
            self.phase == Phase::Running || self.has_room_for(&promise.account, bytes - promise.bytes);
        let time = self.time_to_keep(self.promises.is_keyed(id));
        let (bytes, keep) = match is_kept {
            true => (bytes, Keep::Promised),
            false => (bytes - output_bytes, Keep::WithoutOutput),
        };
        self.promises.keep(id, bytes, now + time);
        keep
    }

    fn time_to_keep(&self, is_keyed: bool) -> Duration {
        let results = self.config.keep_results;
        if is_keyed { self.config.keep_keys.max(results) } else { results }
    }

    fn has_room_for(&self, account: &str, more: u64) -> bool {
        let kept = &self.promises.kept;
        share(kept.of(account).bytes, kept.all().bytes, more, self.config.max_kept_bytes).is_ok()
    }

    /// Promises whose time is over end.
    pub(super) fn end_promises(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(_, job)) = self.promises.ends.first().filter(|(when, _)| *when <= turn.now) {
            self.promises.end(job);
            turn.push(Action::Release { job, why: Released::TimeIsOver });
        }
    }

    /// Somebody was given all of the output of a job. If that was all that was promised, the promise is kept.
    pub(super) fn on_collected(&mut self, turn: &mut Turn<'_>, job: JobId) {
        if self.promises.kept_until(job).is_none() {
            return;
        }
        if self.promises.is_keyed(job) {
            return self.promises.note_collected(job);
        }
        self.promises.end(job);
        turn.push(Action::Release { job, why: Released::Collected });
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
    pub(super) fn note_expired_key(&self, turn: &mut Turn<'_>, job: JobId, before: Option<JobId>) {
        turn.extend(before.map(|before| Action::Log(Notice::KeyUsedAgain { job, before })));
    }
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
