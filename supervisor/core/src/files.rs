//! Inputs that are files. The shell holds the file of such a job open until the job has ended, and passes its descriptor to each
//! worker that gets the job; nobody but the worker reads it.
//!
//! ```text
//!             task known, its workers take files;                  a worker of the task
//!             there is room for one more file                      takes no files
//!   submitted --------------------------------> open, with its job ---------------------> the job ends: unsupported
//!      |        or task not known yet                 |
//!      '-- refused: unsupported                       '-- the job ends in any other way: closed
//! ```
//!
//! Such an input takes no memory, so what counts is the number of files: [`max_files`](crate::config::CoreConfig::max_files) for
//! all jobs, and of these a client may have as many as it leaves free. Its length still counts against `max_payload`, and tells
//! what the job is like.
//!
//! *Unsupported* means: the same job is welcome with the bytes of its input. So it is no rejection, and is not counted as one.
//! A job whose key tells inputs apart needs its bytes anyway. One that is detached has nobody who could send them later, so its
//! file is only taken when it is known that workers take it.
//!
//! All workers that offer the task have to take files. Usually either all do or none. If a worker comes that does not, as after a
//! reload, waiting jobs with files end: otherwise one of them, first in its queue, could keep others from workers that are idle.
//! These jobs lie in no tray and share no worker with tiny jobs, because a file system may hold up who reads from it.

use super::Core;
use super::Ending;
use super::event::JobRequest;
use super::ids::{JobId, TaskIndex};
use super::kept::{Kept, share};
use super::ledger::Short;
use super::outcome;
use super::turn::Turn;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The files that jobs hold open. See the module's documentation.
#[derive(Debug, Default)]
pub struct Files {
    jobs: BTreeSet<JobId>,
    by_account: Kept,
    /// What workers offer has changed, or another job waits, since it was last looked whether workers take the files.
    is_to_be_looked: bool,
}

impl Files {
    /// How many files are open for jobs.
    pub fn open(&self) -> usize {
        self.jobs.len()
    }

    /// How many of them are open for jobs of this client.
    pub fn open_of(&self, client: &str) -> usize {
        self.by_account.of(client).count
    }

    /// What workers offer has changed, or another job with a file waits.
    pub(super) fn look_again(&mut self) {
        self.is_to_be_looked = true;
    }

    fn hold(&mut self, job: JobId, account: &Arc<str>) {
        self.jobs.insert(job);
        self.by_account.hold(account, 0);
    }

    /// A job has ended. No effect on one whose input is no file.
    pub(super) fn release(&mut self, job: JobId, account: &str) {
        if self.jobs.remove(&job) {
            self.by_account.release(account, 0);
        }
    }

    /// Checks that these are the jobs with files.
    pub(super) fn check<'a>(&self, jobs: impl Iterator<Item = (JobId, &'a Arc<str>)>) -> Result<(), String> {
        let mut seen = Files::default();
        jobs.for_each(|(job, account)| seen.hold(job, account));
        let is_same = |account: &Arc<str>| seen.open_of(account) == self.open_of(account);
        let are_same = seen.jobs == self.jobs && seen.by_account.accounts().all(is_same);
        let is_right = are_same && seen.by_account.all() == self.by_account.all();
        if is_right { Ok(()) } else { Err("files and jobs differ".to_owned()) }
    }
}

impl Core {
    /// The files that jobs hold open.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Whether a job with a file may come in.
    pub(super) fn check_file(
        &self,
        request: &JobRequest,
        task: Option<TaskIndex>,
    ) -> Result<(), ErrorDetail> {
        let is_taken = task.map(|task| self.registry.task(task).promise.takes_files);
        let why = match is_taken {
            _ if !request.has_file => return Ok(()),
            _ if request.key.is_some() => {
                "a job with an idempotency key cannot have a file as its input".to_owned()
            }
            Some(false) => NOT_TAKEN.to_owned(),
            None if request.keeps_output => "it is not known yet whether workers take files".to_owned(),
            Some(true) | None => match self.room_for_file(&request.client) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
        };
        Err(outcome::error(OutcomeCode::Unsupported, format!("{why}: send its bytes")))
    }

    /// The program that embeds the pool has no share: for its jobs only the total counts.
    fn room_for_file(&self, client: &str) -> Result<(), String> {
        let (own, all, most) = (self.files.open_of(client), self.files.open(), self.config.max_files);
        let own = if client.is_empty() { 0 } else { own as u64 };
        share(own, all as u64, 1, most as u64).map_err(|short| match short {
            Short::OfRoom => format!("{all} files are open, the limit is {most}"),
            Short::OfItsShare => {
                format!("{own} files are open for this client, and it may have as many as it leaves free of {most}")
            }
        })
    }

    /// A job with a file was accepted.
    pub(super) fn hold_file(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(id) {
            self.files.hold(id, self.clients.name_of(job.client));
        }
    }

    /// Ends the waiting jobs with files of whose task some worker takes none.
    pub(super) fn refuse_files(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::take(&mut self.files.is_to_be_looked) {
            return;
        }
        let is_refused = |id: &JobId| {
            let waiting = self.jobs.get(*id).filter(|job| !job.state.is_dispatched());
            let task = waiting.and_then(|job| job.task);
            task.is_some_and(|task| !self.registry.task(task).promise.takes_files)
        };
        let refused: Vec<JobId> = self.files.jobs.iter().copied().filter(is_refused).collect();
        for id in refused {
            let message = format!("{NOT_TAKEN}: submit the job again with its bytes");
            self.finish(turn, id, Ending::of(outcome::error(OutcomeCode::Unsupported, message)));
        }
    }
}

const NOT_TAKEN: &str = "not all workers of this task take a file as input";
