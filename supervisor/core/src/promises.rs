//! Promises: what is kept of a job after its end because its client was told so. That is the idempotency key that the
//! job was submitted under, or an output that nobody has collected yet.
//!
//! ```text
//!            accepted with a key,               it ends
//!  nothing ------------------------> Open ----------------------> Kept ---- its time is over --------> forgotten
//!     |      or detached               |                           |
//!     |                                costs PROMISE_BYTES         |  costs its texts and its output as well
//!     '- refused: what is kept for its                             |
//!        client, or in total, is at its limit                      '- has no key, and is collected --> best effort
//! ```
//!
//! A promise ends only as the picture shows. Other jobs never end it, whoever submitted them: when there is no room for
//! another promise, the *new* job is refused, and its client is told when there will be room. A client may have as much
//! kept as it leaves free for the others (`kept.rs`).
//!
//! The length of an output is known only at the end of its job. So a job whose output is to be kept does not *start*
//! while its client's share or the total is full: it is held back. An account can exceed its share only by the outputs
//! of the jobs that were in flight when the share was used up, one of each worker. What it has beyond its share takes no room from
//! others (`kept.rs`). Only when all that is kept exceeds the limit by the longest output of each worker, the jobs of all accounts
//! are held back. A job joins others at a busy worker, or goes into its tray, only if there is room for what all of these are
//! expected to return. Otherwise it waits until a worker is idle. A worker may have thirty tiny jobs at a time, and all of them would start into the last bit of room.
//!
//! While a client has jobs that are held back, its younger jobs do not overtake them: for all of them a slightly lower
//! mark applies, and below it they go on, the oldest first.
//!
//! The output of a job that somebody waits for will soon be collected. So such a job starts even if its client's share
//! is full. But whoever waits need not collect. So an account has one such job at a time. It takes this place until
//!
//! - its output has been collected, or its time is over;
//! - it has ended and left little: an error, or an output of no more than PROMISE_BYTES. In this way a client has at most twice
//!   what it was admitted with;
//! - it has ended, and the account is within its share again.
//!
//! So a client that waits for all of its jobs before it collects the first has to collect as it goes, once its share is full. The limit
//! for all holds back these jobs, too. Whether the waiting client is still there at the end makes no difference: the output is kept
//! until somebody has been given all of it.
//!
//! Everything else that the shell remembers of ended jobs is best effort. The shell limits how much of it there is, and
//! forgets it when that limit is reached; the core knows nothing of it.

mod held;

use super::action::{Action, Ended, Keep, Notice, Released};
use super::config::KeptLimits;
use super::event::JobRequest;
use super::ids::{JobId, Mono};
use super::kept::{Kept, share, whose};
use super::keys::{KeyName, Keys, Known};
use super::ledger::Short;
use super::outcome;
use super::turn::Turn;
use super::{Core, Phase};
use crate::limits::{ENDS_LOOKED_AT, PROMISE_BYTES, ROOM_AGAIN};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// All promises, with their keys and the jobs that they hold back.
#[derive(Debug, Default)]
pub struct Promises {
    by_job: BTreeMap<JobId, Promise>,
    pub(super) keys: Keys,
    kept: Kept,
    /// The part of `kept` that belongs to jobs which have ended.
    kept_of_ended: Kept,
    /// What will be kept of the jobs in flight, with the outputs that they are expected to return.
    coming: Kept,
    /// When the time of each kept promise is over.
    ends: BTreeSet<(Mono, JobId)>,
    /// The same times, by account.
    ends_of: BTreeSet<(Arc<str>, Mono, JobId)>,
    /// Jobs held back until there is room for their outputs, both on their account and in total.
    held: BTreeMap<Arc<str>, BTreeSet<JobId>>,
    /// Jobs that somebody waits for, by account. They are held back until there is room in total, and until their account has
    /// no other job beyond its share.
    held_awaited: BTreeMap<Arc<str>, BTreeSet<JobId>>,
    /// The job that an account has beyond its share, because somebody waited for it: in flight, or with an output that is kept.
    beyond: BTreeMap<Arc<str>, JobId>,
    held_count: usize,
    /// Some jobs are held back only for lack of room in total.
    waits_for_all: bool,
    /// Room may have become free since it was last looked for.
    has_more_room: bool,
    /// Jobs whose results nobody had collected when the supervisor ended.
    lost: Vec<JobId>,
}

/// How much of a limit may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// All of it.
    High,
    /// A little less. While jobs are held back this mark applies, and below it they go on.
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

/// What was promised of one job.
#[derive(Debug)]
pub struct Promise {
    pub(super) account: Arc<str>,
    key: Option<KeyName>,
    bytes: u64,
    /// Its client has shown nothing but its address: nothing of more than [`PROMISE_BYTES`] is kept of it beyond its share.
    pub(super) is_of_stranger: bool,
    /// Somebody waits for the end of the job, and it has no key: nothing will have to be kept for long.
    is_awaited: bool,
    /// Somebody was given all of the output. It is still kept, for the key.
    was_collected: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job waits.
    Open,
    /// The job is in flight, and this is what is expected to be kept of it.
    InFlight { expected: u64 },
    /// The job has ended.
    Kept { until: Mono },
}

impl Promises {
    /// How much is kept or reserved for promises, by account and in total.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Jobs that have ended and whose results nobody has collected. After the end of the supervisor: the jobs whose
    /// results are lost.
    pub fn uncollected(&self) -> impl Iterator<Item = JobId> {
        let is_kept =
            |promise: &Promise| matches!(promise.stage, Stage::Kept { .. }) && !promise.was_collected;
        let kept = self.by_job.iter().filter(move |(_, promise)| is_kept(promise)).map(|(job, _)| *job);
        self.lost.iter().copied().chain(kept)
    }

    /// The part of [`Promises::kept`] that belongs to jobs which have ended.
    pub fn kept_of_ended(&self) -> &Kept {
        &self.kept_of_ended
    }

    /// Until when this job's report is kept, and its output if there was room for it. `None` if the job has not
    /// ended, nothing was promised, or the promise is over.
    pub fn kept_until(&self, job: JobId) -> Option<Mono> {
        match self.by_job.get(&job)?.stage {
            Stage::Open | Stage::InFlight { .. } => None,
            Stage::Kept { until } => Some(until),
        }
    }

    /// What is expected to be kept of this job, if something was promised of it and it is in flight: with a worker, or with a
    /// thread of the shell.
    pub fn expected_of(&self, job: JobId) -> Option<u64> {
        match self.by_job.get(&job)?.stage {
            Stage::InFlight { expected } => Some(expected),
            Stage::Open | Stage::Kept { .. } => None,
        }
    }

    /// When the time of the next promise is over.
    pub fn next_end(&self) -> Option<Mono> {
        self.ends.first().map(|(when, _)| *when)
    }

    /// How many jobs are held back until there is room for their outputs.
    pub fn held_count(&self) -> usize {
        self.held_count
    }

    /// Whether something was promised of this job.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    /// Whether the promise is to remember a key.
    pub(super) fn is_keyed(&self, job: JobId) -> bool {
        self.by_job.get(&job).is_some_and(|promise| promise.key.is_some())
    }

    fn note_collected(&mut self, job: JobId) {
        self.by_job.entry(job).and_modify(|promise| promise.was_collected = true);
    }

    /// The job is in flight, and is expected to return this many bytes.
    pub(super) fn expect(&mut self, job: JobId, output_bytes: u64) {
        let Some(promise) = self.by_job.get_mut(&job).filter(|promise| promise.stage == Stage::Open) else {
            return;
        };
        let expected = promise.bytes + output_bytes;
        promise.stage = Stage::InFlight { expected };
        self.coming.hold(&promise.account, expected);
    }

    /// The job is not in flight any more.
    pub(super) fn expect_nothing(&mut self, job: JobId) {
        let Some(promise) = self.by_job.get_mut(&job) else { return };
        if let Stage::InFlight { expected } = promise.stage {
            promise.stage = Stage::Open;
            self.coming.release(&promise.account, expected);
        }
    }

    fn keep(&mut self, job: JobId, bytes: u64, until: Mono) {
        self.expect_nothing(job);
        let Some(promise) = self.by_job.get_mut(&job) else { return };
        // A job that was in a queue until now may have been the one that was to go beyond the share.
        self.has_more_room |= self.held_awaited.contains_key(&promise.account);
        let added = bytes.saturating_sub(promise.bytes);
        self.kept.release(&promise.account, promise.bytes);
        promise.bytes = bytes;
        promise.stage = Stage::Kept { until };
        self.kept.hold(&promise.account, bytes);
        self.kept_of_ended.hold(&promise.account, bytes);
        self.ends.insert((until, job));
        self.ends_of.insert((promise.account.clone(), until, job));
        if added <= PROMISE_BYTES {
            self.is_not_beyond(job);
        }
    }

    fn end(&mut self, job: JobId, limit: u64) {
        self.expect_nothing(job);
        self.is_not_beyond(job);
        let Some(promise) = self.by_job.remove(&job) else { return };
        self.kept.release(&promise.account, promise.bytes);
        self.has_more_room = true;
        if let Stage::Kept { until } = promise.stage {
            self.kept_of_ended.release(&promise.account, promise.bytes);
            self.ends.remove(&(until, job));
            self.ends_of.remove(&(promise.account.clone(), until, job));
        }
        if !self.has_one_beyond(&promise.account, limit) {
            self.beyond.remove(&promise.account);
        }
        if let Some(key) = promise.key {
            self.keys.expire(&key);
        }
    }

    /// When this many bytes will be free on this account, or in total if `account` is `None`. If more than
    /// [`ENDS_LOOKED_AT`] promises have to end for that, the end of the last one looked at. `None` if no promise will
    /// end.
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

    /// Whether what is kept of an account's ended jobs is over its share. That shrinks when something is collected or
    /// its time is over. Reservations for jobs that have not ended do not count: no job could wait for those.
    fn is_over_its_share(&self, account: &str, mark: Mark, limit: u64) -> bool {
        let ended = &self.kept_of_ended;
        ended.of(account).bytes > mark.of(limit.saturating_sub(ended.within_shares(limit)))
    }

    /// Whether what is kept of all ended jobs is over a limit: what takes room from others, or all of it. The mark is for all of it: a few
    /// clients with full shares come near to the other limit, and leave half of the rest.
    fn is_over(&self, mark: Mark, limits: KeptLimits) -> bool {
        let ended = &self.kept_of_ended;
        ended.within_shares(limits.shares) > limits.shares || ended.all().bytes > mark.of(limits.all)
    }

    /// Checks the sums. `is_live` tells whether a job has not ended.
    pub(super) fn check(&self, is_live: impl Fn(JobId) -> bool) -> Result<(), String> {
        let mut again = Kept::default();
        let (mut ended, mut coming) = (Kept::default(), Kept::default());
        for promise in self.by_job.values() {
            again.hold(&promise.account, promise.bytes);
            match promise.stage {
                Stage::Open => {}
                Stage::InFlight { expected } => coming.hold(&promise.account, expected),
                Stage::Kept { .. } => ended.hold(&promise.account, promise.bytes),
            }
        }
        for promise in self.by_job.values() {
            let account = &promise.account;
            let is_right = again.of(account) == self.kept.of(account)
                && ended.of(account) == self.kept_of_ended.of(account)
                && coming.of(account) == self.coming.of(account);
            if !is_right {
                return Err(format!("what is kept for {account} does not add up"));
            }
        }
        let is_open = |stage| !matches!(stage, Stage::Kept { .. });
        let open = self.by_job.iter().filter(|(_, promise)| is_open(promise.stage));
        let lost = open.clone().find(|(job, _)| !is_live(**job));
        let keyed = self.by_job.values().filter(|promise| promise.key.is_some()).count();
        let figures = [
            ("kept bytes", again.all().bytes, self.kept.all().bytes),
            ("kept things", again.all().count as u64, self.kept.all().count as u64),
            ("bytes of jobs in flight", coming.all().bytes, self.coming.all().bytes),
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
    /// Whether something of the job has to be kept after its end.
    fn is_to_be_kept(&self) -> bool {
        self.keeps_output || self.key.is_some()
    }
}

impl Core {
    /// What was promised of jobs.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// What the key of a request stands for already, if it has a key that is known.
    pub(super) fn known(&self, request: &JobRequest) -> Option<Known> {
        let key = request.key.as_ref()?;
        self.promises.keys.find(&request.owner, key, &request.task)
    }

    /// Whether there is room for one more promise, in the client's share and in total.
    pub(super) fn check_promises(&self, now: Mono, request: &JobRequest) -> Result<(), ErrorDetail> {
        if !request.is_to_be_kept() {
            return Ok(());
        }
        let account = &*request.client;
        let limit = self.config.max_kept_bytes;
        let (own, all) = (self.promises.kept.of(account).bytes, self.promises.kept.within_shares(limit));
        let more = PROMISE_BYTES + request.tag_bytes;
        let Err(short) = share(own, all, more, limit) else { return Ok(()) };
        let lacking = (own + all + 2 * more).saturating_sub(limit);
        let (code, whose_ends, lacking, state) = match short {
            Short::OfItsShare => {
                let free = limit.saturating_sub(all);
                let state = format!(
                    "{} hold {own} bytes, {free} of {limit} are left for others, and one client may keep as much as \
                     it leaves for others",
                    whose(account)
                );
                // What the client collects of its share counts twice: its own part shrinks, and what is left grows.
                let beyond = self.promises.kept.beyond(account, limit).min(lacking);
                (OutcomeCode::Quota, Some(account), beyond + (lacking - beyond).div_ceil(2), state)
            }
            Short::OfRoom => {
                let state = format!("all clients hold {all} bytes, the limit is {limit}");
                (OutcomeCode::Overloaded, None, lacking, state)
            }
        };
        let free_at = self.promises.free_at(whose_ends, lacking);
        let message = format!(
            "results and idempotency keys that are kept for {state}; a result is kept until it is collected, or its \
             time is over"
        );
        Err(match free_at {
            // It names the account.
            Some(when) => {
                ErrorDetail { is_for_anybody: false, ..super::submit::full(code, &message, when - now) }
            }
            // All of it is promised to jobs that have not ended, and nobody knows when they will.
            None => outcome::error(code, message),
        })
    }

    /// Promises something of a job that was accepted. If its key has expired before and that is remembered, returns
    /// the job that the key stood for then.
    pub(super) fn promise(&mut self, id: JobId, request: &JobRequest) -> Option<JobId> {
        if !request.is_to_be_kept() {
            return None;
        }
        let (owner, account) = (&request.owner, Arc::from(&*request.client));
        let used = request.key.as_ref().map(|key| self.promises.keys.insert(owner, key, &request.task, id));
        let (key, before) = used.map_or((None, None), |(key, before)| (Some(key), before));
        let bytes = PROMISE_BYTES + request.tag_bytes;
        self.promises.kept.hold(&account, bytes);
        let promise = Promise {
            account,
            key,
            bytes,
            is_of_stranger: request.is_of_stranger,
            is_awaited: false,
            was_collected: false,
            stage: Stage::Open,
        };
        self.promises.by_job.insert(id, promise);
        before
    }

    /// A job has ended: from now on, what was promised of it is kept.
    pub(super) fn keep_promise(
        &mut self,
        now: Mono,
        ended: &Ended,
        output_bytes: u64,
        was_here: bool,
    ) -> Keep {
        let id = ended.job;
        let Some(promise) = self.promises.by_job.get(&id) else { return Keep::AsCourtesy };
        let bytes = PROMISE_BYTES + ended.text_bytes() + output_bytes;
        // While the supervisor runs, no job of a worker starts whose output has no room, so that is kept. While it ends, and for a
        // stranger, the output is kept only if there is room. Whether a client waits at this moment does not matter: it may go
        // away before it has been given the output.
        let more = bytes - promise.bytes;
        let is_kept = match self.phase {
            Phase::Running if was_here => self.keeps_what_was_read(promise, output_bytes, more),
            Phase::Running if !promise.is_of_stranger => true,
            _ => self.has_room_for(&promise.account, more),
        };
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

    pub(super) fn has_room_for(&self, account: &str, more: u64) -> bool {
        let (kept, limit) = (&self.promises.kept, self.config.max_kept_bytes);
        share(kept.of(account).bytes, kept.within_shares(limit), more, limit).is_ok()
    }

    /// Whether what is kept of this job would be let in now: with it its account has no more than is left free for the others.
    pub fn is_within_its_share(&self, job: JobId) -> bool {
        let Some(promise) = self.promises.by_job.get(&job) else { return true };
        let (kept, bytes, limit) = (&self.promises.kept, promise.bytes, self.config.max_kept_bytes);
        let own = kept.of(&promise.account).bytes;
        let is_all = kept.all().bytes == bytes;
        if is_all { bytes <= limit } else { own <= limit.saturating_sub(kept.within_shares(limit)) }
    }

    /// Ends the promises whose time is over.
    pub(super) fn end_promises(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(_, job)) = self.promises.ends.first().filter(|(when, _)| *when <= turn.now) {
            self.promises.end(job, self.config.max_kept_bytes);
            turn.push(Action::Release { job, why: Released::TimeIsOver });
        }
    }

    /// Somebody was given all of the job's output. That ends the promise, unless the job has a key.
    pub(super) fn on_collected(&mut self, turn: &mut Turn<'_>, job: JobId) {
        let Some(until) = self.promises.kept_until(job) else { return };
        if self.promises.is_keyed(job) {
            return self.promises.note_collected(job);
        }
        self.promises.end(job, self.config.max_kept_bytes);
        turn.push(Action::Release { job, why: Released::Collected { until } });
    }

    /// The limits or the phase have changed: room may have become free.
    pub(super) fn look_for_room_again(&mut self) {
        self.promises.has_more_room = true;
    }

    /// The supervisor has ended: nobody can come back for anything. The results that nobody collected are noted as
    /// lost.
    pub(super) fn forget_promises(&mut self) {
        self.promises.keys.clear();
        let uncollected = self.promises.uncollected().collect();
        self.promises = Promises { lost: uncollected, ..Promises::default() };
    }

    /// Tells the log that an expired key is used again.
    pub(super) fn note_expired_key(&self, turn: &mut Turn<'_>, job: JobId, before: Option<JobId>) {
        turn.extend(before.map(|before| Action::Log(Notice::KeyUsedAgain { job, before })));
    }
}
