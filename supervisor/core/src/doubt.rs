//! What a worker may have begun, of that which it did not say, in a way that counts, that it had started.
//!
//! A worker says Started before a task sees its first byte, and begins nothing if it cannot say so. Nobody can see whether
//! it keeps this rule, so even one that has broken others is taken to keep it:
//!
//! ```text
//!   it speaks of a run of this job, out of turn or    it may have begun that job, and those that were to come before it
//!   after it has broken a rule
//!   it sent garbage: what it says later is lost       it may have begun all
//!   not one byte of a job was written to it           it never began that, whatever it says
//!   anything else                                     it has begun nothing of which it did not say so
//! ```
//!
//! A job that may have begun, and must not be run twice, ends as `indeterminate`. It is not blamed: the job that ran before
//! it in that process may have sent those words. A job that may be run twice goes back as one that never began (`lose.rs`).

use super::Core;
use super::ids::{JobId, SlotIndex, WorkerId};
use super::lose::End;
use super::outcome;
use super::slots::{Load, SlotState};
use super::turn::Turn;
use super::{Charge, Ending};
use offload_protocol::nouns::{OutcomeCode, Usage};
use std::time::Duration;

impl Load {
    /// It may have begun any of these.
    fn doubt_all(&mut self) {
        self.doubtful = self.waiting.len();
    }

    /// It may have begun this one, and those that were to come before it.
    fn doubt_up_to(&mut self, job: JobId) {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == job) {
            self.doubtful = self.doubtful.max(place + 1);
        }
    }

    /// Takes the next one to start out.
    pub(super) fn pop_waiting(&mut self) -> Option<JobId> {
        self.doubtful = self.doubtful.saturating_sub(1);
        self.waiting.pop_front()
    }

    /// Takes out what never reached the worker.
    fn take_unsent(&mut self, job: JobId) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| *waiting == job) else { return false };
        self.doubtful -= usize::from(place < self.doubtful);
        self.waiting.remove(place).is_some()
    }
}

impl Core {
    /// All that a worker will say is lost.
    pub(super) fn doubt_all(&mut self, slot: SlotIndex) {
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_all();
        }
    }

    /// A worker that breaks, or has broken, a rule speaks of a run of this job.
    pub(super) fn doubt_up_to(&mut self, slot: SlotIndex, id: JobId) {
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_up_to(id);
        }
    }

    /// What was to be written to a worker is thrown away, and no byte of these jobs had been: they are free at once.
    pub(super) fn on_unsent(&mut self, worker: WorkerId, jobs: &[JobId]) {
        let Some(slot) = self.slot_of(worker) else { return };
        if !matches!(self.slots[slot].state, SlotState::Leaving { .. }) {
            return;
        }
        for &id in jobs {
            let is_taken_out = self.slot_mut(slot).load_mut().is_some_and(|load| load.take_unsent(id));
            if is_taken_out {
                self.charge(id, Duration::ZERO);
                self.programs.iter_mut().for_each(|program| program.probation.gone(id));
                self.try_again(id);
            }
        }
    }

    /// A job that its worker may have begun.
    pub(super) fn lose_in_doubt(&mut self, turn: &mut Turn<'_>, id: JobId, was_alone: bool, end: &End) {
        let Some(job) = self.jobs.get(id) else { return };
        let ran_under = job.ran_under.and(job.promise);
        if self.attempts_under(job, ran_under) > 1 {
            if let Some(job) = self.jobs.get_mut(id) {
                job.ran_under = ran_under;
            }
            return self.give_back(turn, id, was_alone, end);
        }
        self.note_unstarted(id, end);
        let (_, what) = end.told(self.config.hang_timeout);
        let why = "its worker may have begun it and was ended, not because of this job, which must not be run twice";
        let error = outcome::error(OutcomeCode::Indeterminate, format!("{why}; {what}"));
        let ending = Ending {
            outcome: OutcomeCode::Indeterminate,
            error: Some(error),
            run: Some(Duration::ZERO),
            charge: Charge::Nothing,
            place: end.place,
            usage: Usage::default(),
            output_bytes: 0,
        };
        self.finish(turn, id, ending);
    }
}
