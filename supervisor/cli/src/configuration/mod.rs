//! What a supervisor is configured with, and who said so.
//!
//! ```text
//!   flags --------------------.
//!   OFFLOAD_* variables -------+--> Layer, Layer, Layer --> Settings::resolve --> Settings (value + origin)
//!   a TOML file (--config) ---'                                  ^
//!                                             documented defaults
//! ```
//!
//! A [`Layer`] is what one source says, a key it does not mention is `None`. The first source in the order above that
//! mentions a key decides it. Bounds are checked once, on the result, whatever the source.

mod environment;
mod file;
pub(crate) mod units;
mod weights;
mod words;

pub(crate) use environment::{default_socket, read_environment};
pub(crate) use file::read_file;
pub(crate) use weights::parse_weight;
pub(crate) use words::{join_words, split_words};

use offload_core::limits::{ATTEMPTS_MAX, PROMISE_BYTES, WORKERS_MAX};
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_supervisor::Program;
use offload_supervisor::{CoreConfig, FixedSetting, PoolConfig};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use units::{show_duration, show_size};

/// Longest path of a local socket, in bytes: what fits into the kernel's address with its closing zero.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Most threads for blocking work.
pub(crate) const IO_THREADS_MAX: usize = 64;

/// How long a worker may be waited for at its start, or when it seems to hang.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);

/// Threads for blocking work unless configured otherwise.
pub(crate) const IO_THREADS_DEFAULT: usize = 4;

/// Keys that a reload cannot change.
const NEED_A_RESTART: [&str; 3] = ["supervisor.socket", "pool.affinity", "io.threads"];

/// What is wrong with a configuration, as one sentence for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// What one source says. `None` is "not mentioned".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Path of the local socket.
    pub(crate) socket: Option<PathBuf>,
    /// How long the jobs that there are may take to finish at the end.
    pub(crate) drain_timeout: Option<Duration>,
    /// Most jobs that may wait.
    pub(crate) max_jobs: Option<usize>,
    /// Most bytes of input that may be held.
    pub(crate) max_bytes: Option<u64>,
    /// Longest input or output of one job, in bytes.
    pub(crate) max_payload: Option<u64>,
    /// The worker programs, each as its words; the built-in worker if none.
    pub(crate) commands: Option<Vec<Vec<String>>>,
    /// Worker processes.
    pub(crate) workers: Option<usize>,
    /// Started workers that wait to replace one that dies: 0 or 1.
    pub(crate) spares: Option<usize>,
    /// Longest run of one attempt at a job.
    pub(crate) run_timeout: Option<Duration>,
    /// Most attempts at an idempotent job whose worker dies.
    pub(crate) max_attempts: Option<u32>,
    /// Pause after the first failed start of a worker.
    pub(crate) backoff_min: Option<Duration>,
    /// The pause doubles up to this.
    pub(crate) backoff_max: Option<Duration>,
    /// Failed starts in a row after which jobs are refused until a start succeeds.
    pub(crate) max_restarts: Option<u32>,
    /// A worker that dies before this time without having done a job counts as a failed start.
    pub(crate) restart_window: Option<Duration>,
    /// From the start of a worker to its hello.
    pub(crate) hello_timeout: Option<Duration>,
    /// A worker that is stopped, or does not say what it promised to say, is killed after this.
    pub(crate) hang_timeout: Option<Duration>,
    /// A worker that has done so many jobs, or up to a quarter more, is replaced.
    pub(crate) max_jobs_per_worker: Option<u64>,
    /// A worker whose resident memory is larger is replaced, in bytes.
    pub(crate) max_rss: Option<u64>,
    /// A worker that is so old, or up to a quarter older, is replaced.
    pub(crate) max_age: Option<Duration>,
    /// Whether each worker is bound to one core.
    pub(crate) affinity: Option<bool>,
    /// Slots of each program kept for short work while there is some.
    pub(crate) short_slots: Option<usize>,
    /// Most jobs of one client that may wait.
    pub(crate) max_jobs_per_client: Option<usize>,
    /// How long the result of a detached job is kept after the job's end.
    pub(crate) keep_results: Option<Duration>,
    /// How long an idempotency key is known, and the result of its job kept, after the job's end.
    pub(crate) keep_keys: Option<Duration>,
    /// How long a dead letter is kept.
    pub(crate) keep_dead_letters: Option<Duration>,
    /// Most bytes of results and keys that are kept; one client may have half of it.
    pub(crate) max_kept_bytes: Option<u64>,
    /// Shares of worker time by the name of the client; 1 for all others.
    pub(crate) weights: Option<BTreeMap<String, u32>>,
    /// Threads for blocking work.
    pub(crate) io_threads: Option<usize>,
}

/// Who decided a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody: the documented default.
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

/// A value and who decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    /// The value in effect.
    pub(crate) value: T,
    /// Who decided it.
    pub(crate) origin: Origin,
}

/// The values in effect. The fields are those of [`Layer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None` where no source names a socket and the environment gives no place for one: see [`Settings::socket`].
    pub(crate) socket: Setting<Option<PathBuf>>,
    pub(crate) drain_timeout: Setting<Duration>,
    pub(crate) max_jobs: Setting<usize>,
    pub(crate) max_bytes: Setting<u64>,
    pub(crate) max_payload: Setting<u64>,
    pub(crate) commands: Setting<Vec<Vec<String>>>,
    pub(crate) workers: Setting<usize>,
    pub(crate) spares: Setting<usize>,
    pub(crate) run_timeout: Setting<Duration>,
    pub(crate) max_attempts: Setting<u32>,
    pub(crate) backoff_min: Setting<Duration>,
    pub(crate) backoff_max: Setting<Duration>,
    pub(crate) max_restarts: Setting<u32>,
    pub(crate) restart_window: Setting<Duration>,
    pub(crate) hello_timeout: Setting<Duration>,
    pub(crate) hang_timeout: Setting<Duration>,
    pub(crate) max_jobs_per_worker: Setting<Option<u64>>,
    pub(crate) max_rss: Setting<Option<u64>>,
    pub(crate) max_age: Setting<Option<Duration>>,
    pub(crate) affinity: Setting<bool>,
    pub(crate) short_slots: Setting<Option<usize>>,
    pub(crate) max_jobs_per_client: Setting<Option<usize>>,
    pub(crate) keep_results: Setting<Duration>,
    pub(crate) keep_keys: Setting<Duration>,
    pub(crate) keep_dead_letters: Setting<Duration>,
    pub(crate) max_kept_bytes: Setting<u64>,
    pub(crate) weights: Setting<BTreeMap<String, u32>>,
    pub(crate) io_threads: Setting<usize>,
}

/// One line of `offload config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The key as in the configuration file, with its table.
    pub(crate) key: &'static str,
    /// The value in effect, as it would be written.
    pub(crate) value: String,
    /// Who decided it.
    pub(crate) origin: Origin,
}

impl Settings {
    /// Decides every key. `default_socket` is used where no source names a socket, see [`default_socket`].
    ///
    /// # Errors
    /// [`ConfigError`] if a value is out of its bounds or does not go with another.
    pub(crate) fn resolve(
        flags: Layer,
        environment: Layer,
        file: Layer,
        default_socket: Option<PathBuf>,
    ) -> Result<Settings, ConfigError> {
        let PoolConfig { core: pool, affinity, .. } = PoolConfig::default();
        macro_rules! decide {
            ($key:ident, $default:expr) => {
                decide(flags.$key, environment.$key, file.$key, $default)
            };
        }
        macro_rules! decide_optional {
            ($key:ident, $default:expr) => {
                decide(flags.$key.map(Some), environment.$key.map(Some), file.$key.map(Some), $default)
            };
        }
        let mut settings = Settings {
            socket: decide(
                flags.socket.map(Some),
                environment.socket.map(Some),
                file.socket.map(Some),
                default_socket,
            ),
            drain_timeout: decide!(drain_timeout, pool.drain_timeout),
            max_jobs: decide!(max_jobs, pool.max_jobs),
            max_bytes: decide!(max_bytes, pool.max_bytes),
            max_payload: decide!(max_payload, pool.max_payload),
            commands: decide!(commands, Vec::new()),
            workers: decide!(workers, pool.workers),
            spares: decide!(spares, pool.spares),
            run_timeout: decide!(run_timeout, pool.run_timeout),
            max_attempts: decide!(max_attempts, pool.max_attempts),
            backoff_min: decide!(backoff_min, pool.backoff_min),
            backoff_max: decide!(backoff_max, pool.backoff_max),
            max_restarts: decide!(max_restarts, pool.max_restarts),
            restart_window: decide!(restart_window, pool.window),
            hello_timeout: decide!(hello_timeout, pool.hello_timeout),
            hang_timeout: decide!(hang_timeout, pool.hang_timeout),
            max_jobs_per_worker: decide_optional!(max_jobs_per_worker, pool.max_jobs_per_worker),
            max_rss: decide_optional!(max_rss, pool.max_rss),
            max_age: decide_optional!(max_age, pool.max_age),
            affinity: decide!(affinity, affinity),
            short_slots: decide_optional!(short_slots, pool.short_slots),
            max_jobs_per_client: decide_optional!(max_jobs_per_client, pool.max_jobs_per_client),
            keep_results: decide!(keep_results, pool.keep_results),
            keep_keys: decide!(keep_keys, pool.keep_keys),
            keep_dead_letters: decide!(keep_dead_letters, pool.keep_dead_letters),
            max_kept_bytes: decide!(max_kept_bytes, pool.max_kept_bytes),
            weights: decide!(weights, pool.weights),
            io_threads: decide!(io_threads, IO_THREADS_DEFAULT),
        };
        settings.follow();
        settings.check()?;
        Ok(settings)
    }

    /// The path of the local socket.
    ///
    /// # Errors
    /// [`ConfigError`] if there is none, or it is empty, has a zero byte, or is too long for the kernel.
    pub(crate) fn socket(&self) -> Result<&Path, ConfigError> {
        let Some(socket) = &self.socket.value else {
            let hint = "no place for the socket: neither XDG_RUNTIME_DIR nor HOME is set; name one with --socket PATH";
            return Err(ConfigError(hint.to_owned()));
        };
        if socket.as_os_str().as_bytes().contains(&0) {
            return Err(ConfigError("the path of the socket has a zero byte".to_owned()));
        }
        match socket.as_os_str().len() {
            0 if self.socket.origin == Origin::Environment => Err(ConfigError(
                "OFFLOAD_SOCKET is empty: unset it for the default, or name the socket, there or with --socket PATH"
                    .to_owned(),
            )),
            0 => Err(ConfigError("the path of the socket is empty; name one with --socket PATH".to_owned())),
            length if length > SOCKET_PATH_MAX => Err(ConfigError(format!(
                "the path of the socket has {length} bytes, at most {SOCKET_PATH_MAX} are possible: {}",
                socket.display()
            ))),
            _ => Ok(socket),
        }
    }

    /// Whether somebody named the socket for this very call: a flag or the environment, not a file or the default.
    pub(crate) fn socket_is_named(&self) -> bool {
        matches!(self.socket.origin, Origin::Flag | Origin::Environment)
    }

    /// These settings for a pool that runs `programs`.
    pub(crate) fn pool_config(&self, programs: Vec<Program>) -> PoolConfig {
        let mut config = PoolConfig { programs, affinity: self.affinity.value, ..PoolConfig::default() };
        config.core = CoreConfig {
            workers: self.workers.value,
            spares: self.spares.value,
            max_jobs: self.max_jobs.value,
            max_bytes: self.max_bytes.value,
            max_payload: self.max_payload.value,
            run_timeout: self.run_timeout.value,
            max_attempts: self.max_attempts.value,
            backoff_min: self.backoff_min.value,
            backoff_max: self.backoff_max.value,
            max_restarts: self.max_restarts.value,
            window: self.restart_window.value,
            hello_timeout: self.hello_timeout.value,
            hang_timeout: self.hang_timeout.value,
            max_jobs_per_worker: self.max_jobs_per_worker.value,
            max_rss: self.max_rss.value,
            max_age: self.max_age.value,
            short_slots: self.short_slots.value,
            max_jobs_per_client: self.max_jobs_per_client.value,
            keep_results: self.keep_results.value,
            keep_keys: self.keep_keys.value,
            keep_dead_letters: self.keep_dead_letters.value,
            max_kept_bytes: self.max_kept_bytes.value,
            weights: self.weights.value.clone(),
            drain_timeout: self.drain_timeout.value,
            ..config.core
        };
        config
    }

    /// Every key with its value and origin, in the order of the configuration file.
    pub(crate) fn show(&self) -> Vec<Shown> {
        let socket = self.socket.value.as_deref().map_or("(none)".into(), Path::to_string_lossy).into_owned();
        let commands: Vec<String> = self.commands.value.iter().map(|words| join_words(words)).collect();
        let commands = if commands.is_empty() { "(built-in)".to_owned() } else { commands.join("; ") };
        vec![
            shown("supervisor.socket", &self.socket, |_| socket),
            shown("supervisor.drain_timeout", &self.drain_timeout, |value| show_duration(*value)),
            shown("supervisor.max_jobs", &self.max_jobs, usize::to_string),
            shown("supervisor.max_bytes", &self.max_bytes, |value| show_size(*value)),
            shown("supervisor.max_payload", &self.max_payload, |value| show_size(*value)),
            shown("supervisor.max_jobs_per_client", &self.max_jobs_per_client, |value| {
                value.map_or_else(|| "(nine tenths of max_jobs)".to_owned(), |jobs| jobs.to_string())
            }),
            shown("supervisor.keep_results", &self.keep_results, |value| show_duration(*value)),
            shown("supervisor.keep_keys", &self.keep_keys, |value| show_duration(*value)),
            shown("supervisor.keep_dead_letters", &self.keep_dead_letters, |value| show_duration(*value)),
            shown("supervisor.max_kept_bytes", &self.max_kept_bytes, |value| show_size(*value)),
            shown("clients", &self.weights, weights::show_weights),
            shown("pool.command", &self.commands, |_| commands),
            shown("pool.workers", &self.workers, usize::to_string),
            shown("pool.spares", &self.spares, usize::to_string),
            shown("pool.run_timeout", &self.run_timeout, |value| show_duration(*value)),
            shown("pool.max_attempts", &self.max_attempts, u32::to_string),
            shown("pool.hello_timeout", &self.hello_timeout, |value| show_duration(*value)),
            shown("pool.hang_timeout", &self.hang_timeout, |value| show_duration(*value)),
            shown("pool.max_jobs_per_worker", &self.max_jobs_per_worker, |value| {
                or_never(value.map(|jobs| jobs.to_string()))
            }),
            shown("pool.max_rss", &self.max_rss, |value| or_never(value.map(show_size))),
            shown("pool.max_age", &self.max_age, |value| or_never(value.map(show_duration))),
            shown("pool.affinity", &self.affinity, bool::to_string),
            shown("pool.short_slots", &self.short_slots, |value| {
                value.map_or_else(|| "(a quarter)".to_owned(), |slots| slots.to_string())
            }),
            shown("pool.restart.backoff_min", &self.backoff_min, |value| show_duration(*value)),
            shown("pool.restart.backoff_max", &self.backoff_max, |value| show_duration(*value)),
            shown("pool.restart.max_restarts", &self.max_restarts, u32::to_string),
            shown("pool.restart.window", &self.restart_window, |value| show_duration(*value)),
            shown("io.threads", &self.io_threads, usize::to_string),
        ]
    }

    /// Those that apply only from a start of the supervisor on.
    pub(crate) fn fixed(&self) -> Vec<FixedSetting> {
        let fixed = self.show().into_iter().filter(|line| NEED_A_RESTART.contains(&line.key));
        fixed.map(|line| FixedSetting { key: line.key, value: line.value }).collect()
    }

    /// A default gives way where it cannot go with a value that somebody chose.
    fn follow(&mut self) {
        if self.workers.origin == Origin::Default {
            // Each program needs a worker, also on a machine with one core.
            self.workers.value = self.workers.value.max(self.commands.value.len()).min(WORKERS_MAX);
        }
        if self.max_payload.origin == Origin::Default {
            self.max_payload.value = self.max_payload.value.min(self.max_bytes.value);
        }
        if self.max_bytes.origin == Origin::Default {
            self.max_bytes.value = self.max_bytes.value.max(self.max_payload.value);
        }
        if self.backoff_max.origin == Origin::Default {
            self.backoff_max.value = self.backoff_max.value.max(self.backoff_min.value);
        }
        if self.backoff_min.origin == Origin::Default {
            self.backoff_min.value = self.backoff_min.value.min(self.backoff_max.value);
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        within("workers", self.workers.value, 1..=WORKERS_MAX)?;
        within("spares", self.spares.value, 0..=1)?;
        within("io threads", self.io_threads.value, 1..=IO_THREADS_MAX)?;
        within("max_jobs", self.max_jobs.value, 1..=10_000_000)?;
        within("max_attempts", self.max_attempts.value, 1..=ATTEMPTS_MAX)?;
        if !(1..=PAYLOAD_MAX_CEILING as u64).contains(&self.max_payload.value) {
            let (value, most) = (show_size(self.max_payload.value), show_size(PAYLOAD_MAX_CEILING as u64));
            return Err(ConfigError(format!("max_payload is {value}, it must be from 1B to {most}")));
        }
        within("max_kept_bytes", self.max_kept_bytes.value, 2 * PROMISE_BYTES..=u64::MAX)?;
        self.check_renewal()?;
        weights::check(&self.weights.value)?;
        self.check_pairs()
    }

    fn check_renewal(&self) -> Result<(), ConfigError> {
        for (key, value) in [("hello_timeout", &self.hello_timeout), ("hang_timeout", &self.hang_timeout)] {
            if !PATIENCE.contains(&value.value) {
                let [value, least, most] =
                    [value.value, *PATIENCE.start(), *PATIENCE.end()].map(show_duration);
                return Err(ConfigError(format!("{key} is {value}, it must be from {least} to {most}")));
            }
        }
        let bounded =
            |key, value: Option<u64>| value.map_or(Ok(()), |value| within(key, value, 1..=u64::MAX));
        bounded("max_jobs_per_worker", self.max_jobs_per_worker.value)?;
        bounded("max_rss", self.max_rss.value)?;
        self.max_jobs_per_client
            .value
            .map_or(Ok(()), |jobs| within("max_jobs_per_client", jobs, 1..=10_000_000))?;
        if self.max_age.value == Some(Duration::ZERO) {
            return Err(ConfigError("max_age is 0, which leaves no worker any time".to_owned()));
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), ConfigError> {
        if self.run_timeout.value.is_zero() {
            return Err(ConfigError("run_timeout is 0, which leaves no job any time".to_owned()));
        }
        if let Some(slots) = self.short_slots.value.filter(|slots| *slots >= self.workers.value) {
            return Err(ConfigError(format!(
                "short_slots is {slots} of {} workers: none would be left for long jobs",
                self.workers.value
            )));
        }
        if self.max_payload.value > self.max_bytes.value {
            let (payload, bytes) = (show_size(self.max_payload.value), show_size(self.max_bytes.value));
            return Err(ConfigError(format!(
                "max_payload is {payload}, over max_bytes, {bytes}: the largest job could never be queued"
            )));
        }
        if self.backoff_min.value > self.backoff_max.value {
            let (min, max) = (show_duration(self.backoff_min.value), show_duration(self.backoff_max.value));
            return Err(ConfigError(format!("backoff_min is {min}, over backoff_max, {max}")));
        }
        Ok(())
    }
}

fn decide<T>(flag: Option<T>, environment: Option<T>, file: Option<T>, default: T) -> Setting<T> {
    let said = [(flag, Origin::Flag), (environment, Origin::Environment), (file, Origin::File)];
    let first = said.into_iter().find_map(|(value, origin)| Some(Setting { value: value?, origin }));
    first.unwrap_or(Setting { value: default, origin: Origin::Default })
}

fn shown<T>(key: &'static str, setting: &Setting<T>, write: impl FnOnce(&T) -> String) -> Shown {
    Shown { key, value: write(&setting.value), origin: setting.origin }
}

fn or_never(value: Option<String>) -> String {
    value.unwrap_or_else(|| "(never)".to_owned())
}

fn within<T: Copy + PartialOrd + fmt::Display>(
    key: &str,
    value: T,
    bounds: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(ConfigError(format!("{key} is {value}, it must be from {} to {}", bounds.start(), bounds.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: Layer, environment: Layer, file: Layer) -> Result<Settings, ConfigError> {
        Settings::resolve(flags, environment, file, None)
    }

    fn workers(workers: usize) -> Layer {
        Layer { workers: Some(workers), ..Layer::default() }
    }

    #[test]
    fn a_flag_goes_before_the_environment_before_the_file_before_the_default() {
        let decided = |flags, environment, file| resolve(flags, environment, file).unwrap().workers;
        let none = Layer::default;
        assert_eq!(decided(workers(1), workers(2), workers(3)), Setting { value: 1, origin: Origin::Flag });
        assert_eq!(
            decided(none(), workers(2), workers(3)),
            Setting { value: 2, origin: Origin::Environment }
        );
        assert_eq!(decided(none(), none(), workers(3)), Setting { value: 3, origin: Origin::File });
        assert_eq!(decided(none(), none(), none()).origin, Origin::Default);
    }

    #[test]
    fn a_value_out_of_its_bounds_is_refused_with_the_bounds() {
        let message = resolve(workers(0), Layer::default(), Layer::default()).unwrap_err().to_string();
        assert_eq!(message, "workers is 0, it must be from 1 to 256");
        for layer in [
            Layer { spares: Some(2), ..Layer::default() },
            Layer { max_payload: Some(2 << 30), ..Layer::default() },
            Layer { max_payload: Some(0), ..Layer::default() },
            Layer { run_timeout: Some(Duration::ZERO), ..Layer::default() },
            Layer { max_payload: Some(2048), max_bytes: Some(1024), ..Layer::default() },
            Layer { io_threads: Some(0), ..Layer::default() },
            Layer { hello_timeout: Some(Duration::from_millis(9)), ..Layer::default() },
            Layer { hang_timeout: Some(Duration::ZERO), ..Layer::default() },
            Layer { max_jobs_per_worker: Some(0), ..Layer::default() },
            Layer { max_rss: Some(0), ..Layer::default() },
            Layer { max_age: Some(Duration::ZERO), ..Layer::default() },
            Layer { max_jobs_per_client: Some(0), ..Layer::default() },
            Layer { max_kept_bytes: Some(1024), ..Layer::default() },
            Layer { workers: Some(2), short_slots: Some(2), ..Layer::default() },
            Layer { weights: Some([("a".to_owned(), 0)].into()), ..Layer::default() },
            Layer { weights: Some([("a".to_owned(), 1001)].into()), ..Layer::default() },
            Layer { weights: Some([(String::new(), 1)].into()), ..Layer::default() },
            Layer { weights: Some([("x".repeat(65), 1)].into()), ..Layer::default() },
        ] {
            assert!(resolve(layer.clone(), Layer::default(), Layer::default()).is_err(), "{layer:?}");
        }
    }

    #[test]
    fn a_default_gives_way_to_a_value_that_somebody_chose() {
        let little = Layer { max_bytes: Some(1 << 20), ..Layer::default() };
        let settings = resolve(little, Layer::default(), Layer::default()).unwrap();
        assert_eq!((settings.max_payload.value, settings.max_bytes.value), (1 << 20, 1 << 20));

        let much = Layer { max_payload: Some(1 << 30), ..Layer::default() };
        let settings = resolve(much, Layer::default(), Layer::default()).unwrap();
        assert_eq!((settings.max_payload.value, settings.max_bytes.value), (1 << 30, 1 << 30));
    }

    #[test]
    fn a_socket_is_demanded_only_by_who_needs_it() {
        let settings = resolve(Layer::default(), Layer::default(), Layer::default()).unwrap();
        assert!(settings.socket().unwrap_err().to_string().contains("--socket"));
    }

    #[test]
    fn an_empty_variable_for_the_socket_is_refused_by_its_name() {
        let layer = Layer { socket: Some(PathBuf::new()), ..Layer::default() };
        let settings = resolve(Layer::default(), layer, Layer::default()).unwrap();
        assert!(settings.socket().unwrap_err().to_string().contains("OFFLOAD_SOCKET is empty"));
    }

    #[test]
    fn a_socket_path_that_the_kernel_cannot_take_is_refused() {
        let named = |length| {
            let layer = Layer { socket: Some("x".repeat(length).into()), ..Layer::default() };
            resolve(layer, Layer::default(), Layer::default()).unwrap()
        };
        assert!(named(SOCKET_PATH_MAX).socket().is_ok());
        assert!(named(SOCKET_PATH_MAX + 1).socket().unwrap_err().to_string().contains("at most 107"));
        assert!(named(0).socket().is_err());
        let layer = Layer { socket: Some("\0abstract".into()), ..Layer::default() };
        let with_zero = resolve(layer, Layer::default(), Layer::default()).unwrap();
        assert!(with_zero.socket().unwrap_err().to_string().contains("zero byte"));
    }

    #[test]
    fn what_is_set_reaches_the_pool() {
        let layer = Layer {
            workers: Some(4),
            hello_timeout: Some(Duration::from_secs(3)),
            hang_timeout: Some(Duration::from_secs(4)),
            max_jobs_per_worker: Some(5),
            max_rss: Some(6),
            max_age: Some(Duration::from_secs(7)),
            affinity: Some(true),
            short_slots: Some(2),
            max_jobs_per_client: Some(9),
            keep_results: Some(Duration::from_secs(11)),
            keep_keys: Some(Duration::from_secs(12)),
            keep_dead_letters: Some(Duration::from_secs(13)),
            max_kept_bytes: Some(14_000),
            weights: Some([("a".to_owned(), 10)].into()),
            ..Layer::default()
        };
        let pool = resolve(layer, Layer::default(), Layer::default()).unwrap().pool_config(Vec::new());
        assert!(pool.affinity);
        let pool = pool.core;
        assert_eq!((pool.hello_timeout.as_secs(), pool.hang_timeout.as_secs()), (3, 4));
        assert_eq!((pool.max_jobs_per_worker, pool.max_rss), (Some(5), Some(6)));
        assert_eq!(pool.max_age, Some(Duration::from_secs(7)));
        assert_eq!((pool.short_slots, pool.max_jobs_per_client), (Some(2), Some(9)));
        assert_eq!(pool.weights["a"], 10);
        let kept = [pool.keep_results, pool.keep_keys, pool.keep_dead_letters].map(|time| time.as_secs());
        assert_eq!((kept, pool.max_kept_bytes), ([11, 12, 13], 14_000));
    }

    #[test]
    fn what_is_shown_names_the_origin() {
        let settings = resolve(workers(7), Layer::default(), Layer::default()).unwrap();
        let line = settings.show().into_iter().find(|line| line.key == "pool.workers").unwrap();
        assert_eq!((line.value.as_str(), line.origin), ("7", Origin::Flag));
    }
}
