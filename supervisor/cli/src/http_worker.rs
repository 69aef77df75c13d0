//! `offload http-worker --tasks TASK,... -- CMD ARG...` (hidden): an adapter, which a supervisor starts in front of an HTTP application.

use super::failure::{Failure, VerbResult};
use super::jsonl_worker::refuse;
use super::output::say;
use super::worker_exec::POINTLESS;
use crate::configuration::table::{HTTP, TASKS};
use crate::configuration::{Settings, WorkerCommand, http_tasks};
use clap::Args;
use offload_supervisor::Program;
use offload_worker::http_app::{self, check_command};
use std::ffi::OsString;

/// The verb of the adapter.
pub(crate) const ADAPTER: &str = "http-worker";

/// Run as a worker for an HTTP application; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct HttpWorker {
    /// The tasks of the application
    #[arg(long, value_name = "TASK,...", value_delimiter = ',')]
    tasks: Vec<String>,

    /// The application and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl HttpWorker {
    /// Speaks the protocol on descriptor 0, and HTTP with the application, until one of them ends.
    pub(crate) fn run(self) -> VerbResult {
        match http_tasks(&self.tasks) {
            Ok(tasks) => Ok(http_app::serve(&self.command, tasks, refuse)),
            Err(why) => {
                say(&format!("no worker of a supervisor: {why}; see `offload serve --worker-http`"));
                Ok(POINTLESS.into())
            }
        }
    }
}

/// The words that are put in front of the command of an application with these tasks.
///
/// # Errors
/// A sentence for the person who wrote the command or the tasks.
pub(crate) fn adapter(command: &[String], tasks: &[String]) -> Result<Vec<String>, String> {
    check_command(command)?;
    http_tasks(tasks)?;
    let tasks = format!("--tasks={}", tasks.join(","));
    Ok(["/proc/self/exe", ADAPTER, &tasks, "--"].map(str::to_owned).to_vec())
}

/// The programs of the applications of these settings, each with its tasks.
///
/// # Errors
/// [`Failure::Usage`] if one says not where it listens, or not which tasks it has.
pub(crate) fn configured_applications(settings: &Settings) -> Result<Vec<Program>, Failure> {
    let (commands, tasks) = (&settings.values.http_commands, &settings.values.http_tasks);
    if commands.len() != tasks.len() {
        let place = settings.place(if commands.len() > tasks.len() { HTTP } else { TASKS });
        return Err(Failure::Usage(format!(
            "{place}: each HTTP application needs the names of its tasks, as in \
             --worker-http 'uvicorn app:app --uds {{socket}}' --tasks extract,thumb; there are {} of the one, and {} of the other",
            commands.len(),
            tasks.len()
        )));
    }
    let program = |(command, tasks): (&Vec<String>, &Vec<String>)| {
        let usage = |why: String| Failure::Usage(format!("{}: {why}", settings.place(HTTP)));
        let command = WorkerCommand::parse(command).map_err(usage)?;
        let front = adapter(&command.words, tasks).map_err(usage)?;
        Ok(command.program(front))
    };
    commands.iter().zip(tasks).map(program).collect()
}
