//! The flags that say what is kept of each result, and what becomes of a list whose jobs are partly done.

use crate::batch::Kept;
use crate::batch_runner::Keeping;
use crate::failure::Failure;
use crate::keeper::{JobLog, Keeper, LogMode, LoggedWork, OutputFolder};
use crate::sink::Sink;
use clap::Args;
use std::path::PathBuf;

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
    /// What is kept.
    pub(super) fn kept(&self) -> Kept {
        Kept { in_files: self.output_dir.is_some(), in_log: self.joblog.is_some() }
    }

    /// Opens what it takes, and the destination for results in this form.
    pub(super) fn open(&self, work: LoggedWork) -> Result<(Keeping, Sink), Failure> {
        let form = work.form;
        let sink = Sink::new(form);
        let folder = self.output_dir.as_deref().map(OutputFolder::open).transpose()?;
        let Some(path) = &self.joblog else {
            let keeper = Keeper::new(folder, None, form);
            return Ok((Keeping { keeper, done_jobs: None, output_dir: self.output_dir.clone() }, sink));
        };
        let (log, done_jobs) = JobLog::open(path, self.mode(), work, self.output_dir.clone())?;
        let results = log.results().map_err(|error| Failure::internal("cannot read the job log", error))?;
        let keeper = Keeper::new(folder, Some(log), form);
        let output_dir = self.output_dir.clone();
        Ok((Keeping { keeper, done_jobs: Some(done_jobs), output_dir }, sink.with_kept(results)))
    }

    fn mode(&self) -> LogMode {
        match (self.resume, self.retry_failed) {
            (true, _) => LogMode::Resume,
            (false, true) => LogMode::RetryFailed,
            (false, false) => LogMode::Fresh,
        }
    }
}
