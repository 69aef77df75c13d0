//! `offload wait`: waits for a detached job and prints its result. Ctrl-C ends the wait, not the job.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_label};
use super::output::{OutputFlags, ResultSource, say};
use super::show::open_jobs;
use crate::limits::NO_LIMIT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;

/// Wait until a job has ended and print its output
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The job's id, as `submit --detach` printed it
    #[arg(required_unless_present = "label", conflicts_with = "label")]
    job: Option<String>,

    /// Wait for all jobs with this label that have not ended, and print their outputs, the oldest first; the exit code
    /// is that of the first one that failed
    #[arg(long, value_name = "LABEL", value_parser = parse_label, conflicts_with = "output")]
    label: Option<String>,

    #[command(flatten)]
    output: OutputFlags,
}

impl Wait {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        // Before the supervisor is asked: the result must have somewhere to go.
        let mut destination = Some(self.output.open(ResultSource::Known, globals)?);
        let mut client = globals.connect(NAMELESS)?;
        let jobs = match &self.label {
            Some(label) => open_jobs(&mut client, label)?,
            None => self.job.clone().into_iter().collect(),
        };
        let mut worst = OK;
        for job in &jobs {
            let destination = match destination.take() {
                Some(destination) => destination,
                None => self.output.open(ResultSource::Known, globals)?,
            };
            let finished = client.ask_for_a_job(&ToSupervisor::Wait { ticket: 1, job }, NO_LIMIT)?;
            let code = destination.deliver(&finished)?;
            worst = if worst == OK { code } else { worst };
        }
        if jobs.is_empty() {
            say("no job with this label waits or runs");
        }
        Ok(worst)
    }
}
