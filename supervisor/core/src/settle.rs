//! The last step of every event, or of several together: end what has expired, dispatch waiting jobs to workers, and start
//! missing workers.

use super::clients::{Account, ClientId};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex};
use super::queue::Next;
use super::registry::{Class, Promise};
use super::slots::{Listed, Load, Opening, Role, Slot, SlotState};
use super::small_map::SmallSet;
use super::turn::Turn;
use super::waiting::{Line, Standing};
use super::{Core, Ending, Phase};
use crate::limits::{MOVED_MAX, UNKNOWN_ENDED_MAX};
use offload_protocol::limits::INLINE_PAYLOAD_MAX;

impl Core {
    pub(super) fn settle_all(&mut self, turn: &mut Turn<'_>) {
        self.end_unwanted(turn);
        let expired = self.expire_waiting(turn);
        for program in &mut self.programs {
            program.probation.open_in_time(turn.now);
            if !program.has_some_on_probation() {
                program.probation.forget();
            }
        }
        self.relist();
        self.has_more_to_move = false;
        self.resume_held();
        self.resume_paused();
        if std::mem::take(&mut self.places_changed) {
            self.promote_spare();
            self.release_unoffered();
            self.place_parked(turn);
            self.end_questions_without_workers(turn);
            self.refuse_hopeless(turn);
        }
        self.renew(turn);
        self.refuse_files(turn);
        self.ripen(turn.now);
        self.relist();
        self.dispatch(turn, expired);
        match self.phase {
            Phase::Running => self.fill_vacant(turn),
            Phase::Draining { .. } if !self.is_drained() => self.fill_vacant(turn),
            Phase::Draining { .. } | Phase::Stopping => self.wind_up(turn),
            Phase::Over => {}
        }
        self.relist();
        self.is_settled = true;
    }

    /// Parked jobs whose task has become known go into a queue; those whose task nobody can offer any more end.
    pub(super) fn place_parked(&mut self, turn: &mut Turn<'_>) {
        if self.jobs.parked_count() == 0 {
            return;
        }
        let parked: Vec<JobId> = self.jobs.parked().collect();
        let mut moved = 0;
        for id in parked {
            if moved >= MOVED_MAX {
                return self.move_more_later();
            }
            let Some(job) = self.jobs.get(id) else { continue };
            match self.registry.find(self.task_name(job)) {
                Some(task) if job.lane.is_none_or(|lane| lane == self.registry.task(task).lane) => {
                    self.enqueue(id);
                }
                Some(task) => {
                    let error = self.wrong_lane(task);
                    self.finish(turn, id, Ending::of(error));
                }
                None => {
                    let Err(error) = self.no_route(self.task_name(job)) else { continue };
                    self.finish(turn, id, Ending::of(error));
                    moved += MOVED_MAX / UNKNOWN_ENDED_MAX - 1;
                }
            }
            moved += 1;
        }
    }

    /// As many jobs were moved, or have ended, because places have changed as one event may move. The rest follows at once, in
    /// further events.
    pub(super) fn move_more_later(&mut self) {
        (self.has_more_to_move, self.places_changed) = (true, true);
    }

    /// Dispatches waiting jobs to workers. Of what one event may move, so many have expired in this one: if that is all, others that
    /// are late may be left, and nothing is dispatched.
    fn dispatch(&mut self, turn: &mut Turn<'_>, expired: usize) {
        for program in self.programs_of_workers() {
            self.want_unfit_and_overdue_back(turn, program);
            self.note_overrun(turn.now, program);
            self.exchange_reserved(turn.now, program);
            self.bring_in_spare(program);
            let mut moved = expired + self.clear_the_way(program, MOVED_MAX - expired);
            while let Some((job, slot, tray)) = self.next_step(turn.now, program) {
                if moved == MOVED_MAX {
                    self.has_more_to_move = true;
                    break;
                }
                if self.hold_back(job) {
                    moved += 1 + self.clear_the_way(program, MOVED_MAX - moved - 1);
                    continue;
                }
                self.give(turn, job, slot, tray);
                moved += self.clear_the_way(program, MOVED_MAX - moved);
                self.relist();
                self.bring_in_spare(program);
            }
            self.rearrange_trays(turn, program);
        }
        self.dispatch_here(turn, expired);
    }

    /// Moves jobs that are first in queues where they do not belong; at most so many. Returns how many.
    fn clear_the_way(&mut self, program: ProgramIndex, most: usize) -> usize {
        let moved = self.set_paused_aside(program, most);
        moved + self.requeue_long(program, most - moved)
    }

    /// The next job that can be dispatched, and a slot for it. If the first job of one queue finds no slot, the first
    /// job of another queue may still find one.
    pub(super) fn next_match(&self, now: Mono, program: ProgramIndex) -> Option<(JobId, SlotIndex)> {
        if !self.programs[program].has_openings() {
            return None;
        }
        // What a worker with several jobs says is left unread while memory is full.
        let is_full = self.ledger.is_over(self.config.max_bytes);
        let heads: Vec<(Next, Line)> = self.heads_to_start(program).collect();
        let slot_for_head = |index: usize| {
            let (next, line) = heads[index];
            let job = next.job();
            let is_alone = line.standing != Standing::Good || is_full;
            let company = match (is_alone, self.fits_beside_others(job)) {
                (true, _) => Company::None,
                (false, false) => Company::Steps,
                (false, true) => Company::Tiny { after: &heads[..index] },
            };
            let is_open = self.is_line_open(program, line);
            let slot = is_open.then(|| self.slot_for(now, program, (job, line), company)).flatten();
            slot.map(|slot| (job, slot))
        };
        (0..heads.len()).find_map(slot_for_head)
    }

    pub(super) fn slot_for(
        &self,
        now: Mono,
        program: ProgramIndex,
        (job, line): (JobId, Line),
        company: Company<'_>,
    ) -> Option<SlotIndex> {
        let class = self.jobs.get(job).map_or(line.class, |job| self.class_of(job));
        let usual = || match class {
            Class::Short => self.slot_for_short(now, program, job, company),
            Class::Long | Class::Together => {
                let slot = self.slot_for_long(now, program, job, company);
                slot.or_else(|| self.slot_to_learn(program, job, company))
            }
        };
        let slot = self.slot_on_trial(program, job).or_else(|| self.slot_to_find_out(program, job));
        slot.or_else(usual).or_else(|| self.unproven_slot(program, job))
    }

    /// A slot for a job of a task that has never run, when no worker is idle: one between the steps of a long job, for one job of
    /// the task at a time. Otherwise a short task would wait for the end of a long job before it can be known as short.
    fn slot_to_learn(&self, program: ProgramIndex, id: JobId, company: Company<'_>) -> Option<SlotIndex> {
        let between = &self.programs[program].between_steps;
        if company == Company::None || between.is_empty() {
            return None;
        }
        let job = self.jobs.get(id).filter(|job| job.class == Class::Long && !job.is_streamed())?;
        let task = job.task.filter(|task| !self.registry.task(*task).has_run())?;
        let is_of_the_task = |other: JobId| self.jobs.get(other).is_some_and(|job| job.task == Some(task));
        let mut loads = self.slots.iter().filter_map(Slot::load);
        let is_under_way = loads.any(|load| load.jobs().any(is_of_the_task));
        between.iter().copied().find(|slot| !is_under_way && self.may_run_between_steps(*slot, id))
    }

    /// A slot for a short job: an idle one, reserved ones first; or, if the job is tiny, one with other tiny jobs; or
    /// one between the steps of a long job.
    fn slot_for_short(
        &self,
        now: Mono,
        program: ProgramIndex,
        job: JobId,
        company: Company<'_>,
    ) -> Option<SlotIndex> {
        let slots = &self.programs[program];
        let first = |open| self.first_open(now, program, open, job, company);
        let open = [first(&slots.open_reserved), first(&slots.open)].into_iter().flatten();
        let least = open.min_by_key(|(load, _)| *load);
        let between = || {
            let mut between = slots.between_steps.iter().filter(|_| company != Company::None);
            between.find(|slot| self.may_run_between_steps(**slot, job)).map(|&slot| (0, slot))
        };
        least.or_else(between).map(|(_, slot)| slot)
    }

    /// A slot for a long job: an idle one; a reserved one only if there is no short work now, or if short jobs can
    /// run between the steps of this job.
    fn slot_for_long(
        &self,
        now: Mono,
        program: ProgramIndex,
        job: JobId,
        company: Company<'_>,
    ) -> Option<SlotIndex> {
        let slots = &self.programs[program];
        let open = self.first_open(now, program, &slots.open, job, company);
        let borrowed = || {
            let reserved = self.first_open(now, program, &slots.open_reserved, job, Company::None);
            reserved.filter(|(_, slot)| self.may_borrow(now, program, *slot, job))
        };
        open.or_else(borrowed).map(|(_, slot)| slot)
    }

    /// The first of these slots that can take the job: an idle one, or one whose tiny jobs it may join.
    fn first_open(
        &self,
        now: Mono,
        program: ProgramIndex,
        open: &SmallSet<(usize, SlotIndex)>,
        job: JobId,
        company: Company<'_>,
    ) -> Option<(usize, SlotIndex)> {
        let takes = |(load, slot): (usize, SlotIndex)| {
            self.promise_to(slot, job).is_some() && (load == 0 || self.may_join(now, slot, job, company))
        };
        open.iter().copied().take(self.slots_to_look_at(program)).find(|place| takes(*place))
    }

    /// How many slots of one kind have to be looked at: they differ only in what their workers offer.
    pub(super) fn slots_to_look_at(&self, program: ProgramIndex) -> usize {
        if self.programs[program].offers_differ { usize::MAX } else { 1 }
    }

    /// What the worker in this slot promises of the job's task; `None` if it does not offer the task.
    pub(super) fn promise_to(&self, slot: SlotIndex, job: JobId) -> Option<Promise> {
        let (job, worker) = (self.jobs.get(job)?, self.slots[slot].worker()?);
        match job.task {
            Some(task) => self.offers.get(&worker)?.promise(task),
            None => self.promise_of(worker, self.task_name(job)),
        }
    }

    /// Whether jobs of this queue may be dispatched now. Jobs on probation may be only while the probation is open.
    pub(super) fn is_line_open(&self, program: ProgramIndex, line: Line) -> bool {
        line.standing != Standing::OnProbation || self.programs[program].probation.is_open()
    }

    /// When a job on probation may be tried again.
    pub(super) fn next_test(&self) -> Option<Mono> {
        let is_one = |(_, line): &(_, Line)| line.standing == Standing::OnProbation;
        let waits = |program: &ProgramIndex| {
            self.programs[*program].has_some_on_probation()
                && self.heads_to_start(*program).any(|head| is_one(&head))
        };
        let waiting = (0..self.programs.len()).filter(waits);
        waiting.filter_map(|program| self.programs[program].probation.opens_at()).min()
    }

    /// Whether a job is so short, and its output probably so small, that other tiny jobs may share its worker. A job
    /// with steps is not tiny, however short it is: a job that is given to its worker behind it may be started
    /// between its steps. Nor is one whose reader decides how long it runs, or whose
    /// input a file system may hold up.
    pub(super) fn is_tiny(&self, id: JobId, promise: Promise) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let is_small = job.input_bytes <= INLINE_PAYLOAD_MAX as u64;
        is_small
            && !job.has_file
            && !promise.is_stepped
            && !job.is_streamed()
            && job.class != Class::Together
            && job.task.is_some_and(|task| self.why_tiny(job.client, task) == [true; 2])
    }

    /// Whether the outputs of this client have been small, and whether the runs and outputs of this task have been, for
    /// everybody. If both have been, its jobs may be tiny.
    pub(super) fn why_tiny(&self, client: ClientId, task: TaskIndex) -> [bool; 2] {
        let has_small_outputs = self.clients.get(client).is_some_and(Account::has_small_outputs);
        [has_small_outputs, self.registry.task(task).is_tiny()]
    }

    /// Whether a job that a worker has may share the worker with other tiny jobs.
    fn takes_company(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| !job.is_suspect && self.is_tiny(id, job.promise))
    }

    /// Whether all of these jobs may share their worker with other tiny jobs. Usually the answer is known: a tiny job was
    /// added, or a job went.
    fn are_all_tiny(&self, load: &Load) -> bool {
        let is_known = load.tiny_as_of.get() == self.tiny_changes;
        let are_tiny = is_known || self.find_all_tiny(load);
        load.tiny_as_of.set(if are_tiny { self.tiny_changes } else { 0 });
        are_tiny
    }

    pub(super) fn find_all_tiny(&self, load: &Load) -> bool {
        load.jobs().all(|job| self.takes_company(job))
    }

    /// Whether a job may be given to a worker that has other tiny jobs. If tiny jobs joined a worker for which an earlier job
    /// waits, it might never become idle.
    fn may_join(&self, now: Mono, slot: SlotIndex, id: JobId, company: Company<'_>) -> bool {
        let Company::Tiny { after } = company else { return false };
        let is_tiny = || self.promise_to(slot, id).is_some_and(|promise| self.is_tiny(id, promise));
        is_tiny() && !after.iter().any(|earlier| self.waits_for(now, slot, *earlier))
    }

    /// Whether a job that has found no slot should have this one next. That short jobs can run between its steps is a reason to lend it
    /// a reserved slot that is idle, and not one to make that idle.
    fn waits_for(&self, now: Mono, slot: SlotIndex, (next, line): (Next, Line)) -> bool {
        let is_for_short = self.slots[slot].is_reserved && !self.is_lent(now, self.slots[slot].program);
        let is_short = || self.jobs.get(next.job()).is_some_and(|job| self.class_of(job) == Class::Short);
        self.could_take(now, slot, (next, line)) && (!is_for_short || is_short())
    }

    /// Whether a short job may run between the steps of another. If one of the two ends the worker, both are lost. So
    /// both must be allowed to run again, by what this worker promises of their tasks.
    fn may_run_between_steps(&self, slot: SlotIndex, id: JobId) -> bool {
        let Some(promise) = self.promise_to(slot, id) else { return false };
        self.jobs.get(id).is_some_and(|job| self.attempts_under(job, job.ran_under.and(promise)) > 1)
    }

    /// Brings all lists of slots in line with the states of the slots that were touched.
    pub(super) fn relist(&mut self) {
        while let Some(slot) = self.unlisted.pop() {
            self.list(slot);
        }
    }

    fn list(&mut self, slot: SlotIndex) {
        let fresh = Listed {
            open: self.room(slot).map(|load| (load, self.opening(slot))),
            between_steps: self.lets_others_in(slot),
            due: self.slots[slot].deadline(self.config.hang_timeout),
            tray: self.tray_state(slot),
        };
        let place = &mut self.slots[slot];
        let lists = &mut self.programs[place.program];
        match matches!(place.state, SlotState::Vacant) && place.role != Role::Surplus {
            true => self.vacant.insert(slot),
            false => self.vacant.remove(&slot),
        };
        let old = std::mem::replace(&mut place.listed, fresh);
        if old == fresh {
            return;
        }
        if let Some((load, opening)) = old.open {
            lists.open_list(opening).remove(&(load, slot));
        }
        if let Some((load, opening)) = fresh.open {
            lists.open_list(opening).insert((load, slot));
        }
        lists.trays.list(slot, old.tray, fresh.tray);
        match fresh.between_steps {
            true => lists.between_steps.insert(slot),
            false => lists.between_steps.remove(&slot),
        };
        if let Some(due) = old.due {
            self.due.remove(&(due, slot));
        }
        if let Some(due) = fresh.due {
            self.due.insert((due, slot));
        }
    }

    /// Whether the slot takes jobs at all.
    pub(super) fn is_accepting(&self, slot: SlotIndex) -> bool {
        let slot = &self.slots[slot];
        matches!(slot.role, Role::Work | Role::Trial) && slot.is_ready() && !slot.tenure.is_closing()
    }

    fn opening(&self, slot: SlotIndex) -> Opening {
        match self.slots[slot].is_reserved {
            _ if self.is_unproven(slot) => Opening::Unproven,
            true => Opening::Reserved,
            false => Opening::Free,
        }
    }

    /// How many jobs the slot has, if it can take one more behind them.
    pub(super) fn room(&self, slot: SlotIndex) -> Option<usize> {
        if !self.is_accepting(slot) || self.slots[slot].left_to_give() == 0 {
            return None;
        }
        match &self.slots[slot].state {
            SlotState::Idle { .. } => Some(0),
            SlotState::Busy { .. } if self.is_unproven(slot) => None,
            SlotState::Busy { load, .. } if load.tray.is_some() => None,
            SlotState::Busy { load, .. } => {
                let length = load.len();
                (length < self.config.window_max && self.are_all_tiny(load)).then_some(length)
            }
            SlotState::Vacant | SlotState::Starting { .. } | SlotState::Leaving { .. } => None,
        }
    }

    /// Whether a short job can run between the steps of the job that runs here.
    fn lets_others_in(&self, slot: SlotIndex) -> bool {
        let Some(load) = self.slots[slot].load().filter(|_| self.is_accepting(slot)) else { return false };
        let lets_others_in = load.running.is_some_and(|running| running.lets_others_in);
        let is_free = load.suspended.is_none() && load.waiting.is_empty();
        let is_free = is_free && self.slots[slot].left_to_give() > 0;
        lets_others_in && is_free && !self.is_unproven(slot)
    }

    /// Starts processes in empty places; the spare's comes last.
    fn fill_vacant(&mut self, turn: &mut Turn<'_>) {
        if self.vacant.is_empty() {
            return;
        }
        let vacant: Vec<SlotIndex> = self.vacant.iter().copied().collect();
        for slot in vacant {
            if self.may_fill(turn.now, slot) {
                self.spawn(turn, slot);
            }
        }
    }

    fn may_fill(&self, now: Mono, slot: SlotIndex) -> bool {
        let program = self.slots[slot].program;
        let restarts = &self.programs[program].restarts;
        // One that is on trial is started, whatever happened to the others.
        let may_start = || restarts.may_start(now, self.starting(program));
        let is_tried = self.slots[slot].role == Role::Trial;
        self.is_time_to_fill(slot) && if is_tried { !self.is_in_question(program) } else { may_start() }
    }

    /// The spare's place is filled only after all slots have a ready worker.
    fn is_time_to_fill(&self, slot: SlotIndex) -> bool {
        let program = self.slots[slot].program;
        let is_filled = |slot: SlotIndex| {
            let place = &self.slots[slot];
            place.is_ready() || !place.is_there() || place.role == Role::Trial
        };
        let is_its_turn = !self.is_spare(slot) || self.slots_of(program).all(is_filled);
        is_its_turn && self.may_add_unproven(slot)
    }

    /// How many starts of this program are under way.
    fn starting(&self, program: ProgramIndex) -> usize {
        let is_open = |slot: &&Slot| {
            let is_open =
                matches!(slot.state, SlotState::Starting { .. } | SlotState::Leaving { was: None, .. });
            slot.program == program && slot.role != Role::Trial && is_open
        };
        self.slots.iter().filter(is_open).count()
    }

    /// When the next empty place may be filled, if that has to wait for a pause to end.
    pub(super) fn next_start(&self) -> Option<Mono> {
        if !matches!(self.phase, Phase::Running | Phase::Draining { .. }) {
            return None;
        }
        let vacant = self.vacant.iter().copied().filter(|slot| self.slots[*slot].role != Role::Trial);
        vacant
            .filter(|&slot| self.is_time_to_fill(slot) && self.starting(self.slots[slot].program) == 0)
            .filter_map(|slot| self.programs[self.slots[slot].program].restarts.next_start())
            .min()
    }
}

/// Which jobs may share a worker with a job that is about to be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company<'a> {
    /// None: the job gets a worker of its own.
    None,
    /// A job with steps, between which the new job can run.
    Steps,
    /// A job with steps, or other tiny jobs, but for a worker that one of the earlier jobs could have if it were idle.
    Tiny {
        /// The earlier jobs, none of which has found a slot.
        after: &'a [(Next, Line)],
    },
}
