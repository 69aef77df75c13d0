//! Checks of what lies in the trays of workers, for rule O22.

use super::duties::Duty;
use super::workers::WorkerBook;
use super::{Failure, JobBook, Oracle, demand};
use offload_core::Core;
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::jobs::JobState;
use offload_core::limits::{PREFETCH_RUN_MAX, TAKE_BACKS_MAX};
use offload_core::queue::AGEING;
use offload_core::slots::{Role, SlotState};
use offload_protocol::limits::INLINE_PAYLOAD_MAX;

const RULE: &str = "O22";

impl WorkerBook {
    /// The job in its tray, if it is not wanted back.
    pub(super) fn left_in_tray(&self) -> Option<JobId> {
        self.tray.filter(|_| !self.is_tray_asked)
    }
}

impl Oracle {
    /// A job is put into a tray: behind one that runs, where nothing else is, and nothing is known against anybody.
    pub(super) fn judge_prefetch(
        &mut self,
        now: Mono,
        worker: WorkerId,
        id: JobId,
        attempt: u32,
    ) -> Result<(), Failure> {
        let unfit =
            |what: &str| Failure { rule: RULE, what: format!("{id} for the tray of {worker}: {what}") };
        if self.live.contains(&id) {
            self.judge_start(id)?;
        }
        let book = self.workers.get(&worker).filter(|book| book.is_well() && book.has_tray);
        let book = book.ok_or_else(|| unfit("it is not well"))?;
        demand(book.tray.is_none(), RULE, || format!("{worker} has {:?} in its tray", book.tray))?;
        let is_behind_one = book.given.len() == 1 && book.started.len() == 1;
        demand(is_behind_one || book.is_liar, RULE, || format!("{id} is behind {:?}", book.given))?;
        let is_proven = !self.reloads.is_surely_unproven(book.program, worker);
        demand(is_proven, RULE, || format!("{worker} has to prove itself and gets {id} beside another"))?;
        let runs = book.started.last().and_then(|running| self.jobs.get(running));
        let is_bad = runs.is_some_and(|runs| runs.is_suspect || runs.is_stepped());
        demand(!is_bad, RULE, || format!("{id} is behind a suspect, or one with steps: {:?}", book.started))?;
        let is_wanted = book.started.last().is_some_and(|running| self.live.contains(running));
        demand(is_wanted || book.is_liar, RULE, || {
            format!("{id} is behind {:?}, which has ended", book.started)
        })?;
        let job = self.jobs.get_mut(&id).filter(|_| self.live.contains(&id));
        let job = job.ok_or_else(|| unfit("it is no more"))?;
        demand(job.holder.is_none(), RULE, || format!("{id} is with {:?}", job.holder))?;
        demand(job.is_doubtful || attempt == job.starts + 1, "O3", || {
            format!("{id} gets attempt {attempt} after {} starts", job.starts)
        })?;
        demand(!job.is_late(now), "O2", || format!("{id} is given out when its time is up"))?;
        let is_small = job.bytes <= INLINE_PAYLOAD_MAX as u64 && job.checkpoint == 0 && !job.has_file;
        demand(is_small && !job.is_suspect, RULE, || format!("{id} must not be in a tray: {job:?}"))?;
        job.holder = Some(worker);
        let book = self.workers.get_mut(&worker).ok_or_else(|| unfit("it is gone"))?;
        (book.tray, book.is_tray_asked) = (Some(id), false);
        book.given.push_back(id);
        Ok(())
    }

    pub(super) fn judge_take_back(&mut self, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let book = self.workers.get_mut(&worker).filter(|book| book.left_in_tray() == Some(id));
        let was_there = book.map(|book| book.is_tray_asked = true).is_some();
        demand(was_there, RULE, || format!("{id} is wanted back from {worker}, again or for no reason"))
    }

    /// The worker never saw this job.
    pub(super) fn taken_back(&mut self, worker: WorkerId, id: JobId) {
        let Some(book) = self.workers.get_mut(&worker).filter(|book| book.tray == Some(id)) else { return };
        book.tray = None;
        book.given.retain(|given| *given != id);
        book.doubtful.remove(&id);
        let job = self.jobs.get_mut(&id).filter(|job| job.holder == Some(worker));
        job.into_iter().for_each(JobBook::stop_running);
    }

    /// The worker has taken this job. If nobody wants it any more, the worker has to be told.
    pub(super) fn not_in_tray(&mut self, worker: WorkerId, id: JobId) -> Duty {
        let Some(book) = self.workers.get_mut(&worker).filter(|book| book.tray == Some(id)) else {
            return Duty::Nothing;
        };
        book.tray = None;
        if self.live.contains(&id) { Duty::Nothing } else { Duty::Forget(worker, id) }
    }

    pub(super) fn compare_trays(&self, now: Mono, event: Option<&Event>, core: &Core) -> Result<(), Failure> {
        for slot in core.slots() {
            let SlotState::Busy { load, .. } = &slot.state else { continue };
            if load.tray.is_none_or(|tray| tray.is_asked) {
                continue;
            }
            let is_fit = matches!(slot.role, Role::Work | Role::Trial) && !slot.tenure.is_closing();
            demand(is_fit && slot.is_ready(), RULE, || format!("a job is left in a tray: {slot:?}"))?;
            let Some(running) = load.running else { continue };
            let is_overdue = running.started_at + PREFETCH_RUN_MAX < now;
            demand(!is_overdue || !matches!(event, Some(Event::Tick)), RULE, || {
                format!("a job is left behind one that runs for too long: {slot:?}")
            })?;
            demand(running.taken_back < TAKE_BACKS_MAX, RULE, || {
                format!("a tray is filled again and again: {slot:?}")
            })?;
        }
        for (worker, book) in &self.workers {
            let Some(id) = book.left_in_tray() else { continue };
            demand(book.is_well(), RULE, || format!("{id} is left in the tray of {worker}"))?;
            let is_untaken = book.started.is_empty() && !book.is_liar;
            demand(!is_untaken || !matches!(event, Some(Event::EndOfTurn)), RULE, || {
                format!("{id} is left in the tray of {worker}, which waits")
            })?;
            self.demand_order(*worker, book, id, core)?;
        }
        self.demand_innocence(core)
    }

    /// A client's own more urgent job takes the place of the one in the tray, where any slot is for any job.
    fn demand_order(
        &self,
        worker: WorkerId,
        book: &WorkerBook,
        id: JobId,
        core: &Core,
    ) -> Result<(), Failure> {
        let is_asked = self.workers.values().any(|book| book.tray.is_some() && book.is_tray_asked);
        let is_reserved = self.config.reserved_of(self.config.workers) > 0 || self.is_resized;
        let is_calm = self.programs.len() == 1 && self.programs[0].dropped.is_empty();
        let in_tray = &self.jobs[&id];
        if is_asked
            || is_reserved
            || !is_calm
            || book.started.is_empty()
            || book.is_liar
            || !self.live.contains(&id)
        {
            return Ok(());
        }
        let place = |job: &JobBook| {
            job.accepted_at.as_nanos() as i64 - i64::from(job.priority) * AGEING.as_nanos() as i64
        };
        let is_before = |other: &&JobId| {
            let job = &self.jobs[*other];
            let waits = core.jobs().get(**other).is_some_and(|job| job.state == JobState::Queued);
            let is_good = !job.is_suspect && !job.is_doubtful && book.can_take(job);
            let is_urgent = job.priority > in_tray.priority && place(job) < place(in_tray);
            waits && is_good && is_urgent && job.client == in_tray.client && self.must_start(**other)
        };
        let urgent = self.live.iter().find(is_before);
        demand(urgent.is_none(), RULE, || format!("{urgent:?} waits, and {id} is in the tray of {worker}"))
    }

    /// Only a job that a worker had is a suspect; lying in a tray is not having it.
    fn demand_innocence(&self, core: &Core) -> Result<(), Failure> {
        for id in &self.live {
            let book = &self.jobs[id];
            let Some(job) = core.jobs().get(*id).filter(|_| !book.is_doubtful) else { continue };
            let is_clean = !job.is_suspect && job.past.unstarted == 0 && job.past.lost.is_empty();
            demand(book.is_suspect || is_clean, RULE, || format!("{id} is suspected of nothing: {job:?}"))?;
        }
        Ok(())
    }

    /// Whether a job lies in a tray behind one that runs, and nothing is asked for.
    pub(super) fn is_left_in_tray(&self, id: JobId) -> bool {
        let is_asked = self.workers.values().any(|book| book.tray.is_some() && book.is_tray_asked);
        let has_it = |book: &WorkerBook| book.left_in_tray() == Some(id) && !book.started.is_empty();
        !is_asked && self.workers.values().any(has_it)
    }
}
