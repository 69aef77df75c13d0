//! `offload serve`: runs the supervisor in the foreground.

use super::embedded::{become_sweeper, new_event_loop, not_started};
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, PoolFlags, ServeFlags};
use super::http::{Interface, Live};
use super::output::say;
use super::text;
use crate::configuration::{ConfigFile, Layer, Settings};
use clap::{Args, ValueEnum};
use offload_http::Address;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::front::{BindError, owner_of};
use offload_supervisor::printer::Printer;
use offload_supervisor::service::ServiceStartError;
use offload_supervisor::{
    Configuration, LogFormat, PoolConfig, Ready, Reload, Server, ServerConfig, ServerEnd, ServerStartError,
};
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  offload serve                              as many workers as there are cores
  offload serve --worker 'python3 w.py'      workers of your own
  offload serve --worker-http 'uvicorn app:app --uds {socket}' --tasks extract    an HTTP application
  offload --config offload.toml serve        settings from a file; SIGHUP reads it again, like `offload reload`
  offload serve --http 127.0.0.1:8080        the same jobs over HTTP; the token is in the file that is named
  offload serve --fail-fast                  exit with code 4 if the first worker of a program cannot be started

When the first worker can take jobs, the line `ready: N workers, pid PID, socket PATH` is printed on standard output (with --json a document).
SIGTERM and SIGINT give jobs --drain-timeout to finish; `offload drain` lets them take as long as they need. A second
signal, or `offload stop`, ends the supervisor at once. If jobs are cancelled because the time is up, the exit code is 1
and the last line of the log says how many.";

/// Run the supervisor in the foreground
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    pool: PoolFlags,

    #[command(flatten)]
    serve: ServeFlags,

    /// Exit with an error if the first worker of a program cannot be started, instead of retrying
    #[arg(long)]
    fail_fast: bool,

    /// Format of the log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// See [`LogFormat`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Time, level, message
    Text,
    /// One JSON document per line
    Json,
}

impl Serve {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut event_loop = new_event_loop()?;
        let serve = Arc::new(self);
        let file = globals.config_file()?;
        let settings = globals.settings_to_serve(file.as_ref(), serve.layer())?;
        let http = Interface::prepare(&settings.values, settings.socket()?)
            .map_err(|failure| unless_it_runs(failure, settings.socket().ok()))?;
        let in_vain = settings.http_in_vain().filter(|_| http.is_none());
        let config = ServerConfig {
            pool: serve.pool_config(globals, &settings)?,
            socket: settings.socket()?.to_owned(),
            io_threads: settings.values.io_threads,
            reload: Arc::clone(&serve).reload(globals, file.as_ref(), http.as_ref().map(Interface::live)),
            fixed: settings.fixed(),
            other_connections: http.as_ref().map_or(0, Interface::connections),
            fail_fast: serve.fail_fast,
        };
        let is_json = globals.json;
        let stdout = Printer::to_stdout();
        let lines = stdout.handle();
        let file = file.map(|file| file.path().to_owned());
        let listening = Rc::new(RefCell::new(Listening { file: file.clone(), ..Listening::default() }));
        let places = Rc::clone(&listening);
        let on_ready = move |ready: &Ready| {
            // If the reader of this line has stopped or left, the supervisor goes on all the same.
            let _ = lines.print(ready_line(ready, &places.borrow(), is_json));
        };
        let server =
            Server::start(config, &mut event_loop, move |ready, _| on_ready(ready)).map_err(|error| {
                globals.tell_of_misspelt_variables(|line| say(&line));
                refused(error)
            })?;
        let mut access_log = None;
        if let Some(http) = http {
            let (token_file, has_tls) = (http.live().token_file.clone(), http.has_tls());
            let (addresses, printer) = http
                .start(&server.service(), &event_loop)
                .map_err(|error| Failure::internal("cannot answer HTTP", error))?;
            access_log = printer;
            listening.replace(Listening { file, addresses, token_file: Some(token_file), has_tls });
        }
        let mut warn = server.warner();
        globals.tell_of_misspelt_variables(|line| warn(format_args!("{line}")));
        in_vain.into_iter().for_each(|line| warn(format_args!("{line}")));
        panic_into(server.warner());
        event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
        let end = server.end();
        drop(server);
        drop(access_log);
        Ok(conclude(end, is_json, &stdout))
    }

    fn layer(&self) -> Layer {
        self.pool.layer().and(self.serve.layer())
    }

    fn pool_config(&self, globals: &Globals, settings: &Settings) -> Result<PoolConfig, Failure> {
        let log_format = match self.log_format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        let config = settings.pool_config(self.pool.programs(settings)?);
        Ok(PoolConfig { log: globals.log_level(), log_format, sweep: become_sweeper(), ..config })
    }

    /// What a reload reads, if there is something to read: the file and the environment, and what the HTTP interface can
    /// exchange. The flags keep the values from the start. The file is the same one: if it is gone, that is a
    /// mistake, and no other is looked for.
    fn reload(
        self: Arc<Self>,
        globals: &Globals,
        file: Option<&ConfigFile>,
        http: Option<&Live>,
    ) -> Option<Reload> {
        if file.is_none() && http.is_none() {
            return None;
        }
        let (globals, file, http) = (globals.clone(), file.cloned(), http.cloned());
        Some(Arc::new(move || {
            let told = |failure: Failure| failure.message().unwrap_or_else(|| "unknown".to_owned());
            let settings = globals.settings_to_serve(file.as_ref(), self.layer()).map_err(told)?;
            let exchange = http.as_ref().map(|http| http.read_again(&settings.values)).transpose()?;
            Ok(Configuration {
                pool: self.pool_config(&globals, &settings).map_err(told)?,
                fixed: settings.fixed(),
                overruled: settings.overruled(),
                exchange,
            })
        }))
    }
}

/// Sends the message of a panic on any thread to the log as well, because writing to standard error may block. The
/// whole log is written before the process ends.
fn panic_into(warn: impl FnMut(std::fmt::Arguments<'_>) + Send + 'static) {
    let warn = Mutex::new(warn);
    std::panic::set_hook(Box::new(move |panic| {
        // A panic in here, while another one is being logged, is not logged.
        if let Ok(mut warn) = warn.try_lock() {
            warn(format_args!("{panic}"));
        }
    }));
}

/// The exit code. All messages were written to the log, because nothing may wait for standard error, which may block.
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

/// What the line says that is printed when the supervisor is ready, beside what that knows: where HTTP is answered.
#[derive(Default)]
struct Listening {
    /// The configuration file.
    file: Option<PathBuf>,
    addresses: Vec<Address>,
    token_file: Option<PathBuf>,
    /// Those over TCP speak TLS.
    has_tls: bool,
}

impl Listening {
    fn scheme(&self, address: &Address) -> &'static str {
        if self.has_tls && matches!(address, Address::Tcp(_)) { "https" } else { "http" }
    }

    /// As the line for people has it: `http ADDRESS...`, `https ADDRESS...`, or one after the other.
    fn for_people(&self) -> String {
        let of = |scheme: &str| {
            let addresses = self.addresses.iter().filter(|address| self.scheme(address) == scheme);
            addresses.map(|address| format!(" {address}")).collect::<String>()
        };
        let schemes = ["https", "http"].map(|scheme| (scheme, of(scheme)));
        let parts = schemes.iter().filter(|(_, addresses)| !addresses.is_empty());
        parts.map(|(scheme, addresses)| format!(", {scheme}{addresses}")).collect()
    }
}

fn ready_line(ready: &Ready, http: &Listening, is_json: bool) -> String {
    let Ready { socket, workers, pid } = ready;
    let addresses: Vec<String> = http.addresses.iter().map(Address::to_string).collect();
    match is_json {
        true => json!({
            "ready": true, "socket": socket, "http": addresses.first(), "http_addresses": addresses,
            "http_tls": http.has_tls, "http_token_file": http.token_file, "workers": workers, "pid": pid,
            "config": http.file
        })
        .to_string(),
        false => {
            let workers = text::count(*workers as u64, "worker");
            let socket = text::printable(&socket.to_string_lossy()).into_owned();
            let file = http.file.as_ref().map_or_else(String::new, |file| {
                format!(", configuration {}", text::printable(&file.to_string_lossy()))
            });
            let http = match &http.token_file {
                Some(file) => {
                    let file = text::printable(&file.to_string_lossy()).into_owned();
                    format!("{}, token in {file}", http.for_people())
                }
                None => String::new(),
            };
            format!("ready: {workers}, pid {pid}, socket {socket}{http}{file}")
        }
    }
}

/// If there is a supervisor at this socket already, that is why HTTP failed, or it will be the next reason.
fn unless_it_runs(failure: Failure, socket: Option<&Path>) -> Failure {
    match socket.and_then(|socket| Some((owner_of(socket)?, socket))) {
        Some((pid, socket)) => {
            let (socket, pid) = (socket.to_owned(), Some(pid));
            already_running(&BindError::AlreadyRunning { socket, pid, listens: true })
        }
        None => failure,
    }
}

fn already_running(error: &BindError) -> Failure {
    Failure::AlreadyRunning(format!(
        "{error}; ask it with `offload status`, end it with `offload drain`, or choose another --socket PATH"
    ))
}

fn refused(error: ServerStartError) -> Failure {
    match error {
        ServerStartError::Bind(error @ BindError::AlreadyRunning { .. }) => already_running(&error),
        ServerStartError::Bind(error @ BindError::Unsuitable { .. }) => Failure::Usage(format!(
            "{error}; put the socket into a folder of your own, such as --socket ~/.offload/me.sock"
        )),
        ServerStartError::Bind(error @ BindError::Io { .. }) if is_of_the_path(&error) => Failure::Usage(
            format!("{error}; name a place that you can write to, such as --socket ~/.offload/me.sock"),
        ),
        ServerStartError::Service(ServiceStartError::Pool(error)) => not_started(error),
        other => Failure::internal("cannot start", other),
    }
}

/// Whether the path of the socket is wrong, and not the system.
fn is_of_the_path(error: &BindError) -> bool {
    use std::io::ErrorKind::*;
    let BindError::Io { error, .. } = error else { return false };
    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory | ReadOnlyFilesystem | InvalidFilename)
}
