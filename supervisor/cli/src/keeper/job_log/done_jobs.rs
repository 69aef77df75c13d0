//! The jobs that are in a job log from earlier runs. Of each job only the place of its line is held in memory (some 30 bytes); the
//! line is read again when its input has come.

use super::{LogLine, LogMode, LoggedWork, Printed, as_text, file_of};
use crate::batch::Notes;
use crate::digest::digest_of_content;
use crate::failure::Failure;
use crate::limits::{LOG_LINE_MAX, PRINTED_MAX};
use crate::sink::Form;
use crate::text;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct DoneJobs {
    log: File,
    results: File,
    mode: LogMode,
    /// The folder of the outputs.
    folder: Option<PathBuf>,
    /// Where the last line of each job begins, by the number of the job.
    lines: BTreeMap<u64, u64>,
    /// Behind everything that is printed of the jobs that count.
    results_end: u64,
    /// How many inputs were left out, by the reason.
    left_out: [AtomicU64; 3],
}

/// How each line begins, so also one that is torn.
const LINE_BEGINS: &[u8] = b"{\"index\":";

/// What becomes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its job is run.
    Run,
    /// It is done, and this is what is printed of it.
    Done(Printed),
    /// It is not to be done now.
    LeftOut,
}

/// Why an input is left out where only failed jobs are run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhyLeftOut {
    /// No line has its number.
    NotLogged,
    /// The line of its number is about another input: this is another list, or the input has changed.
    OtherInput,
    /// Its job was ok, and what it left is no longer there.
    ResultGone,
}

impl WhyLeftOut {
    fn sentence(self, jobs: u64) -> String {
        let is_one = jobs == 1;
        let counted = text::count(jobs, "job");
        let (is, was, runs) = if is_one { ("is", "was", "runs it") } else { ("are", "were", "runs them") };
        let has = if is_one { "has" } else { "have" };
        match self {
            WhyLeftOut::NotLogged => format!("{counted} {is} not in the job log and {was} left out"),
            WhyLeftOut::OtherInput => format!(
                "{counted} {has} another input than the job log has under this number, or none that can be read, and {was} \
                 left out; --resume {runs}"
            ),
            WhyLeftOut::ResultGone => format!(
                "{counted} {is} ok in the job log, but the result is gone or was changed, and {was} left out; \
                 --resume {runs} again"
            ),
        }
    }
}

impl DoneJobs {
    pub(super) fn new((log, results): (File, File), mode: LogMode, folder: Option<PathBuf>) -> DoneJobs {
        DoneJobs {
            log,
            results,
            mode,
            folder,
            lines: BTreeMap::new(),
            results_end: 0,
            left_out: Default::default(),
        }
    }

    pub(super) fn results_end(&self) -> u64 {
        self.results_end
    }

    /// Reads the log, and returns where its last whole line ends. A line that refers to more of the results than are there
    /// does not count.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the log is of another task or form, [`Failure::Unreadable`] if it cannot be read.
    pub(super) fn read(&mut self, work: &LoggedWork, results_bytes: u64) -> Result<u64, Failure> {
        let unreadable = |error| Failure::Unreadable(format!("cannot read the job log: {error}"));
        let log = self.log.try_clone().map_err(unreadable)?;
        let (mut log, mut line, mut end) = (BufReader::new(log), Vec::new(), 0);
        let mut is_log = true;
        loop {
            line.clear();
            let read = log.by_ref().take(LOG_LINE_MAX).read_until(b'\n', &mut line).map_err(unreadable)?;
            if read == 0 || (line.last() != Some(&b'\n') && (read as u64) < LOG_LINE_MAX) {
                is_log &= end > 0 || may_be_a_line(&line);
                return match is_log {
                    true => Ok(end),
                    false => {
                        let why = "the file of --joblog is something else: no line of it is about a job; name another file";
                        Err(Failure::Usage(why.to_owned()))
                    }
                };
            }
            if let Ok(parsed) = serde_json::from_slice::<LogLine>(&line) {
                check(&parsed, work)?;
                is_log = true;
                self.take(&parsed, end, results_bytes);
            }
            is_log &= end > 0 || may_be_a_line(&line);
            end += read as u64;
        }
    }

    fn take(&mut self, line: &LogLine, at: u64, results_bytes: u64) {
        let printed_to = line.printed.map_or(0, Printed::end);
        if printed_to <= results_bytes {
            self.lines.insert(line.index, at);
            self.results_end = self.results_end.max(printed_to);
        }
    }

    /// What becomes of an input with these notes. This reads files.
    pub(crate) fn verdict(&self, index: u64, notes: &Notes) -> Verdict {
        let Some(line) = self.line(index) else { return self.run_or_leave_out(WhyLeftOut::NotLogged) };
        match line.is_ok() {
            _ if !is_about(&line, notes) => self.run_or_leave_out(WhyLeftOut::OtherInput),
            true => match self.kept(&line, notes) {
                Some(printed) => Verdict::Done(printed),
                None => self.run_or_leave_out(WhyLeftOut::ResultGone),
            },
            false => Verdict::Run,
        }
    }

    /// For an input that is neither done nor logged as failed.
    fn run_or_leave_out(&self, why: WhyLeftOut) -> Verdict {
        match self.mode {
            LogMode::Fresh | LogMode::Resume => Verdict::Run,
            LogMode::RetryFailed => {
                self.left_out[why as usize].fetch_add(1, Ordering::Relaxed);
                Verdict::LeftOut
            }
        }
    }

    /// What is to be said of the inputs that were left out.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let said = |why: WhyLeftOut| {
            let jobs = self.left_out[why as usize].load(Ordering::Relaxed);
            (jobs > 0).then(|| why.sentence(jobs))
        };
        [WhyLeftOut::NotLogged, WhyLeftOut::OtherInput, WhyLeftOut::ResultGone]
            .into_iter()
            .filter_map(said)
            .collect()
    }

    /// What is printed of a job that is ok, if its output is where it should be.
    fn kept(&self, line: &LogLine, notes: &Notes) -> Option<Printed> {
        let output_name = notes.output_name.as_deref().map(as_text);
        let is_in_place = line.output_file == output_name && self.has_output(line, notes);
        let is_whole =
            |printed: &Printed| printed.bytes <= PRINTED_MAX && printed.read(&self.results).is_ok();
        line.printed.filter(|_| is_in_place).filter(is_whole)
    }

    fn has_output(&self, line: &LogLine, notes: &Notes) -> bool {
        let (Some(folder), Some(name)) = (&self.folder, &notes.output_name) else { return true };
        let metadata = folder.join(name).symlink_metadata();
        let has_length =
            metadata.is_ok_and(|metadata| metadata.is_file() && Some(metadata.len()) == line.output_bytes);
        // It may be of another map by now.
        let is_same =
            |logged: &String| digest_of_file(&folder.join(name)).is_ok_and(|digest| digest == *logged);
        has_length && line.output_digest.as_ref().is_some_and(is_same)
    }

    fn line(&self, index: u64) -> Option<LogLine> {
        let mut at = *self.lines.get(&index)?;
        let (mut line, mut piece) = (Vec::new(), [0; 1024]);
        loop {
            let read = self.log.read_at(&mut piece, at).ok().filter(|read| *read > 0)?;
            let end = piece[..read].iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&piece[..end.unwrap_or(read)]);
            at += read as u64;
            if end.is_some() {
                return serde_json::from_slice(&line).ok();
            }
            if line.len() as u64 >= LOG_LINE_MAX {
                return None;
            }
        }
    }
}

/// Whether the line is about this very input. A file that could not be read, then or now, is known by its name, if nothing is
/// printed from the log for that.
fn is_about(line: &LogLine, notes: &Notes) -> bool {
    let is_unread_file = line.file.is_some() && (line.input_digest.is_none() || notes.input_digest.is_none());
    let is_same_content = line.input_digest == notes.input_digest || (is_unread_file && !line.is_ok());
    line.file == file_of(notes) && is_same_content
}

/// The digest of a file that was regular a moment ago.
fn digest_of_file(path: &Path) -> io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    digest_of_content(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// Whether this, perhaps torn, may be the first line of a log.
fn may_be_a_line(line: &[u8]) -> bool {
    line.starts_with(LINE_BEGINS) || LINE_BEGINS.starts_with(line)
}

/// What is printed from the log has to be what would be printed without it.
fn check(line: &LogLine, work: &LoggedWork) -> Result<(), Failure> {
    let usage =
        |why: String| Err(Failure::Usage(format!("the job log has other work: {why}; name another log")));
    let LoggedWork { task, form, command, output_dir: _ } = work;
    match &line.form {
        _ if line.task != *task => usage(format!("its task is {}, and not {task}", line.task)),
        _ if line.command != *command => usage("its jobs ran another command".to_owned()),
        Some(Form::Raw) if *form != Form::Raw => usage("it was written with --raw".to_owned()),
        Some(other) if other != form => usage("it was written without --raw".to_owned()),
        _ => check_folder(line, work).or_else(usage),
    }
}

/// The lines of results name their folder, so it has to be the same.
fn check_folder(line: &LogLine, work: &LoggedWork) -> Result<(), String> {
    let folder = work.logged_output_dir();
    match (&line.output_dir, &folder) {
        (None, _) if line.output_file.is_some() => Err(
            "it is of an older version, which did not log in which folder the outputs are; go on with that version"
                .to_owned(),
        ),
        // A job that failed without a folder may fail with one.
        (None, Some(_)) if line.is_ok() => Err("it was written without --output-dir".to_owned()),
        (Some(logged), _) if folder.as_ref() != Some(logged) => {
            Err(format!("its outputs are in {logged} (--output-dir {logged} goes on with it)"))
        }
        _ => Ok(()),
    }
}
