//! `offload wait`: waits for a detached job and prints its result. Ctrl-C ends the wait, not the job.

use super::failure::VerbResult;
use super::flags::{Globals, NAMELESS};
use super::output::{OutputFlags, ResultSource};
use crate::limits::NO_LIMIT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;

/// Wait until a job has ended and print its output
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The job's id, as `submit --detach` printed it
    job: String,

    #[command(flatten)]
    output: OutputFlags,
}

impl Wait {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let destination = self.output.open(ResultSource::Known, globals)?;
        let request = ToSupervisor::Wait { ticket: 1, job: &self.job };
        let finished = globals.connect(NAMELESS)?.ask_for_a_job(&request, NO_LIMIT)?;
        destination.deliver(&finished)
    }
}
