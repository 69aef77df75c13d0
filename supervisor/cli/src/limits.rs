//! Every bound of this program in one table: how long a command waits for the supervisor, how much it reads and keeps, and
//! what its settings accept.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How long a supervisor may take to answer what it can answer at once.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long `jobs --watch` waits before it looks again.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long `logs --follow` waits before it asks for further lines.
pub(crate) const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

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

/// Most jobs of `map` in a supervisor whose inputs are files that are passed on. While there are as many, other files are read.
pub(crate) const FILES_IN_FLIGHT_MAX: usize = 64;

/// Most input files of `map` that are being read, or were read and wait to be submitted.
pub(crate) const LOADS_MAX: usize = 4;

/// After a signal, how long the results that there are may take to be written. Then they are saved in a file.
pub(crate) const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same signal again within this time is the same request to end.
pub(crate) const ONE_SIGNAL: Duration = Duration::from_millis(200);

/// How long a supervisor may take to say what a word that somebody types can become.
pub(crate) const COMPLETION_TIMEOUT: Duration = Duration::from_millis(150);

/// Most tasks or jobs among which a shell is offered those that fit.
pub(crate) const COMPLETED_MAX: usize = 500;

/// How often `doctor` sleeps for a millisecond, to see how late it wakes.
pub(crate) const DOCTOR_SLEEPS: u32 = 200;

/// Most jobs that have not ended of which `top` asks the supervisor each time.
#[cfg(feature = "top")]
pub(crate) const TOP_JOBS_MAX: usize = 500;

/// Most orders of `top` that wait to be obeyed, and most answers that wait to be shown.
#[cfg(feature = "top")]
pub(crate) const TOP_ORDERS_MAX: usize = 8;

/// How often `top` may ask the supervisor, which disconnects those who ask for nothing for a minute.
#[cfg(feature = "top")]
pub(crate) const TOP_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(30);

/// How long `top` shows why there is nothing more to watch. A key ends that.
#[cfg(feature = "top")]
pub(crate) const TOP_LAST_LOOK: Duration = Duration::from_secs(3);

/// The longest name of a file, in bytes: no file system of Linux takes longer ones.
pub(crate) const FILE_NAME_MAX: usize = 255;

/// How many names are tried for the file that saves a result which has no job id.
pub(crate) const FILE_NAMES_MAX: usize = 100;

/// The largest number of a range of inputs.
pub(crate) const RANGE_MAX: u64 = 1 << 53;

/// The longest name of an input that its output gets, in bytes: a number may come before it.
pub(crate) const OUTPUT_NAME_MAX: usize = 200;

/// The most bytes of what is printed of a job that are read from the results of a job log: an output of the largest
/// size (1 GiB), as base64, with the line around it.
pub(crate) const PRINTED_MAX: u64 = 2 << 30;

/// The longest path that the kernel takes, in bytes.
pub(crate) const PATH_MAX: usize = 4096;

/// The longest line of a job log that is read, in bytes. The longest ones that are written have two paths.
pub(crate) const LOG_LINE_MAX: u64 = 64 << 10;

/// How long a lock is waited for that another process has, and how often it is tried.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// See [`LOCK_TIMEOUT`].
pub(crate) const LOCK_TRIED_EVERY: Duration = Duration::from_millis(20);

/// After how long a message says that standard input is waited for, if nobody named it.
pub(crate) const STDIN_TOLD_AFTER: Duration = Duration::from_secs(2);

/// Most lines that wait to be written to standard error during a batch; more are dropped, because their reader has stopped.
pub(crate) const PROGRESS_LINES_MAX: usize = 64;

/// How long closing the progress bar waits until its last lines are written.
pub(crate) const PROGRESS_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The most bytes of all tasks that are programs, as adapters are told of them: they are one variable of the environment, and the
/// kernel takes 128 KiB.
pub(crate) const EXEC_TASKS_BYTES_MAX: usize = 96 << 10;

/// Most jobs of one batch that are in flight, or have ended and wait for an earlier job to end.
pub(crate) const BATCH_JOBS_MAX: u64 = 1024;

/// Most jobs of one batch for each worker of its own: so many that no worker waits for the next one.
pub(crate) const JOBS_FOR_A_WORKER: u64 = 64;

/// Most bytes of inputs and outputs that a batch holds while a supervisor runs its jobs (64 MiB). A batch with workers of
/// its own has the limit of their pool.
pub(crate) const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Threads that read inputs and write results. One may wait for standard input and one for standard output; the others
/// read files.
pub(crate) const BATCH_IO_THREADS: usize = 6;

/// The deadline of these reads and writes, which have none in fact: a person at a keyboard or a reader of the output may
/// take any time. Ctrl-C ends the wait.
pub(crate) const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(365 * 24 * 3600);

/// For how long `run --stream` waits for the end of a job that it has cancelled.
pub(crate) const CANCELLED_JOB_MAX: Duration = Duration::from_secs(5);

/// Result lines are collected up to this many bytes before they are written (256 KiB).
pub(crate) const WRITTEN_AT_ONCE_BYTES: usize = 256 << 10;

/// Longest configuration file that is read, in bytes.
pub(crate) const CONFIGURATION_FILE_MAX: u64 = 1 << 20;

/// The largest value of the settings that bound waiting jobs.
pub(crate) const CONFIGURED_JOBS_MAX: u64 = 10_000_000;

/// The largest value of the setting for threads that do blocking work.
pub(crate) const IO_THREADS_MAX: u64 = 64;

/// How many of these threads there are unless configured otherwise.
pub(crate) const IO_THREADS_DEFAULT: usize = 4;

/// The largest value of the setting for HTTP connections, and what it is unless configured otherwise.
pub(crate) const HTTP_CONNECTIONS_MAX: u64 = 100_000;
/// See [`HTTP_CONNECTIONS_MAX`].
pub(crate) const HTTP_CONNECTIONS_DEFAULT: usize = 1024;

/// The bounds of the settings that say how long a worker may take to start, or seem to hang, in milliseconds.
pub(crate) const WORKER_PATIENCE_MS: RangeInclusive<u64> = 10..=3_600_000;

/// Shortest measurement of one strategy by `bench`: time for ten probes.
pub(crate) const BENCH_TIME_MIN: Duration = Duration::from_millis(10);

/// Longest measurement of one strategy. It limits the number of probes that wait while the loop is blocked.
pub(crate) const BENCH_TIME_MAX: Duration = Duration::from_secs(600);

/// Most elements of the array that a job of `bench` measures: well within the longest input that a pool accepts by
/// default.
pub(crate) const BENCH_ELEMENTS_MAX: u64 = 500_000;

/// Length of the text in which `offload bench compare --task regex` looks.
pub(crate) const BENCH_TEXT_MAX: u64 = 32 << 20;

/// Pixels of a side of the picture that `offload bench compare --task thumbnail` shrinks.
pub(crate) const BENCH_SIDE_MAX: u64 = 4096;

/// Most inputs that `offload bench compare --input` takes: they are kept in memory, with the output of each.
pub(crate) const BENCH_INPUTS_MAX: usize = 256;

/// Most workers of which `offload bench advise` asks whether they pay off.
pub(crate) const BENCH_WORKERS_MAX: usize = 17;

/// Longest file that `offload bench compare --baseline` reads.
pub(crate) const BASELINE_BYTES_MAX: u64 = 16 << 20;

/// How long each strategy runs before it is measured.
pub(crate) const BENCH_WARM_UP: Duration = Duration::from_millis(50);

/// How long `bench` waits until all workers are ready.
pub(crate) const BENCH_READY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a process of another runtime may take to be ready, and to answer after the time of a sample.
pub(crate) const BENCH_PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may take to end, when it has nothing more to do.
pub(crate) const BENCH_PEER_END_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest line that is read of it, in bytes.
pub(crate) const BENCH_PEER_LINE_MAX: u64 = 1 << 20;

/// How much is kept of what it says to people, in bytes.
pub(crate) const BENCH_PEER_WORDS_MAX: u64 = 4 << 10;

/// How long a part of a scenario of `bench seeds` may take.
pub(crate) const BENCH_SCENARIO_MAX: Duration = Duration::from_secs(60);

/// How long a job of `bench` may run on the loop before it yields, where it is partitioned by time.
pub(crate) const BENCH_STEP_BUDGET: Duration = Duration::from_millis(1);

/// Longest delay of a probe that is recorded, in microseconds: one hour. Longer ones count as this.
pub(crate) const PROBE_WAIT_MAX_US: u64 = 3_600_000_000;
