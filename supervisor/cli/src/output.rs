//! Writing: results go to standard output or a file, messages to standard error.
//!
//! All results of all verbs go through [`print()`] or a [`Destination`]. A result that does not reach its reader is a
//! [`Failure`], whose exit code is never 0. As far as possible this is detected before a job runs:
//!
//! ```text
//!   before the run                                         after the run
//!   standard output is closed, or nobody reads it --> 74   a write fails: the result is saved in a file; if that fails
//!   the file of --output cannot be written        --> 74   too, the message says what was lost --> 74
//!   a terminal, and the task's output is binary   -->  2   the output turns out to be binary: it is saved in a file
//! ```
//!
//! A verb with an effect, such as `cancel`, has its effect first. If it cannot report it, it exits with 74
//! ([`print_done`]).

use super::failure::{Failure, OK, VerbResult};
use super::flags::Globals;
use super::output_file::{OutputFile, save};
use super::{render, sys, text};
use clap::Args;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::Finished;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr, write};
use signal_hook::consts::SIGXFSZ;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STDOUT: &str = "standard output";

/// Built-in tasks whose output is never fit for a terminal.
const BINARY_TASKS: [&str; 1] = ["gzip"];

/// Prints one line on standard error. If that fails, nothing can be done about it.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "offload: {}", text::printable(message));
}

/// Writes results to standard output.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    print_counted(bytes).map_err(|(_, failure)| failure)
}

/// Writes results to standard output. If that fails, the error says how many bytes were written before.
pub(crate) fn print_counted(bytes: &[u8]) -> Result<(), (usize, Failure)> {
    let failed = |written, error: io::Error| (written, Failure::writing(STDOUT, &error));
    check_stdout().map_err(|failure| (0, failure))?;
    let mut stdout = io::stdout().lock();
    stdout.flush().map_err(|error| failed(0, error))?;
    let mut written = 0;
    while written < bytes.len() {
        // Not through the buffer of the standard library: when a write fails, it does not say how much was written.
        match retry_on_intr(|| write(&stdout, &bytes[written..])) {
            Ok(0) => return Err(failed(written, io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            // Another process has made this stream non-blocking.
            Err(Errno::AGAIN) => {
                let waited = retry_on_intr(|| poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None));
                waited.map_err(|error| failed(written, error.into()))?;
            }
            Err(error) => return Err(failed(written, error.into())),
        }
    }
    Ok(())
}

/// Prints a line about an effect that the verb already had. If that fails, the failure names the effect.
pub(crate) fn print_done(effect: &str, line: impl AsRef<[u8]>) -> Result<(), Failure> {
    print_line(line).map_err(|failure| failure_after(failure, effect))
}

/// Why a result could not be written, or the failure itself if it is of another kind.
pub(crate) fn why_unwritten(failure: Failure) -> Result<String, Failure> {
    match failure {
        Failure::Unwritten(why) => Ok(why),
        Failure::ReaderGone => Ok(format!("nobody reads {STDOUT} any more")),
        other => Err(other),
    }
}

/// A failure to print, with the effect that could not be reported.
pub(crate) fn failure_after(failure: Failure, effect: &str) -> Failure {
    why_unwritten(failure).map_or_else(|other| other, |why| Failure::Unwritten(format!("{why}; {effect}")))
}

/// From now on, a write beyond the limit of file sizes (`ulimit -f`) fails, instead of ending this process without a
/// message. Processes that this one starts get the default action again.
pub(crate) fn outlive_file_size_limit() {
    // If this fails, the signal ends the process as it ends any other.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Writes one line of results to standard output.
pub(crate) fn print_line(line: impl AsRef<[u8]>) -> Result<(), Failure> {
    print(&[line.as_ref(), b"\n"].concat())
}

/// Whether a short line can be written to standard output at once.
pub(crate) fn has_room() -> bool {
    let stdout = io::stdout();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    retry_on_intr(|| poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&at_once)))
        .is_ok_and(|ready| ready > 0)
}

/// Whether there is a standard output at all.
pub(crate) fn check_stdout() -> Result<(), Failure> {
    match sys::stdout_was_closed() {
        true => Err(Failure::Unwritten(
            "standard output is closed, so nobody gets what would be printed".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Checks that somebody can read the results of this verb, before it does anything. If not, the failure says with
/// `untouched` what was not done.
pub(crate) fn expect_a_reader(untouched: &str) -> Result<(), Failure> {
    check_stdout()?;
    match has_reader_left(Duration::ZERO) {
        true => Err(Failure::Unwritten(format!("nobody reads {STDOUT}, so {untouched}"))),
        false => Ok(()),
    }
}

/// Waits so long for more to print.
///
/// # Errors
/// [`Failure::ReaderGone`] as soon as nobody reads standard output any more.
pub(crate) fn sleep_while_read(time: Duration) -> Result<(), Failure> {
    let until = Instant::now() + time;
    if has_reader_left(time) {
        return Err(Failure::ReaderGone);
    }
    // A signal, or an output that cannot be polled, has ended that early.
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    Ok(())
}

/// Whether the reader of standard output leaves within this time.
fn has_reader_left(within: Duration) -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    // If it cannot be polled, a failing write will show it.
    let _ = poll(&mut watched, Timespec::try_from(within).ok().as_ref());
    watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Where the output of one job goes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Write the output, or with --json its document, to FILE instead of standard output; an existing FILE is replaced only if the
    /// job ends ok
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print on standard error where the job ran and how its time was spent
    #[arg(long)]
    receipt: bool,
}

impl OutputFlags {
    /// Whether the receipt is printed.
    pub(crate) fn receipt(&self) -> bool {
        self.receipt
    }

    /// The destinations of the results of so many jobs. The first one is checked at once, before anything is asked for.
    ///
    /// # Errors
    /// [`Failure::Usage`] for several jobs and one file; and those of [`OutputFlags::open`].
    pub(crate) fn open_each<'a>(
        &'a self,
        globals: &'a Globals,
        jobs: usize,
    ) -> Result<Destinations<'a>, Failure> {
        if self.output.is_some() && jobs > 1 {
            let message = "--output takes the output of one job; several go to standard output";
            return Err(Failure::Usage(message.to_owned()));
        }
        let first = self.open(ResultSource::Known, globals)?;
        Ok(Destinations { flags: self, globals, first: Some(first) })
    }

    /// Checks the destination of a result before the job runs, or before the result is fetched.
    pub(crate) fn open(&self, source: ResultSource<'_>, globals: &Globals) -> Result<Destination, Failure> {
        let file = match &self.output {
            Some(path) => Some(OutputFile::open(path)?),
            None => {
                expect_a_reader(source.untouched())?;
                if let ResultSource::Own { task } = source {
                    refuse_binary_on_a_terminal(task, globals)?;
                }
                None
            }
        };
        Ok(Destination { file, receipt: self.receipt, json: globals.json })
    }
}

/// Which job a result belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultSource<'a> {
    /// This process submits the job and prints its output.
    Own {
        /// The task of the job.
        task: &'a str,
    },
    /// This process submits the job and prints its id.
    Detached,
    /// The supervisor has the job already.
    Known,
}

impl ResultSource<'_> {
    /// What was not done, if nobody can read the result.
    fn untouched(self) -> &'static str {
        match self {
            ResultSource::Own { .. } | ResultSource::Detached => "nothing was submitted",
            ResultSource::Known => "the result was not fetched: the supervisor has it as before",
        }
    }
}

/// Refuses, before the job runs, to print the output of a task on a terminal if it is known to be binary.
pub(crate) fn refuse_binary_on_a_terminal(task: &str, globals: &Globals) -> Result<(), Failure> {
    match BINARY_TASKS.contains(&task) && !globals.json && io::stdout().is_terminal() {
        true => Err(Failure::Usage(format!(
            "the output of {task} is binary, which is not printed to a terminal; send it to a file with > FILE"
        ))),
        false => Ok(()),
    }
}

/// Destinations for the results of jobs that the supervisor has.
pub(crate) struct Destinations<'a> {
    flags: &'a OutputFlags,
    globals: &'a Globals,
    first: Option<Destination>,
}

impl Destinations<'_> {
    /// The destination of the next result, checked before that is fetched.
    pub(crate) fn next(&mut self) -> Result<Destination, Failure> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.flags.open(ResultSource::Known, self.globals),
        }
    }
}

/// A destination for the result of one job. It was checked to be writable.
#[derive(Debug)]
pub(crate) struct Destination {
    /// Standard output if none.
    file: Option<OutputFile>,
    receipt: bool,
    json: bool,
}

impl Destination {
    /// Delivers one finished job to the user. With `--json`, a failed job is printed as a document like any other, and
    /// its exit code is returned. Otherwise it becomes a [`Failure`], which is printed on standard error.
    pub(crate) fn deliver(self, finished: &Finished) -> VerbResult {
        self.deliver_after(&[], finished)
    }

    /// The same for a job that was tried again after these attempts.
    pub(crate) fn deliver_after(self, earlier: &[Report], finished: &Finished) -> VerbResult {
        let report = &finished.report;
        if self.receipt {
            say(&render::receipt(report));
        }
        if render::is_read_elsewhere(finished) {
            return self.deliver_outcome(finished);
        }
        if self.json {
            let document = format!("{}\n", render::json_after(earlier, finished));
            let written = match report.outcome {
                OutcomeCode::Ok => self.write(document.as_bytes()),
                // A file is for what the job returns, and what is in it stays until there is that.
                _ => print(document.as_bytes()),
            };
            written.map_err(|failure| unwritten(finished, failure))?;
            return Ok(Failure::code_of(report).into());
        }
        if report.outcome != OutcomeCode::Ok {
            return Err(Failure::of(report, render::message(report)));
        }
        if self.file.is_none() && spoils_a_terminal(finished) {
            say(&save_unprintable(finished)?);
            return Ok(OK);
        }
        self.write(&render::plain(finished)).map_err(|failure| unwritten(finished, failure))?;
        Ok(OK)
    }

    /// Delivers the outcome of a job that has ended well, and whose output is a stream that somebody else reads.
    fn deliver_outcome(self, finished: &Finished) -> VerbResult {
        say(&format!(
            "{} ended well; only whoever submitted it reads its output, a stream",
            name_of(finished)
        ));
        if self.json {
            print_line(render::json_outcome(finished))?;
        }
        Ok(OK)
    }

    fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        match self.file {
            Some(file) => file.write(bytes),
            None => print(bytes),
        }
    }
}

/// The failure for a job whose result could not be written. An output is saved in a file, whatever the reason: the
/// supervisor may have forgotten it as soon as this process had it.
pub(crate) fn unwritten(finished: &Finished, failure: Failure) -> Failure {
    let job = name_of(finished);
    let why = match why_unwritten(failure) {
        Ok(why) => why,
        Err(other) => return other,
    };
    Failure::Unwritten(match finished.report.outcome {
        OutcomeCode::Ok => match save(finished) {
            Ok(path) => format!("{why}; the output of {job} is in {}", path.display()),
            Err(also) => format!("{why}; the output of {job} is lost ({also})"),
        },
        outcome => format!("{why}; {job} ended with {outcome}: {}", render::message(&finished.report)),
    })
}

fn name_of(finished: &Finished) -> String {
    match finished.report.job.as_str() {
        "" => "the job".to_owned(),
        job => format!("job {job}"),
    }
}

/// Whether the output is binary and standard output is a terminal. Bytes that are valid text may be printed.
pub(crate) fn spoils_a_terminal(finished: &Finished) -> bool {
    let is_text = || std::str::from_utf8(&finished.output).is_ok_and(|text| !text.contains(is_obeyed));
    render::is_binary(&finished.report.media_type) && !is_text() && io::stdout().is_terminal()
}

/// Whether a terminal would obey this character instead of showing it.
fn is_obeyed(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

/// Saves a binary output instead of printing it, and says where it is.
pub(crate) fn save_unprintable(finished: &Finished) -> Result<String, Failure> {
    let (length, media_type) =
        (text::bytes(finished.output.len() as u64), finished.report.media_type.as_str());
    let why = format!("the output is {length} of {media_type}, which is not printed to a terminal");
    match save(finished) {
        Ok(path) => Ok(format!("{why}: it is in {}", path.display())),
        Err(also) => Err(Failure::Unwritten(format!("{why}, and it cannot be saved ({also}); use > FILE"))),
    }
}
