//! Programs behind workers: a worker may stand in front of a program of its own, which knows nothing of the protocol, and
//! say what becomes of it.
//!
//! ```text
//!   the program ...
//!   was stopped, goes on                 so is its worker
//!   broke its rules                      its worker broke the protocol: the job that ran is blamed
//!   broke them with another job          the job that ran is innocent
//!   took no byte of the job that "ran"   the start is taken back: the job is given back, as if it had never been started
//! ```
//!
//! After the last two the worker ends.

use super::Core;
use super::ids::{JobId, SlotIndex, WorkerId};
use super::load::{Running, Starts};
use super::lose::End;
use super::slots::Cause;
use super::turn::Turn;

impl Core {
    /// What had become of earlier starts of a job that starts now.
    pub(super) fn starts_of(&self, slot: SlotIndex, id: JobId) -> Starts {
        let past = self.jobs.get(id).map(|job| &job.past).filter(|past| past.is_there());
        Starts {
            unstarted: past.map_or(0, |past| past.unstarted),
            late_tests: past.map_or(0, |past| past.late_tests),
            failures: self.programs[self.slots[slot].program].probation.failures(),
        }
    }

    /// A worker takes back that it has started a job. Nobody has read a byte of its output, or the worker lies.
    pub(super) fn on_not_begun(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        (id, attempt): (JobId, u32),
    ) {
        let named = self.running_as_named(turn, worker, (id, attempt), "took back");
        let Some((slot, _)) = named else { return };
        let has_delivered = self.jobs.get(id).is_some_and(|job| job.has_delivered());
        let load = self.slot_mut(slot).load_mut().filter(|_| !has_delivered);
        let alone = load.filter(|load| load.batch.is_empty() && load.suspended.is_none());
        match alone.and_then(|load| load.running.as_mut()) {
            Some(running) => {
                running.is_not_begun = true;
                self.leave(turn, slot, Cause::Closed, None);
            }
            None => self.on_violation(turn, worker, "took back a job that has begun".to_owned()),
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
        if let Some(running) = self.slot_mut(slot).load_mut().and_then(|load| load.running.as_mut()) {
            running.is_bystander |= of_another;
        }
        self.leave(turn, slot, Cause::Violation(how), None);
    }

    /// The worker of a job has ended that took back its start.
    pub(super) fn lose_not_begun(
        &mut self,
        turn: &mut Turn<'_>,
        running: Running,
        was_alone: bool,
        end: &End,
    ) {
        let Starts { unstarted, late_tests, failures } = running.before;
        if let Some(job) = self.jobs.get_mut(running.job) {
            job.attempts -= 1;
            (job.past.unstarted, job.past.late_tests) = (unstarted, late_tests);
        }
        if let Some(place) = end.place {
            let program = self.slots[place.slot].program;
            self.programs[program].probation.recall(failures);
        }
        self.drop_parts(turn, running.job);
        self.give_back(turn, running.job, was_alone, end);
    }
}
