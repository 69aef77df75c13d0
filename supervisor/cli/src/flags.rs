//! Flags that several verbs share. What can also be said in the environment or in a file has no default here: the
//! layers are put together by [`crate::configuration`].

use super::client::Client;
use super::embedded::become_sweeper;
use super::failure::Failure;
use crate::configuration::arguments::{Everywhere, KeyFlags, NumberOfWorkers, Programs, Queue, Supervision};
use crate::configuration::table::SPARES;
use crate::configuration::units::parse_time_limit;
use crate::configuration::{Layer, Origin, Settings, default_socket, read_environment, read_file};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_core::limits::PRIORITY_MAX;
use offload_protocol::limits::LABEL_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_supervisor::front::is_client_name;
use offload_supervisor::{Level, PoolConfig, Program};
use std::env::var_os;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a process calls itself unless told otherwise: nothing. The supervisor tells clients without a name apart by their
/// processes, so each has a turn and a quota of its own.
pub(crate) const NAMELESS: &str = "";

/// Most jobs of one batch that are under way or wait for an earlier one to end.
pub(crate) const WINDOW: u64 = 1024;

/// Flags of every verb.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    #[command(flatten)]
    pub(crate) keys: KeyFlags<Everywhere>,

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
        let flags = self.keys.layer().and(flags);
        let environment = read_environment(|name| var_os(name))?;
        let file = self.config.as_deref().map_or_else(|| Ok(Layer::new(Origin::File)), read_file)?;
        let uid = rustix::process::getuid().as_raw();
        let default_socket = default_socket(|name| var_os(name), Path::new("/run/user"), uid);
        Ok(Settings::resolve(&[flags, environment, file], default_socket)?)
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
        Client::connect(self.settings(Layer::new(Origin::Flag))?.socket()?, client)
    }
}

/// Flags of the verbs that start workers.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Workers")]
pub(crate) struct PoolFlags {
    #[command(flatten)]
    number: KeyFlags<NumberOfWorkers>,

    #[command(flatten)]
    programs: KeyFlags<Programs>,

    /// Offer the task `fault` too, which misbehaves as told: for tests
    #[arg(long)]
    allow_faults: bool,

    #[command(flatten)]
    queue: KeyFlags<Queue>,
}

impl PoolFlags {
    /// The first of these flags that was given, as it is typed.
    pub(crate) fn first_given(&self) -> Option<String> {
        let faults = || self.allow_faults.then(|| "--allow-faults".to_owned());
        self.number
            .first_given()
            .or_else(|| self.programs.first_given())
            .or_else(faults)
            .or_else(|| self.queue.first_given())
    }

    /// What these flags say.
    pub(crate) fn layer(&self) -> Layer {
        self.number.layer().and(self.programs.layer()).and(self.queue.layer())
    }

    /// A pool for one batch. It needs no spare unless somebody asks for one: what it would save at a crash, its start
    /// costs every time.
    pub(crate) fn embedded(&self, settings: &Settings, globals: &Globals) -> PoolConfig {
        let mut config = settings.pool_config(self.programs(settings));
        if settings.origin(SPARES) == Origin::Default {
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
            .values
            .commands
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
pub(crate) type ServeFlags = KeyFlags<Supervision>;

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
