//! Messages of jobs that run in steps: progress, a checkpoint to resume from, and yielding (the job gives up its worker
//! for now).

use super::Core;
use super::action::Action;
use super::ids::{JobId, WorkerId};
use super::jobs::Progress;
use super::turn::Turn;
use offload_protocol::limits::CHECKPOINT_MAX;
use std::time::Duration;

impl Core {
    pub(super) fn on_progress(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        named: (JobId, u32),
        (done, total): (u64, u64),
    ) {
        let Some((slot, running)) = self.running_as_named(turn, worker, named, "told the progress of") else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(running.job) {
            job.past.progress = Some(Progress { done, total, at: turn.now });
        }
        let running = self.slot_mut(slot).load_mut().and_then(|load| load.running.as_mut());
        if let Some((said_at, _)) = running.and_then(|running| running.progress_by.as_mut()) {
            *said_at = turn.now;
        }
    }

    pub(super) fn on_checkpoint(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        named: (JobId, u32),
        bytes: u64,
    ) {
        if bytes > CHECKPOINT_MAX as u64 {
            let message = format!("gave a checkpoint of {bytes} bytes, the limit is {CHECKPOINT_MAX}");
            return self.on_violation(turn, worker, message);
        }
        if let Some((_, running)) = self.running_as_named(turn, worker, named, "gave a checkpoint of") {
            self.keep(turn, running.job, bytes);
        }
    }

    /// Keeps a checkpoint: the job goes on from it when it is dispatched again. A job that must not run twice goes on
    /// only after it has yielded; after a crash it ends, since the work after the checkpoint would be done twice.
    fn keep(&mut self, turn: &mut Turn<'_>, id: JobId, bytes: u64) {
        if self.jobs.get(id).is_some() {
            self.change_checkpoint(id, bytes);
            turn.push(Action::Keep { job: id });
        }
    }

    /// A worker gave its job back, as it was asked to. The job waits again in its old place and is not blamed.
    pub(super) fn on_yielded(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        named: (JobId, u32),
        run: Duration,
        bytes: u64,
    ) {
        if bytes > CHECKPOINT_MAX as u64 {
            let message = format!("gave a checkpoint of {bytes} bytes, the limit is {CHECKPOINT_MAX}");
            return self.on_violation(turn, worker, message);
        }
        let Some((slot, running)) = self.running_as_named(turn, worker, named, "yielded") else {
            return;
        };
        let id = running.job;
        let may_start_anew = self.jobs.get(id).is_none_or(|job| self.attempts_allowed(job) > 1);
        if bytes == 0 && !may_start_anew {
            let message = "yielded a job without a checkpoint, and it must not be begun again".to_owned();
            return self.on_violation(turn, worker, message);
        }
        if !running.asked_to_yield {
            return self.on_violation(turn, worker, "yielded a job unasked".to_owned());
        }
        let ran = self.count_run(turn.now, slot, running, run);
        self.charge(id, ran);
        self.keep(turn, id, bytes);
        self.take_next(turn.now, slot, id);
        if let Some(job) = self.jobs.get_mut(id) {
            job.past.ran_before += ran;
            job.charged = 0;
            self.enqueue(id);
        }
    }
}
