//! The settings of a supervisor, and which source decided each.
//!
//! ```text
//!   flags --------------------.
//!   OFFLOAD_* variables -------+--> Layer, Layer, Layer --> Settings::resolve --> Settings (values + origins)
//!   a TOML file (--config) ---'                                  ^
//!                                             documented defaults
//! ```
//!
//! Each setting is declared once, in the [`table`] of keys; everything else here is generated from it. A [`Layer`]
//! holds the values of one source. The first source in the order above that sets a key decides it. The bounds of a
//! value are checked when it is read, from any source. Conflicts between values are checked on the result. Each error
//! names its position.

pub(crate) mod arguments;
mod batches;
mod environment;
mod file;
mod http_checks;
mod key;
mod places;
mod programs;
mod reference;
mod routes;
mod surroundings;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod value;
mod weights;
mod words;

pub(crate) use environment::{FILE_VARIABLE, default_socket, misspelt_variables, read_environment};
pub(crate) use file::{read_file, read_key_of_file};
pub(crate) use http_checks::TOKEN_FILE;
pub(crate) use key::{Key, http_tasks};
pub(crate) use places::{ConfigFile, usual_places};
pub(crate) use programs::TaskProgram;
pub(crate) use reference::{reference, reference_json, template};
pub(crate) use surroundings::WorkerCommand;
pub(crate) use words::split_words;

use crate::limits::{HTTP_CONNECTIONS_DEFAULT, IO_THREADS_DEFAULT};
use http_checks::{HTTP_KEYS, LISTEN, bodies_are_within_payloads, files_are_different};
use key::check_socket;
use offload_http::{Address, Route};
use offload_supervisor::{FixedSetting, Ignored, PoolConfig, Program};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use table::{MAX_PAYLOAD, ROUTE, SOCKET, TABLE, in_file_order};
use value::Value;

/// A mistake in a configuration, as one sentence for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// The values of all settings. Those of the pool are in the pool's own configuration.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// Path of the local socket. `None` where no source names one and the environment gives no place for one: see
    /// [`Settings::socket`].
    pub(crate) socket: Option<PathBuf>,
    /// The worker programs, each as its words; the built-in worker if none.
    pub(crate) commands: Vec<Vec<String>>,
    /// The programs that read and write JSON Lines, each as its words.
    pub(crate) jsonl_commands: Vec<Vec<String>>,
    /// The HTTP applications, each as its words.
    pub(crate) http_commands: Vec<Vec<String>>,
    /// The tasks of each of these.
    pub(crate) http_tasks: Vec<Vec<String>>,
    /// The tasks that are programs. Adapters have them, beside the worker programs.
    pub(crate) programs: BTreeMap<String, TaskProgram>,
    /// Threads for blocking work.
    pub(crate) io_threads: usize,
    /// The interface over HTTP.
    pub(crate) http: HttpValues,
    /// Other addresses over HTTP that run tasks.
    pub(crate) routes: Vec<Route>,
    /// The workers and their limits. Its programs are added later, from `commands`.
    pub(crate) pool: PoolConfig,
}

/// The values of the interface over HTTP. There is none unless it has an address.
#[derive(Clone, Debug)]
pub(crate) struct HttpValues {
    /// Where it listens; [`Address`] reads them.
    pub(crate) listen: Vec<String>,
    /// Whether these may be reached from other machines.
    pub(crate) is_public: bool,
    /// The file with the tokens.
    pub(crate) token_file: Option<PathBuf>,
    /// Names of this machine, beside those of the loopback interface.
    pub(crate) hosts: Vec<String>,
    /// Origins whose pages may call it.
    pub(crate) origins: Vec<String>,
    /// Most connections.
    pub(crate) max_connections: usize,
    /// Whether there is a page at `/`.
    pub(crate) has_page: bool,
    /// Proxies whose `Forwarded` or `X-Forwarded-For` names the client.
    pub(crate) trusted_proxies: Vec<String>,
    /// The file of the access log.
    pub(crate) access_log: Option<PathBuf>,
    /// How its lines are written.
    pub(crate) access_log_format: String,
    /// The files for TLS.
    pub(crate) tls: TlsValues,
    /// Whether a client that goes away cancels the job that it waits for.
    pub(crate) cancels_on_disconnect: bool,
}

/// Two files in PEM. There is no TLS without them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsValues {
    /// The certificate, with those that sign it.
    pub(crate) certificate: Option<PathBuf>,
    /// Its key.
    pub(crate) key: Option<PathBuf>,
}

impl Default for HttpValues {
    fn default() -> HttpValues {
        HttpValues {
            listen: Vec::new(),
            is_public: false,
            token_file: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_connections: HTTP_CONNECTIONS_DEFAULT,
            has_page: false,
            trusted_proxies: Vec::new(),
            access_log: None,
            access_log_format: "combined".to_owned(),
            tls: TlsValues::default(),
            cancels_on_disconnect: true,
        }
    }
}

impl Default for Values {
    fn default() -> Values {
        Values {
            socket: None,
            commands: Vec::new(),
            jsonl_commands: Vec::new(),
            http_commands: Vec::new(),
            http_tasks: Vec::new(),
            programs: BTreeMap::new(),
            io_threads: IO_THREADS_DEFAULT,
            http: HttpValues::default(),
            routes: Vec::new(),
            pool: PoolConfig::default(),
        }
    }
}

/// The source that decided a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No source: the documented default.
    Default,
    /// The configuration file.
    File,
    /// A variable `OFFLOAD_*`.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::Environment => "environment",
            Origin::Flag => "flag",
        })
    }
}

/// The values of one source, by the name of the key. Keys that the source does not set are absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    origin: Origin,
    values: BTreeMap<&'static str, PlacedValue>,
    /// Where each task is described, by its name: `FILE:LINE: task.NAME`.
    tasks: BTreeMap<String, String>,
}

/// A value with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacedValue {
    value: Value,
    /// The position, as messages begin with it: `FILE:LINE: pool.run_timeout`, `OFFLOAD_RUN_TIMEOUT`, `--run-timeout`.
    place: String,
}

impl Layer {
    /// A source that sets nothing.
    pub(crate) fn new(origin: Origin) -> Layer {
        Layer { origin, values: BTreeMap::new(), tasks: BTreeMap::new() }
    }

    /// Merges two layers. If both set a key, `other` decides.
    pub(crate) fn and(mut self, other: Layer) -> Layer {
        self.values.extend(other.values);
        self.tasks.extend(other.tasks);
        self
    }

    /// Whether it sets nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn set(&mut self, key: &'static Key, value: Value, place: String) {
        self.values.insert(key.name, PlacedValue { value, place });
    }
}

/// One line of `offload config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The key as in the configuration file, with its table.
    pub(crate) key: &'static str,
    /// The value in effect, in the form in which people write it.
    pub(crate) value: String,
    /// Who decided it.
    pub(crate) origin: Origin,
    /// Where that is written: a file and a line, a variable or a flag. None of a default.
    pub(crate) place: Option<String>,
}

/// The values in effect, and which source decided each.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The values in effect.
    pub(crate) values: Values,
    origins: BTreeMap<&'static str, Origin>,
    /// Where the deciding value of each key is written, and each task, as [`Layer`] has them.
    places: BTreeMap<&'static str, String>,
    tasks: BTreeMap<String, String>,
    overruled: Vec<Ignored>,
}

impl Settings {
    /// Decides every key: the first layer that sets it wins. `default_socket` applies if no layer names a socket, see
    /// [`default_socket`].
    ///
    /// # Errors
    /// [`ConfigError`] if a value conflicts with another.
    pub(crate) fn resolve(
        layers: &[Layer],
        default_socket: Option<PathBuf>,
    ) -> Result<Settings, ConfigError> {
        let mut values = Values { socket: default_socket, ..Values::default() };
        let (mut origins, mut places) = (BTreeMap::new(), BTreeMap::new());
        let mut overruled = Vec::new();
        for key in in_file_order() {
            let mut candidates =
                layers.iter().filter_map(|layer| Some((layer.origin, layer.values.get(key.name)?)));
            let Some((origin, decided)) = candidates.next() else { continue };
            key.write(&mut values, decided.value.clone());
            origins.insert(key.name, origin);
            places.insert(key.name, decided.place.clone());
            let in_vain = candidates
                .filter(|(origin, written)| *origin == Origin::File && written.value != decided.value);
            overruled
                .extend(in_vain.map(|(_, written)| ignored(key, origin, &decided.value, &written.value)));
        }
        let unsaid = || TABLE.iter().filter(|key| !origins.contains_key(key.name));
        unsaid().for_each(|key| key.give_way(&mut values));
        let tasks = layers.iter().flat_map(|layer| layer.tasks.clone()).collect();
        let settings = Settings { values, origins, places, tasks, overruled };
        settings.check(layers)?;
        Ok(settings)
    }

    /// The documented defaults, whatever any source says.
    pub(crate) fn defaults() -> Settings {
        Settings::resolve(&[], None).expect("the defaults fit together")
    }

    /// Checks that the values fit together. Includes the checks of the core, so that mistakes are found here and not at
    /// the start.
    fn check(&self, layers: &[Layer]) -> Result<(), ConfigError> {
        for key in TABLE {
            key.check_with_others(&self.values).map_err(|reason| {
                let place = layers.iter().find_map(|layer| Some(layer.values.get(key.name)?.place.as_str()));
                ConfigError(format!("{}: {reason}", place.unwrap_or(key.name)))
            })?;
        }
        self.values.pool.core.validate().map_err(ConfigError)
    }

    /// Checks what concerns only a supervisor that serves. `file` is what was read.
    ///
    /// # Errors
    /// [`ConfigError`] with the place.
    pub(crate) fn check_to_serve(&self, file: Option<&ConfigFile>) -> Result<(), ConfigError> {
        self.check_to_serve_at(self.values.socket.as_deref(), file)
    }

    /// The same for a supervisor whose own socket is there.
    ///
    /// # Errors
    /// [`ConfigError`] with the place.
    pub(crate) fn check_to_serve_at(
        &self,
        socket: Option<&Path>,
        file: Option<&ConfigFile>,
    ) -> Result<(), ConfigError> {
        let wrong = |key, reason| ConfigError(format!("{}: {reason}", self.place(key)));
        let different = files_are_different(&self.values, socket, file.map(ConfigFile::path));
        different.map_err(|(key, reason)| wrong(key, reason))?;
        bodies_are_within_payloads(&self.values).map_err(|reason| wrong(ROUTE, reason))
    }

    /// What is set of the interface over HTTP in vain, because no address is named, as a line for whoever wrote it.
    pub(crate) fn http_in_vain(&self) -> Option<String> {
        let is_set = |key: &&Key| self.origin(key.name) != Origin::Default;
        let is_of_http =
            |key: &&Key| key.name == ROUTE || key.name.starts_with(HTTP_KEYS) && key.name != LISTEN;
        let names: Vec<&str> =
            in_file_order().filter(is_of_http).filter(is_set).map(|key| key.name).collect();
        let first = names.first().filter(|_| self.values.http.listen.is_empty())?;
        Some(format!(
            "{}: nothing comes of {}, because HTTP is answered nowhere: name an address, as listen in [http], or with --http, \
             or let a service manager pass sockets (LISTEN_FDS)",
            self.place(first),
            names.join(", ")
        ))
    }

    /// What only the supervisor can see of the interface over HTTP, which is started with these descriptors, as a line for whoever has
    /// it checked.
    pub(crate) fn http_unseen(&self) -> Option<String> {
        let is_handed_over = |text: &&String| matches!(text.parse::<Address>(), Ok(Address::Descriptor(_)));
        let handed_over: Vec<&str> =
            self.values.http.listen.iter().filter(is_handed_over).map(String::as_str).collect();
        (!handed_over.is_empty()).then(|| {
            format!(
                "{}: not checked: {}; `serve` is handed such a descriptor when it starts, and refuses what is no socket that listens",
                self.place(LISTEN),
                handed_over.join(", ")
            )
        })
    }

    /// Who decided this key.
    pub(crate) fn origin(&self, name: &'static str) -> Origin {
        self.origins.get(name).copied().unwrap_or(Origin::Default)
    }

    /// Where the value of this key is written, as messages begin with it; without a source, the key.
    pub(crate) fn place(&self, name: &'static str) -> &str {
        self.places.get(name).map_or(name, String::as_str)
    }

    /// Where this task is described, as messages begin with it.
    pub(crate) fn place_of_task(&self, task: &str) -> String {
        self.tasks.get(task).cloned().unwrap_or_else(|| format!("task {task}"))
    }

    /// The path of the local socket.
    ///
    /// # Errors
    /// [`ConfigError`] if there is none, or the environment's place for it is not one that the kernel can take.
    pub(crate) fn socket(&self) -> Result<&Path, ConfigError> {
        let Some(socket) = &self.values.socket else {
            let hint = "no place for the socket: neither XDG_RUNTIME_DIR nor HOME is set; name one with --socket PATH";
            return Err(ConfigError(hint.to_owned()));
        };
        check_socket(socket)
            .map_err(|reason| ConfigError(format!("{reason}; name another with --socket PATH")))?;
        Ok(socket)
    }

    /// Whether the socket was named by a flag or the environment, not by a file or the default.
    pub(crate) fn socket_is_named(&self) -> bool {
        matches!(self.origin(SOCKET), Origin::Flag | Origin::Environment)
    }

    /// The flags that have to be given a larger value to allow larger payloads.
    pub(crate) fn payload_setting(&self) -> &'static str {
        let core = &self.values.pool.core;
        match (core.max_payload < core.max_bytes, self.origin(MAX_PAYLOAD)) {
            (true, _) => "--max-payload",
            (false, Origin::Default) => "--max-bytes",
            (false, _) => "--max-payload and --max-bytes",
        }
    }

    /// These settings for a pool that runs `programs`.
    pub(crate) fn pool_config(&self, programs: Vec<Program>) -> PoolConfig {
        PoolConfig { programs, ..self.values.pool.clone() }
    }

    /// Every key with its value and origin, in the order of the configuration file.
    pub(crate) fn show(&self) -> Vec<Shown> {
        let shown = |key: &'static Key| Shown {
            key: key.name,
            value: key.show(key.read(&self.values).as_ref()),
            origin: self.origin(key.name),
            place: self
                .places
                .get(key.name)
                .map(|place| place.trim_end_matches(&format!(": {}", key.name)).to_owned()),
        };
        in_file_order().map(shown).collect()
    }

    /// The settings that take effect only at a start of the supervisor.
    pub(crate) fn fixed(&self) -> Vec<FixedSetting> {
        let fixed = in_file_order().filter(|key| key.needs_restart);
        let value = |key: &Key| key.show(key.read(&self.values).as_ref());
        fixed.map(|key| FixedSetting { key: key.name, value: value(key) }).collect()
    }

    /// The settings of the file that a flag or the environment overrides.
    pub(crate) fn overruled(self) -> Vec<Ignored> {
        self.overruled
    }
}

fn ignored(key: &Key, by: Origin, decided: &Value, written: &Value) -> Ignored {
    Ignored {
        setting: key.name.to_owned(),
        in_effect: key.show(Some(decided)),
        configured: key.show(Some(written)),
        why: match by {
            Origin::Environment => "the environment says otherwise".to_owned(),
            _ => "a flag says otherwise".to_owned(),
        },
    }
}
