//! `offload exec-worker` (hidden): an adapter, which a supervisor starts from its own executable. Its tasks are programs.

use super::exec::TASKS_VARIABLE;
use super::failure::VerbResult;
use super::output::say;
use super::worker_exec::POINTLESS;
use clap::Args;
use offload_supervisor::workers::executable::why_not_executed;
use offload_worker::exec::{ExecTask, serve};

/// Run as a worker whose tasks are programs; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct ExecWorker {}

impl ExecWorker {
    /// Speaks the protocol on descriptor 0 until it ends.
    pub(crate) fn run(self) -> VerbResult {
        match tasks() {
            Ok(tasks) => Ok(serve(tasks, why_not_executed)),
            Err(why) => {
                say(&format!("no worker of a supervisor: {TASKS_VARIABLE}: {why}; see `offload run --exec`"));
                Ok(POINTLESS.into())
            }
        }
    }
}

fn tasks() -> Result<Vec<ExecTask>, String> {
    let text = std::env::var(TASKS_VARIABLE).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}
