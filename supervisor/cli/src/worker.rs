//! `offload worker` (hidden): the built-in worker, which a supervisor starts from its own executable.

use super::failure::VerbResult;
use clap::Args;

/// Run as the built-in worker; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct Worker {
    /// Also offer the task `fault`, for tests
    #[arg(long)]
    allow_faults: bool,
}

impl Worker {
    /// Speaks the protocol on descriptor 0 until it ends.
    pub(crate) fn run(self) -> VerbResult {
        Ok(offload_worker::builtin::serve(self.allow_faults))
    }
}
