//! `offload stop`: the quick end of a supervisor.

use super::failure::{Ended, OK};
use super::flags::{Globals, NAMELESS};
use super::output::{print_of, say};
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use std::time::Duration;

/// Workers that do not end when asked are killed: this takes a while at the most.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the process may take to end when its workers are gone.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Shut down at once: cancel all jobs, then end (`drain` finishes them first)
#[derive(Args, Debug)]
pub(crate) struct Stop {}

impl Stop {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let mut client = globals.connect(NAMELESS)?;
        let document = client.ask(&ToSupervisor::Stop { ticket: 1 }, Some(STOP_TIMEOUT))?;
        client.wait_for_the_end(END_TIMEOUT);
        match globals.json {
            true => print_of("the supervisor is stopped", &document)?,
            false if !globals.quiet => say("stopped"),
            false => {}
        }
        Ok(OK)
    }
}
