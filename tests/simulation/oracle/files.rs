//! Checks of jobs whose inputs are files, for rule O23.

use super::workers::WorkerBook;
use super::{Failure, JobBook, Oracle, demand};
use offload_core::Core;
use offload_core::event::JobRequest;

const RULE: &str = "O23";

impl WorkerBook {
    /// Whether it could do the job.
    pub(super) fn can_take(&self, job: &JobBook) -> bool {
        self.offers.contains_key(&job.task) && (!job.has_file || self.takes_files)
    }
}

impl Oracle {
    fn files_of(&self, client: Option<&str>) -> usize {
        let is_one = |book: &JobBook| book.has_file && client.is_none_or(|client| book.client == client);
        self.live.iter().filter(|id| is_one(&self.jobs[id])).count()
    }

    /// How many files are open.
    pub(super) fn open_files(&self) -> usize {
        self.files_of(None)
    }

    /// Whether there is room for one more file of this client, which may have as many as it leaves free.
    fn has_file_room(&self, client: &str) -> bool {
        let (own, all) = (self.files_of(Some(client)), self.open_files());
        let Some(free) = self.config.max_files.checked_sub(all + 1) else { return false };
        // The program that embeds the pool has no share.
        let own = if client.is_empty() { 0 } else { own };
        all == 0 || own < free
    }

    /// Whether some worker has ever said that it takes no files.
    pub(super) fn may_lack_files(&self) -> bool {
        self.programs.iter().any(|program| program.had_one_without_files)
    }

    /// Whether a worker that is there offers this task, and all that there ever were take files.
    fn surely_takes_files(&self, task: &str) -> bool {
        let offers = |book: &WorkerBook| book.offers.contains_key(task) && book.is_well();
        !self.may_lack_files() && self.workers.values().any(offers)
    }

    /// Whether a worker that is well offers this task and takes no files.
    fn surely_lacks_files(&self, task: &str) -> bool {
        let lacks = |book: &WorkerBook| book.offers.contains_key(task) && book.is_well() && !book.takes_files;
        // Of two programs that offer the task, one has it.
        self.programs.len() == 1 && self.workers.values().any(lacks)
    }

    /// Whether a job may be accepted, as far as its file goes.
    pub(super) fn may_take_file(&self, request: &JobRequest) -> bool {
        !request.has_file
            || (request.key.is_none()
                && self.has_file_room(&request.client)
                && !self.surely_lacks_files(&request.task))
    }

    /// Whether the bytes of a file may be asked for instead.
    pub(super) fn may_refuse_file(&self, request: &JobRequest) -> bool {
        let has_room = self.has_file_room(&request.client);
        let is_certain = request.key.is_none() && has_room && self.surely_takes_files(&request.task);
        request.has_file && !is_certain
    }

    pub(super) fn compare_files(&self, core: &Core) -> Result<(), Failure> {
        let (here, there) = (self.open_files(), core.files().open());
        demand(here == there, RULE, || format!("{there} files are open, for {here} jobs"))
    }
}
