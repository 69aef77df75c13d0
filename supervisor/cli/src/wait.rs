//! `offload wait`: waits for a detached job and prints its result. Ctrl-C ends the wait, not the job.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_label};
use super::output::{OutputFlags, ResultSource, say};
use super::show::{labelled_jobs, no_such_label};
use crate::limits::NO_LIMIT;
use clap::{ArgGroup, Args};
use offload_protocol::messages::ToSupervisor;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use offload_supervisor::views::JobView;

/// Wait until a job has ended and print its output
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).args(["job", "label"]))]
pub(crate) struct Wait {
    /// The job's id, as `submit --detach` printed it. Of a job with `--stream`, only the outcome is known here
    job: Option<String>,

    /// Wait for all jobs with this label, also those that have ended and whose result is still known, and print their
    /// outputs, the oldest job first; the exit code is that of the first one that failed. Not with --output
    #[arg(long, value_name = "LABEL", value_parser = parse_label, conflicts_with = "output")]
    label: Option<String>,

    #[command(flatten)]
    output: OutputFlags,
}

impl Wait {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        // Before the supervisor is asked: the result must have somewhere to go.
        let destination = self.output.open(ResultSource::Known, globals)?;
        let mut client = globals.connect(NAMELESS)?;
        match (&self.job, &self.label) {
            (Some(job), _) => destination.deliver(&wait_for(&mut client, job)?),
            (None, Some(label)) => self.wait_for_all(&mut client, label, globals),
            (None, None) => Ok(OK),
        }
    }

    fn wait_for_all(&self, client: &mut RequestClient, label: &str, globals: &Globals) -> VerbResult {
        let jobs = labelled_jobs(client, label)?;
        if jobs.is_empty() {
            return Err(no_such_label(label));
        }
        let mut first_failure = OK;
        for JobView { job, .. } in jobs {
            let code = match self.wait_and_print(client, &job, globals) {
                // It ended well, and its output is not here any more.
                Err(Failure::Outcome { code: OutcomeCode::NoSuchJob, message, .. }) => {
                    say(&format!("{job}: {message}"));
                    OK
                }
                Err(failure @ Failure::Outcome { .. }) => {
                    say(&format!("{job}: {}", failure.message().unwrap_or_default()));
                    failure.exit_code().into()
                }
                other => other?,
            };
            first_failure = if first_failure == OK { code } else { first_failure };
        }
        Ok(first_failure)
    }

    fn wait_and_print(&self, client: &mut RequestClient, job: &str, globals: &Globals) -> VerbResult {
        let finished = wait_for(client, job)?;
        self.output.open(ResultSource::Known, globals)?.deliver(&finished)
    }
}

fn wait_for(client: &mut RequestClient, job: &str) -> Result<Finished, Failure> {
    client.ask_for_a_job(&ToSupervisor::Wait { ticket: 1, job }, NO_LIMIT)
}
