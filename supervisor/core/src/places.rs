//! The number of slots: as many as are configured, divided among the programs. When the number is lowered, the
//! workers that are too many go when they have no jobs.

use super::Core;
use super::config::CoreConfig;
use super::ids::{ProgramIndex, SlotIndex, WorkerId, WorkerInSlot};
use super::slots::{Role, Slot, SlotState, Tenure};

impl Core {
    /// Applies a new configuration. Times and limits change at once; what was promised to an accepted job stays. If
    /// there are to be more workers, they are started; those that are too many go when they have no jobs.
    pub(super) fn on_configure(&mut self, config: CoreConfig) {
        let workers = config.workers.max(self.config.programs);
        if config.max_bytes > self.config.max_bytes {
            self.ledger.has_more_room();
        }
        let (here, programs, seed) = (self.config.here.clone(), self.config.programs, self.config.seed);
        self.config = CoreConfig { workers, programs, seed, here, ..config };
        self.clients.remember_at_most(self.config.max_resting);
        self.look_for_room_again();
        self.make_places();
        self.renewal.look_again();
        self.places_changed = true;
        self.unlisted.extend(0..self.slots.len());
    }

    /// Adds or removes slots until there are as many as are configured.
    pub(super) fn make_places(&mut self) {
        while self.count(Role::Work) < self.config.workers {
            let program = self.program_with(|counts| counts.iter().min().copied());
            self.add_place(program, Role::Work);
        }
        while self.count(Role::Work) > self.config.workers {
            let program = self.program_with(|counts| counts.iter().max().copied());
            let Some(slot) = self.most_dispensable(program) else { break };
            self.make_surplus(slot);
        }
        match (self.spare(), self.config.spares) {
            (None, 1..) => self.add_place(0, Role::Spare),
            (Some(spare), 0) => self.make_surplus(spare),
            _ => {}
        }
        self.programs_of_workers().for_each(|program| self.reserve(program));
    }

    /// A surplus worker is not replaced. So it must not be `Closing`, or the other workers of its program would wait
    /// for its replacement.
    fn make_surplus(&mut self, slot: SlotIndex) {
        let place = self.slot_mut(slot);
        place.role = Role::Surplus;
        if let Tenure::Closing(why) = place.tenure {
            place.tenure = Tenure::Retiring(why);
        }
    }

    pub(super) fn count(&self, role: Role) -> usize {
        self.slots.iter().filter(|slot| slot.role == role).count()
    }

    /// The first program whose number of workers is the one that `choose` picks.
    fn program_with(&self, choose: impl FnOnce(&[usize]) -> Option<usize>) -> ProgramIndex {
        let is_work = |slot: &&Slot, program| slot.role == Role::Work && slot.program == program;
        let count = |program| self.slots.iter().filter(|slot| is_work(slot, program)).count();
        let counts: Vec<usize> = self.programs_of_workers().map(count).collect();
        let chosen = choose(&counts);
        counts.iter().position(|count| Some(*count) == chosen).unwrap_or(0)
    }

    pub(super) fn add_place(&mut self, program: ProgramIndex, role: Role) {
        // A surplus worker that has not gone yet is taken back first, unless it has to go for another reason.
        let is_free = |slot: &Slot| slot.role == Role::Surplus && matches!(slot.state, SlotState::Vacant);
        let good = self.renewal.good;
        let is_good = |slot: &Slot| slot.program == program && slot.version() == Some(good);
        let is_leftover = |slot: &Slot| slot.is_leftover() && is_good(slot) && role == Role::Work;
        let leftover = self.slots.iter().position(is_leftover);
        let free = || self.slots.iter().position(is_free);
        let slot = leftover.or_else(free).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(Slot::new(program, role));
        }
        let place = self.slot_mut(slot);
        (place.program, place.role) = (program, role);
    }

    /// The slot whose loss costs least: an empty one, then one whose worker is not ready, then an idle one, and last
    /// one that has jobs; it will finish those.
    pub(super) fn most_dispensable(&self, program: ProgramIndex) -> Option<SlotIndex> {
        let cost = |slot: &SlotIndex| match self.slots[*slot].state {
            SlotState::Vacant => 0,
            SlotState::Starting { .. } | SlotState::Leaving { .. } => 1,
            SlotState::Idle { .. } => 2,
            SlotState::Busy { .. } => 3,
        };
        let work = self.slots_of(program).filter(|&slot| self.slots[slot].role == Role::Work);
        work.min_by_key(|slot| (cost(slot), std::cmp::Reverse(*slot)))
    }

    /// Reserves the last slots of a program for short work.
    fn reserve(&mut self, program: ProgramIndex) {
        let work: Vec<SlotIndex> =
            self.slots_of(program).filter(|&slot| self.slots[slot].role == Role::Work).collect();
        let open = work.len() - self.config.reserved_of(work.len());
        for (index, slot) in work.into_iter().enumerate() {
            self.slot_mut(slot).is_reserved = index >= open;
        }
    }

    /// The place where a living process works or, if it is leaving, worked.
    pub(super) fn place(&self, worker: WorkerId) -> Option<WorkerInSlot> {
        let Some(&slot) = self.places.get(&worker) else { return self.hanging.get(&worker).copied() };
        match &self.slots[slot].state {
            SlotState::Leaving { place, .. } => Some(*place),
            _ => Some(WorkerInSlot { worker, slot, incarnation: self.slots[slot].incarnation }),
        }
    }
}
