//! The spare: a started worker that is given no jobs (`slots.rs`). Once it is ready, it takes the place of a worker that
//! is lost, of one that is to be replaced, or of an idle one that does not offer a task which the spare offers.

use super::Core;
use super::ids::{JobId, ProgramIndex, SlotIndex};
use super::slots::{Role, Slot, SlotState, Tenure};

impl Core {
    pub(super) fn is_spare(&self, slot: SlotIndex) -> bool {
        self.slots[slot].role == Role::Spare
    }

    /// The spare's place, if there is one.
    pub(super) fn spare(&self) -> Option<SlotIndex> {
        (0..self.slots.len()).find(|&slot| self.is_spare(slot))
    }

    /// If the spare is ready, it takes the place of a worker that is lost or not ready yet.
    pub(super) fn promote_spare(&mut self) {
        let Some(spare) = self.ready_spare() else { return };
        let program = self.slots[spare].program;
        let is_unserved = |slot: &Slot| {
            let is_ready = matches!(slot.state, SlotState::Idle { .. } | SlotState::Busy { .. });
            slot.role == Role::Work && slot.program == program && !is_ready
        };
        if let Some(slot) = self.slots.iter().position(is_unserved) {
            self.exchange_with(slot, spare);
        }
    }

    /// The spare's place, if its worker is ready.
    pub(super) fn ready_spare(&self) -> Option<SlotIndex> {
        let spare = self.spare()?;
        let slot = &self.slots[spare];
        (slot.is_ready() && matches!(slot.state, SlotState::Idle { .. })).then_some(spare)
    }

    /// A slot and the place of the spare, or of a worker that was on trial, exchange their processes. Each place counts
    /// the process that it gets as a new incarnation.
    pub(super) fn exchange_with(&mut self, slot: SlotIndex, spare: SlotIndex) {
        let of_slot = std::mem::take(&mut self.slot_mut(slot).state);
        let of_spare = std::mem::replace(&mut self.slot_mut(spare).state, of_slot);
        self.slot_mut(slot).state = of_spare;
        self.slots[slot].incarnation += 1;
        self.slots[spare].incarnation += u64::from(self.slots[spare].worker().is_some());
        // Whether the worker is to be replaced moves with the worker.
        self.slots[slot].tenure = std::mem::take(&mut self.slots[spare].tenure);
        for place in [slot, spare] {
            if let Some(worker) = self.slots[place].worker() {
                self.places.insert(worker, place);
            }
        }
        self.relist();
    }

    /// Processes of one version may offer different tasks. If only the spare can do the first job of a queue, the
    /// spare exchanges places with an idle worker of its version; otherwise the job would wait for ever.
    pub(super) fn bring_in_spare(&mut self, program: ProgramIndex) {
        if let Some((slot, spare)) = self.place_for_spare(program) {
            self.exchange_with(slot, spare);
        }
    }

    /// The slot that the spare has to exchange places with, and the spare's own place, if that is necessary.
    pub(super) fn place_for_spare(&self, program: ProgramIndex) -> Option<(SlotIndex, SlotIndex)> {
        if !self.programs[program].offers_differ {
            return None;
        }
        let spare = self.ready_spare().filter(|&spare| self.slots[spare].program == program)?;
        let is_for_spare = |job: JobId| {
            let mut others = self.slots_of(program).filter(|&slot| self.is_accepting(slot));
            self.promise_to(spare, job).is_some() && !others.any(|slot| self.promise_to(slot, job).is_some())
        };
        let mut heads = self.heads_to_start(program);
        if !heads.any(|(next, line)| self.is_line_open(program, line) && is_for_spare(next.job())) {
            return None;
        }
        let has_nothing_to_do = |slot: &SlotIndex| {
            let place = &self.slots[*slot];
            let is_idle = matches!(place.state, SlotState::Idle { .. }) && self.is_accepting(*slot);
            is_idle && place.tenure == Tenure::Stays && place.version() == self.slots[spare].version()
        };
        let idle = self.slots_of(program).filter(has_nothing_to_do);
        let slot = idle.min_by_key(|&slot| (self.slots[slot].is_reserved, slot))?;
        Some((slot, spare))
    }
}
