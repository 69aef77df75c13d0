//! `offload jsonl-worker -- CMD ARG...` (hidden): an adapter, which a supervisor starts in front of a program that reads and writes
//! JSON Lines.

use super::failure::VerbResult;
use super::output::say;
use super::worker_exec::{MAY_PASS, POINTLESS};
use clap::Args;
use offload_supervisor::workers::executable::{is_pointless, why_not_executed};
use offload_worker::jsonl;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The words that are put in front of a command of the user.
pub(crate) const ADAPTER: [&str; 3] = ["/proc/self/exe", "jsonl-worker", "--"];

/// Run as a worker for a program that reads and writes JSON Lines; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct JsonlWorker {
    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl JsonlWorker {
    /// Speaks the protocol on descriptor 0, and JSON Lines with the program, until one of them ends.
    pub(crate) fn run(self) -> VerbResult {
        Ok(jsonl::serve(&self.command, refuse))
    }
}

/// Says why a program behind an adapter was not started.
pub(crate) fn refuse(command: &[OsString], error: &io::Error) -> ExitCode {
    let program = Path::new(command.first().map_or("".as_ref(), OsString::as_os_str));
    say(&format!("cannot start {}: {}", program.display(), why_not_executed(program, error)));
    if is_pointless(error) { POINTLESS } else { MAY_PASS }.into()
}
