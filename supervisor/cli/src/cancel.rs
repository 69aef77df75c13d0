//! `offload cancel`: cancels a job that waits or runs.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::print_done;
use crate::limits::CANCEL_TIMEOUT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use serde_json::Value;

/// Cancel a job that waits or runs; its outcome is `cancelled`
#[derive(Args, Debug)]
pub(crate) struct Cancel {
    /// The job's id
    job: String,
}

impl Cancel {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let request = ToSupervisor::Cancel { ticket: 1, job: &self.job };
        let document = globals.connect(NAMELESS)?.ask(&request, Some(CANCEL_TIMEOUT))?;
        let answer: Value = serde_json::from_slice(&document).unwrap_or_default();
        let effect = format!("{}: {}", self.job, describe_cancellation(&answer));
        match globals.json {
            true => print_done(&effect, &document)?,
            false => print_done(&effect, &effect)?,
        }
        Ok(OK)
    }
}

/// If the job had ended before, `state` in the answer says how.
fn describe_cancellation(answer: &Value) -> String {
    match (answer.get("cancelled"), answer.get("state").and_then(Value::as_str)) {
        (Some(Value::Bool(false)), Some(state)) => format!("had ended before: {state}"),
        _ => "cancelled".to_owned(),
    }
}
