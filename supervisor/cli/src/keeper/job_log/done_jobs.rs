//! The jobs that are in a job log from earlier runs. Of each job only the place of its line is held in memory (some 30 bytes); the
//! line is read again when its input has come.

use super::{LogLine, LogMode, LoggedWork, Printed, as_text, file_of};
use crate::batch::Notes;
use crate::failure::Failure;
use crate::limits::{LOG_LINE_MAX, PRINTED_MAX};
use crate::sink::Form;
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

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

impl DoneJobs {
    pub(super) fn new((log, results): (File, File), mode: LogMode, folder: Option<PathBuf>) -> DoneJobs {
        DoneJobs { log, results, mode, folder, lines: BTreeMap::new(), results_end: 0 }
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
        match self.line(index) {
            Some(line) if line.outcome == OutcomeCode::Ok.as_str() => match self.counts(&line, notes) {
                Some(printed) => Verdict::Done(printed),
                None => Verdict::Run,
            },
            None if self.mode == LogMode::RetryFailed => Verdict::LeftOut,
            _ => Verdict::Run,
        }
    }

    /// What is printed of a job that is ok, if its line is about this very input, and its output is where it should be.
    fn counts(&self, line: &LogLine, notes: &Notes) -> Option<Printed> {
        let output_name = notes.output_name.as_deref().map(as_text);
        let is_the_same = line.input_digest == notes.input_digest
            && line.file == file_of(notes)
            && line.output_file == output_name;
        let is_whole =
            |printed: &Printed| printed.bytes <= PRINTED_MAX && printed.read(&self.results).is_ok();
        line.printed.filter(|_| is_the_same && self.has_output(line, notes)).filter(is_whole)
    }

    fn has_output(&self, line: &LogLine, notes: &Notes) -> bool {
        let (Some(folder), Some(name)) = (&self.folder, &notes.output_name) else { return true };
        let metadata = folder.join(name).symlink_metadata();
        metadata.is_ok_and(|metadata| metadata.is_file() && Some(metadata.len()) == line.output_bytes)
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

/// Whether this, perhaps torn, may be the first line of a log.
fn may_be_a_line(line: &[u8]) -> bool {
    line.starts_with(LINE_BEGINS) || LINE_BEGINS.starts_with(line)
}

/// What is printed from the log has to be what would be printed without it.
fn check(line: &LogLine, work: &LoggedWork) -> Result<(), Failure> {
    let usage =
        |why: String| Err(Failure::Usage(format!("the job log has other work: {why}; name another log")));
    let LoggedWork { task, form, command } = work;
    match &line.form {
        _ if line.task != *task => usage(format!("its task is {}, and not {task}", line.task)),
        _ if line.command != *command => usage("its jobs ran another command".to_owned()),
        Some(Form::Raw) if *form != Form::Raw => usage("it was written with --raw".to_owned()),
        Some(other) if other != form => usage("it was written without --raw".to_owned()),
        _ => Ok(()),
    }
}
