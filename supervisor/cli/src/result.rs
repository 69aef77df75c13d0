//! `offload result`: prints the results of detached jobs that have ended, without waiting.

use super::failure::{Failure, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::ids::{in_full, with_each};
use super::output::OutputFlags;
use crate::limits::ANSWER_TIMEOUT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;

const EXAMPLES: &str = "\
Examples:
  offload result 01JQ4W3M8Z5X9T2C7VB6NHKDEF           its output, or exit code 4 if it has not ended
  offload result HKDE HKDF HKDG --json                several jobs, by the last characters of their ids: a line each";

/// Print the output of jobs if they have ended; do not wait (`wait` does)
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Result {
    /// The ids of the jobs, as `submit --detach` printed them, or their first or last characters. The exit code is the highest
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,

    #[command(flatten)]
    output: OutputFlags,
}

impl Result {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        // Before the supervisor is asked: the results must have somewhere to go.
        let mut destinations = self.output.open_each(globals, self.jobs.len())?;
        let mut client = globals.connect(NAMELESS)?;
        let jobs = in_full(&mut client, &self.jobs)?;
        with_each(&jobs, globals.json, |job| {
            let destination = destinations.next()?;
            let request = ToSupervisor::Result { ticket: 1, job };
            let finished = client.ask_for_a_job(&request, Some(ANSWER_TIMEOUT))?;
            destination.deliver(&finished)?;
            Ok(Failure::code_of(&finished.report))
        })
    }
}
