//! `offload completions`: what a shell needs to complete our command line.

use super::failure::{Ended, OK};
use super::{CommandLine, output};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Does it.
    pub(crate) fn run(self) -> Ended {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "offload", &mut script);
        output::print(&script)?;
        Ok(OK)
    }
}
