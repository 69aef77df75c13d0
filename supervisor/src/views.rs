//! What `status`, `workers`, `jobs` and `tasks` show, as data: the supervisor fills these in, `--json` prints them as
//! they are, and the tables of the command line are made from them. The field names are a contract with users.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The supervisor as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// `starting`, `running`, `degraded` (some program has no worker, and the last start of one failed), `draining` or
    /// `stopped`.
    pub state: String,
    /// Why it is degraded; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The worker programs.
    #[serde(default)]
    pub programs: Vec<ProgramView>,
    /// The worker processes.
    pub workers: WorkerCounts,
    /// How well the waits of jobs are foretold.
    #[serde(default)]
    pub wait_estimate: WaitEstimate,
    /// Who has jobs, those that have used most first; at most [`crate::limits::CLIENTS_SHOWN_MAX`].
    #[serde(default)]
    pub clients: Vec<ClientView>,
    /// What waits.
    pub queue: QueueCounts,
    /// What is kept beyond the end of jobs because it was promised: results and idempotency keys.
    #[serde(default)]
    pub kept: KeptCounts,
    /// The dead letters.
    #[serde(default)]
    pub dead_letters: DeadCounts,
    /// `accepted`, `rejected`, `queued`, `running`, and one counter for each outcome.
    pub jobs: BTreeMap<String, u64>,
    /// Whether the books balance.
    pub ledger: LedgerView,
    /// How the loop fares.
    pub event_loop: LoopView,
    /// The threads for blocking work.
    pub io_pool: IoPoolView,
}

/// Part of [`Status`]: one worker program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramView {
    /// Its name.
    pub program: String,
    /// `ready` (it has a worker), `starting`, or `degraded`: it has none, and the last start failed.
    pub state: String,
    /// Starts that have failed in a row.
    pub failed_starts: u32,
    /// Why the last one did, if it is degraded.
    pub reason: Option<String>,
    /// Its jobs are refused until a start succeeds.
    pub refuses: bool,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    /// Slots.
    pub configured: usize,
    /// Slots whose worker can take a job or runs one.
    pub ready: usize,
    /// Slots whose worker runs a job.
    pub busy: usize,
    /// Started workers that wait to replace one that dies.
    pub spares: usize,
    /// Worker processes started to replace another.
    pub restarts: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitEstimate {
    /// How long a job would wait that came now and whose client takes its turn behind all others, in microseconds.
    pub now_us: u64,
    /// Jobs whose wait was foretold when they were accepted, and that have been started since.
    pub checked: u64,
    /// By how much half of the forecasts were wrong at most, in microseconds, rounded up to a power of two.
    pub error_p50_us: u64,
    /// By how much nine forecasts in ten were wrong at most, in microseconds, rounded up to a power of two.
    pub error_p90_us: u64,
}

/// Part of [`Status`]: one client that has jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientView {
    /// As it calls itself, or its connection.
    pub client: String,
    /// Its share relative to others.
    pub weight: u32,
    /// Jobs of its that have not ended.
    pub jobs: usize,
    /// Jobs of its that wait.
    pub waiting: usize,
    /// Bytes that are held for it: inputs, and outputs that it has not taken.
    #[serde(default)]
    pub bytes: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Jobs that wait.
    pub jobs: usize,
    /// Bytes that are held for clients: inputs of jobs that wait or run, those that are on their way in, and outputs
    /// that have not been taken.
    pub bytes: u64,
    /// Most jobs that may wait.
    pub max_jobs: usize,
    /// Most bytes that may be held when another input is let in, or another job is started.
    pub max_bytes: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCounts {
    /// Jobs of which something is kept, or will be when they have ended.
    pub jobs: usize,
    /// What that takes, in bytes.
    pub bytes: u64,
    /// At so many bytes no more is promised.
    pub max_bytes: u64,
    /// At so many bytes nothing more is promised to one client.
    pub max_bytes_per_client: u64,
    /// Jobs that are held back because there is no room for their outputs.
    pub held: usize,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadCounts {
    /// Letters that are kept.
    pub letters: usize,
    /// What they take, in bytes.
    pub bytes: u64,
    /// Jobs that died and of which no letter could be kept.
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
    /// Turns of the loop.
    pub iterations: u64,
    /// How long an event that arrived while the loop was busy had to wait, in microseconds.
    pub lag_us: Percentiles,
    /// The callback that held the loop longest.
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
    /// Where it was registered: file, line, column.
    pub site: String,
    /// How long it ran, in microseconds.
    pub us: u64,
}

/// Part of [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPoolView {
    /// Threads.
    pub threads: usize,
    /// Threads at work.
    pub busy: usize,
    /// Tasks that wait.
    pub queued: usize,
    /// Threads written off because their task ran over its deadline.
    pub stuck: usize,
}

/// One slot, or the spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Number of the slot; the spare has the number after the last slot.
    pub slot: usize,
    /// The program that the slot runs.
    pub program: String,
    /// Process id, while there is a process.
    pub pid: Option<u32>,
    /// Which process of this slot it is, counted from 1.
    pub incarnation: u64,
    /// `starting`, `idle`, `busy`, `spare`, `stopping`, `backing_off`, `empty` or `broken`.
    pub state: String,
    /// The job that it runs.
    pub job: Option<String>,
    /// The task of that job.
    pub task: Option<String>,
    /// How long that job runs, in microseconds.
    pub running_us: Option<u64>,
    /// Jobs finished by this slot.
    pub jobs_done: u64,
    /// Resident memory of the process, in bytes.
    pub rss_bytes: Option<u64>,
    /// Processes that have ended in this slot.
    pub restarts: u64,
    /// How the previous process ended.
    pub last_exit: Option<String>,
    /// The highest tier of confinement whose musts all hold, by the kernel; none if not even the lowest, or unknown.
    pub tier: Option<u8>,
    /// What it gave up before its hello, by the kernel.
    pub confinement: Option<serde_json::Value>,
    /// Units of work done of its job, and in all (0 if that is not known), if it said so.
    pub progress: Option<(u64, u64)>,
    /// Why it is to be replaced, though it is well: `jobs`, `age`, `memory`, `reload` or `surplus`.
    pub retires: Option<String>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its public id.
    pub job: String,
    /// Its task.
    pub task: String,
    /// Who submitted it.
    pub client: String,
    /// `queued`, `running`, or the outcome.
    pub state: String,
    /// How often it was started.
    pub attempts: u32,
    /// Microseconds since it was accepted, or, once it has ended, from acceptance to the end.
    pub age_us: u64,
    /// The slot that runs it or ran it last.
    pub slot: Option<usize>,
    /// Length of the input.
    pub input_bytes: u64,
    /// What went wrong.
    pub error: Option<String>,
}

/// One task on offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Its name.
    pub task: String,
    /// The lane that it runs in.
    pub lane: String,
    /// Whether a job whose worker died is tried again.
    pub idempotent: bool,
    /// The program that offers it.
    pub program: String,
}

/// One attempt at a job that ended its worker, or ended with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Its number; 0 if the job was given to the worker and had not been started.
    pub attempt: u32,
    /// Process id of the worker; 0 if that is not known any more.
    pub worker_pid: u32,
    /// Its slot.
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
    /// What the process printed last.
    pub last_lines: Vec<String>,
    /// What the process used in its life, by the kernel.
    pub usage: Option<UsageView>,
    /// The jobs that the process had done before, the last one first.
    pub previous_jobs: Vec<String>,
    /// Whether the job is to blame: it was the one that ran.
    pub blamed: bool,
}

/// What a process used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// CPU time in user mode, in microseconds.
    pub cpu_user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub cpu_system_us: u64,
    /// The most memory that was seen resident, in bytes; 0 if it was never looked at.
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
    /// Its task.
    pub task: String,
    /// Who submitted it.
    pub client: String,
    /// Since it died, in microseconds.
    pub dead_for_us: u64,
    /// Length of the input.
    pub input_bytes: u64,
    /// Whether the input is kept as well, for another try.
    #[serde(default = "yes")]
    pub has_input: bool,
    /// After so long the letter is forgotten, in microseconds.
    #[serde(default)]
    pub kept_for_us: u64,
    /// What went wrong the last time.
    pub error: String,
    /// Every attempt, the first one first.
    pub attempts: Vec<AttemptView>,
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplanationView {
    /// The job's public id.
    pub job: String,
    /// Its task.
    pub task: String,
    /// Who submitted it.
    pub client: String,
    /// `parked` (nobody is known to offer the task yet), `queued`, `assigned`, `running`, or the outcome.
    pub state: String,
    /// The reasons, for people, the most important first.
    pub reasons: Vec<String>,
    /// Since it was accepted, or from acceptance to the end, in microseconds.
    pub age_us: u64,
    /// How often it was started.
    pub attempts: u32,
    /// How many attempts may end their worker.
    pub attempts_allowed: Option<u32>,
    /// Of a job that waits: how long it will, in microseconds; none if nothing like a job before it has ever run.
    pub expected_wait_us: Option<u64>,
    /// Of a job that waits: jobs of its own client that come before it.
    pub ahead: Option<usize>,
    /// `short` or `long`: which slots it waits for.
    pub class: Option<String>,
    /// The slot that runs it or ran it last.
    pub slot: Option<usize>,
    /// The process that runs it or ran it last.
    pub worker_pid: Option<u32>,
    /// Units of work done, and in all (0 if that is not known).
    pub progress: Option<(u64, u64)>,
    /// Length of the state that the next attempt goes on from; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<AttemptView>,
}

/// Some rows of a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    /// The rows, in the order of the list, each as it came.
    pub rows: Vec<Box<serde_json::value::RawValue>>,
    /// Where the next page begins; none if there is no other.
    pub next: Option<String>,
}
