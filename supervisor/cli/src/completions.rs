//! `offload completions`: prints the script with which a shell completes our command line. The script asks this program for each
//! completion, because only that knows the tasks and jobs of the moment: it runs it with [`VARIABLE`] set.
//!
//! Whatever goes wrong, nothing is printed into the line that somebody types: there are fewer candidates, or none.

use super::candidates::with_candidates;
use super::examples::visible_command_line;
use super::failure::{Failure, OK, VerbResult};
use super::output;
use clap::Args;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
use std::fs::File;
use std::process::ExitCode;

/// Set by the script, to the name of the shell.
const VARIABLE: &str = "OFFLOAD_COMPLETE";

/// The name of the program, in the script and for people.
const PROGRAM: &str = "offload";

/// Print the completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that will read the script
    shell: Shell,
}

impl Completions {
    /// Runs the verb.
    pub(crate) fn run(self) -> VerbResult {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string());
        let shell = shell.ok_or_else(|| Failure::Usage(format!("there is no script for {}", self.shell)))?;
        let mut script = Vec::new();
        shell
            .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
            .map_err(|error| Failure::internal("cannot write the script", error))?;
        output::print(&script)?;
        Ok(OK)
    }
}

/// If a shell asks for completions, answers it. To be called before there are other threads.
pub(crate) fn answer() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    // Errors have no other way out, and neither have panics.
    let nowhere = File::options().write(true).open("/dev/null").ok()?;
    rustix::stdio::dup2_stderr(nowhere).ok()?;
    let completions =
        CompleteEnv::with_factory(|| with_candidates(visible_command_line())).var(VARIABLE).bin(PROGRAM);
    let here = std::env::current_dir().ok();
    match completions.completer(PROGRAM).try_complete(std::env::args_os(), here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(_) => Some(ExitCode::FAILURE),
    }
}
