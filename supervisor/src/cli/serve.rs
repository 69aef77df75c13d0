//! `offload serve`: the main process, in the foreground.

use super::embedded::{become_sweeper, new_event_loop, not_started};
use super::failure::{Ended, Failure, OK};
use super::flags::{Globals, PoolFlags, ServeFlags};
use super::output::print_line;
use super::text;
use clap::Args;
use offload_supervisor::front::BindError;
use offload_supervisor::{PoolConfig, Ready, Reload, Server, ServerConfig, StartError};
use serde_json::json;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  offload serve                              as many workers as there are cores
  offload serve --worker 'python3 w.py'      workers of your own
  offload --config offload.toml serve        settings from a file; SIGHUP reads it again

The line `ready ...` on standard output (with --json a document) says that a worker can take jobs.
SIGTERM, SIGINT and `offload drain` let jobs finish first; a second signal or `offload stop` does not.";

/// Run the supervisor in the foreground
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    pool: PoolFlags,

    #[command(flatten)]
    serve: ServeFlags,
}

impl Serve {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let mut event_loop = new_event_loop()?;
        let serve = Arc::new(self);
        let settings = globals.settings(serve.layer())?;
        let config = ServerConfig {
            pool: serve.pool_config(globals)?,
            socket: settings.socket()?.to_owned(),
            io_threads: settings.io_threads.value,
            reload: globals.config.is_some().then(|| Arc::clone(&serve).reload(globals.clone())),
        };
        let is_json = globals.json;
        let on_ready = move |ready: &Ready| {
            // A reader of this line that has gone away is no reason to stop serving.
            let _ = print_line(ready_line(ready, is_json));
        };
        let server =
            Server::start(config, &mut event_loop, move |ready, _| on_ready(ready)).map_err(refused)?;
        event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
        drop(server);
        Ok(OK)
    }

    fn layer(&self) -> offload_supervisor::config::Layer {
        self.serve.layer(self.pool.layer())
    }

    fn pool_config(&self, globals: &Globals) -> Result<PoolConfig, Failure> {
        let settings = globals.settings(self.layer())?;
        let config = settings.pool_config(self.pool.programs(&settings));
        Ok(PoolConfig { log: globals.log_level(), sweep: become_sweeper(), ..config })
    }

    /// Reads the file and the environment again; the flags stay as they were typed.
    fn reload(self: Arc<Self>, globals: Globals) -> Reload {
        Arc::new(move || {
            self.pool_config(&globals)
                .map_err(|failure| failure.message().unwrap_or_else(|| "unknown".to_owned()))
        })
    }
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
