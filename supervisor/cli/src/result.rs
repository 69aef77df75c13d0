//! `offload result`: prints the result of a detached job if it has ended, without waiting.

use super::failure::VerbResult;
use super::flags::{Globals, NAMELESS};
use super::output::{OutputFlags, ResultSource};
use crate::limits::ANSWER_TIMEOUT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;

/// Print the output of a job if it has ended; do not wait (`wait` does)
#[derive(Args, Debug)]
pub(crate) struct Result {
    /// The job's id, as `submit --detach` printed it
    job: String,

    #[command(flatten)]
    output: OutputFlags,
}

impl Result {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let destination = self.output.open(ResultSource::Known, globals)?;
        let request = ToSupervisor::Result { ticket: 1, job: &self.job };
        let finished = globals.connect(NAMELESS)?.ask_for_a_job(&request, Some(ANSWER_TIMEOUT))?;
        destination.deliver(&finished)
    }
}
