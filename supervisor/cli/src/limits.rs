//! Every bound of this program in one table: how long a command waits for the supervisor, and how much it reads and keeps.

use std::time::Duration;

/// How long a supervisor may take to answer what it can answer at once.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long `stop` waits for the answer: workers that do not end when asked are killed meanwhile.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long `cancel` waits for the answer: a worker that runs the job is asked to stop, then killed.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long `reload` waits for the answer: every worker first finishes the job that it has.
pub(crate) const RELOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a supervisor may take to end when its jobs are done and its workers are gone.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(10);

/// For what waits for jobs, which have limits of their own: Ctrl-C ends the waiting, and the supervisor goes on.
pub(crate) const NO_LIMIT: Option<Duration> = None;

/// Most input files of `map` that are being read, or were read and wait to be submitted.
pub(crate) const LOADS_MAX: usize = 4;

/// How many names are tried for the file that saves a result which has no job id.
pub(crate) const FILE_NAMES_MAX: usize = 100;

/// Most lines that wait to be written to standard error during a batch; more are dropped, because their reader has stopped.
pub(crate) const PROGRESS_LINES_MAX: usize = 64;

/// Longest configuration file that is read, in bytes.
pub(crate) const CONFIGURATION_FILE_MAX: u64 = 1 << 20;

/// The largest value of the settings that bound waiting jobs.
pub(crate) const CONFIGURED_JOBS_MAX: u64 = 10_000_000;

/// The largest value of the setting for threads that do blocking work.
pub(crate) const IO_THREADS_MAX: u64 = 64;
