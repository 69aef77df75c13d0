//! `offload drain`: the orderly end of a supervisor.

use super::failure::{Ended, OK};
use super::flags::{Globals, NAMELESS};
use super::output::{print_line, say};
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use std::time::Duration;

/// The supervisor has a limit of its own, `drain_timeout`, after which it cancels what is left.
const NO_LIMIT: Option<Duration> = None;

/// How long the process may take to end when its jobs are done.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Let the supervisor take no more jobs, finish those it has, and end
#[derive(Args, Debug)]
pub(crate) struct Drain {}

impl Drain {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let mut client = globals.connect(NAMELESS)?;
        let document = client.ask(&ToSupervisor::Drain { ticket: 1 }, NO_LIMIT)?;
        client.wait_for_the_end(END_TIMEOUT);
        match globals.json {
            true => print_line(&document)?,
            false if !globals.quiet => say("drained"),
            false => {}
        }
        Ok(OK)
    }
}
