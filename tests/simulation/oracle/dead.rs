//! What is noted of the jobs of a worker that has ended.

use super::Oracle;
use offload_core::ids::{JobId, Mono};

impl Oracle {
    /// A job ends with a worker that may have ended before it had started it, and not for the first time: then the others
    /// of which that is so have to wait, as if it were there still.
    pub(super) fn note_last_test(&mut self, now: Mono, id: JobId) {
        let book = &self.jobs[&id];
        let Some(holder) = book.holder.filter(|worker| self.gone.contains(worker)) else { return };
        let may_be_test = book.is_doubtful || (book.running_since.is_none() && book.unstarted > 0);
        if let Some(worker) = self.workers.get(&holder).filter(|_| may_be_test) {
            self.programs[worker.program].perhaps_unstarted_at = Some(now);
        }
    }

    /// The jobs that they had belong to no worker now.
    pub(super) fn forget_the_dead(&mut self, now: Mono) {
        for worker in &self.gone {
            let Some(book) = self.workers.get_mut(worker) else { continue };
            book.is_gone = true;
            let tasks = book.given.iter().filter_map(|job| self.jobs.get(job)).map(|job| job.task.clone());
            tasks.for_each(|task| self.reloads.note_deadly(task));
        }
        for id in &self.live {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let Some(holder) = job.holder.filter(|worker| self.gone.contains(worker)) else { continue };
            let Some(worker) = self.workers.get(&holder) else { continue };
            let is_innocent = worker.is_ended_for_a_job || job.is_bystander || job.suspended_since.is_some();
            if job.running_since.is_some() && !is_innocent {
                self.shares.cost_a_worker(&job.client, job.ran(now));
            }
            let (program, unstarted) = (worker.program, job.unstarted);
            job.lose(worker.given.len(), worker.is_ended_for_a_job, worker.jobs_done > 0);
            // Of a job that a liar had it is not certain how often it was not started.
            let is_known = job.unstarted > unstarted && job.is_on_probation() && !job.is_doubtful;
            let program = &mut self.programs[program];
            program.unstarted_at = if is_known { Some(now) } else { program.unstarted_at };
            if is_known || job.is_doubtful {
                program.perhaps_unstarted_at = Some(now);
            }
        }
    }
}
