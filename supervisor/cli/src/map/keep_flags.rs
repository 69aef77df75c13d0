//! The flags that say what is kept of each result, and what becomes of a list whose jobs are partly done.

use crate::batch::Kept;
use crate::batch_runner::Keeping;
use crate::failure::Failure;
use crate::keeper::{JobLog, Keeper, LogMode, LoggedWork, OutputFolder, ProtectedFiles};
use crate::sink::Sink;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is kept")]
pub(super) struct KeepFlags {
    /// Write each output to a file in DIR, which has the name of the input with --files, or else its index; the line of
    /// the result has the path ("output_file") in place of the output
    #[arg(long, value_name = "DIR", conflicts_with = "raw")]
    output_dir: Option<PathBuf>,

    /// Write a line for each job that has ended to FILE, and what is printed of it to FILE.results: for --resume. A line
    /// counts once it is on disk
    #[arg(long, value_name = "FILE")]
    joblog: Option<PathBuf>,

    /// Do not run again what the job log has as ok, with the same input; print all the same what an undisturbed run prints
    #[arg(long, requires = "joblog")]
    resume: bool,

    /// Run again only what the job log has as failed; what it does not have is left out
    #[arg(long, requires = "joblog", conflicts_with = "resume")]
    retry_failed: bool,
}

impl KeepFlags {
    /// The folder of the outputs.
    pub(super) fn output_dir(&self) -> Option<PathBuf> {
        self.output_dir.clone()
    }

    /// What is kept.
    pub(super) fn kept(&self) -> Kept {
        Kept { in_files: self.output_dir.is_some(), in_log: self.joblog.is_some() }
    }

    /// Opens what it takes, and the destination for results in this form. No output takes the place of the files in `own`; so many
    /// outputs, if they come to that, have their index as name.
    pub(super) fn open(
        &self,
        work: LoggedWork,
        mut own: ProtectedFiles,
        indexes: u64,
    ) -> Result<(Keeping, Sink), Failure> {
        let (form, mut sink) = (work.form, Sink::new(work.form));
        let folder = self.output_dir.as_deref().map(OutputFolder::open).transpose()?;
        let opened = self.joblog.as_deref();
        let opened = opened.map(|path| JobLog::open(path, self.mode(), work, &mut own));
        let (log, done_jobs) = opened.transpose()?.unzip();
        if let Some(log) = &log {
            let results =
                log.results().map_err(|error| Failure::internal("cannot read the job log", error))?;
            sink = sink.with_kept(results);
        }
        let folder = folder.map(|folder| folder.protecting(own, indexes)).transpose()?.map(Arc::new);
        let keeper = Keeper::new(folder.clone(), log, form);
        Ok((Keeping { keeper, done_jobs, folder }, sink))
    }

    fn mode(&self) -> LogMode {
        match (self.resume, self.retry_failed) {
            (true, _) => LogMode::Resume,
            (false, true) => LogMode::RetryFailed,
            (false, false) => LogMode::Fresh,
        }
    }
}
