//! What is known of a worker that has broken a rule, and of the jobs that were given to it: some may have begun without
//! being announced.

use super::Oracle;
use super::duties::Duty;
use super::jobs::JobBook;
use super::workers::WorkerBook;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};

impl WorkerBook {
    /// Whether it may have begun this job, which was given to it.
    pub(super) fn may_have_begun(&self, id: JobId) -> bool {
        self.is_garbled || self.doubtful.contains(&id)
    }
}

impl Oracle {
    pub(super) fn note_doubt(&mut self, event: &Event, is_honest: bool) {
        match event {
            Event::Garbled { worker, .. } => {
                self.workers.entry(*worker).and_modify(|book| book.is_garbled = true);
            }
            Event::Started { worker, job, .. }
            | Event::Finished { worker, job, .. }
            | Event::Skipped { worker, job }
            | Event::Failed { worker, job, .. }
            | Event::Progress { worker, job, .. }
            | Event::Checkpoint { worker, job, .. }
            | Event::Part { worker, job, .. }
            | Event::NotBegun { worker, job, .. }
            | Event::Yielded { worker, job, .. } => {
                if let Some(book) = self.workers.get_mut(worker)
                    && (book.is_liar || !is_honest)
                {
                    // It may mistake one job for another: the one that runs, if one does and this is its first mistake.
                    let is_explained = !book.is_liar && !book.started.is_empty();
                    let is_skipped = matches!(event, Event::Skipped { .. });
                    let count = match book.given.iter().position(|given| given == job) {
                        Some(place) => place + 1,
                        None if is_explained || is_skipped => 0,
                        None => book.given.len(),
                    };
                    book.doubtful.extend(book.given.iter().take(count));
                }
            }
            _ => {}
        }
    }

    /// No byte of these jobs was written to this worker, which is about to end. So it does not have them.
    pub(super) fn unsent(&mut self, worker: WorkerId, jobs: &[JobId]) {
        let Some(book) = self.workers.get_mut(&worker) else { return };
        for id in jobs {
            book.given.retain(|given| given != id);
            let job = self.jobs.get_mut(id).filter(|job| job.holder == Some(worker));
            job.into_iter().for_each(JobBook::stop_running);
        }
    }

    /// Bytes that are no message make no false statement. So if the worker is already being ended because of one job, what
    /// is known of its other jobs stays certain.
    pub(super) fn sends_nonsense_at_its_end(&mut self, worker: WorkerId) -> bool {
        let book = self.workers.get_mut(&worker).filter(|book| book.is_ended_for_a_job && book.is_leaving);
        book.map(|book| book.is_liar = true).is_some()
    }

    /// A worker has sent something that no honest worker sends. From now on its jobs are in doubt, and the core must end
    /// it unless it ends by itself.
    pub(super) fn lied(&mut self, worker: WorkerId) -> Duty {
        let Some(book) = self.workers.get_mut(&worker) else { return Duty::Nothing };
        book.is_liar = true;
        if book.hello_at.is_none() {
            self.programs[book.program].may_be_broken = true;
        }
        for job in &book.given {
            self.jobs.entry(*job).and_modify(|job| job.is_doubtful = true);
            // It may be blamed for the end of this worker, which has proved itself as far as anybody knows.
            let task = self.jobs.get(job).map(|job| job.task.clone());
            task.into_iter().for_each(|task| self.reloads.note_deadly(task));
        }
        if book.is_leaving {
            return Duty::Nothing;
        }
        book.is_punished = true;
        Duty::Punish(worker)
    }
}
