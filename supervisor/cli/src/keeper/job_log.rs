//! The job log: a line of JSON for each job that has ended, in the order in which they ended, and beside it `LOG.results` with
//! what is printed of each job that is ok.
//!
//! ```text
//!   {"index":3,"input_digest":"sha256:...","outcome":"ok","attempts":1,"start":1763922000.123,"seconds":0.012,...}
//! ```
//!
//! Lines are only appended. Of two lines with one index the later one counts. A last line without its end is torn, and is no
//! line; neither is one that cannot be read.

mod done_jobs;

pub(crate) use done_jobs::{DoneJobs, Verdict};

use super::{ProtectedFiles, cannot_write, lock};
use crate::batch::{Notes, NumberedResult};
use crate::failure::Failure;
use crate::limits::PATH_MAX;
use crate::sink::Form;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::nouns::OutcomeCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// What to do with the jobs of a log that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogMode {
    /// There must be none.
    Fresh,
    /// Those that are ok are not run again.
    Resume,
    /// Only those that have failed are run again.
    RetryFailed,
}

/// The work of a job log: it is printed from the log only if it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedWork {
    pub(crate) task: String,
    pub(crate) form: Form,
    /// The words of `--exec`.
    pub(crate) command: Option<Vec<String>>,
    /// The folder of the outputs, as it was named: the lines of results have it.
    pub(crate) output_dir: Option<PathBuf>,
}

impl LoggedWork {
    /// The folder of the outputs, with a slash at its end, whether it was named with one or not.
    fn logged_output_dir(&self) -> Option<String> {
        self.output_dir.as_ref().map(|folder| as_text(folder.join("").as_os_str()))
    }
}

/// Where in `LOG.results` it is what is printed of a job.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Printed {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The first 48 bits of its SHA-256. If the file of results was damaged or cut off, other bytes may stand there later.
    pub(crate) check: u64,
}

impl Printed {
    fn new(at: u64, printed: &[u8]) -> Printed {
        let digest = Sha256::digest(printed);
        let check = digest.iter().take(6).fold(0, |check, byte| (check << 8) | u64::from(*byte));
        Printed { at, bytes: printed.len() as u64, check }
    }

    /// What is printed, if it is in this file as it was written.
    pub(crate) fn read(self, results: &File) -> io::Result<Vec<u8>> {
        let mut printed = vec![0; usize::try_from(self.bytes).map_err(io::Error::other)?];
        results.read_exact_at(&mut printed, self.at)?;
        match Printed::new(self.at, &printed) == self {
            true => Ok(printed),
            false => Err(io::Error::other("it was changed")),
        }
    }

    fn end(self) -> u64 {
        self.at.saturating_add(self.bytes)
    }
}

/// A line of the log.
#[derive(Debug, Deserialize, Serialize)]
struct LogLine {
    index: u64,
    /// None if the input could not be read.
    input_digest: Option<String>,
    outcome: String,
    attempts: u32,
    /// When the last attempt began, in seconds since 1970; none if nothing ran.
    start: Option<f64>,
    /// How long it ran.
    seconds: f64,
    task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_dir: Option<String>,
    /// The form in which it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<Form>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    printed: Option<Printed>,
}

impl LogLine {
    fn of(result: &NumberedResult, work: &LoggedWork) -> LogLine {
        let NumberedResult { index, finished, notes } = result;
        let report = &finished.report;
        let is_ok = report.outcome == OutcomeCode::Ok;
        let queued = Duration::from_micros(report.receipt.queued_us);
        let start =
            notes.submitted.and_then(|submitted| (submitted + queued).duration_since(UNIX_EPOCH).ok());
        let output_name = notes.output_name.as_deref().filter(|_| is_ok);
        LogLine {
            index: *index,
            input_digest: notes.input_digest.clone(),
            outcome: report.outcome.as_str().to_owned(),
            attempts: report.attempts,
            start: start.filter(|_| report.attempts > 0).map(|start| start.as_millis() as f64 / 1e3),
            seconds: report.receipt.run_us as f64 / 1e6,
            task: report.task.clone(),
            command: work.command.clone(),
            file: file_of(notes),
            output_file: output_name.map(as_text),
            output_bytes: output_name.map(|_| report.receipt.output_bytes),
            output_digest: notes.output_digest.clone(),
            output_dir: work.logged_output_dir(),
            form: is_ok.then_some(work.form),
            printed: notes.printed,
        }
    }

    fn is_ok(&self) -> bool {
        self.outcome == OutcomeCode::Ok.as_str()
    }
}

/// A line may be too long for a path; then it is none.
fn file_of(notes: &Notes) -> Option<String> {
    let path = notes.file.as_ref().map(|path| path.as_os_str());
    path.filter(|path| path.len() <= PATH_MAX).map(as_text)
}

/// The name, or of one that is not UTF-8 its bytes in a form that no name has.
fn as_text(name: &OsStr) -> String {
    name.to_str().map_or_else(|| format!("base64\0{}", STANDARD.encode(name.as_bytes())), str::to_owned)
}

/// What the two files are for people.
const LOG: &str = "the job log";
const RESULTS: &str = "the results of the job log";

/// See the module's documentation.
pub(crate) struct JobLog {
    path: PathBuf,
    log: File,
    results: BufWriter<File>,
    /// The length of `LOG.results`.
    results_end: u64,
    work: LoggedWork,
}

impl JobLog {
    /// Opens the log, and `LOG.results` beside it; both are made if they are not there, and are from then on files of this command.
    /// Also returns the jobs that are in the log.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the log is there and should not be, is no log, is used by another process, or is of other work, or if
    /// only what would become `LOG.results` is there, or if one of them is another file of this command;
    /// [`Failure::NoPlace`] if it cannot be used.
    pub(crate) fn open(
        path: &Path,
        mode: LogMode,
        work: LoggedWork,
        own: &mut ProtectedFiles,
    ) -> Result<(JobLog, Arc<DoneJobs>), Failure> {
        let unusable = |error: io::Error| Failure::NoPlace(cannot_write(path, &error));
        let results_path = results_path(path);
        // Before anything is made.
        own.expect_distinct(LOG, &path.display().to_string(), &path.metadata())?;
        own.expect_distinct(RESULTS, &results_path.display().to_string(), &results_path.metadata())?;
        refuse_what_is_no_results(path)?;
        let log = open_file(path).map_err(|error| not_opened(path, &error))?;
        own.protect_distinct(LOG, &path.display().to_string(), log.metadata())?;
        if !lock(&log).map_err(unusable)? {
            return Err(Failure::Usage(format!("another map writes the job log {}", path.display())));
        }
        if mode == LogMode::Fresh && log.metadata().map_err(unusable)?.len() > 0 {
            return Err(Failure::Usage(format!(
                "{} is there already: --resume goes on with it, --retry-failed runs again what has failed; to begin anew, \
                 remove it",
                path.display()
            )));
        }
        let results = open_file(&results_path).map_err(|error| not_opened(&results_path, &error))?;
        own.protect_distinct(RESULTS, &results_path.display().to_string(), results.metadata())?;
        let readable = (log.try_clone().map_err(unusable)?, results.try_clone().map_err(unusable)?);
        let mut done = DoneJobs::new(readable, mode, work.output_dir.clone());
        let lines_end = done.read(&work, results.metadata().map_err(unusable)?.len())?;
        log.set_len(lines_end).map_err(unusable)?;
        results.set_len(done.results_end()).map_err(unusable)?;
        let (mut log, mut results) = (log, results);
        log.seek(SeekFrom::End(0)).and_then(|_| results.seek(SeekFrom::End(0))).map_err(unusable)?;
        sync_parent(path).map_err(unusable)?;
        let opened = JobLog {
            path: path.to_owned(),
            log,
            results_end: done.results_end(),
            results: BufWriter::with_capacity(256 << 10, results),
            work,
        };
        Ok((opened, Arc::new(done)))
    }

    /// A second descriptor of `LOG.results`, from which is read what was kept.
    pub(crate) fn results(&self) -> io::Result<File> {
        self.results.get_ref().try_clone()
    }

    /// The error of a write, for people.
    pub(super) fn cannot_write(&self, error: &io::Error) -> String {
        cannot_write(&self.path, error)
    }

    /// Adds what is printed of a job. It counts after [`JobLog::add_lines`].
    pub(super) fn add_printed(&mut self, printed: &[u8]) -> io::Result<Printed> {
        self.results.write_all(printed)?;
        let place = Printed::new(self.results_end, printed);
        self.results_end = place.end();
        Ok(place)
    }

    /// Adds the lines of these jobs. When this returns, they count. A job that was cancelled has no line, because it has not
    /// ended by itself.
    pub(super) fn add_lines(&mut self, kept: &[NumberedResult]) -> io::Result<()> {
        self.results.flush()?;
        self.results.get_ref().sync_data()?;
        let mut lines = Vec::new();
        for result in kept.iter().filter(|result| result.finished.report.outcome != OutcomeCode::Cancelled) {
            serde_json::to_writer(&mut lines, &LogLine::of(result, &self.work))?;
            lines.push(b'\n');
        }
        self.log.write_all(&lines)?;
        self.log.sync_data()
    }
}

fn results_path(log: &Path) -> PathBuf {
    let mut path = log.as_os_str().to_owned();
    path.push(".results");
    path.into()
}

/// What a log of ours has beside it was made together with it. What is there without one belongs to somebody else.
fn refuse_what_is_no_results(log: &Path) -> Result<(), Failure> {
    let results = results_path(log);
    let is_taken = results.metadata().is_ok_and(|metadata| metadata.len() > 0);
    match is_taken && log.symlink_metadata().is_err() {
        true => Err(Failure::Usage(format!(
            "{} is there already, without the job log {} to which it would belong: remove it, or name another log",
            results.display(),
            log.display()
        ))),
        false => Ok(()),
    }
}

fn not_opened(path: &Path, error: &io::Error) -> Failure {
    Failure::NoPlace(match error.kind() {
        io::ErrorKind::IsADirectory => {
            format!("cannot write to {}: it is a folder; name a file with --joblog", path.display())
        }
        _ => cannot_write(path, error),
    })
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// The name of a new file is on disk only with its folder.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests;
