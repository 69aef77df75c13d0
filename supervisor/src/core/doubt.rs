//! What a worker may have begun, of that which it did not say, in a way that counts, that it had started.
//!
//! Started comes before a task sees its first byte, and jobs are begun in the order in which they were given. So the
//! word of a worker that has kept the rules is proof: what it did not start, it never began. Of one that has broken a
//! rule, or is ended, only this still counts:
//!
//! ```text
//!   it broke a rule, and its words can be read to the end    it may have begun what it says that it started, and what
//!                                                            was to come before that; nothing else
//!   it started, or answered, what was not its turn           its word for that is worth nothing: it may have begun all
//!   its words are lost: garbage, or a channel that it
//!   closed, and lived on                                     it may have begun all
//!   not one byte of a job was written to it                  it never began that, whatever it says
//! ```
//!
//! One that closes its channel and ends within `closed_grace` counts as one that died, which is how a death looks.
//!
//! A job that may have begun, and must not be run twice, is lost with its worker, and nobody knows what it has done. It
//! is blamed for nothing. Any other goes back as one that never began (`lose.rs`).

use super::Core;
use super::action::Actions;
use super::ids::{JobId, Mono, SlotIndex, WorkerId};
use super::lose::End;
use super::outcome;
use super::sabotage::Bug;
use super::slots::Load;
use super::slots::SlotState;
use super::{Charge, Ending};
use offload_protocol::nouns::{OutcomeCode, Usage};
use std::time::Duration;

impl Load {
    /// It may have begun any of these.
    fn doubt_all(&mut self) {
        self.doubtful = self.waiting.len();
    }

    /// It may have begun this one, and those that were to come before it. If it is not one that comes next, its word is
    /// worth nothing.
    fn doubt_up_to(&mut self, job: JobId) {
        let place = self.waiting.iter().position(|waiting| *waiting == job);
        match place.filter(|place| *place >= self.doubtful) {
            Some(place) => self.doubtful = place + 1,
            None => self.doubt_all(),
        }
    }

    /// Whether it has this job and has not begun it, as far as anybody knows.
    fn is_unbegun(&self, job: JobId) -> bool {
        self.waiting.iter().skip(self.doubtful).any(|waiting| *waiting == job)
    }

    /// Takes out what never reached the worker.
    fn take_unsent(&mut self, job: JobId) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| *waiting == job) else { return false };
        self.doubtful -= usize::from(place < self.doubtful);
        self.waiting.remove(place).is_some()
    }
}

impl Core {
    /// What a worker says, or does not say, of what it has begun is worth nothing.
    pub(super) fn doubt_all(&mut self, slot: SlotIndex) {
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_all();
        }
    }

    /// One that is not listened to any more says that it has started this.
    pub(super) fn started_by_a_liar(&mut self, worker: WorkerId, id: JobId) {
        let Some(slot) = self.slot_of(worker).filter(|_| !self.sabotage.is(Bug::LiarsBeginNothing)) else {
            return;
        };
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_up_to(id);
        }
    }

    /// A worker speaks of a run of which it has not said that it began.
    pub(super) fn answered_unstarted(&mut self, slot: SlotIndex, id: JobId) {
        if self.slots[slot].load().is_some_and(|load| load.is_unbegun(id)) {
            self.doubt_all(slot);
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
    pub(super) fn lose_in_doubt(
        &mut self,
        now: Mono,
        id: JobId,
        was_alone: bool,
        end: &End,
        actions: &mut Actions,
    ) {
        let Some(job) = self.jobs.get(id) else { return };
        let ran_under = job.ran_under.and(job.promise);
        if self.attempts_under(job, ran_under) > 1 || self.sabotage.is(Bug::DoubtIgnored) {
            self.jobs.get_mut(id).into_iter().for_each(|job| job.ran_under = ran_under);
            return self.give_back(now, id, was_alone, end, actions);
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
        self.finish(now, id, ending, actions);
    }
}
