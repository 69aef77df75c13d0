//! Flags that several verbs share. A setting that the environment or the configuration file can also set has no default
//! here: [`crate::configuration`] merges the sources and applies the default.

use super::client::RequestClient;
use super::embedded::become_sweeper;
use super::exec::configured_adapter;
use super::failure::Failure;
use super::http_worker::configured_applications;
use super::jsonl_worker::ADAPTER as JSONL_ADAPTER;
use super::startable::check_programs;
use crate::configuration::arguments::{Everywhere, KeyFlags, NumberOfWorkers, Programs, Queue, Supervision};
use crate::configuration::table::{BUILTIN, COMMAND, JSONL, SPARES, TABLE, socket_key};
use crate::configuration::{
    ConfigFile, FILE_VARIABLE, Layer, Origin, Settings, WorkerCommand, default_socket, misspelt_variables,
    read_environment, read_file, read_key_of_file, usual_places,
};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use offload_core::limits::PRIORITY_MAX;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::{BadTag, Labels, MediaType, Metadata, check_label};
use offload_supervisor::front::is_client_name;
use offload_supervisor::units::parse_time_limit;
use offload_supervisor::{Level, PoolConfig, Program};
use std::env::{var_os, vars_os};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The client name of a process that was given none: empty. The supervisor tells clients without a name apart by their
/// processes, so each process has its own turn and quota.
pub(crate) const NAMELESS: &str = "";

/// Flags of every verb.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    #[command(flatten)]
    pub(crate) keys: KeyFlags<Everywhere>,

    /// Configuration file (TOML); /dev/null: none [env: OFFLOAD_CONFIG] [default: $XDG_CONFIG_HOME/offload/config.toml,
    /// ~/.config/offload/config.toml, or else /etc/offload/config.toml; for root only the last one]
    #[arg(long, global = true, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    config: Option<PathBuf>,

    /// Print JSON: one document, or one per line where there are several results
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Also report routine events on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,

    /// Report only errors on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Globals {
    /// The settings in effect, given these flags of a verb.
    pub(crate) fn settings(&self, flags: Layer) -> Result<Settings, Failure> {
        self.settings_from(self.config_file()?.as_ref(), flags)
    }

    /// The settings in effect, with this configuration file.
    pub(crate) fn settings_from(&self, file: Option<&ConfigFile>, flags: Layer) -> Result<Settings, Failure> {
        let flags = self.keys.layer().and(flags);
        let environment = read_environment(TABLE, |name| var_os(name))?;
        let file = file.map_or_else(|| Ok(Layer::new(Origin::File)), read_file)?;
        Ok(Settings::resolve(&[flags, environment, file], place_of_socket())?)
    }

    /// The settings in effect for a supervisor that serves.
    pub(crate) fn settings_to_serve(
        &self,
        file: Option<&ConfigFile>,
        flags: Layer,
    ) -> Result<Settings, Failure> {
        let settings = self.settings_from(file, flags)?;
        settings.check_to_serve(file)?;
        Ok(settings)
    }

    /// Tells people of variables that are probably misspelt. A variable of a setting is not one of them, nor is one that resembles none.
    pub(crate) fn tell_of_misspelt_variables(&self, tell: impl FnMut(String)) {
        if !self.quiet {
            misspelt_variables(vars_os().map(|(name, _)| name)).into_iter().for_each(tell);
        }
    }

    /// The configuration file that the flag or the variable names. The parser is not told of the variable: it would show the flag
    /// as a part of every usage.
    pub(crate) fn named_file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| var_os(FILE_VARIABLE).map(PathBuf::from))
    }

    /// The configuration file that is read, if there is one.
    ///
    /// # Errors
    /// An empty path is one. It usually comes from a script in which a variable is not set; to run without a file
    /// would mean another configuration than the intended one.
    pub(crate) fn config_file(&self) -> Result<Option<ConfigFile>, Failure> {
        match self.named_file() {
            Some(path) if path.as_os_str().is_empty() => Err(Failure::Usage(
                "the path of the configuration file is empty: unset OFFLOAD_CONFIG to do without a file, or name the \
                 file, there or with --config FILE"
                    .to_owned(),
            )),
            path => Ok(ConfigFile::choose(path.as_deref(), places_of_file(), own_user())),
        }
    }

    /// The socket of a supervisor that runs already. Only the source that decides it is looked at, and of that only
    /// this setting: a mistake elsewhere keeps nobody from asking that supervisor or stopping it.
    pub(crate) fn socket(&self) -> Result<PathBuf, Failure> {
        let mut decides = self.keys.layer();
        if decides.is_empty() {
            decides = read_environment([socket_key()], |name| var_os(name))?;
        }
        if decides.is_empty()
            && let Some(file) = self.config_file()?
        {
            decides = read_key_of_file(socket_key(), &file)?;
        }
        Ok(Settings::resolve(&[decides], place_of_socket())?.socket()?.to_owned())
    }

    /// How much the library logs on standard error.
    pub(crate) fn log_level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (true, _) => Level::Quiet,
            (false, 0) => Level::Normal,
            (false, _) => Level::Verbose,
        }
    }

    /// A connection to the supervisor.
    pub(crate) fn connect(&self, client: &str) -> Result<RequestClient, Failure> {
        RequestClient::connect(&self.socket()?, client)
    }
}

fn place_of_socket() -> Option<PathBuf> {
    default_socket(|name| var_os(name), Path::new("/run/user"), own_user())
}

/// Where a configuration file is looked for if none is named.
pub(crate) fn places_of_file() -> Vec<PathBuf> {
    usual_places(|name| var_os(name), own_user())
}

fn own_user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Flags of the verbs that start workers.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Workers")]
pub(crate) struct PoolFlags {
    #[command(flatten)]
    number: KeyFlags<NumberOfWorkers>,

    #[command(flatten)]
    programs: KeyFlags<Programs>,

    /// For tests: also offer the task `fault`, which misbehaves as its input says
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

    /// Whether any of them names a program.
    pub(crate) fn names_programs(&self) -> bool {
        self.programs.first_given().is_some()
    }

    /// What these flags say.
    pub(crate) fn layer(&self) -> Layer {
        self.number.layer().and(self.programs.layer()).and(self.queue.layer())
    }

    /// A pool for one batch. It has no spare unless somebody asks for one: starting the spare costs time in every
    /// batch, and saves as much only when a worker crashes.
    pub(crate) fn embedded(&self, settings: &Settings, globals: &Globals) -> Result<PoolConfig, Failure> {
        check_programs(settings)?;
        let mut config = settings.pool_config(self.programs(settings)?);
        if settings.origin(SPARES) == Origin::Default {
            config.core.spares = 0;
        }
        // Somebody waits for the result, so a program that seems to be no worker is given only one chance.
        config.core.max_silent_starts = 1;
        Ok(PoolConfig { log: globals.log_level(), sweep: become_sweeper(), ..config })
    }

    /// The programs that the workers run. A program of the user is started through `worker-exec`, which makes it end
    /// with its supervisor even if the program does nothing for that.
    ///
    /// # Errors
    /// [`Failure::Usage`] if a task is a program that cannot be started.
    pub(crate) fn programs(&self, settings: &Settings) -> Result<Vec<Program>, Failure> {
        programs(settings, self.allow_faults)
    }
}

/// The flag that names the programs of workers, alone.
#[derive(Args, Debug, Default)]
pub(crate) struct ProgramFlags {
    #[command(flatten)]
    programs: KeyFlags<Programs>,
}

impl ProgramFlags {
    /// A pool of the programs that these flags or their variables name. None if they name none.
    pub(crate) fn pool(&self, globals: &Globals) -> Result<Option<PoolConfig>, Failure> {
        if self.programs.first_given().is_none() && KeyFlags::<Programs>::environment()?.is_empty() {
            return Ok(None);
        }
        let settings = globals.settings(self.programs.layer())?;
        ProgramFlags::pool_of(&settings, globals).map(Some)
    }

    /// A pool of the programs that the configuration file names. None if it names none.
    pub(crate) fn pool_of_the_file(globals: &Globals) -> Result<Option<PoolConfig>, Failure> {
        let settings = globals.settings(Layer::new(Origin::Flag))?;
        match KeyFlags::<Programs>::are_of_the_file(&settings) {
            true => ProgramFlags::pool_of(&settings, globals).map(Some),
            false => Ok(None),
        }
    }

    /// A pool in which each program has one worker.
    fn pool_of(settings: &Settings, globals: &Globals) -> Result<PoolConfig, Failure> {
        check_programs(settings)?;
        let programs = programs(settings, false)?;
        let workers = programs.len();
        let mut config = settings.pool_config(programs);
        config.core.workers = workers;
        config.core.short_slots = Some(0);
        config.core.spares = 0;
        config.core.max_silent_starts = 1;
        Ok(PoolConfig { log: globals.log_level(), sweep: become_sweeper(), ..config })
    }
}

fn programs(settings: &Settings, allow_faults: bool) -> Result<Vec<Program>, Failure> {
    let builtin = || Program::builtin(allow_faults);
    let mut programs: Vec<_> = settings
        .values
        .commands
        .iter()
        .map(|words| match words.as_slice() {
            [word] if word == BUILTIN => Ok(builtin()),
            _ => command_program(settings, COMMAND, words, SHIM),
        })
        .collect::<Result<_, _>>()?;
    for words in &settings.values.jsonl_commands {
        programs.push(command_program(settings, JSONL, words, JSONL_ADAPTER)?);
    }
    programs.extend(configured_applications(settings)?);
    if programs.is_empty() {
        programs.push(builtin());
    }
    let has_builtin = programs.iter().any(|program| program.name() == BUILTIN);
    programs.extend(configured_adapter(settings, has_builtin)?);
    Ok(programs)
}

/// The program of a command of the user, with these words in front of it.
fn command_program<const N: usize>(
    settings: &Settings,
    key: &'static str,
    words: &[String],
    front: [&str; N],
) -> Result<Program, Failure> {
    let command = WorkerCommand::parse(words);
    let command = command.map_err(|why| Failure::Usage(format!("{}: {why}", settings.place(key))))?;
    Ok(command.program(front.map(str::to_owned).to_vec()))
}

/// The words that are put in front of a command of the user.
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

    /// Maximum time from acceptance to the result, time in the queue included; with --retry, for each try anew [default:
    /// none]
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    deadline: Option<Duration>,

    /// Maximum attempts, the first one included; a job is retried only if its worker dies. N > 1 allows retries of a
    /// task that is not idempotent [default: 1, or the supervisor's max_attempts (3) if the task is idempotent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: Option<u32>,

    /// Priority from -10 to 10: higher starts sooner; each level counts like one second of waiting
    /// among the jobs of one client, and like 100 ms of worker time, once, against other clients [default: 0]
    #[arg(long, value_name = "N", value_parser = priorities(), allow_negative_numbers = true)]
    priority: Option<i8>,

    /// Media type of the input, such as image/jpeg [default: text/plain if it is UTF-8, else application/octet-stream]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<MediaType>,

    /// A word, or KEY=VALUE, by which the job can be found (`jobs --label`); repeatable, up to 8
    #[arg(long = "label", value_name = "LABEL", value_parser = parse_label)]
    labels: Vec<String>,

    /// Text that goes with the job to its task, its log lines and its report, such as traceparent=...; repeatable, up
    /// to 16
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, String)>,
}

fn priorities() -> clap::builder::RangedI64ValueParser<i8> {
    let most = i64::from(PRIORITY_MAX);
    clap::value_parser!(i8).range(-most..=most)
}

impl JobFlags {
    /// The media type that was stated for the input.
    pub(crate) fn content_type(&self) -> Option<&MediaType> {
        self.content_type.as_ref()
    }

    /// The same options in the form that is sent to the supervisor.
    ///
    /// # Errors
    /// [`Failure::Usage`] for too many labels or pairs of metadata, or a key that is given twice.
    pub(crate) fn options(&self) -> Result<SubmitOptions, Failure> {
        let usage = |error: BadTag| Failure::Usage(error.to_string());
        Ok(SubmitOptions {
            timeout_ms: self.timeout.map(milliseconds),
            deadline_ms: self.deadline.map(milliseconds),
            attempts: self.attempts,
            priority: self.priority.unwrap_or(0),
            labels: Labels::new(&self.labels).map_err(usage)?,
            metadata: Metadata::new(&self.metadata).map_err(usage)?,
            ..SubmitOptions::default()
        })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The name of a task, as it was typed.
///
/// # Errors
/// [`Failure::Usage`] if it is no text.
pub(crate) fn task_name(typed: OsString) -> Result<String, Failure> {
    typed.into_string().map_err(|typed| Failure::Usage(format!("{typed:?} cannot be the name of a task")))
}

/// For clap: a label.
pub(crate) fn parse_label(text: &str) -> Result<String, String> {
    check_label(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// For clap: a pair of metadata.
fn parse_metadata(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("metadata is KEY=VALUE")?;
    Metadata::new(&[(key, value)]).map_err(|error| error.to_string())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// For clap: a name for this client.
pub(crate) fn parse_client_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=NAME_MAX if !is_client_name(text) => Err("a name has no control characters".to_owned()),
        1..=NAME_MAX => Ok(text.to_owned()),
        length => Err(format!("a name has 1 to {NAME_MAX} bytes, this one {length}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The supervisor would treat such a name as a protocol violation; here it is a mistake on the command line.
    #[test]
    fn a_name_that_the_supervisor_would_not_take_is_refused_where_it_is_typed() {
        for name in ["", "a\nb", "\u{1b}[31m", "a\u{2028}b", &"x".repeat(NAME_MAX + 1)] {
            assert!(parse_client_name(name).is_err(), "{name:?}");
        }
        for name in ["a b", "team/bill", &"x".repeat(NAME_MAX)] {
            assert_eq!(parse_client_name(name).as_deref(), Ok(name));
        }
    }
}
