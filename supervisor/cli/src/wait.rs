//! `offload wait`: waits for detached jobs and prints their results. Ctrl-C ends the wait, not the jobs.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_label};
use super::ids::{in_full, with_each};
use super::output::{Destinations, OutputFlags, ResultSource, say};
use super::show::{labelled_jobs, no_such_label};
use crate::limits::NO_LIMIT;
use clap::{ArgGroup, Args};
use offload_protocol::messages::ToSupervisor;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use offload_supervisor::views::JobView;

const EXAMPLES: &str = "\
Examples:
  offload wait $(offload submit spin 2000 --detach)   submit now, wait later
  offload wait HKDE HKDF --json                       two jobs, by the last characters of their ids: a line each
  offload wait --label nightly                        all jobs with this label";

/// Wait until jobs have ended and print their outputs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("which").required(true).args(["jobs", "label"]))]
pub(crate) struct Wait {
    /// The ids of the jobs, as `submit --detach` printed them, or their first or last characters. Outputs are printed in this
    /// order, and the exit code is the highest. Of a job with `--stream`, only the outcome is known here
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,

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
        // Before the supervisor is asked: the results must have somewhere to go.
        let mut destinations = self.output.open_each(globals, self.jobs.len())?;
        let mut client = globals.connect(NAMELESS)?;
        match &self.label {
            Some(label) => self.wait_for_all(&mut client, label, globals),
            None => self.wait_for_each(&mut client, &mut destinations, globals),
        }
    }

    fn wait_for_each(
        &self,
        client: &mut RequestClient,
        destinations: &mut Destinations<'_>,
        globals: &Globals,
    ) -> VerbResult {
        let jobs = in_full(client, &self.jobs)?;
        with_each(&jobs, globals.json, |job| {
            let destination = destinations.next()?;
            let finished = wait_for(client, job)?;
            destination.deliver(&finished)?;
            Ok(Failure::code_of(&finished.report))
        })
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
