//! `offload stop`: ends a supervisor at once.

use super::failure::{Ended, OK};
use super::flags::{Globals, NAMELESS};
use super::output::{print_of, say};
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use std::time::Duration;

/// Longest wait for the answer. Workers that do not end when asked are killed, which takes a moment.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the supervisor's process may take to end after its last worker.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Shut down at once: cancel all jobs, then exit (`drain` lets them finish first)
#[derive(Args, Debug)]
pub(crate) struct Stop {}

impl Stop {
    /// Runs the verb.
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
