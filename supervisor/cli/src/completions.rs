//! `offload completions`: prints the script with which a shell completes our command line.

use super::examples::visible_command_line;
use super::failure::{OK, VerbResult};
use super::output;
use clap::Args;
use clap_complete::Shell;

/// Print the completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that will read the script
    shell: Shell,
}

impl Completions {
    /// Runs the verb.
    pub(crate) fn run(self) -> VerbResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut visible_command_line(), "offload", &mut script);
        output::print(&script)?;
        Ok(OK)
    }
}
