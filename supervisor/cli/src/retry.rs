//! `offload retry`: submits jobs again that have failed and whose inputs are kept. These are the dead letters, so `dead retry` is
//! the same.

use super::client::RequestClient;
use super::failure::{Failure, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::ids::{in_full, with_each};
use super::output::{failure_after, print_line};
use super::show::unknown;
use crate::limits::ANSWER_TIMEOUT;
use clap::Args;
use offload_protocol::messages::{DeadLetterAction, ToSupervisor};
use serde::Deserialize;

const EXAMPLES: &str = "\
Examples:
  offload retry HKDE HKDF                    two jobs, by the last characters of their ids
  offload wait $(offload retry HKDE)         try again and wait for the result
  offload jobs --outcome poison              which jobs can be tried again; also `offload dead list`

An input is kept for dead letters only: jobs that crashed their worker in each of several attempts.
To try again what fails for another reason, submit it anew, or use --retry of `submit`, `run` and `map`.";

const RETRIED: &str = "the job was submitted again, `offload jobs` lists it with its new id";

/// Submit failed jobs again whose inputs are kept, and print the ids of the new jobs
///
/// The new job has the task, the input and the flags of the old one, and belongs to whoever retries it. Its result is kept as if
/// it had been submitted with --detach. The dead letter is deleted. An idempotency key stays with the old job, and so with
/// its outcome.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Retry {
    /// The ids of the jobs, or their first or last characters. If one can be several jobs, none is retried
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
}

/// What the supervisor answers.
#[derive(Deserialize)]
struct Answer {
    /// The id of the new job.
    job: String,
}

impl Retry {
    /// Runs the verb.
    pub(crate) fn run(&self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let jobs = in_full(&mut client, &self.jobs)?;
        with_each(&jobs, globals.json, |job| retry(&mut client, job, globals.json).map(|()| 0))
    }
}

fn retry(client: &mut RequestClient, job: &str, json: bool) -> Result<(), Failure> {
    let request = ToSupervisor::Dead { ticket: 1, action: DeadLetterAction::Retry, job };
    let document = client.ask(&request, Some(ANSWER_TIMEOUT))?;
    let answer: Answer = serde_json::from_slice(&document).map_err(unknown)?;
    let printed = if json { print_line(&document) } else { print_line(&answer.job) };
    printed.map_err(|failure| failure_after(failure, RETRIED))
}
