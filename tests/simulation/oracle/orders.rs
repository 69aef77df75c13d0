//! Checks the orders that the core gives to workers: whether the worker can obey, and whether the order harms a job.

use super::workers::WorkerBook;
use super::{Failure, Oracle, demand};
use offload_core::ids::{JobId, Mono, WorkerId};

impl Oracle {
    pub(super) fn judge_run(
        &mut self,
        now: Mono,
        worker: WorkerId,
        id: JobId,
        (attempt, resume): (u32, bool),
    ) -> Result<(), Failure> {
        self.judge_parts_of_run(id)?;
        if self.live.contains(&id) {
            self.judge_start(id)?;
        }
        self.judge_proof(worker, id)?;
        let between = self.may_run_between(worker, id);
        let given = self.workers.get(&worker).into_iter().flat_map(|book| &book.given);
        let has_suspect = given
            .clone()
            .any(|id| self.live.contains(id) && self.jobs.get(id).is_some_and(|job| job.is_suspect));
        let book = self.workers.get_mut(&worker).filter(|book| book.is_well());
        let book = book.ok_or(Failure { rule: "O5", what: format!("{worker} cannot take {id}") })?;
        let job = self.jobs.get_mut(&id).filter(|_| self.live.contains(&id));
        let job =
            job.ok_or(Failure { rule: "O1", what: format!("{id} is given to {worker} and is no more") })?;
        demand(book.is_liar || !job.has_file || book.takes_files, "O23", || {
            format!("{worker}, which takes no files, gets {id}, whose input is one")
        })?;
        demand(job.holder.is_none(), "O3", || format!("{id} is given to {worker}, {:?} has it", job.holder))?;
        demand(job.is_doubtful || attempt == job.starts + 1, "O3", || {
            format!("{id} gets attempt {attempt} after {} starts", job.starts)
        })?;
        demand(resume == (job.checkpoint > 0), "O3", || {
            format!("{id} has a checkpoint of {} bytes; to go on from there: {resume}", job.checkpoint)
        })?;
        demand(!job.is_late(now), "O2", || format!("{id} is given out when its time is up"))?;
        // Of a liar it is not known what it has.
        let may_be_alone = book.given.is_empty() || book.is_liar;
        demand(!job.is_suspect || may_be_alone, "O15", || {
            format!("{id}, a suspect, is given to {worker}, which has {:?}", book.given)
        })?;
        demand(!has_suspect, "O15", || format!("{id} is given to {worker}, which has a suspect"))?;
        let lost_at = self.programs[book.program].unstarted_at.filter(|_| job.is_on_probation());
        let is_too_soon = lost_at.is_some_and(|lost_at| now < lost_at + self.least_backoff.0);
        demand(!is_too_soon || job.is_doubtful, "O6", || {
            format!("{id} is given out at once after {} workers that did not start it", job.unstarted)
        })?;
        demand(book.tray.is_none(), "O22", || {
            format!("{id} is sent to {worker}, which has one in its tray")
        })?;
        if book.given.is_empty() {
            book.heard_at = now;
        }
        book.given.push_back(id);
        let most = if between == Some(true) { 2 } else { self.config.window_max };
        demand(book.is_liar || book.given.len() <= most, "O5", || {
            format!("{worker} has {} jobs", book.given.len())
        })?;
        demand(book.is_liar || between != Some(false), "O5", || {
            format!("{worker} may start {id} between the steps of another job: {:?}", book.given)
        })?;
        job.holder = Some(worker);
        Ok(())
    }

    /// A worker that has to prove itself gets one job at a time. Unless it is on trial, it gets none that an idle worker
    /// could do of which more is known.
    fn judge_proof(&self, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let Some(book) = self.workers.get(&worker) else { return Ok(()) };
        if !self.reloads.is_surely_unproven(book.program, worker) {
            return Ok(());
        }
        demand(book.given.is_empty() || book.is_liar, "O20", || {
            format!("{worker} has to prove itself and gets {id} beside {:?}", book.given)
        })?;
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        if self.reloads.is_on_trial(book.version) {
            return demand(!job.is_suspect || book.is_liar, "O20", || {
                format!("{worker} is on trial and gets {id}, which has ended another worker")
            });
        }
        let could = |(id, other): &(&WorkerId, &WorkerBook)| {
            let is_proven = !self.reloads.is_unproven(other.program, **id);
            is_proven && other.is_well() && other.given.is_empty() && other.can_take(job)
        };
        let idle = self.workers.iter().filter(could).count();
        let kept = self.config.spares + self.config.reserved_of(self.config.workers);
        demand(idle <= kept || self.is_resized || self.programs.len() > 1, "O20", || {
            format!("{worker} has to prove itself and gets {id}, while {idle} others are idle")
        })
    }

    /// Whether the job may be run between the steps of one that the worker has; nothing if it has none with steps.
    fn may_run_between(&self, worker: WorkerId, id: JobId) -> Option<bool> {
        let book = self.workers.get(&worker)?;
        let first = *book.given.front()?;
        let is_stepped = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.is_stepped());
        if !book.given.iter().any(is_stepped) && !is_stepped(&id) {
            return None;
        }
        let is_alone = book.given.len() == 1 && book.started == [first];
        let job = self.jobs.get(&id)?;
        let both = self.jobs.get(&first)?.lets_others_in && job.may_be_lost(book.promises(&job.task));
        Some(is_alone && both)
    }

    /// A worker is asked to give a job back.
    pub(super) fn judge_yield(&mut self, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let is_live = self.live.contains(&id);
        let is_stepped = self.jobs.get(&id).is_some_and(|job| job.is_stepped());
        let book = self.workers.get_mut(&worker).filter(|book| book.started.contains(&id));
        let is_first = |book: &WorkerBook| {
            let is_running = book.started.last() == Some(&id) || book.is_leaving;
            is_running && book.wanted_back != Some(id)
        };
        let is_right = is_live && is_stepped && book.as_deref().is_some_and(is_first);
        book.into_iter().for_each(|book| book.wanted_back = Some(id));
        demand(is_right, "O5", || format!("{worker} is asked to give {id} back"))
    }

    pub(super) fn judge_cancel_run(&self, worker: WorkerId, id: JobId) -> Result<(), Failure> {
        let is_right = self.workers.contains_key(&worker)
            && !self.live.contains(&id)
            && self.jobs.get(&id).is_some_and(|job| job.holder == Some(worker));
        demand(is_right, "O2", || format!("{worker} is told to forget {id}"))
    }

    /// A worker is told to end: unless there is a reason, it has no job that is wanted.
    pub(super) fn judge_end_of_worker(&mut self, now: Mono, worker: WorkerId) -> Result<(), Failure> {
        let book = self.workers.get_mut(&worker);
        let book =
            book.ok_or(Failure { rule: "O5", what: format!("{worker} is told to end and is gone") })?;
        let is_first = !std::mem::replace(&mut book.is_asked, true);
        let is_for_no_reason = is_first && !book.is_leaving && !book.is_accused;
        book.is_leaving = true;
        let program = book.program;
        let book = &self.workers[&worker];
        if is_for_no_reason {
            self.judge_farewell(worker, book)?;
        }
        if is_for_no_reason && self.reloads.is_unproven(program, worker) {
            // It may go because it failed all of its jobs.
            self.programs[program].fail(now, false);
        }
        let book = &self.workers[&worker];
        let harmed = book
            .given
            .iter()
            .find(|job| self.live.contains(job) && self.jobs[job].holder == Some(worker) && is_for_no_reason);
        demand(harmed.is_none(), "O16", || format!("{worker} is told to end and has {harmed:?}"))
    }
}
