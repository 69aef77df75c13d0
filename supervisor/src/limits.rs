//! Every bound of the supervisor in one table, checked against each other when this crate is compiled. The bounds of
//! the wire are in [`offload_protocol::limits`].

use offload_protocol::limits::{CHECKPOINT_MAX, PAYLOAD_MAX_DEFAULT, READ_CHUNK};
use std::time::Duration;

/// Most worker processes.
pub const WORKERS_MAX: usize = 256;

/// Most jobs that wait, unless configured otherwise.
pub const JOBS_QUEUED_MAX_DEFAULT: usize = 10_000;

/// Most bytes of input held for jobs that wait or run, unless configured otherwise (256 MiB).
pub const QUEUED_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Most attempts that a job may ask for.
pub const ATTEMPTS_MAX: u32 = 100;

/// What a worker costs at least, in the time of workers: a client whose job ends one has used so much more.
pub const WORKER_COST_MIN: Duration = Duration::from_millis(5);

/// Most short jobs given to one worker at a time.
pub const WINDOW_MAX: usize = 32;

/// A task whose runs take less than this on average counts as tiny: several are given to one worker at a time.
pub const TINY_RUN: Duration = Duration::from_micros(50);

/// Work of which nine runs in ten take at most this counts as short, all other as long.
pub const LONG_RUN: Duration = Duration::from_millis(10);

/// For so long after short work came, slots are kept free for more of it.
pub const SHORT_MEMORY: Duration = Duration::from_millis(200);

/// The largest share that a client can be given, relative to those that have 1.
pub const WEIGHT_MAX: u32 = 1000;

/// Largest priority; the smallest is its negative.
pub const PRIORITY_MAX: i8 = 10;

/// The jobs that a worker is remembered to have done, for whoever asks what it died of.
pub const RECENT_JOBS: usize = 8;

/// Processes that hang in the kernel after SIGKILL whose places are filled all the same.
pub const HANGING_MAX: usize = 2;

/// A start of a worker that nobody waits for any more hangs if it was begun so long ago: it is killed where it can be, and
/// others of its program are refused until it is over.
pub const LAUNCH_HANGS_AFTER: Duration = Duration::from_secs(1);

/// Supervisors whose strays could not be ended yet, and are looked for at each start on the same socket.
pub const GENERATIONS_KEPT: usize = 8;

/// What a job is expected to run if nothing is known of its task.
pub const RUN_UNKNOWN: Duration = Duration::from_millis(1);

/// Finished jobs that are remembered for `jobs`, `wait` and `result`.
pub const FINISHED_JOBS_MAX: usize = 10_000;

/// Bytes of output kept for detached jobs; the oldest are forgotten first (64 MiB).
pub const FINISHED_BYTES_MAX: usize = 64 << 20;

/// Lost attempts of one job that are remembered: the first one and the last ones.
pub const LOST_ATTEMPTS_KEPT: usize = 8;

/// Of so many of them, the last ones, all that the process printed last is kept.
pub const LAST_LINES_KEPT: usize = 3;

/// Most who can wait for the end of one job.
pub const LISTENERS_MAX: usize = 1024;

/// Dead letters that are kept; the oldest are dropped first.
pub const DEAD_LETTERS_MAX: usize = 1000;

/// Bytes of input kept for dead letters; the oldest are dropped first (64 MiB).
pub const DEAD_BYTES_MAX: usize = 64 << 20;

/// Most clients connected to the local socket at a time; fewer where descriptors are scarce.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections beyond those, for who looks after the supervisor: `status`, `stop`, `drain` and the like are answered on
/// them, jobs are not taken.
pub const CONTROL_CONNECTIONS: usize = 16;

/// A client that asks for nothing and waits for nothing is disconnected after this long.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The same on a connection beyond the limit.
pub const CONTROL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// When a new client has no room, one that has been idle for this long is disconnected for it.
pub const GIVE_WAY_AFTER: Duration = Duration::from_secs(1);

/// Most answers that come later (of a drain, a stop, a reload) which one client may wait for.
pub const LATE_ANSWERS_MAX: usize = 64;

/// Longest page of a list, in bytes; a longer single row travels alone.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

/// Most rows of one page.
pub const PAGE_ROWS_MAX: usize = 1000;

/// A request with a long answer waits while more bytes than this are to be written to its client.
pub const ANSWER_BACKLOG_MAX: usize = 64 << 10;

/// Longest line of a worker's last words in a list of dead letters, in bytes; each of them has all in `dead show`.
pub const LISTED_LINE_MAX: usize = 256;

/// Most jobs that one client may wait for beside those that it submitted itself.
pub const WAITS_MAX: usize = 10_000;

/// Most bytes that wait to be written to one client before it is disconnected as too slow, beyond the message that
/// is under way.
pub const CONNECTION_BACKLOG_MAX: usize = 1 << 20;

/// A client that has said nothing of sense after this long is disconnected.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer that stops in the middle of a frame, or takes none of what is written to it, is gone after this long.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker that stops in the middle of a message, or takes nothing of the job that it was given although it has no
/// other, is killed after this long.
pub const WORKER_STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after `accept` ran out of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest line of the log, in bytes.
pub const LOG_LINE_MAX: usize = 4096;

/// Lines of one kind that the log writes at once, of all workers and clients together.
pub const LOG_LINES_AT_ONCE: u32 = 20;

/// Lines of one kind a second when those are used up.
pub const LOG_LINES_PER_SECOND: u32 = 1;

/// Lines that all workers together may print into the log at once.
pub const OUTPUT_LINES_AT_ONCE: u32 = 1000;

/// The same a second, when those are used up.
pub const OUTPUT_LINES_PER_SECOND: u32 = 100;

/// Bytes that all workers together may print into the log at once (256 KiB).
pub const OUTPUT_BYTES_AT_ONCE: u32 = 256 << 10;

/// The same a second, when those are used up (8 KiB).
pub const OUTPUT_LOGGED_PER_SECOND: u32 = 8 << 10;

/// Most clients that the `status` view lists.
pub const CLIENTS_SHOWN_MAX: usize = 32;

/// Most jobs that `offload jobs` lists unless told otherwise.
pub const JOBS_SHOWN_MAX: usize = 1000;

const _: () =
    assert!(WORKERS_MAX * WINDOW_MAX <= JOBS_QUEUED_MAX_DEFAULT, "a full pool fits back into the queue");
const _: () = assert!(PAYLOAD_MAX_DEFAULT as u64 <= QUEUED_BYTES_MAX_DEFAULT, "one longest input fits");
const _: () = assert!(READ_CHUNK <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(JOBS_SHOWN_MAX <= FINISHED_JOBS_MAX);
const _: () = assert!(TINY_RUN.as_nanos() < LONG_RUN.as_nanos());
const _: () = assert!(
    CHECKPOINT_MAX * WORKERS_MAX <= QUEUED_BYTES_MAX_DEFAULT as usize,
    "the checkpoints of a full pool fit into the default limit of bytes"
);
