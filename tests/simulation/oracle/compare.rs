//! Compares the figures of the core with those of the oracle, after every event and at the end.

use super::workers::WorkerBook;
use super::{Failure, Oracle, demand};
use offload_core::action::Action;
use offload_core::event::Event;
use offload_core::ids::Mono;
use offload_core::jobs::JobState;
use offload_core::slots::Role;
use offload_core::{Core, Phase};
use offload_protocol::nouns::OutcomeCode;

impl Oracle {
    pub(super) fn is_queue_full(&self) -> bool {
        let waiting = self.live.iter().filter(|id| !self.jobs[id].is_out()).count();
        waiting >= self.config.max_jobs
    }

    pub(super) fn waiting_of(&self, client: &str) -> usize {
        let waits = |book: &super::JobBook| !book.is_out() && book.client == client;
        self.live.iter().filter(|id| waits(&self.jobs[id])).count()
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|id| self.jobs[id].bytes + self.jobs[id].checkpoint).sum()
    }

    pub(super) fn compare(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        match core.is_settled() {
            true => self.compare_settled(now, event, actions, core),
            false => self.compare_unsettled(event, actions, core),
        }
    }

    /// What has yet to follow is not looked at.
    pub(super) fn compare_unsettled(
        &mut self,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        self.compare_books(core)?;
        self.compare_memory(core)?;
        self.compare_parts()?;
        self.compare_promises(event, actions, core)
    }

    pub(super) fn compare_settled(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        compare_places(actions, core)?;
        self.compare_shares(now)?;
        self.compare_books(core)?;
        self.compare_memory(core)?;
        self.compare_parts()?;
        self.compare_promises(event, actions, core)?;
        self.compare_jobs(now, event, core)?;
        self.demand_no_idleness(now, core)?;
        self.demand_that_all_leave_in_time()?;
        self.compare_trays(now, event, core)?;
        self.compare_here(core)?;
        self.compare_pauses()?;
        // A tick may have brought about something that is due at once, but not again and again. Of many jobs that end together, few
        // do in each.
        if matches!(event, Some(Event::Tick)) {
            let is_due = core.next_deadline().is_some_and(|due| due <= now);
            let has_ended_some = actions.iter().any(|action| matches!(action, Action::Finish(_)));
            self.ticks_in_vain = if is_due && !has_ended_some { self.ticks_in_vain + 1 } else { 0 };
        }
        demand(self.ticks_in_vain < 4, "O11", || {
            format!("after a tick at {now:?} another one is due at {:?}", core.next_deadline())
        })
    }

    fn compare_books(&self, core: &Core) -> Result<(), Failure> {
        let tally = core.tally();
        let figures = [
            ("accepted", self.accepted, tally.accepted()),
            ("rejected", self.rejected, tally.rejected()),
            ("started", self.starts.total, tally.starts()),
            ("live", self.live.len() as u64, core.jobs().len() as u64),
            ("processes", self.workers.len() as u64, core.process_count() as u64),
        ];
        for (what, here, there) in figures {
            demand(here == there, "O13", || format!("{what}: {here} here, {there} there"))?;
        }
        for code in OutcomeCode::ALL {
            let here = self.ended.get(code).copied().unwrap_or(0);
            demand(here == tally.ended(*code), "O13", || format!("{code}: {here} here"))?;
        }
        let (here, there) = (self.live_bytes(), core.jobs().held_bytes());
        demand(here == there, "O7", || format!("{here} bytes are held, not {there}"))?;
        self.compare_files(core)
    }

    fn compare_jobs(&self, now: Mono, event: Option<&Event>, core: &Core) -> Result<(), Failure> {
        for id in &self.live {
            let book = &self.jobs[id];
            // What a worker has may have been answered in time, until all that came is told and the tick follows.
            let is_certain = !book.is_out() || matches!(event, Some(Event::Tick));
            demand(!is_certain || !book.is_late(now), "O2", || format!("{id} lives on after its deadline"))?;
            demand(book.is_out() || !book.is_abandoned, "O19", || {
                format!("{id} waits, and nobody wants it")
            })?;
            let is_held = core.jobs().get(*id).map(|job| job.state.is_dispatched());
            demand(is_held == Some(book.is_out()), "O1", || format!("{id} is not with {book:?}"))?;
            let is_leaving = book.holder.is_some_and(|worker| self.workers[&worker].is_leaving);
            let is_running = matches!(event, Some(Event::Tick)) && book.suspended_since.is_none();
            let is_overdue = is_running && book.has_run_too_long(now);
            demand(!is_overdue || is_leaving || book.is_doubtful, "O2", || format!("{id} runs too long"))?;
            let hangs = matches!(event, Some(Event::Tick)) && book.is_silent(now, self.config.hang_timeout);
            demand(!hangs || is_leaving || book.is_doubtful, "O2", || format!("{id} hangs: {book:?}"))?;
        }
        demand(!self.is_stopping || self.live.is_empty(), "O1", || "jobs live on after a stop".to_owned())
    }

    /// A worker has no more jobs in all its life than it may do. It may have more only if it is not certain that another one can
    /// be had.
    fn demand_that_all_leave_in_time(&self) -> Result<(), Failure> {
        if self.reloads.has_been_asked() || self.programs.iter().any(|program| program.has_failed) {
            return Ok(());
        }
        let has_too_many = |book: &WorkerBook| {
            let had = book.jobs_done + book.given.len() as u64;
            !book.is_liar && book.most_jobs.is_some_and(|most| had > most)
        };
        let found = self.workers.iter().find(|(_, book)| has_too_many(book));
        demand(found.is_none(), "O28", || format!("a worker has too many jobs: {found:?}"))
    }

    /// With one program: work and idle workers, beside the spare, do not exist at the same time.
    fn demand_no_idleness(&self, now: Mono, core: &Core) -> Result<(), Failure> {
        let is_renewed = self.config.max_jobs_per_worker.is_some()
            || self.config.max_age.is_some()
            || self.config.max_rss.is_some()
            || self.reloads.has_been_asked();
        let is_scaled = self.is_resized;
        if self.programs.len() > 1 || core.phase() == Phase::Over || is_renewed || is_scaled {
            return Ok(());
        }
        let idle: Vec<_> =
            self.workers.values().filter(|book| book.is_well() && book.given.is_empty()).collect();
        let kept = self.config.spares + self.config.reserved_of(self.config.workers);
        if idle.len() <= kept {
            return Ok(());
        }
        // Of those that no worker lives to start, one is tried at a time, and not at once.
        let lost_at = self.programs[0].perhaps_unstarted_at;
        let is_closed = lost_at.is_some_and(|lost_at| now <= lost_at + self.longest_backoff * 5 / 4);
        let is_one = |book: &super::JobBook| book.is_on_probation() || book.is_doubtful;
        let is_tested = |book: &super::JobBook| is_one(book) && book.holder.is_some();
        let is_testing = self.live.iter().any(|id| is_tested(&self.jobs[id]));
        let may_be_kept_back =
            |book: &super::JobBook| book.is_doubtful || (book.is_on_probation() && (is_testing || is_closed));
        let could = |job: &super::JobBook| idle.iter().filter(|book| book.can_take(job)).count() > kept;
        // One that is held back has a reason, which is looked at elsewhere.
        let is_held = |id| core.jobs().get(id).is_some_and(|job| job.state == JobState::Held);
        let waits = |id: &&_| {
            let book = &self.jobs[*id];
            let must_start = !book.is_out() && self.must_start(**id);
            let is_free = (must_start || self.is_left_in_tray(**id)) && !may_be_kept_back(book);
            is_free && could(book) && !is_held(**id)
        };
        let waiting = self.live.iter().find(waits);
        demand(waiting.is_none(), "O9", || format!("{waiting:?} waits, {} workers are idle", idle.len()))
    }

    /// Whether each place has a worker that is well, where that is possible. After a version was taken back, one has to
    /// prove itself before others are started.
    pub(crate) fn is_pool_full(&self, core: &Core) -> bool {
        (0..self.programs.len()).all(|program| {
            let places = core
                .slots()
                .iter()
                .filter(|slot| slot.program == program && slot.role != Role::Surplus)
                .count();
            let well = self.workers.values().filter(|book| book.program == program && book.is_well()).count();
            let is_doubted = self.reloads.is_doubted(program) && well > 0;
            well == places || is_doubted || self.programs[program].may_be_broken
        })
    }

    /// All jobs have ended, all workers are there: nothing is due.
    ///
    /// # Errors
    /// What is not so.
    pub(crate) fn all_is_well(&self, core: &Core, now: Mono) -> Result<(), Failure> {
        // What is kept is over at some time.
        let due = core.next_deadline().filter(|due| Some(*due) != self.promises.next_end());
        let ages = self.config.max_age.is_some();
        let is_hopeless = ages || self.programs.iter().any(|program| program.may_be_broken);
        demand(due.is_none() || is_hopeless, "O8", || format!("something is due at {due:?}, it is {now:?}"))?;
        demand(self.live.is_empty() && core.jobs().is_empty(), "O8", || "jobs are left".to_owned())?;
        demand(self.reloads.are_answered(), "O18", || "a reload is not answered".to_owned())
    }

    /// After the end.
    ///
    /// # Errors
    /// What is left.
    pub(crate) fn nothing_is_left(&self, core: &Core) -> Result<(), Failure> {
        let (waiting, running) = core.waiting_and_running();
        let jobs = core.jobs();
        let left = [
            ("jobs", jobs.len() + waiting + running + self.live.len()),
            ("bytes", (jobs.held_bytes() + core.ledger().all().total()) as usize),
            ("files", core.files().open() + self.open_files()),
            ("deadlines", usize::from(jobs.first_deadline().is_some())),
            ("timers", usize::from(core.next_deadline().is_some())),
            ("processes", core.process_count() + self.workers.len()),
            ("threads", core.taken_here()),
            ("ends", usize::from(!self.is_over || core.phase() != Phase::Over)),
        ];
        for (what, number) in left {
            demand(number == 0, "O8", || format!("{number} {what} left at the end"))?;
        }
        let (told, counted) = (core.cut_short(), self.cut_short);
        demand(told == counted, "O13", || format!("{told} jobs are said to be cut short, {counted} are"))
    }
}

/// Nothing is given to, or started in, a place that is about to be empty.
fn compare_places(actions: &[Action], core: &Core) -> Result<(), Failure> {
    for action in actions {
        let (worker, is_job) = match action {
            Action::Run { worker, .. } | Action::Prefetch { worker, .. } => (worker, true),
            Action::Spawn { worker, .. } => (worker, false),
            _ => continue,
        };
        let Some(slot) = core.slot_of(*worker).map(|slot| &core.slots()[slot]) else { continue };
        let is_for_jobs = matches!(slot.role, Role::Work | Role::Trial);
        let is_open = !slot.tenure.is_closing() && is_for_jobs;
        demand(is_open || !is_job, "O5", || format!("{worker} is on its way out and gets a job"))?;
        demand(slot.role != Role::Surplus, "O5", || format!("{worker} is started and not needed"))?;
    }
    Ok(())
}
