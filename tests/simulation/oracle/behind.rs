//! What workers say of the programs behind them (O26).

use super::Oracle;
use super::jobs::JobBook;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::BYSTANDER_MAX;

/// What was known of a job before it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    unstarted: u32,
    must_not_run_again: bool,
}

impl Before {
    pub(super) fn of(book: &JobBook) -> Before {
        Before { unstarted: book.unstarted, must_not_run_again: book.must_not_run_again }
    }
}

impl JobBook {
    /// It was not started after all. Its worker still has it.
    fn take_back_start(&mut self) {
        self.starts -= 1;
        (self.unstarted, self.must_not_run_again) = (self.before.unstarted, self.before.must_not_run_again);
        (self.running_since, self.is_bystander) = (None, false);
    }
}

impl Oracle {
    /// A worker has taken back that it started a job, and ends.
    pub(super) fn not_begun(&mut self, worker: WorkerId, id: JobId) {
        let Some(book) = self.workers.get_mut(&worker) else { return };
        book.started.retain(|started| *started != id);
        book.is_leaving = true;
        let is_its_own = |job: &&mut JobBook| job.holder == Some(worker) && job.running_since.is_some();
        self.jobs.get_mut(&id).filter(is_its_own).into_iter().for_each(JobBook::take_back_start);
    }

    /// The program behind a worker broke its rules, and the worker ends.
    pub(super) fn broke_rules(&mut self, worker: WorkerId, of_another: bool) {
        let Some(book) = self.workers.get_mut(&worker).filter(|book| !book.is_leaving) else { return };
        (book.is_leaving, book.has_broken_program, book.is_punished) = (true, true, true);
        let running = book.started.last().filter(|_| of_another);
        let Some(job) = running.and_then(|id| self.jobs.get_mut(id)) else { return };
        if job.holder == Some(worker) && job.bystander < BYSTANDER_MAX {
            job.bystander += 1;
            job.is_bystander = true;
        }
    }
}
