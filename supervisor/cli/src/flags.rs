//! Flags that several verbs share. What can also be said in the environment or in a file has no default here: the
//! layers are put together by [`crate::configuration`].

use super::client::Client;
use super::embedded::become_sweeper;
use super::failure::Failure;
use crate::configuration::units::{parse_duration, parse_size, parse_time_limit};
use crate::configuration::{
    Layer, Origin, Settings, default_socket, parse_weight, read_environment, read_file, split_words,
};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_core::limits::PRIORITY_MAX;
use offload_protocol::limits::LABEL_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_supervisor::front::is_client_name;
use offload_supervisor::{Level, PoolConfig, Program};
use std::collections::BTreeMap;
use std::env::var_os;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a process calls itself unless told otherwise: nothing. The supervisor tells clients without a name apart by
/// their
/// connections, so each process has a turn and a quota of its own.
pub(crate) const NAMELESS: &str = "";

/// Most jobs of one batch that are under way or wait for an earlier one to end.
pub(crate) const WINDOW: u64 = 1024;

/// Flags of every verb.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Local socket of the supervisor, in a folder of mode 0700 [default: $XDG_RUNTIME_DIR/offload/offload.sock if that
    /// variable is set; else /run/user/UID/offload/offload.sock if the folder /run/user/UID is there; else
    /// $HOME/.offload/offload.sock] [env: OFFLOAD_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Configuration file (TOML) [env: OFFLOAD_CONFIG]
    #[arg(long, global = true, value_name = "FILE", env = "OFFLOAD_CONFIG", hide_env = true, value_parser = config_path())]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON document (streams: one a line)
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say on standard error what happens in the ordinary course of things too
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,

    /// Say nothing on standard error but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Globals {
    /// What is in effect with these flags of a verb.
    pub(crate) fn settings(&self, flags: Layer) -> Result<Settings, Failure> {
        let flags = Layer { socket: self.socket.clone(), ..flags };
        let environment = read_environment(|name| var_os(name))?;
        let file = match self.config.as_deref() {
            Some(path) => read_file(path)?,
            None => Layer::default(),
        };
        let uid = rustix::process::getuid().as_raw();
        let default_socket = default_socket(|name| var_os(name), Path::new("/run/user"), uid);
        Ok(Settings::resolve(flags, environment, file, default_socket)?)
    }

    /// What the file would decide if nobody else said anything.
    pub(crate) fn file_alone(&self) -> Result<Settings, Failure> {
        let file = self.config.as_deref().map_or(Ok(Layer::default()), read_file)?;
        Ok(Settings::resolve(Layer::default(), Layer::default(), file, None)?)
    }

    /// How much the library says on standard error.
    pub(crate) fn log_level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (true, _) => Level::Quiet,
            (false, 0) => Level::Normal,
            (false, _) => Level::Verbose,
        }
    }

    /// A connection to the supervisor.
    pub(crate) fn connect(&self, client: &str) -> Result<Client, Failure> {
        Client::connect(self.settings(Layer::default())?.socket()?, client)
    }
}

/// Flags of the verbs that start workers.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Workers")]
pub(crate) struct PoolFlags {
    /// Worker processes [default: the logical cores that this process may use] [env: OFFLOAD_WORKERS]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,

    /// Worker program with its arguments: one that speaks the protocol of workers, as examples/worker.py does, or
    /// `builtin`; may be given several times [default: builtin] [env: OFFLOAD_WORKER]
    #[arg(long, value_name = "CMD ARG...", value_parser = split_words_for_clap)]
    worker: Vec<Words>,

    /// Offer the task `fault` too, which misbehaves as told: for tests
    #[arg(long)]
    allow_faults: bool,

    /// Maximum queued jobs [default: 10000] [env: OFFLOAD_MAX_JOBS]
    #[arg(long, value_name = "N")]
    max_jobs: Option<usize>,

    /// Maximum bytes held for clients: inputs, checkpoints and outputs not yet delivered [default: 256MiB] [env: OFFLOAD_MAX_BYTES]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,

    /// Maximum input or output of one job, up to 1GiB [default: 64MiB] [env: OFFLOAD_MAX_PAYLOAD]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_payload: Option<u64>,
}

/// The words of one `--worker`. (A bare `Vec` would make clap collect values instead.)
#[derive(Clone, Debug)]
struct Words(Vec<String>);

fn split_words_for_clap(text: &str) -> Result<Words, String> {
    split_words(text).map(Words)
}

impl PoolFlags {
    /// The first of these flags that was given, as it is typed.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let PoolFlags { workers, worker, allow_faults, max_jobs, max_bytes, max_payload } = self;
        let given = [
            ("--workers", workers.is_some()),
            ("--worker", !worker.is_empty()),
            ("--allow-faults", *allow_faults),
            ("--max-jobs", max_jobs.is_some()),
            ("--max-bytes", max_bytes.is_some()),
            ("--max-payload", max_payload.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// What these flags say.
    pub(crate) fn layer(&self) -> Layer {
        let commands: Vec<_> = self.worker.iter().map(|Words(words)| words.clone()).collect();
        Layer {
            commands: Some(commands).filter(|commands| !commands.is_empty()),
            workers: self.workers,
            max_jobs: self.max_jobs,
            max_bytes: self.max_bytes,
            max_payload: self.max_payload,
            ..Layer::default()
        }
    }

    /// A pool for one batch. It needs no spare unless somebody asks for one: what it would save at a crash, its start
    /// costs every time.
    pub(crate) fn embedded(&self, settings: &Settings, globals: &Globals) -> PoolConfig {
        let mut config = settings.pool_config(self.programs(settings));
        if settings.spares.origin == Origin::Default {
            config.core.spares = 0;
        }
        // Somebody waits for it.
        config.core.max_silent_starts = 1;
        PoolConfig { log: globals.log_level(), sweep: become_sweeper(), ..config }
    }

    /// The programs that the workers run. A program of the user's is started through `worker-exec`, so that it ends
    /// with its supervisor even if it does not care.
    pub(crate) fn programs(&self, settings: &Settings) -> Vec<Program> {
        let builtin = || Program::builtin(self.allow_faults);
        let programs: Vec<_> = settings
            .commands
            .value
            .iter()
            .map(|words| match words.as_slice() {
                [word] if word == BUILTIN => builtin(),
                _ => Program::command(words.clone()).with_shim(SHIM.map(str::to_owned).to_vec()),
            })
            .collect();
        if programs.is_empty() { vec![builtin()] } else { programs }
    }
}

/// The command that stands for the built-in worker.
pub(crate) const BUILTIN: &str = "builtin";

/// What is put in front of a program of the user's.
const SHIM: [&str; 3] = ["/proc/self/exe", "worker-exec", "--"];

/// Flags of `serve` alone, beside [`PoolFlags`].
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Supervision")]
pub(crate) struct ServeFlags {
    /// Spare worker processes, ready to replace one that dies: 0 or 1 [default: 1] [env: OFFLOAD_SPARES]
    #[arg(long, value_name = "N")]
    spares: Option<usize>,

    /// Timeout of each attempt, unless the job has its own [default: 5m] [env: OFFLOAD_RUN_TIMEOUT]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    run_timeout: Option<Duration>,

    /// Maximum attempts of a job whose task is idempotent, the first one included [default: 3] [env:
    /// OFFLOAD_MAX_ATTEMPTS]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// Time that jobs have to finish after SIGTERM or SIGINT [default: 10s] [env: OFFLOAD_DRAIN_TIMEOUT]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    drain_timeout: Option<Duration>,

    /// Backoff after the first failed start of a worker; each further one doubles it [default: 100ms] [env:
    /// OFFLOAD_BACKOFF_MIN]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    backoff_min: Option<Duration>,

    /// Maximum backoff, before up to a quarter is added at random [default: 5s] [env: OFFLOAD_BACKOFF_MAX]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    backoff_max: Option<Duration>,

    /// Failed starts in a row after which jobs are rejected until a start succeeds [default: 5] [env:
    /// OFFLOAD_MAX_RESTARTS]
    #[arg(long, value_name = "N")]
    max_restarts: Option<u32>,

    /// A worker that exits within this time without having done a job counts as a failed start [default: 10s] [env:
    /// OFFLOAD_RESTART_WINDOW]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    restart_window: Option<Duration>,

    /// Maximum time from the start of a worker process to its hello [default: 10s] [env: OFFLOAD_HELLO_TIMEOUT]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    hello_timeout: Option<Duration>,

    /// Kill a worker that is stopped (SIGSTOP), or that promised to report progress and does not, after this [default:
    /// 1s] [env: OFFLOAD_HANG_TIMEOUT]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    hang_timeout: Option<Duration>,

    /// Replace a worker after N jobs, or up to a quarter more at random [default: never] [env:
    /// OFFLOAD_MAX_JOBS_PER_WORKER]
    #[arg(long, value_name = "N")]
    max_jobs_per_worker: Option<u64>,

    /// Replace a worker whose resident memory exceeds this [default: never] [env: OFFLOAD_MAX_RSS]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_rss: Option<u64>,

    /// Replace a worker of this age, or up to a quarter older at random [default: never] [env: OFFLOAD_MAX_AGE]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    max_age: Option<Duration>,

    /// Bind each worker to one core [default: false] [env: OFFLOAD_AFFINITY]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    affinity: Option<bool>,

    /// Slots of each program that are reserved for short jobs (under 10 ms) while some arrive [default: a quarter]
    /// [env: OFFLOAD_SHORT_SLOTS]
    #[arg(long, value_name = "N")]
    short_slots: Option<usize>,

    /// Maximum queued jobs of one client [default: nine tenths of max_jobs] [env: OFFLOAD_MAX_JOBS_PER_CLIENT]
    #[arg(long, value_name = "N")]
    max_jobs_per_client: Option<usize>,

    /// Keep the result of a detached job for this long after its end, or until it is collected [default: 1h] [env:
    /// OFFLOAD_KEEP_RESULTS]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep_results: Option<Duration>,

    /// Keep an idempotency key and the result of its job for this long after the job's end [default: 1h] [env:
    /// OFFLOAD_KEEP_KEYS]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep_keys: Option<Duration>,

    /// Keep a dead letter for this long [default: 72h] [env: OFFLOAD_KEEP_DEAD_LETTERS]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep_dead_letters: Option<Duration>,

    /// Maximum bytes of kept results and keys, half of it for one client [default: 128MiB] [env:
    /// OFFLOAD_MAX_KEPT_BYTES]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_kept_bytes: Option<u64>,

    /// Scheduling weight of the client NAME, 1 to 1000; may be given several times [default: 1 each] [env:
    /// OFFLOAD_WEIGHTS=NAME=N,...]
    #[arg(long, value_name = "NAME=N", value_parser = parse_weight)]
    weight: Vec<(String, u32)>,

    /// Threads for blocking work [default: 4] [env: OFFLOAD_IO_THREADS]
    #[arg(long, value_name = "N")]
    io_threads: Option<usize>,
}

impl ServeFlags {
    /// What these flags say on top of `layer`.
    pub(crate) fn layer(&self, layer: Layer) -> Layer {
        Layer {
            spares: self.spares,
            run_timeout: self.run_timeout,
            max_attempts: self.max_attempts,
            drain_timeout: self.drain_timeout,
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max,
            max_restarts: self.max_restarts,
            restart_window: self.restart_window,
            hello_timeout: self.hello_timeout,
            hang_timeout: self.hang_timeout,
            max_jobs_per_worker: self.max_jobs_per_worker,
            max_rss: self.max_rss,
            max_age: self.max_age,
            affinity: self.affinity,
            short_slots: self.short_slots,
            max_jobs_per_client: self.max_jobs_per_client,
            keep_results: self.keep_results,
            keep_keys: self.keep_keys,
            keep_dead_letters: self.keep_dead_letters,
            max_kept_bytes: self.max_kept_bytes,
            weights: Some(self.weight.iter().cloned().collect::<BTreeMap<_, _>>())
                .filter(|weights| !weights.is_empty()),
            io_threads: self.io_threads,
            ..layer
        }
    }
}

/// Flags of the verbs that submit jobs.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Each job")]
pub(crate) struct JobFlags {
    /// Timeout of each attempt, such as 250ms, 10s or 5m [default: the supervisor's, 5m]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    timeout: Option<Duration>,

    /// Maximum time from acceptance to the result, time in the queue included [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    deadline: Option<Duration>,

    /// Maximum attempts if the worker dies; N > 1 lets a job run again whose task is not idempotent [default: the
    /// supervisor's, 3, if the task is idempotent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: Option<u32>,

    /// -10 to 10, higher starts sooner; each level counts like a second of waiting [default: 0]
    #[arg(long, value_name = "N", value_parser = priorities(), allow_negative_numbers = true)]
    priority: Option<i8>,
}

fn priorities() -> clap::builder::RangedI64ValueParser<i8> {
    let most = i64::from(PRIORITY_MAX);
    clap::value_parser!(i8).range(-most..=most)
}

impl JobFlags {
    /// The same for the wire.
    pub(crate) fn options(&self) -> SubmitOptions {
        SubmitOptions {
            timeout_ms: self.timeout.map(milliseconds),
            deadline_ms: self.deadline.map(milliseconds),
            attempts: self.attempts,
            priority: self.priority.unwrap_or(0),
            ..SubmitOptions::default()
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An empty path comes from a script whose own variable is not set, and no file would be another configuration than the
/// one that is meant.
fn config_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|path| match path.is_empty() {
        false => Ok(PathBuf::from(path)),
        true => Err(
            "it is empty: unset OFFLOAD_CONFIG to do without a file, or name the file, there or with --config FILE"
                .to_owned(),
        ),
    })
}

/// For clap: a name for this client.
pub(crate) fn parse_client_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=LABEL_MAX if !is_client_name(text) => Err("a name has no control characters".to_owned()),
        1..=LABEL_MAX => Ok(text.to_owned()),
        length => Err(format!("a name has 1 to {LABEL_MAX} bytes, this one {length}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the supervisor would take for a breach of the protocol is a matter of what was typed.
    #[test]
    fn a_name_that_the_supervisor_would_not_take_is_refused_where_it_is_typed() {
        for name in ["", "a\nb", "\u{1b}[31m", "a\u{2028}b", &"x".repeat(LABEL_MAX + 1)] {
            assert!(parse_client_name(name).is_err(), "{name:?}");
        }
        for name in ["a b", "team/bill", &"x".repeat(LABEL_MAX)] {
            assert_eq!(parse_client_name(name).as_deref(), Ok(name));
        }
    }
}
