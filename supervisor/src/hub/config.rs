//! How the hub and its workers are set up, and why they do not start.

use super::IoTools;
use crate::log::{Level, LogFormat};
use crate::workers::marks::is_unserved_worker;
use crate::workers::{Launcher, Program};
use offload_core::config::CoreConfig;
use offload_event_loop::LoopError;
use offload_event_loop::io_pool::{IoError, IoPool};
use std::collections::hash_map::RandomState;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::rc::Rc;

/// The number of CPU cores that this process may use, at least 1. CPU affinity and cgroup quota are respected.
pub fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(offload_core::limits::WORKERS_MAX)
}

/// How a pool is set up. The defaults are those of the command line.
///
/// ```
/// use offload_supervisor::PoolConfig;
/// use std::time::Duration;
///
/// let mut config = PoolConfig::default();
/// config.core.run_timeout = Duration::from_secs(10);
/// ```
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Everything by which the core decides: numbers of workers and jobs, bytes, times. Unlike in
    /// [`CoreConfig::default`], `workers` is [`default_workers`] and `seed` is a random number, so change fields
    /// instead of replacing the whole. Its field `programs` is overwritten at the start with the number of
    /// [`PoolConfig::programs`].
    pub core: CoreConfig,
    /// The programs that the workers run: slot `i` runs program `i` modulo their number. There is no default.
    pub programs: Vec<Program>,
    /// The directory below which the tasks `fs.read` and `fs.stat` read files, on threads of this process. With it there is also
    /// `dns.lookup`. `None`: there are no such tasks.
    pub io_root: Option<PathBuf>,
    /// Whether each worker is bound to one CPU core: of the n cores that this process may use, a worker that is started
    /// in slot `i` is bound to core `i` modulo n. A spare has the number after the last slot, and keeps its core when it
    /// takes the place of another worker.
    pub affinity: bool,
    /// Whether an answer is looked for, for up to [`LINGER`](offload_protocol::limits::LINGER), before the event loop goes to
    /// sleep, and the next job before a worker does. This happens only while fewer workers are busy than there are
    /// cores, and as long as it finds something. A small job is then answered in about 10 us instead of 60, and
    /// meanwhile one core more is used. By default, if there are at least two cores.
    pub linger: bool,
    /// Whether processes that workers left behind, and that are children of this process now, are killed: when a
    /// worker has ended those with its mark (see [`crate::workers::marks`]), and all others when the last pool of this
    /// process ends. Only for a program that has called [`crate::workers::sweep::become_subreaper`] and has no children
    /// but workers.
    pub sweep: bool,
    /// How much is logged to standard error.
    pub log: Level,
    /// The format of the log.
    pub log_format: LogFormat,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            core: CoreConfig { workers: default_workers(), seed: seed(), ..CoreConfig::default() },
            programs: Vec::new(),
            io_root: None,
            affinity: false,
            linger: default_workers() > 1,
            sweep: false,
            log: Level::Normal,
            log_format: LogFormat::Text,
        }
    }
}

impl PoolConfig {
    /// The defaults with this one program.
    pub fn with(program: Program) -> PoolConfig {
        PoolConfig { programs: vec![program], ..PoolConfig::default() }
    }

    /// Refuses to start this very program if this process is one of its workers: each would start workers, without end.
    ///
    /// # Errors
    /// [`StartError::IsWorker`].
    pub(crate) fn check_process(&self) -> Result<(), StartError> {
        let own_arguments = self.programs.iter().find_map(Program::own_arguments);
        own_arguments.filter(|_| is_unserved_worker()).map_or(Ok(()), |arguments| {
            let command: Vec<&str> =
                ["PROGRAM"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            let command = command.join(" ");
            Err(StartError::IsWorker(format!(
                "this process was started as a worker, as `{command}`: if its arguments are these, call \
                 offload_worker::Worker::serve or offload_worker::builtin::serve before starting a pool"
            )))
        })
    }

    /// What the hub needs beside the core's configuration. `generation` is how processes that workers leave behind are
    /// recognized.
    ///
    /// `io_pool` makes the threads for what is done here, if anything is.
    ///
    /// # Errors
    /// [`StartError::Config`], [`StartError::Launcher`], and those of `io_pool`.
    pub(crate) fn into_hub(
        self,
        generation: Option<String>,
        io_pool: impl FnOnce() -> Result<Rc<IoPool>, StartError>,
    ) -> Result<HubConfig, StartError> {
        let PoolConfig { programs, affinity, linger, sweep, io_root, .. } = self;
        let tools = |root: PathBuf| IoTools::new(&root, io_pool()?).map_err(StartError::Config);
        let io_tools = io_root.map(tools).transpose()?;
        let linger_cores = if linger { default_workers() } else { 0 };
        let launcher = Launcher::start(generation).map_err(StartError::Launcher)?;
        Ok(HubConfig { programs, affinity, linger_cores, sweep, launcher, io_tools })
    }

    /// The configuration of the core, with the number of programs filled in.
    pub(crate) fn core(&self) -> CoreConfig {
        CoreConfig { programs: self.programs.len(), ..self.core.clone() }
    }
}

/// A random seed for jitter: two supervisors that start at the same moment must not do everything at the same time.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The hub's configuration beside that of the core.
pub(crate) struct HubConfig {
    /// The programs that the workers run.
    pub(crate) programs: Vec<Program>,
    /// Whether each worker is bound to one CPU core.
    pub(crate) affinity: bool,
    /// While fewer workers are busy than this, the event loop and idle workers may linger.
    pub(crate) linger_cores: usize,
    /// Starts the worker processes.
    pub(crate) launcher: Launcher,
    /// Whether the hub may kill every child of this process that is not a worker. If so, such a child must have
    /// escaped from a worker.
    pub(crate) sweep: bool,
    /// What jobs are done with that need no worker.
    pub(crate) io_tools: Option<IoTools>,
}

/// Why the workers of a pool or of a service did not start. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    Config(String),
    /// The event loop refused to watch something.
    Loop(LoopError),
    /// The thread that starts workers could not be started.
    Launcher(std::io::Error),
    /// The threads for blocking work could not be started.
    Threads(IoError),
    /// This process was itself started as a worker, and one of the programs is this executable again
    /// ([`Program::own`], [`Program::builtin`]). The sentence says what to call first.
    IsWorker(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(sentence) | StartError::IsWorker(sentence) => formatter.write_str(sentence),
            StartError::Loop(error) => write!(formatter, "{error}"),
            StartError::Launcher(error) => {
                write!(formatter, "cannot start the thread that starts workers: {error}")
            }
            StartError::Threads(error) => {
                write!(formatter, "cannot start threads for blocking work: {error}")
            }
        }
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Config(_) | StartError::IsWorker(_) => None,
            // Its sentence is that of this one.
            StartError::Loop(error) => error.source(),
            StartError::Launcher(error) => Some(error),
            StartError::Threads(error) => Some(error),
        }
    }
}

impl From<LoopError> for StartError {
    fn from(error: LoopError) -> StartError {
        StartError::Loop(error)
    }
}
