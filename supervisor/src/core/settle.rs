//! After every event: bring the world in line with the state.

use super::action::{Action, Actions};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, WorkerId};
use super::jobs::JobState;
use super::sabotage::Bug;
use super::slots::{Load, Slot, SlotState};
use super::{Core, Ending, Phase};

impl Core {
    pub(super) fn settle(&mut self, now: Mono, actions: &mut Actions) {
        self.expire(now, actions);
        if std::mem::take(&mut self.places_changed) {
            self.promote_spare();
            self.place_parked(now, actions);
            self.refuse_hopeless(now, actions);
        }
        self.give_out(now, actions);
        match self.phase {
            Phase::Running => self.fill_vacant(now, actions),
            Phase::Draining { .. }
                if self.sabotage.is(Bug::DrainForgetsParked)
                    && self.jobs.len() == self.jobs.parked_count() =>
            {
                self.wind_up(now, actions)
            }
            Phase::Draining { .. } if !self.jobs.is_empty() => self.fill_vacant(now, actions),
            Phase::Draining { .. } | Phase::Stopping => self.wind_up(now, actions),
            Phase::Over => {}
        }
    }

    /// A ready spare takes the place of a worker that is lost or not ready yet.
    fn promote_spare(&mut self) {
        let spare = self.config.workers;
        let Some(SlotState::Idle { .. }) = self.slots.get(spare).map(|slot| &slot.state) else { return };
        let needs_it = |slot: &SlotIndex| {
            let slot = &self.slots[*slot];
            slot.program == self.slots[spare].program && !slot.is_ready()
        };
        let Some(slot) = (0..spare).find(needs_it) else { return };
        let (slots, spares) = self.slots.split_at_mut(spare);
        std::mem::swap(&mut slots[slot].state, &mut spares[0].state);
        slots[slot].incarnation += 1;
        for place in [slot, spare] {
            if let Some(worker) = self.slots[place].worker() {
                self.places.insert(worker, place);
            }
            self.list(place);
        }
    }

    /// Sends parked jobs where they belong, once that is known.
    fn place_parked(&mut self, now: Mono, actions: &mut Actions) {
        if self.jobs.parked_count() == 0 {
            return;
        }
        let parked: Vec<JobId> = self.jobs.parked().collect();
        for id in parked {
            let Some(job) = self.jobs.get(id) else { continue };
            match self.registry.find(&job.task_name) {
                Some(task) if job.lane.is_none_or(|lane| lane == self.registry.task(task).lane) => {
                    self.unpark(id, task);
                }
                Some(task) => {
                    let error = self.wrong_lane(task);
                    self.finish(now, id, Ending::of(error), actions);
                }
                None => {
                    if let Err(error) = self.route_unknown(&job.task_name) {
                        self.finish(now, id, Ending::of(error), actions);
                    }
                }
            }
        }
    }

    fn unpark(&mut self, id: JobId, task: usize) {
        self.jobs.unpark(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.task = Some(task);
        job.state = JobState::Queued;
        let program = self.program_of(task);
        self.programs[program].queue.insert(id);
    }

    /// Jobs that wait for a program of which no worker can be had are not left hanging.
    fn refuse_hopeless(&mut self, now: Mono, actions: &mut Actions) {
        for program in 0..self.programs.len() {
            let Some(error) = self.unavailable(program) else { continue };
            while let Some(&job) = self.programs[program].queue.first() {
                self.finish(now, job, Ending::of(error.clone()), actions);
            }
        }
    }

    /// Gives waiting jobs to workers: the oldest job to an idle worker, or, if it is short, behind another short one.
    fn give_out(&mut self, now: Mono, actions: &mut Actions) {
        for program in 0..self.programs.len() {
            while let Some((job, slot)) = self.next_match(program) {
                self.assign(now, program, job, slot, actions);
            }
        }
    }

    fn next_match(&self, program: ProgramIndex) -> Option<(JobId, SlotIndex)> {
        let &job = self.programs[program].queue.first()?;
        let &(load, slot) = self.programs[program].open.first()?;
        (load == 0 || self.is_short(job)).then_some((job, slot))
    }

    fn is_short(&self, id: JobId) -> bool {
        let task = self.jobs.get(id).and_then(|job| job.task);
        task.is_some_and(|task| self.registry.task(task).is_short())
    }

    fn assign(
        &mut self,
        now: Mono,
        program: ProgramIndex,
        id: JobId,
        slot: SlotIndex,
        actions: &mut Actions,
    ) {
        self.programs[program].queue.remove(&id);
        let start_by = now + self.config.start_timeout;
        let worker = match &mut self.slots[slot].state {
            SlotState::Idle { worker } => {
                let worker = *worker;
                let load = Load { assigned: [id].into(), running: None };
                self.slots[slot].state = SlotState::Busy { worker, load, start_by };
                worker.id
            }
            SlotState::Busy { worker, load, .. } => {
                load.assigned.push_back(id);
                worker.id
            }
            _ => unreachable!("only ready slots are listed as open"),
        };
        self.list(slot);
        if let Some(job) = self.jobs.get_mut(id) {
            job.state = JobState::Assigned { worker };
            actions.push(Action::Run { worker, job: id, attempt: job.attempts + 1 });
        }
    }

    /// Brings the list of slots that can take a job in line with the state of `slot`.
    pub(super) fn list(&mut self, slot: SlotIndex) {
        let listed = self.room(slot);
        let open = &mut self.programs[self.slots[slot].program].open;
        if let Some(load) = self.slots[slot].listed.take() {
            open.remove(&(load, slot));
        }
        if let Some(load) = listed {
            open.insert((load, slot));
            self.slots[slot].listed = Some(load);
        }
    }

    /// How many jobs the slot has, if it can take one more.
    fn room(&self, slot: SlotIndex) -> Option<usize> {
        if self.is_spare(slot) && !self.sabotage.is(Bug::SpareWorks) {
            return None;
        }
        match &self.slots[slot].state {
            SlotState::Idle { .. } => Some(0),
            SlotState::Busy { load, .. } => {
                let length = load.assigned.len();
                let all_short = || load.assigned.iter().all(|job| self.is_short(*job));
                (length < self.config.window_max && all_short()).then_some(length)
            }
            SlotState::Vacant | SlotState::Starting { .. } | SlotState::Leaving { .. } => None,
        }
    }

    /// Starts processes in empty places, the spare's last.
    fn fill_vacant(&mut self, now: Mono, actions: &mut Actions) {
        for slot in 0..self.slots.len() {
            if self.may_fill(now, slot) {
                self.spawn(now, slot, actions);
            }
        }
    }

    fn may_fill(&self, now: Mono, slot: SlotIndex) -> bool {
        let place = &self.slots[slot];
        let restarts = &self.programs[place.program].restarts;
        let may_start = restarts.may_start(now, self.starting(place.program))
            || self.sabotage.is(Bug::NoPauseBetweenStarts);
        self.wants_filling(slot)
            && may_start
            && !(self.sabotage.is(Bug::BreakerStaysOpen) && restarts.is_refusing())
    }

    /// Whether a place is empty and should not be. The spare's has time until the slots are served.
    fn wants_filling(&self, slot: SlotIndex) -> bool {
        let place = &self.slots[slot];
        let is_served = |slot: &Slot| slot.program != place.program || slot.is_ready();
        let is_time = || !self.is_spare(slot) || self.slots[..self.config.workers].iter().all(is_served);
        matches!(place.state, SlotState::Vacant) && is_time()
    }

    /// Starts of which it is not known yet how they end.
    fn starting(&self, program: ProgramIndex) -> usize {
        let is_open = |slot: &&Slot| {
            let is_open =
                matches!(slot.state, SlotState::Starting { .. } | SlotState::Leaving { was: None, .. });
            slot.program == program && is_open
        };
        self.slots.iter().filter(is_open).count()
    }

    fn spawn(&mut self, now: Mono, slot: SlotIndex, actions: &mut Actions) {
        self.last_worker += 1;
        let worker = WorkerId(self.last_worker);
        self.tally.start(self.slots[slot].incarnation > 0);
        self.slots[slot].incarnation += 1;
        self.slots[slot].state = SlotState::Starting { worker, ready_by: now + self.config.hello_timeout };
        self.places.insert(worker, slot);
        actions.push(Action::Spawn { worker, program: self.slots[slot].program, slot });
    }

    /// When an empty place may be filled that cannot be filled now.
    pub(super) fn next_start(&self) -> Option<Mono> {
        if !matches!(self.phase, Phase::Running | Phase::Draining { .. }) {
            return None;
        }
        (0..self.slots.len())
            .filter(|&slot| self.wants_filling(slot) && self.starting(self.slots[slot].program) == 0)
            .filter_map(|slot| self.programs[self.slots[slot].program].restarts.next_start())
            .min()
    }
}
