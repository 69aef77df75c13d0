//! Programs behind workers: a worker may stand in front of a program of its own, which knows nothing of the protocol, and
//! say what becomes of it.
//!
//! ```text
//!   the program ...
//!   was stopped, goes on                 so is its worker
//!   broke its rules                      its worker broke the protocol: the job that ran is blamed
//!   broke them with another job, or may  the job that ran is innocent
//!   took no byte of the job that "ran"   the start is taken back: the job is given back, as if it had never been started
//! ```
//!
//! After the last three the worker ends. What it says is bounded, because the job itself may be the reason:
//!
//! ```text
//!   who takes a start back ...
//!   has spoken of the job since it started it    has begun it, and breaks the protocol
//!   runs several jobs at a time                  breaks the protocol: that is not for programs behind adapters
//!   speaks of the job afterwards                 may have begun it: the job is in doubt (`doubt.rs`)
//!   does so again and again                      is one of many that have ended before they started the job: it goes on
//!                                                probation, as if it had never left it (`probation.rs`)
//!
//!   a job is innocent of what its worker's program did with another one [`BYSTANDER_MAX`] times
//! ```

use super::Core;
use super::ids::{JobId, Mono, SlotIndex, WorkerId};
use super::jobs::JobState;
use super::load::{NotBegun, Running, Starts};
use super::lose::End;
use super::slots::{Cause, SlotState};
use super::turn::Turn;
use crate::limits::BYSTANDER_MAX;

impl Core {
    /// What is known of a job that starts now, in case that is taken back.
    pub(super) fn starts_of(&self, slot: SlotIndex, id: JobId) -> Starts {
        let Some(job) = self.jobs.get(id) else { return Starts::default() };
        let probation = &self.programs[self.slots[slot].program].probation;
        Starts {
            ran_under: job.ran_under,
            unstarted: job.past.unstarted,
            late_tests: job.past.late_tests,
            test: probation.is_testing(id).then(|| probation.failures()),
        }
    }

    /// A worker takes back that it has started a job. It has said nothing of the job since, or it lies.
    pub(super) fn on_not_begun(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        (id, attempt): (JobId, u32),
    ) {
        let named = self.running_as_named(turn, worker, (id, attempt), "took back");
        let Some((slot, running)) = named else { return };
        let load = self.slots[slot].load();
        let is_alone = load.is_some_and(|load| load.batch.is_empty() && load.suspended.is_none());
        if running.has_begun || !is_alone {
            return self.on_violation(turn, worker, "took back a job that has begun".to_owned());
        }
        self.take_back_start(turn.now, slot, worker, running);
        self.leave(turn, slot, Cause::Closed, None);
    }

    /// The job is what it was before the start. What is known of earlier starts in vain counts again when the worker has ended.
    fn take_back_start(&mut self, now: Mono, slot: SlotIndex, worker: WorkerId, running: Running) {
        let Running { job: id, before, earliest_start: given_at, .. } = running;
        self.refund_worker(running.paid);
        if let Some(load) = self.slot_mut(slot).load_mut() {
            load.take_running(now);
            load.not_begun = Some(NotBegun { job: id, is_doubtful: false, before });
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.attempts -= 1;
            job.ran_under = before.ran_under;
            job.state = JobState::Assigned { worker, given_at };
        }
    }

    /// The worker ends by itself, with an exit code that says so.
    pub(super) fn on_broke_rules(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        of_another: bool,
        how: String,
    ) {
        let Some(slot) = self.trusted_slot_of(worker) else { return };
        if of_another {
            self.excuse_bystander(slot);
        }
        self.leave(turn, slot, Cause::Violation(how), None);
    }

    /// The job that runs in this slot is innocent of what its worker's program did, if that can still be believed. If the worker
    /// has to end for another reason, that reason stands.
    fn excuse_bystander(&mut self, slot: SlotIndex) {
        let SlotState::Busy { load, .. } = &self.slots[slot].state else { return };
        let Some(job) = load.running_job().and_then(|id| self.jobs.get_mut(id)) else { return };
        if job.past.bystander == BYSTANDER_MAX {
            return;
        }
        job.past.bystander += 1;
        if let Some(running) = self.slot_mut(slot).load_mut().and_then(|load| load.running.as_mut()) {
            running.is_bystander = true;
        }
    }

    /// The worker of a job has ended that took back its start.
    pub(super) fn lose_not_begun(
        &mut self,
        turn: &mut Turn<'_>,
        NotBegun { job: id, is_doubtful, before }: NotBegun,
        was_alone: bool,
        end: &End,
    ) {
        if let Some(job) = self.jobs.get_mut(id) {
            (job.past.unstarted, job.past.late_tests) = (before.unstarted, before.late_tests);
        }
        if let (Some(failures), Some(place)) = (before.test, end.place) {
            let program = self.slots[place.slot].program;
            self.programs[program].probation.recall(failures);
        }
        match is_doubtful {
            true => self.lose_in_doubt(turn, id, was_alone, end),
            false => self.give_back(turn, id, was_alone, end),
        }
    }
}
