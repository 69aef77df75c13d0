//! The rules of jobs that run together, by books of its own. Only the worlds of `batches.rs` keep them.
//!
//! | rule | what must hold |
//! |---|---|
//! | B1 | a job ends once; what a worker has answered ends in that moment |
//! | B2 | who goes together: jobs of the task in batches with one time limit, no more than allowed, to a worker without jobs |
//! | B3 | suspects go only with suspects, and no more of them than half of those that were lost together |
//! | B4 | a job leaves early only if there are enough or one has a deadline, and none waits longer than it must while a worker is idle |
//! | B5 | of the jobs of one client, the first ones go |
//! | B6 | in a quiet world only the guilty fail because of a worker, and only attempts that ran alone are blamed |
//! | B7 | a worker is not ended because one of its jobs is not wanted any more, as long as others are and the grace is not over |
//! | B9 | no job waits longer than the grace, and as long again as its batch has run, because another one of it is not wanted any more |
//! | B8 | everything ends, after no more deaths than the guilty jobs may cause |

use super::{Failure, demand};
use crate::batches::{Deed, offers};
use offload_core::Core;
use offload_core::action::{Action, Ended};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_protocol::nouns::{Batching, OutcomeCode, TaskOffer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// One job.
#[derive(Debug)]
struct Book {
    request: JobRequest,
    accepted_at: Mono,
    timeout: Duration,
    attempts: u32,
    deed: Deed,
    holder: Option<WorkerId>,
    /// It was lost with its worker; among how many that had no answer, where it ran together with others.
    lost_among: Option<usize>,
    is_unwanted: bool,
    is_answered: bool,
    outcome: Option<OutcomeCode>,
}

impl Book {
    fn gathers(&self) -> bool {
        let is_plain = !self.request.has_file && !self.request.stream && self.request.input_bytes <= 32 << 10;
        self.request.task == "tile" && is_plain
    }

    fn waits(&self) -> bool {
        self.holder.is_none() && self.outcome.is_none()
    }
}

/// What a worker was given and has not answered.
#[derive(Debug, Default)]
struct Holder {
    jobs: BTreeSet<JobId>,
    batch: usize,
    started_at: Option<Mono>,
    /// By when it must have answered those that nobody wants any more.
    return_by: Option<Mono>,
    /// It was told to end.
    is_ended: bool,
    /// Something happened to it for which no job is at fault.
    is_unlucky: bool,
}

/// The books of one world.
#[derive(Debug)]
pub(crate) struct BatchBooks {
    offered: Batching,
    batching: Batching,
    default_timeout: Duration,
    default_attempts: u32,
    cancel_grace: Duration,
    is_quiet: bool,
    is_draining: bool,
    /// Since when some jobs have waited for others.
    since: Option<Mono>,
    /// When the one with the least patience may go without the others, and when it must be able to.
    patience: Option<(Mono, Mono)>,
    jobs: BTreeMap<JobId, Book>,
    workers: BTreeMap<WorkerId, Holder>,
    deaths: usize,
}

impl BatchBooks {
    pub(crate) fn new(config: &CoreConfig, offered: Batching, is_quiet: bool) -> BatchBooks {
        let limits = config.batches.get("tile").copied().unwrap_or_default();
        let batching = Batching {
            max: limits.max.unwrap_or(32).min(offered.max),
            wait_us: limits.wait.map_or(offered.wait_us, |wait| offered.wait_us.min(wait.as_micros() as u32)),
        };
        BatchBooks {
            offered,
            batching,
            default_timeout: config.run_timeout,
            default_attempts: config.max_attempts,
            cancel_grace: config.cancel_grace,
            is_quiet,
            is_draining: false,
            since: None,
            patience: None,
            jobs: BTreeMap::new(),
            workers: BTreeMap::new(),
            deaths: 0,
        }
    }

    pub(crate) fn offers(&self) -> Vec<TaskOffer<'static>> {
        offers(self.offered)
    }

    pub(crate) fn accepted(&mut self, now: Mono, job: JobId, request: &JobRequest, deed: Deed) {
        let book = Book {
            request: request.clone(),
            accepted_at: now,
            timeout: request.timeout.unwrap_or(self.default_timeout),
            attempts: request.attempts.unwrap_or(self.default_attempts),
            deed,
            holder: None,
            lost_among: None,
            is_unwanted: false,
            is_answered: false,
            outcome: None,
        };
        if book.gathers() {
            self.since.get_or_insert(now);
            // What such a job takes on average is a part of a millisecond here.
            let until = |left: Duration| now + left / 2;
            let own = request.deadline.map(|left| (until(left.saturating_sub(MS)), until(left)));
            self.patience = [self.patience, own].into_iter().flatten().min();
        }
        self.jobs.insert(job, book);
    }

    pub(crate) fn unwanted(&mut self, job: JobId) {
        self.jobs.entry(job).and_modify(|book| book.is_unwanted = true);
    }

    pub(crate) fn answered(&mut self, job: JobId) {
        self.jobs.entry(job).and_modify(|book| book.is_answered = true);
    }

    pub(crate) fn mishap(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_default().is_unlucky = true;
    }

    pub(crate) fn died_of_a_job(&mut self) {
        self.deaths += 1;
    }

    pub(crate) fn drained(&mut self) {
        self.is_draining = true;
    }

    /// What the core did because of one event, or of a request.
    pub(crate) fn see(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        actions: &[Action],
    ) -> Result<(), Failure> {
        match event {
            Some(Event::Started { worker, .. }) => {
                let holder = self.workers.entry(*worker).or_default();
                holder.started_at = Some(now);
                let is_left =
                    holder.batch > 0 && holder.jobs.iter().any(|job| self.jobs[job].outcome.is_some());
                holder.return_by = is_left.then(|| now + self.cancel_grace);
            }
            Some(Event::Exited { worker, .. }) => self.lose(*worker),
            Some(Event::Finished { worker, job, .. } | Event::Failed { worker, job, .. }) => {
                let is_answered = self.jobs.get(job).is_some_and(|book| book.is_answered);
                if let Some(holder) = self.workers.get_mut(worker).filter(|_| is_answered) {
                    holder.jobs.remove(job);
                    if holder.jobs.iter().all(|job| self.jobs[job].outcome.is_none()) {
                        holder.return_by = None;
                    }
                    if holder.jobs.is_empty() {
                        *holder = Holder { is_unlucky: holder.is_unlucky, ..Holder::default() };
                    }
                }
            }
            _ => {}
        }
        let mut rest = actions;
        while let Some((action, behind)) = rest.split_first() {
            rest = behind;
            match action {
                Action::Batch { worker, jobs } => {
                    let count = *jobs as usize;
                    let together = behind.get(..count).unwrap_or_default();
                    self.judge_batch(now, *worker, count, together)?;
                    rest = &behind[count..];
                }
                Action::Run { worker, job, .. } => self.judge_alone(now, *worker, *job)?,
                Action::Finish(ended) => self.judge_end(now, event, ended)?,
                Action::Kill { worker, .. } => self.judge_kill(now, event, *worker)?,
                _ => {}
            }
        }
        if self.gathering().next().is_none() {
            (self.since, self.patience) = (None, None);
        }
        // Or as long as such jobs take twice, which is less than that here.
        let usual = |holder: &Holder| 2 * MS * u32::try_from(holder.batch).unwrap_or(u32::MAX);
        let is_overdue = |holder: &Holder| {
            holder.return_by.is_some_and(|by| by + usual(holder) <= now) && !holder.is_ended
        };
        let is_wanted = |holder: &Holder| holder.jobs.iter().any(|job| self.jobs[job].outcome.is_none());
        let breaks = |holder: &Holder| is_overdue(holder) && is_wanted(holder) && !holder.is_unlucky;
        let overdue = self.workers.iter().find(|(_, holder)| breaks(holder));
        let is_tick = matches!(event, Some(Event::Tick));
        demand(overdue.is_none() || !is_tick, "B9", || format!("{overdue:?} goes on at {now:?}"))
    }

    /// What a worker had that has ended is lost.
    fn lose(&mut self, worker: WorkerId) {
        let Some(holder) = self.workers.remove(&worker) else { return };
        let live: Vec<JobId> =
            holder.jobs.into_iter().filter(|job| self.jobs[job].outcome.is_none()).collect();
        let among = if holder.batch > 0 { live.len() } else { 1 };
        for job in live {
            self.jobs.entry(job).and_modify(|book| (book.holder, book.lost_among) = (None, Some(among)));
        }
    }

    fn judge_batch(
        &mut self,
        now: Mono,
        worker: WorkerId,
        count: usize,
        runs: &[Action],
    ) -> Result<(), Failure> {
        let run = |action: &Action| match action {
            Action::Run { worker: to, job, resume: false, .. } if *to == worker => Some(*job),
            _ => None,
        };
        let jobs: Vec<JobId> = runs.iter().filter_map(run).collect();
        demand(count >= 2 && jobs.len() == count, "B2", || format!("{count} jobs are {runs:?}"))?;
        demand(count <= self.batching.max as usize, "B2", || format!("{count} of {:?}", self.batching))?;
        let is_idle = self.workers.get(&worker).is_none_or(|holder| holder.jobs.is_empty());
        demand(is_idle, "B2", || format!("{worker} gets {jobs:?} and has {:?}", self.workers.get(&worker)))?;
        let first = &self.jobs[&jobs[0]];
        let (timeout, is_suspect) = (first.timeout, first.lost_among.is_some());
        for id in &jobs {
            let book = &self.jobs[id];
            let fits = book.gathers() && book.waits() && book.timeout == timeout;
            demand(fits, "B2", || format!("{id} goes with others: {book:?}"))?;
            let most = book.lost_among.map_or(usize::MAX, |among| among.div_ceil(2));
            demand(book.lost_among.is_some() == is_suspect && count <= most, "B3", || {
                format!("{id} is one of {count}: {book:?}")
            })?;
        }
        self.judge_departure(now, &jobs)?;
        self.hand_over(worker, &jobs, count);
        Ok(())
    }

    fn judge_alone(&mut self, now: Mono, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let holder = self.workers.get(&worker);
        let is_shared = holder.is_some_and(|holder| {
            let is_tile = |job: &JobId| self.jobs[job].request.task == "tile" && self.jobs[job].gathers();
            !holder.jobs.is_empty()
                && (holder.batch > 0 || self.jobs[&id].gathers() || holder.jobs.iter().any(is_tile))
        });
        demand(!is_shared, "B2", || format!("{worker} gets {id} beside {holder:?}"))?;
        if self.jobs[&id].gathers() {
            self.judge_departure(now, &[id])?;
        }
        self.hand_over(worker, &[id], 0);
        Ok(())
    }

    fn hand_over(&mut self, worker: WorkerId, jobs: &[JobId], batch: usize) {
        let holder = self.workers.entry(worker).or_default();
        holder.jobs.extend(jobs);
        (holder.batch, holder.started_at) = (batch, None);
        for job in jobs {
            self.jobs.entry(*job).and_modify(|book| book.holder = Some(worker));
        }
    }

    /// Jobs that wait for company.
    fn gathering(&self) -> impl Iterator<Item = (&JobId, &Book)> {
        self.jobs.iter().filter(|(_, book)| book.gathers() && book.waits() && book.lost_among.is_none())
    }

    fn is_ripe(&self, now: Mono) -> bool {
        let has_waited = self.since.is_some_and(|since| since + self.batching.wait() <= now);
        let is_impatient = self.patience.is_some_and(|(_, until)| until <= now);
        has_waited
            || is_impatient
            || self.is_draining
            || self.gathering().count() >= self.batching.max as usize
    }

    fn judge_departure(&self, now: Mono, jobs: &[JobId]) -> Result<(), Failure> {
        if jobs.iter().any(|job| self.jobs[job].lost_among.is_some()) {
            return Ok(());
        }
        let may_go = self.is_ripe(now) || self.patience.is_some_and(|(from, _)| from <= now);
        demand(may_go, "B4", || format!("{jobs:?} go at {now:?} and have not waited"))?;
        let rank = |id: &JobId, book: &Book| {
            let gained = i128::from(book.request.priority) * 1_000_000_000;
            (i128::from(book.accepted_at.as_nanos()) - gained, *id)
        };
        for id in jobs {
            let own = &self.jobs[id];
            let is_overtaken = self.gathering().any(|(other, book)| {
                let is_own = book.request.client == own.request.client && !jobs.contains(other);
                is_own && rank(other, book) < rank(id, own)
            });
            demand(!is_overtaken, "B5", || format!("{id} goes before another one of its client: {jobs:?}"))?;
        }
        Ok(())
    }

    fn judge_end(&mut self, now: Mono, event: Option<&Event>, ended: &Ended) -> Result<(), Failure> {
        let id = ended.job;
        let is_answer =
            matches!(event, Some(Event::Finished { job, .. } | Event::Failed { job, .. }) if *job == id);
        let Some(book) = self.jobs.get_mut(&id) else { return Ok(()) };
        demand(book.outcome.is_none(), "B1", || format!("{id} ends again: {ended:?}"))?;
        book.outcome = Some(ended.outcome);
        let holder = book.holder.and_then(|worker| self.workers.get_mut(&worker));
        if let Some(holder) =
            holder.filter(|holder| holder.batch > 0 && holder.started_at.is_some() && !is_answer)
        {
            let ran = holder.started_at.map_or(Duration::ZERO, |at| now - at);
            holder.return_by.get_or_insert(now + self.cancel_grace.max(ran));
        }
        demand(ended.attempts <= book.attempts.max(1) || !self.is_quiet, "B6", || {
            format!("{id} has had more attempts than it may: {ended:?}")
        })?;
        let is_its_own = matches!(ended.outcome, OutcomeCode::Ok | OutcomeCode::AppError);
        demand(is_its_own == (is_answer && book.is_answered), "B1", || format!("{ended:?} of {event:?}"))?;
        let is_late = book.request.deadline.is_some_and(|deadline| book.accepted_at + deadline <= now);
        let is_excused = match ended.outcome {
            OutcomeCode::Ok | OutcomeCode::AppError => true,
            OutcomeCode::Cancelled => book.is_unwanted,
            OutcomeCode::Timeout => is_late || book.deed == Deed::Hangs,
            OutcomeCode::WorkerCrashed | OutcomeCode::Poison => book.deed == Deed::Crashes,
            _ => false,
        };
        // Alone, one that waits for its worker to be done may exceed a tight limit.
        let is_slow = ended.outcome == OutcomeCode::Timeout && ended.together == 0;
        demand(is_excused || !self.is_quiet || is_slow, "B6", || {
            format!("{id} has done nothing wrong: {ended:?}\n{book:?}")
        })?;
        let is_blamed = |lost: &offload_core::action::LostAttempt| {
            lost.is_blamed && lost.code != OutcomeCode::Timeout && book.deed == Deed::Good
        };
        let blamed = ended.lost.iter().find(|lost| is_blamed(lost));
        demand(blamed.is_none() || !self.is_quiet, "B6", || format!("{id} is blamed: {blamed:?}"))
    }

    /// A worker may be ended because of something that happened, because its time is over, or if nobody wants its jobs.
    fn judge_kill(&mut self, now: Mono, event: Option<&Event>, worker: WorkerId) -> Result<(), Failure> {
        let Some(holder) = self.workers.get_mut(&worker).filter(|holder| holder.batch > 0) else {
            return Ok(());
        };
        holder.is_ended = true;
        let wanted = holder.jobs.iter().map(|job| &self.jobs[job]).find(|book| book.outcome.is_none());
        let Some(book) = wanted else { return Ok(()) };
        let is_late = holder.return_by.is_some_and(|by| by <= now);
        let is_over = is_late || holder.started_at.is_none_or(|at| at + book.timeout <= now);
        let is_reason = holder.is_unlucky || (is_over && matches!(event, Some(Event::Tick)));
        demand(is_reason, "B7", || format!("{worker} is ended at {event:?} and has {holder:?}"))
    }

    /// No job that can go waits while a worker is idle.
    pub(crate) fn judge_idleness(&self, now: Mono, core: &Core) -> Result<(), Failure> {
        if !self.is_quiet {
            return Ok(());
        }
        let is_idle = |slot: usize| {
            let slot = &core.slots()[slot];
            let has_nothing = slot.load().is_none() && slot.is_ready();
            has_nothing && slot.role == offload_core::slots::Role::Work
        };
        let idle = (0..core.slots().len()).find(|slot| is_idle(*slot));
        let can_go = |(_, book): &(&JobId, &Book)| {
            book.waits() && (book.lost_among.is_some() || !book.gathers() || self.is_ripe(now))
        };
        let waiting = self.jobs.iter().find(can_go);
        // What falls due in this moment goes with the tick.
        let is_due = core.next_deadline().is_some_and(|due| due <= now);
        demand(idle.is_none() || waiting.is_none() || is_due, "B4", || {
            format!("{waiting:?} waits at {now:?}, slot {idle:?} is idle")
        })
    }

    /// Everything has ended.
    pub(crate) fn at_the_end(&self, deeds: &BTreeMap<JobId, Deed>) -> Result<(), Failure> {
        let left = self.jobs.iter().find(|(_, book)| book.outcome.is_none());
        demand(left.is_none(), "B8", || format!("{left:?} has no end"))?;
        let halvings = (self.batching.max as usize).next_power_of_two().ilog2() as usize;
        let guilty = deeds.iter().filter(|(_, deed)| **deed == Deed::Crashes);
        let most: usize = guilty.map(|(job, _)| halvings + self.jobs[job].attempts.max(1) as usize).sum();
        demand(self.deaths <= most || !self.is_quiet, "B8", || {
            format!("{} workers died of jobs, {most} may", self.deaths)
        })
    }
}
