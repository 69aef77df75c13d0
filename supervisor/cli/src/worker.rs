//! `offload worker check`: what is wrong with somebody's worker. `offload worker` alone is the built-in worker, which a supervisor
//! starts from its own executable.

use super::check::Check;
use super::failure::VerbResult;
use super::flags::Globals;
use clap::{Args, Subcommand};

/// Check a worker that you have written
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Worker {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// As the built-in worker, started by a supervisor: also offer the task `fault`, for tests
    #[arg(long, hide = true)]
    allow_faults: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(Check),
}

impl Worker {
    /// Whether this process is the worker of a supervisor.
    pub(crate) fn is_at_work(&self) -> bool {
        self.verb.is_none()
    }

    /// Without a verb of its own, it speaks the protocol on descriptor 0 until it ends.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match self.verb {
            Some(Verb::Check(check)) => check.run(globals),
            None => Ok(offload_worker::builtin::serve(self.allow_faults)),
        }
    }
}
