//! `offload stop`: ends a supervisor at once.

use super::failure::{OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::{print_done, say};
use crate::limits::{END_TIMEOUT, STOP_TIMEOUT};
use clap::Args;
use offload_protocol::messages::ToSupervisor;

/// Shut down at once: cancel all jobs, then exit (`drain` lets them finish first)
#[derive(Args, Debug)]
pub(crate) struct Stop {}

impl Stop {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let document = client.ask(&ToSupervisor::Stop { ticket: 1 }, Some(STOP_TIMEOUT))?;
        client.wait_for_the_end(END_TIMEOUT);
        match globals.json {
            true => print_done("the supervisor is stopped", &document)?,
            false if !globals.quiet => say("stopped"),
            false => {}
        }
        Ok(OK)
    }
}
