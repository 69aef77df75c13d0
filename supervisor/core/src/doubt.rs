//! Jobs in doubt: the worker may have begun them although it sent no valid Started for them.
//!
//! A worker sends Started before a task sees its first byte, and begins nothing if it cannot send. Nobody can check
//! whether a worker obeys this rule, so the core assumes that it does, even where the worker has broken other rules:
//!
//! ```text
//!   the worker names a run of this job, out of turn   it may have begun this job, and all jobs that were to start
//!   or after it has broken a rule                     before it
//!   it names a run of a job that it does not have     it mistakes one job for another: the one that runs, if one does
//!                                                     and this is its first mistake; otherwise it may have begun every
//!                                                     job that it was given
//!   it names a run that it took back                 it may have begun it
//!   it sent garbage: its later messages are lost      it may have begun every job that it was given
//!   no byte of the job was written to the worker      it never began the job, whatever it says
//!   anything else                                     it began only the jobs for which it sent Started
//! ```
//!
//! A job in doubt that must not run twice ends as `indeterminate`. It is not blamed: the messages may have been sent
//! by the job that ran before it in that process. A job in doubt that may run twice goes back to its queue, like a
//! job that was never started (`lose.rs`).

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
    /// The worker may have begun every job that waits here.
    fn doubt_all(&mut self) {
        self.doubt_not_begun();
        self.doubtful = self.waiting.len();
    }

    /// The worker may have begun the job whose start it took back.
    fn doubt_not_begun(&mut self) {
        self.not_begun.iter_mut().for_each(|taken_back| taken_back.is_doubtful = true);
    }

    /// The worker has named a run of this job and should not have: it may have begun this job, and the jobs that were
    /// to start before it. If it does not have the job, it means another one.
    fn doubt_named(&mut self, job: JobId, is_first_mistake: bool) {
        if self.not_begun.is_some_and(|taken_back| taken_back.job == job) {
            self.doubt_not_begun();
        } else if let Some(place) = self.waiting.iter().position(|waiting| *waiting == job) {
            self.doubt_not_begun();
            self.doubtful = self.doubtful.max(place + 1);
        } else if !(self.is_started(job) || is_first_mistake && self.running.is_some()) {
            self.doubt_all();
        }
    }

    /// Takes out the job that is next to start.
    pub(super) fn pop_waiting(&mut self) -> Option<JobId> {
        self.doubtful = self.doubtful.saturating_sub(1);
        self.tray = None;
        self.waiting.pop_front()
    }

    /// Takes out a job that never reached the worker. True if it waited here.
    pub(super) fn take_unsent(&mut self, job: JobId) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| *waiting == job) else { return false };
        self.tray = None;
        self.doubtful -= usize::from(place < self.doubtful);
        self.waiting.remove(place).is_some()
    }
}

impl Core {
    /// The worker's later messages cannot be read: every job that it has not started is in doubt.
    pub(super) fn doubt_all(&mut self, slot: SlotIndex) {
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_all();
        }
    }

    /// A worker that breaks a rule now, or did before, names a run of this job.
    pub(super) fn doubt_named(&mut self, slot: SlotIndex, id: JobId) {
        let is_first_mistake = self.slots[slot].is_trusted();
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.doubt_named(id, is_first_mistake);
        }
    }

    /// The outbox of a worker that has to end was thrown away, and no byte of `jobs` had been written: they go back
    /// to their queue at once.
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

    /// Decides about a job in doubt when its worker has ended.
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
        let (_, what) = end.describe(self.config.hang_timeout);
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
