//! `offload serve`: the main process, in the foreground.

use super::embedded::{become_sweeper, new_event_loop, not_started};
use super::failure::{Ended, Failure, OK};
use super::flags::{Globals, PoolFlags, ServeFlags};
use super::text;
use crate::configuration::{Layer, Settings};
use clap::{Args, ValueEnum};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::front::BindError;
use offload_supervisor::printer::Printer;
use offload_supervisor::{
    Configuration, LogFormat, PoolConfig, Ready, Reload, Server, ServerConfig, ServerEnd, StartError,
};
use serde_json::json;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  offload serve                              as many workers as there are cores
  offload serve --worker 'python3 w.py'      workers of your own
  offload --config offload.toml serve        settings from a file; SIGHUP is the same as `offload reload`
  offload serve --fail-fast                  end with code 4 if a worker cannot be started at first

The line `ready ...` on standard output (with --json a document) says that a worker can take jobs.
SIGTERM and SIGINT let jobs finish for as long as --drain-timeout says, `offload drain` as long as they take; a second
signal or `offload stop` does not. If jobs are cancelled because the time is up, the exit code is 1 and the last line
of the log says how many.";

/// Run the supervisor in the foreground
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    pool: PoolFlags,

    #[command(flatten)]
    serve: ServeFlags,

    /// End with an error if the first worker of a program cannot be started, instead of trying again
    #[arg(long)]
    fail_fast: bool,

    /// Format of the log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// See [`LogFormat`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Time, level, what is to say
    Text,
    /// A JSON document a line
    Json,
}

impl Serve {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let mut event_loop = new_event_loop()?;
        let serve = Arc::new(self);
        let settings = globals.settings(serve.layer())?;
        let config = ServerConfig {
            pool: serve.pool_config(globals, &settings),
            socket: settings.socket()?.to_owned(),
            io_threads: settings.values.io_threads,
            reload: globals.config.is_some().then(|| Arc::clone(&serve).reload(globals.clone())),
            fixed: settings.fixed(),
            fail_fast: serve.fail_fast,
        };
        let is_json = globals.json;
        let stdout = Printer::to_stdout();
        let lines = stdout.lines();
        let on_ready = move |ready: &Ready| {
            // A reader of this line that has stopped or gone away is no reason to stop serving.
            let _ = lines.print(ready_line(ready, is_json));
        };
        let server =
            Server::start(config, &mut event_loop, move |ready, _| on_ready(ready)).map_err(refused)?;
        panic_into(server.warner());
        event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
        let end = server.end();
        drop(server);
        Ok(conclude(end, is_json, &stdout))
    }

    fn layer(&self) -> Layer {
        self.pool.layer().and(self.serve.layer())
    }

    fn pool_config(&self, globals: &Globals, settings: &Settings) -> PoolConfig {
        let log_format = match self.log_format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        let config = settings.pool_config(self.pool.programs(settings));
        PoolConfig { log: globals.log_level(), log_format, sweep: become_sweeper(), ..config }
    }

    /// Reads the file and the environment again; the flags stay as they were typed.
    fn reload(self: Arc<Self>, globals: Globals) -> Reload {
        Arc::new(move || {
            let told = |failure: Failure| failure.message().unwrap_or_else(|| "unknown".to_owned());
            let settings = globals.settings(self.layer()).map_err(told)?;
            Ok(Configuration {
                pool: self.pool_config(&globals, &settings),
                fixed: settings.fixed(),
                overruled: settings.overruled(),
            })
        })
    }
}

/// The message of a panic, on whatever thread, goes into the log as well: standard error may be stopped. The log is
/// written to its end before the process ends.
fn panic_into(warn: impl FnMut(std::fmt::Arguments<'_>) + Send + 'static) {
    let warn = Mutex::new(warn);
    std::panic::set_hook(Box::new(move |panic| {
        // A panic in here, while another one is told, is not told.
        if let Ok(mut warn) = warn.try_lock() {
            warn(format_args!("{panic}"));
        }
    }));
}

/// The exit code. Whatever is to be said was said in the log: standard error may be stopped, and nothing may wait for it.
fn conclude(end: ServerEnd, is_json: bool, stdout: &Printer) -> ExitCode {
    let failure = match end {
        ServerEnd::Done | ServerEnd::Stopped { .. } => return OK,
        ServerEnd::CutShort { .. } => return ExitCode::from(1),
        ServerEnd::Replaced { reason } => Failure::AlreadyRunning(reason),
        ServerEnd::Unavailable { reason } => Failure::outcome(OutcomeCode::Unavailable, reason),
    };
    if is_json {
        failure.document().into_iter().for_each(|document| stdout.print(document));
    }
    failure.exit_code().into()
}

fn ready_line(ready: &Ready, is_json: bool) -> String {
    let Ready { socket, workers, pid } = ready;
    match is_json {
        true => json!({ "ready": true, "socket": socket, "http": null, "workers": workers, "pid": pid })
            .to_string(),
        false => {
            let workers = text::count(*workers as u64, "worker");
            format!("ready: {workers}, pid {pid}, socket {}", text::printable(&socket.to_string_lossy()))
        }
    }
}

fn refused(error: StartError) -> Failure {
    match error {
        StartError::Bind(error @ BindError::AlreadyRunning { .. }) => {
            Failure::AlreadyRunning(error.to_string())
        }
        StartError::Bind(error @ BindError::Unsuitable { .. }) => Failure::Usage(format!(
            "{error}; put the socket into a folder of your own, such as --socket ~/.offload/me.sock"
        )),
        other => not_started(other),
    }
}
