//! `offload reload`: makes the supervisor read its configuration again and replace its workers one by one.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::{print_done, say};
use crate::limits::RELOAD_TIMEOUT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use serde_json::Value;

const RELOADED: &str = "reloaded";

const NOTES: &str = "\
SIGHUP does the same. Some settings that were read may not take effect, because they need a restart or a flag
overrides them. They are named on standard error (with --json as `ignored`) and in the supervisor's log.
Of each program one new worker is on trial, beside the old ones: if it does not start, ends, or fails its first
jobs, all old workers stay and the exit code is 4. If it ends in a job that may be run again and that ends an old
worker, too, the job is to blame: the version is tried with another worker, up to five in all. The limits and what
HTTP was given (tokens, routes, certificates) apply nevertheless. If anything else is wrong, nothing changes. A job that the worker on trial runs when it ends is treated as after any crash; all other
jobs are safe. Accepted jobs whose task the new version does not offer any more end as `unavailable`.
Waits at most 10 minutes; after that the supervisor continues by itself.";

/// Read the configuration again and replace the workers one by one, without losing a job
#[derive(Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Reload {}

impl Reload {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let request = ToSupervisor::Reload { ticket: 1 };
        let document = globals.connect(NAMELESS)?.ask(&request, Some(RELOAD_TIMEOUT))?;
        if globals.json {
            print_done(RELOADED, &document)?;
            return Ok(OK);
        }
        ignored_in(&document).iter().for_each(|line| say(line));
        print_done(RELOADED, RELOADED)?;
        Ok(OK)
    }
}

/// One line for each setting that was read but is not in effect.
fn ignored_in(document: &[u8]) -> Vec<String> {
    let document: Value = serde_json::from_slice(document).unwrap_or_default();
    let ignored = document["ignored"].as_array().cloned().unwrap_or_default();
    let line = |one: &Value| {
        let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let (setting, why) = (word("setting"), word("why"));
        format!("{setting} = {} is ignored, {} stays in effect: {why}", word("configured"), word("in_effect"))
    };
    ignored.iter().map(line).collect()
}
