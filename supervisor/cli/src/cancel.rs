//! `offload cancel`: cancels a job that waits or runs, or all with a label.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_label};
use super::output::{print_done, say};
use super::show::{is_open, labelled_jobs, no_such_label};
use crate::limits::CANCEL_TIMEOUT;
use clap::{ArgGroup, Args};
use offload_protocol::messages::ToSupervisor;
use serde_json::Value;

/// Cancel a job that waits or runs; its outcome is `cancelled`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).args(["job", "label"]))]
pub(crate) struct Cancel {
    /// The job's id
    job: Option<String>,

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
            None => self.job.into_iter().collect(),
        };
        for job in &jobs {
            cancel(&mut client, job, globals)?;
        }
        if jobs.is_empty() {
            say("all jobs with this label had ended before");
        }
        Ok(OK)
    }
}

fn cancel(client: &mut RequestClient, job: &str, globals: &Globals) -> Result<(), Failure> {
    let document = client.ask(&ToSupervisor::Cancel { ticket: 1, job }, Some(CANCEL_TIMEOUT))?;
    let answer: Value = serde_json::from_slice(&document).unwrap_or_default();
    let effect = format!("{job}: {}", describe_cancellation(&answer));
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
