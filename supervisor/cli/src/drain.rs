//! `offload drain`: shuts a supervisor down gracefully.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::{print_done, say};
use super::text;
use crate::limits::{END_TIMEOUT, NO_LIMIT};
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use offload_supervisor::units::parse_duration;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

const NOTES: &str = "\
Waits as long as the jobs take, unless --timeout sets a limit. Jobs that are not done by then are cancelled, their
number is printed (with --json as `cancelled`), and the exit code is 1. `offload stop` does not wait.
Results of detached jobs, and of jobs with a key, are lost if nobody has collected them; their number is printed (with
--json as `uncollected`).";

/// Shut down gracefully: reject new jobs, finish the accepted ones, then exit
#[derive(Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Drain {
    /// Cancel the jobs that are not done after this time [default: wait as long as the jobs take]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

impl Drain {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let request = match self.timeout {
            None => ToSupervisor::Drain { ticket: 1 },
            Some(limit) => ToSupervisor::DrainWithin {
                ticket: 1,
                limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            },
        };
        let document = client.ask(&request, NO_LIMIT)?;
        client.wait_for_the_end(END_TIMEOUT);
        let cancelled = cancelled_in(&document);
        let lost = uncollected_in(&document);
        if lost > 0 && !globals.quiet && !globals.json {
            say(&format!(
                "{} that nobody had collected {} lost",
                text::count(lost, "kept result"),
                was(lost)
            ));
        }
        match globals.json {
            true => print_done("the supervisor is drained", &document)?,
            false if cancelled > 0 => {
                say(&format!("drained, but {} not done in time and cancelled", were(cancelled)));
            }
            false if !globals.quiet => say("drained"),
            false => {}
        }
        Ok(if cancelled > 0 { ExitCode::from(1) } else { OK })
    }
}

fn cancelled_in(document: &[u8]) -> u64 {
    number_in(document, "cancelled")
}

fn uncollected_in(document: &[u8]) -> u64 {
    number_in(document, "uncollected")
}

/// A supervisor of an older version does not say it.
fn number_in(document: &[u8], member: &str) -> u64 {
    let document: Option<Value> = serde_json::from_slice(document).ok();
    document.and_then(|document| document[member].as_u64()).unwrap_or(0)
}

fn were(jobs: u64) -> String {
    format!("{} {}", text::count(jobs, "job"), was(jobs))
}

fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}
