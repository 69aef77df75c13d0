//! What `map` keeps on disk of each result as soon as its job has ended, in whatever order: its file in the folder of
//! `--output-dir`, and its line in the job log. What is kept is no longer held in memory.
//!
//! ```text
//!   ended ---> the file of its output ---> what is printed of it: LOG.results ---> its line: LOG ---> printed in input order
//!              on disk, then renamed       on disk                                 on disk: the job counts
//! ```
//!
//! A job is done once its line is on disk, and then nothing of it is missing: the line comes last. So `--resume` after any end,
//! even `kill -9`, runs no job again that counts, and prints what it would have printed if nothing had happened: what is
//! printed of a job that counts comes from `LOG.results`, and not from its time.

mod job_log;
mod output_folder;
mod protected;
mod unfinished;

pub(crate) use job_log::{DoneJobs, JobLog, LogMode, LoggedWork, Printed, Verdict};
pub(crate) use output_folder::{OutputFolder, OutputNames};
pub(crate) use protected::{ProtectedFiles, metadata_of};

use super::batch::NumberedResult;
use super::digest::digest_of_bytes;
use super::failure::Failure;
use super::sink::{Form, Unwritten};
use crate::limits::{LOCK_TIMEOUT, LOCK_TRIED_EVERY};
use bytes::Bytes;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use protected::{NotWritten, refusal};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// See the module's documentation.
pub(crate) struct Keeper {
    folder: Option<Arc<OutputFolder>>,
    log: Option<JobLog>,
    form: Form,
}

impl Keeper {
    /// Nothing if there is nothing to be kept.
    pub(crate) fn new(folder: Option<Arc<OutputFolder>>, log: Option<JobLog>, form: Form) -> Option<Keeper> {
        (folder.is_some() || log.is_some()).then_some(Keeper { folder, log, form })
    }

    /// Keeps these results, and returns them without what is on disk now. This blocks until the disk has all of it.
    pub(crate) fn keep(&mut self, ended: Vec<NumberedResult>) -> Result<Vec<NumberedResult>, Unwritten> {
        let kept = self.keep_files(&ended).and_then(|kept| self.keep_lines(kept));
        kept.map_err(|why| Unwritten { failure: Failure::Unwritten(why), left: ended })
    }

    fn keep_files(&self, ended: &[NumberedResult]) -> Result<Vec<NumberedResult>, String> {
        let mut kept = ended.to_vec();
        let Some(folder) = &self.folder else { return Ok(kept) };
        for result in kept.iter_mut().filter(|result| is_ok(result)) {
            let name = result.notes.output_name.clone().unwrap_or_default();
            let path = folder.path().join(&name);
            match folder.write(result.index, &name, &result.finished.output) {
                Ok(()) => {
                    result.notes.output_file = Some(path);
                    result.notes.output_digest =
                        self.log.as_ref().map(|_| digest_of_bytes(&result.finished.output));
                }
                Err(NotWritten::Protected(what)) => refuse(result, refusal(what)),
                Err(NotWritten::Name(error)) => {
                    refuse(result, format!("{}: name another --output-dir", cannot_write(&path, &error)));
                }
                Err(NotWritten::Io(error)) => return Err(cannot_write(&path, &error)),
            }
            result.finished.output = Bytes::new();
        }
        if self.log.is_some() {
            folder.sync().map_err(|error| cannot_write(folder.path(), &error))?;
        }
        Ok(kept)
    }

    fn keep_lines(&mut self, mut kept: Vec<NumberedResult>) -> Result<Vec<NumberedResult>, String> {
        let Some(log) = &mut self.log else { return Ok(kept) };
        for result in &mut kept {
            if is_ok(result) {
                let printed = self.form.rendered(result);
                result.notes.printed =
                    Some(log.add_printed(&printed).map_err(|error| log.cannot_write(&error))?);
                result.finished.output = Bytes::new();
            }
        }
        log.add_lines(&kept).map_err(|error| log.cannot_write(&error))?;
        Ok(kept)
    }
}

/// The job of an output that has no place has failed.
fn refuse(result: &mut NumberedResult, message: String) {
    let report = &mut result.finished.report;
    report.outcome = OutcomeCode::BadRequest;
    report.error = Some(ErrorDetail::new(OutcomeCode::BadRequest, message));
}

fn is_ok(result: &NumberedResult) -> bool {
    result.finished.report.outcome == OutcomeCode::Ok
}

/// Takes the lock on this file, which ends with this process, however that ends. False if another process has it. A child of a
/// process that was killed may have its files for a moment, until it runs its own program: so this waits a little.
fn lock(file: &File) -> io::Result<bool> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_TRIED_EVERY),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write to {}: {error}", path.display())
}
