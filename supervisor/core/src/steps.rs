//! What stepped jobs say between their steps: how far they are, from where they could go on, and that they give their
//! place up.

use super::Core;
use super::action::{Action, Actions};
use super::ids::{JobId, Mono, WorkerId};
use super::jobs::Progress;
use offload_protocol::limits::CHECKPOINT_MAX;
use std::time::Duration;

impl Core {
    pub(super) fn on_progress(
        &mut self,
        now: Mono,
        worker: WorkerId,
        named: (JobId, u32),
        (done, total): (u64, u64),
        actions: &mut Actions,
    ) {
        let Some((slot, running)) =
            self.running_as_named(now, worker, named, "told the progress of", actions)
        else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(running.job) {
            job.progress = Some(Progress { done, total, at: now });
        }
        let running = self.slot_mut(slot).load_mut().and_then(|load| load.running.as_mut());
        if let Some((said_at, _)) = running.and_then(|running| running.progress_by.as_mut()) {
            *said_at = now;
        }
    }

    pub(super) fn on_checkpoint(
        &mut self,
        now: Mono,
        worker: WorkerId,
        named: (JobId, u32),
        bytes: u64,
        actions: &mut Actions,
    ) {
        if bytes > CHECKPOINT_MAX as u64 {
            let message = format!("gave a checkpoint of {bytes} bytes, the limit is {CHECKPOINT_MAX}");
            return self.on_violation(now, worker, message, actions);
        }
        if let Some((_, running)) = self.running_as_named(now, worker, named, "gave a checkpoint of", actions)
        {
            self.keep(running.job, bytes, actions);
        }
    }

    /// The job goes on from there when it is given out again. One that must not be done twice is so only after it has
    /// yielded: a crash ends it, since what it did after the checkpoint would be done twice.
    fn keep(&mut self, id: JobId, bytes: u64, actions: &mut Actions) {
        if self.jobs.get(id).is_some() {
            self.change_checkpoint(id, bytes);
            actions.push(Action::Keep { job: id });
        }
    }

    /// A worker gave its job back, as it was asked to: the job waits again, in its old place, without blame.
    pub(super) fn on_yielded(
        &mut self,
        now: Mono,
        worker: WorkerId,
        named: (JobId, u32),
        run: Duration,
        bytes: u64,
        actions: &mut Actions,
    ) {
        if bytes > CHECKPOINT_MAX as u64 {
            let message = format!("gave a checkpoint of {bytes} bytes, the limit is {CHECKPOINT_MAX}");
            return self.on_violation(now, worker, message, actions);
        }
        let Some((slot, running)) = self.running_as_named(now, worker, named, "yielded", actions) else {
            return;
        };
        let id = running.job;
        let may_start_anew = self.jobs.get(id).is_none_or(|job| self.attempts_allowed(job) > 1);
        if bytes == 0 && !may_start_anew {
            let message = "yielded a job without a checkpoint, and it must not be begun again".to_owned();
            return self.on_violation(now, worker, message, actions);
        }
        if !running.asked_to_yield {
            return self.on_violation(now, worker, "yielded a job unasked".to_owned(), actions);
        }
        let ran = run.min(running.ran(now));
        self.charge(id, ran);
        self.keep(id, bytes, actions);
        self.take_next(now, slot, id);
        if let Some(job) = self.jobs.get_mut(id) {
            job.ran_before += ran;
            job.charged = 0;
            self.enqueue(id);
        }
    }
}
