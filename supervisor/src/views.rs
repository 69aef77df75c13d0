//! The data that `status`, `workers`, `jobs`, `dead` and `tasks` show. The supervisor fills in these structures, `--json` prints them
//! unchanged, and the command line makes its tables from them. The field names are a contract with users.

mod explanation;
mod measured;
mod open_state;
mod task;

use offload_protocol::nouns::Labels;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

pub use explanation::{ExplanationView, GlanceView};
pub use measured::{EndedWorker, Meters, TaskLoad, TaskMeter, Times};
pub use open_state::OpenState;
pub use task::{BatchView, TaskView, TasksSummary};

/// The state of the supervisor as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// Seconds since the supervisor started.
    pub uptime_s: f64,
    /// `starting`, `running`, `degraded` (some program has no worker that can be relied on, and the last start of one failed), `draining` or
    /// `stopped`.
    pub state: String,
    /// Why the supervisor is degraded; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The worker programs.
    #[serde(default)]
    pub programs: Vec<ProgramView>,
    /// The worker processes.
    pub workers: WorkerCounts,
    /// How long jobs wait, and how accurate the forecasts of that are.
    #[serde(default)]
    pub wait_estimate: WaitEstimate,
    /// Clients that have jobs, those that have used most first; at most [`crate::limits::CLIENTS_SHOWN_MAX`].
    #[serde(default)]
    pub clients: Vec<ClientView>,
    /// What is paused: nothing new of it starts.
    #[serde(default)]
    pub paused: PausedView,
    /// The queue of waiting jobs, and the memory held for clients.
    pub queue: QueueCounts,
    /// What is kept after the end of jobs because it was promised: results and idempotency keys.
    #[serde(default)]
    pub kept: KeptCounts,
    /// The dead letters.
    #[serde(default)]
    pub dead_letters: DeadCounts,
    /// `accepted`, `rejected`, `queued`, `running`, and one counter for each outcome of accepted jobs.
    pub jobs: BTreeMap<String, u64>,
    /// How many jobs were rejected, by the reason.
    #[serde(default)]
    pub rejections: BTreeMap<String, u64>,
    /// Whether the counts of jobs balance.
    pub ledger: LedgerView,
    /// Measurements of the event loop.
    pub event_loop: LoopView,
    /// The threads for blocking work.
    pub io_pool: IoPoolView,
}

/// Part of [`Status`]: one worker program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramView {
    /// The name of the program.
    pub program: String,
    /// `ready` (the program has a worker), `starting`, or `degraded` (the last start failed, and it has none, or
    /// only one of a version that was taken back and that has not done a job well since).
    pub state: String,
    /// Number of failed starts in a row.
    pub failed_starts: u32,
    /// Why the last start failed, if the program is degraded.
    pub reason: Option<String>,
    /// What the program looks like, if a worker of it has been running for more than 1.5 s and has not said hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether jobs of the program are refused until a worker says hello.
    pub refuses: bool,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    /// Number of slots.
    pub configured: usize,
    /// Number of slots whose worker can take a job or runs one.
    pub ready: usize,
    /// Number of slots whose worker runs a job.
    pub busy: usize,
    /// Number of started workers that wait to replace one that dies.
    pub spares: usize,
    /// Number of worker processes that were started to replace another.
    pub restarts: u64,
    /// How often a job was put behind the one that a worker runs, to be started without delay.
    #[serde(default)]
    pub prefetched: u64,
    /// How often such a job was taken back before its worker saw it.
    #[serde(default)]
    pub taken_back: u64,
    /// How often several jobs were given to a worker together.
    #[serde(default)]
    pub batches: u64,
    /// How many jobs these were in all.
    #[serde(default)]
    pub batched_jobs: u64,
    /// How many batches were lost with their worker, so that their jobs ran again in halves.
    #[serde(default)]
    pub halved_batches: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitEstimate {
    /// How long a job would wait that was submitted now by a client whose turn comes after all others, in microseconds.
    pub now_us: u64,
    /// Number of jobs whose wait was forecast when they were accepted, and that have been started since.
    pub checked: u64,
    /// Half of the forecasts were wrong by at most this, in microseconds, rounded up to a power of two.
    pub error_p50_us: u64,
    /// Nine forecasts in ten were wrong by at most this, in microseconds, rounded up to a power of two.
    pub error_p90_us: u64,
}

/// Part of [`Status`]: one client that has jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientView {
    /// The name of the client, or its process or connection if it has none.
    pub client: String,
    /// The weight of the client: its share relative to others.
    pub weight: u32,
    /// Number of the client's jobs that have not ended.
    pub jobs: usize,
    /// Number of the client's jobs that wait.
    pub waiting: usize,
    /// Bytes that are held for the client: inputs, and outputs that it has not taken.
    #[serde(default)]
    pub bytes: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Number of jobs that wait.
    pub jobs: usize,
    /// Bytes that are held for clients: inputs of jobs that wait or run, inputs that are being received, and outputs
    /// that have not been taken.
    pub bytes: u64,
    /// Maximum number of jobs that may wait.
    pub max_jobs: usize,
    /// The limit of these bytes, above which no input is accepted and no job is started.
    pub max_bytes: u64,
    /// Shared memory for the large payloads of workers, in bytes. At most half of `max_bytes`, and not a part of `bytes`.
    #[serde(default)]
    pub segment_bytes: u64,
    /// Files that jobs hold open as their inputs. They take none of these bytes.
    #[serde(default)]
    pub files: usize,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCounts {
    /// Number of jobs of which something is kept, or will be when they have ended.
    pub jobs: usize,
    /// Size of what is kept, in bytes.
    pub bytes: u64,
    /// The limit of these bytes, at which nothing more is promised.
    pub max_bytes: u64,
    /// The limit of these bytes for one client.
    pub max_bytes_per_client: u64,
    /// Number of jobs that are held back because there is no room for their outputs.
    pub held: usize,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadCounts {
    /// Number of dead letters that are kept.
    pub letters: usize,
    /// Size of the dead letters, in bytes.
    pub bytes: u64,
    /// Number of jobs that died and of which no dead letter could be kept.
    pub not_kept: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerView {
    /// Whether accepted = queued + running + the sum of all outcomes.
    pub balanced: bool,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopView {
    /// Number of turns of the event loop.
    pub iterations: u64,
    /// How long an event that arrived while the loop was busy had to wait, in microseconds.
    pub lag_us: Percentiles,
    /// The callback that ran longest.
    pub slowest_callback: Option<SlowCallback>,
}

/// Median, 99th percentile and maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

/// Part of [`LoopView`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCallback {
    /// Where the callback was registered: file, line, column.
    pub site: String,
    /// How long the callback ran, in microseconds.
    pub us: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPoolView {
    /// Number of threads.
    pub threads: usize,
    /// Number of threads that are working.
    pub busy: usize,
    /// Number of tasks that wait.
    pub queued: usize,
    /// Number of threads that were given up because their task exceeded its deadline.
    pub stuck: usize,
}

/// One slot, or the spare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Number of the slot; the spare has the number after the last slot.
    pub slot: usize,
    /// The program that the slot runs.
    pub program: String,
    /// Process id, while there is a process.
    pub pid: Option<u32>,
    /// The number of this process within its slot, counted from 1.
    pub incarnation: u64,
    /// `starting`, `idle`, `busy`, `spare`, `stopping`, `backing_off`, `empty` or `broken`.
    pub state: String,
    /// The job that the worker runs.
    pub job: Option<String>,
    /// The task of that job.
    pub task: Option<String>,
    /// How many jobs the worker was given together, if it runs a batch; `job` is one of those that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// How long the worker has been running that job, in microseconds.
    pub running_us: Option<u64>,
    /// Number of jobs finished by this slot.
    pub jobs_done: u64,
    /// Resident memory of the process, in bytes.
    pub rss_bytes: Option<u64>,
    /// Number of processes that have ended in this slot.
    pub restarts: u64,
    /// How the previous process ended.
    pub last_exit: Option<String>,
    /// The highest tier of confinement whose requirements are all met, according to the kernel. None if not even the
    /// lowest is, or if it is unknown.
    pub tier: Option<u8>,
    /// What the process gave up before its hello, according to the kernel.
    pub confinement: Option<serde_json::Value>,
    /// Units of work done of the job, and the total (0 if unknown), if the worker has reported them.
    pub progress: Option<(u64, u64)>,
    /// Why the worker is to be replaced although it is healthy: `jobs`, `age`, `memory`, `reload` or `surplus`.
    pub retires: Option<String>,
    /// What its program looks like, if the worker has been running for more than 1.5 s and has not said hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// The job's public id.
    pub job: String,
    /// The job's task.
    pub task: String,
    /// The client that submitted the job.
    pub client: String,
    /// `queued`, `paused`, `running`, or the outcome.
    pub state: String,
    /// Number of attempts that were started, without those that were lost together with other jobs: these cost none.
    pub attempts: u32,
    /// Microseconds since the job was accepted, or, once it has ended, from acceptance to the end.
    pub age_us: u64,
    /// The slot that runs the job or ran it last.
    pub slot: Option<usize>,
    /// How many jobs its worker was given together, itself included; absent if it was alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// Length of the input, in bytes.
    pub input_bytes: u64,
    /// What went wrong.
    pub error: Option<String>,
    /// The words by which the job can be found; absent if there are none.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A line that a worker has printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedLine {
    /// Its number. Lines of all workers are counted together.
    pub number: u64,
    /// When it was read, in milliseconds since 1970.
    pub time_ms: u64,
    /// The slot of the worker.
    pub slot: usize,
    /// Process id of the worker.
    pub worker_pid: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The jobs that may have printed it: usually one; none if that is not known, or the worker had no job.
    pub jobs: Vec<String>,
    /// The line, without its end. Control characters are escaped, and long lines are cut.
    pub text: String,
}

/// Some of the lines that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedPage {
    /// The lines, the oldest first.
    pub lines: Vec<PrintedLine>,
    /// What to ask for next.
    pub next: u64,
    /// How many lines of all workers in this range are not kept: they were too many, or came too fast.
    pub lost: u64,
    /// There are others already.
    pub more: bool,
    /// The job that was asked for has ended.
    pub ended: bool,
}

/// What is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedView {
    /// All tasks are.
    pub all: bool,
    /// The tasks that were paused one by one.
    pub tasks: Vec<String>,
}

/// The jobs that a shortened id can stand for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidates {
    /// The youngest of them; at most [`CANDIDATES_MAX`](offload_protocol::limits::CANDIDATES_MAX).
    pub jobs: Vec<JobView>,
    /// Whether there are others.
    pub more: bool,
}

/// One lost attempt of a job: it ended its worker, or was lost with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// The number of the start, as its worker was told it; 0 if the job was given to the worker and had not been started. Starts that
    /// were lost together with other jobs are numbered, too, although they cost no attempt.
    pub attempt: u32,
    /// Process id of the worker; 0 if it is not known any more.
    pub worker_pid: u32,
    /// The slot of the worker.
    pub slot: Option<usize>,
    /// How long the attempt ran, in microseconds.
    pub ran_us: u64,
    /// The cause in one word, such as `worker_crashed`.
    pub code: String,
    /// The cause in a sentence.
    pub what: String,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// The exit code of the process.
    pub exit_code: Option<i32>,
    /// The last lines that the process printed.
    pub last_lines: Vec<String>,
    /// What the process used in its life, according to the kernel.
    pub usage: Option<UsageView>,
    /// The jobs that the process had done before, the latest first.
    pub previous_jobs: Vec<String>,
    /// Whether the job is to blame: it was the one that was running.
    pub blamed: bool,
}

/// Resources that a process used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// CPU time in user mode, in microseconds.
    pub cpu_user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub cpu_system_us: u64,
    /// The highest resident memory that was measured, in bytes; 0 if it was never measured.
    pub peak_rss_bytes: u64,
}

fn yes() -> bool {
    true
}

/// A dead letter: a job whose every allowed attempt ended its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadView {
    /// The job's public id.
    pub job: String,
    /// The job's task.
    pub task: String,
    /// The client that submitted the job.
    pub client: String,
    /// Time since the job died, in microseconds.
    pub dead_for_us: u64,
    /// Length of the input, in bytes.
    pub input_bytes: u64,
    /// Whether the input is kept as well, so that the job can be retried.
    #[serde(default = "yes")]
    pub has_input: bool,
    /// Time until the dead letter is forgotten, in microseconds.
    #[serde(default)]
    pub kept_for_us: u64,
    /// What went wrong at the last attempt.
    pub error: String,
    /// Every attempt, the first one first.
    pub attempts: Vec<AttemptView>,
}

/// One row of a list. It is written as the fields of the variant, without its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Row {
    /// A row of the list of workers.
    Worker(Box<WorkerView>),
    /// A row of the list of jobs.
    Job(JobView),
    /// A row of the list of dead letters. Of what the workers printed last it has little.
    Dead(DeadView),
    /// A row of the list of tasks.
    Task(Box<TaskView>),
}

/// Some rows of a list, each as `R`: a [`Row`], or what a front makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<R> {
    /// The rows in the order of the list.
    pub rows: Vec<R>,
    /// The name of the last row, after which the next page begins. None if this is the last page.
    pub next: Option<String>,
}

/// A page as it travels over the local socket: each row is a JSON document.
pub type JsonPage = Page<Box<RawValue>>;
