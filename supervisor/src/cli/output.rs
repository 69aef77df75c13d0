//! What is written: results to standard output or a file, talk to standard error.

use super::failure::{Ended, Failure, OK};
use super::flags::Globals;
use super::{render, text};
use clap::Args;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// Says one line on standard error. If nobody listens there, nothing can be done about it.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "offload: {}", text::printable(message));
}

/// Writes results to standard output.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::writing("standard output", &error))
}

/// Writes one line of results to standard output.
pub(crate) fn print_line(line: impl AsRef<[u8]>) -> Result<(), Failure> {
    print(&[line.as_ref(), b"\n"].concat())
}

/// Where the output of one job goes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Write the output to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Say on standard error where the job ran and where its time went
    #[arg(long)]
    receipt: bool,
}

impl OutputFlags {
    /// Hands one finished job to the user. With `--json` a failed job is a document like any other, and its exit
    /// code is returned; otherwise it is a [`Failure`], which is said on standard error.
    pub(crate) fn deliver(&self, finished: &Finished, globals: &Globals) -> Ended {
        let report = &finished.report;
        if self.receipt {
            say(&render::receipt(report));
        }
        if globals.json {
            self.write(format!("{}\n", render::json(finished, None)).as_bytes())?;
            return Ok(report.outcome.exit_code().into());
        }
        if report.outcome != OutcomeCode::Ok {
            return Err(Failure::outcome(report.outcome, render::message(report)));
        }
        if self.output.is_none() && spoils_a_terminal(finished) {
            return Err(Failure::Usage(format!(
                "{}; write it to a file with --output FILE",
                unprintable(finished)
            )));
        }
        self.write(&render::plain(finished))?;
        Ok(OK)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(path) = &self.output else { return print(bytes) };
        std::fs::write(path, bytes).map_err(|error| Failure::writing(&path.display().to_string(), &error))
    }
}

/// Whether the output is binary and standard output is a terminal.
pub(crate) fn spoils_a_terminal(finished: &Finished) -> bool {
    render::is_binary(finished.report.content) && !finished.output.is_empty() && io::stdout().is_terminal()
}

/// Why a binary output is not printed.
pub(crate) fn unprintable(finished: &Finished) -> String {
    let (length, media_type) =
        (text::bytes(finished.output.len() as u64), finished.report.content.media_type());
    format!("the output is {length} of {media_type}, which is not printed to a terminal")
}
