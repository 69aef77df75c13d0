//! What must be true between any two events, written down a second time so that it can be checked.

use super::Core;
use super::ids::{JobId, SlotIndex};
use super::jobs::{Job, JobState};
use super::slots::SlotState;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Core {
    /// Looks at everything. For tests and simulations: it takes time in proportion to all jobs.
    ///
    /// # Errors
    /// The first thing that is wrong, for the people who have to mend it.
    pub fn check(&self) -> Result<(), String> {
        self.check_books()?;
        self.check_places()?;
        self.jobs.iter().try_for_each(|(id, job)| self.check_job(id, job))?;
        (0..self.slots.len()).try_for_each(|slot| self.check_slot(slot))
    }

    /// The same number for the same state, in this and any other run of the same program.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }

    /// Accepted = waiting + running + ended.
    pub fn is_balanced(&self) -> bool {
        let (waiting, running) = self.waiting_and_running();
        self.tally.accepted() == (waiting + running) as u64 + self.tally.ended_in_all()
    }

    fn check_books(&self) -> Result<(), String> {
        let live = self.jobs.len() as u64;
        let bytes: u64 = self.jobs.iter().map(|(_, job)| job.input_bytes).sum();
        let queued: usize = self.programs.iter().map(|program| program.queue.len()).sum();
        let states =
            |state: fn(&JobState) -> bool| self.jobs.iter().filter(|(_, job)| state(&job.state)).count();
        ensure(self.tally.accepted() == live + self.tally.ended_in_all(), || {
            "the books do not balance".into()
        })?;
        ensure(self.is_balanced(), || "the public books do not balance".into())?;
        ensure(bytes == self.jobs.input_bytes(), || "the bytes do not add up".into())?;
        ensure(queued == states(|state| *state == JobState::Queued), || "queues and states differ".into())?;
        ensure(self.jobs.parked_count() == states(|state| *state == JobState::Parked), || {
            "parked differ".into()
        })
    }

    fn check_places(&self) -> Result<(), String> {
        let occupied = self.slots.iter().filter(|slot| slot.worker().is_some()).count();
        ensure(self.places.len() == occupied, || "processes and occupied places differ".into())?;
        ensure(self.places.len() <= self.config.workers + self.config.spares, || {
            "too many processes".into()
        })?;
        for (worker, &slot) in &self.places {
            ensure(self.slots[slot].worker() == Some(*worker), || format!("{worker} is not in slot {slot}"))?;
        }
        Ok(())
    }

    fn check_job(&self, id: JobId, job: &Job) -> Result<(), String> {
        match job.state {
            JobState::Parked => ensure(job.task.is_none(), || format!("{id} is parked with a known task")),
            JobState::Queued => {
                let program = job.task.map(|task| self.program_of(task));
                let is_there = program.is_some_and(|program| self.programs[program].queue.contains(&id));
                ensure(is_there, || format!("{id} is queued but in no queue"))
            }
            JobState::Assigned { worker } | JobState::Running { worker, .. } => {
                let load = self.slot_of(worker).and_then(|slot| self.slots[slot].load());
                let is_running = matches!(job.state, JobState::Running { .. });
                let place = load.map(|load| (load.assigned.contains(&id), load.running_job() == Some(id)));
                ensure(place == Some((true, is_running)), || format!("{id} is not where it says it is"))
            }
        }?;
        ensure(job.attempts <= self.attempts_allowed(job), || format!("{id} was started too often"))
    }

    fn check_slot(&self, slot: SlotIndex) -> Result<(), String> {
        let place = &self.slots[slot];
        let is_spare = self.is_spare(slot);
        if let SlotState::Busy { load, .. } = &place.state {
            ensure(!load.assigned.is_empty(), || format!("slot {slot} is busy with nothing"))?;
            ensure(load.assigned.len() <= self.config.window_max, || {
                format!("slot {slot} has too many jobs")
            })?;
            ensure(!is_spare, || "the spare has a job".into())?;
        }
        if let Some(load) = place.load() {
            ensure(load.running.is_none() || !load.assigned.is_empty(), || {
                format!("slot {slot} runs nothing")
            })?;
        }
        let is_open = self.programs[place.program].open.iter().any(|(_, open)| *open == slot);
        ensure(!is_open || (place.is_ready() && !is_spare), || format!("slot {slot} is listed as open"))?;
        let must_be_open = matches!(place.state, SlotState::Idle { .. }) && !is_spare;
        ensure(is_open || !must_be_open, || format!("slot {slot} is idle and not listed"))
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
