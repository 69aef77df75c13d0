//! `offload reload`: the configuration is read again, and one worker after another is replaced.

use super::failure::{Ended, OK};
use super::flags::{Globals, NAMELESS};
use super::output::print_line;
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use std::time::Duration;

/// Every worker finishes the job that it has first, and jobs may take their time.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(600);

const NOTES: &str = "\
The first new worker is on trial: if it does not start, or dies at once, the old ones stay and the exit
code is 4. No job is lost either way. Waits 10 minutes at the most; the supervisor goes on by itself.";

/// Read the configuration again and replace the workers one by one, without losing a job
#[derive(Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Reload {}

impl Reload {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let request = ToSupervisor::Reload { ticket: 1 };
        let document = globals.connect(NAMELESS)?.ask(&request, Some(RELOAD_TIMEOUT))?;
        if globals.json {
            print_line(&document)?;
        } else {
            print_line("reloaded")?;
        }
        Ok(OK)
    }
}
