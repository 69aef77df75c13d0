//! `offload cancel`: cancels jobs that wait or run, or all with a label.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_label};
use super::ids::{in_full, with_each};
use super::output::{print_done, say};
use super::show::{is_open, labelled_jobs, no_such_label};
use crate::limits::CANCEL_TIMEOUT;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use offload_protocol::messages::ToSupervisor;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  offload cancel 01JQ4W3M8Z5X9T2C7VB6NHKDEF
  offload cancel HKDE HKDF HKDG             several jobs, by the last characters of their ids
  offload cancel --label nightly            all jobs with this label";

/// Cancel jobs that wait or run; their outcome is `cancelled`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("which").required(true).args(["jobs", "label"]))]
pub(crate) struct Cancel {
    /// The ids of the jobs, or their first or last characters. If one can be several jobs, none is cancelled
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,

    /// Cancel all jobs with this label
    #[arg(long, value_name = "LABEL", value_parser = parse_label)]
    label: Option<String>,
}

impl Cancel {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let jobs: Vec<String> = match &self.label {
            Some(label) => {
                let known = labelled_jobs(&mut client, label)?;
                if known.is_empty() {
                    return Err(no_such_label(label));
                }
                known.into_iter().filter(is_open).map(|job| job.job).collect()
            }
            None => in_full(&mut client, &self.jobs)?,
        };
        if jobs.is_empty() {
            say("all jobs with this label had ended before");
            return Ok(OK);
        }
        with_each(&jobs, globals.json, |job| tell_of(job, cancel(&mut client, job)?, globals).map(|()| 0))
    }
}

/// Cancels a job. The effect in words, and the answer.
pub(crate) fn cancel(client: &mut RequestClient, job: &str) -> Result<(String, Bytes), Failure> {
    let document = client.ask(&ToSupervisor::Cancel { ticket: 1, job }, Some(CANCEL_TIMEOUT))?;
    let answer: Value = serde_json::from_slice(&document).unwrap_or_default();
    Ok((describe_cancellation(&answer), document))
}

fn tell_of(job: &str, (effect, document): (String, Bytes), globals: &Globals) -> Result<(), Failure> {
    let effect = format!("{job}: {effect}");
    match globals.json {
        true => print_done(&effect, &document),
        false => print_done(&effect, &effect),
    }
}

/// If the job had ended before, `state` in the answer says how.
fn describe_cancellation(answer: &Value) -> String {
    match (answer.get("cancelled"), answer.get("state").and_then(Value::as_str)) {
        (Some(Value::Bool(false)), Some(state)) => format!("had ended before: {state}"),
        _ => "cancelled".to_owned(),
    }
}
