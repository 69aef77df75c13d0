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

/// One part in so many of the bytes that may be held counts as nearly nothing: an input or output of any size passes.
pub const IDLE_SHARE: u64 = 16;

/// So much of inputs may be held for a client however much others hold (4 KiB, and at most one part in 4,096 of the limit):
/// who asks for little is not turned away because others do not read. It is part of what a connection or a job costs.
pub const LITTLE: u64 = 4 << 10;

/// What is little where so many bytes may be held in all.
pub const fn little(limit: u64) -> u64 {
    if limit / 4096 < LITTLE { limit / 4096 } else { LITTLE }
}

/// The last places of the queue, one in so many, are shared out: of them a client gets another one only while fewer of its
/// jobs wait than are left.
pub const LAST_JOBS: usize = 10;

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

/// For so long after short work came, began or ended, slots are kept free for more of it.
pub const SHORT_MEMORY: Duration = Duration::from_millis(200);

/// If short work found no slot for longer than that, they are kept for as long, but no longer than this.
pub const SHORT_MEMORY_MAX: Duration = Duration::from_secs(60);

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

/// Most bytes of results and idempotency keys that are kept as promised, unless configured otherwise (128 MiB). One
/// client may have as much as it leaves free, half if it is alone.
pub const KEPT_BYTES_MAX_DEFAULT: u64 = 128 << 20;

/// What one promise costs beside its output and its texts: its report, its key, and their places in tables.
pub const PROMISE_BYTES: u64 = 1 << 10;

/// How long the result of a detached job is kept after the job's end for whoever collects it, unless configured
/// otherwise.
pub const KEEP_RESULTS_DEFAULT: Duration = Duration::from_secs(3600);

/// How long an idempotency key is known, and the result of its job kept, after the job's end, unless configured otherwise.
pub const KEEP_KEYS_DEFAULT: Duration = Duration::from_secs(3600);

/// Idempotency keys whose time is over that are remembered, so that whoever uses one again can be told.
pub const EXPIRED_KEYS_MAX: usize = 1024;

/// Ended jobs of which nothing was promised, or not any more, and that are remembered for `jobs` and `explain`; those
/// of the client that has most of them are forgotten first.
pub const HISTORY_JOBS_MAX: usize = 10_000;

/// Bytes of their reports (16 MiB).
pub const HISTORY_BYTES_MAX: u64 = 16 << 20;

/// Lost attempts of one job that are remembered: the first one and the last ones.
pub const LOST_ATTEMPTS_KEPT: usize = 8;

/// Of so many of them, the last ones, all that the process printed last is kept.
pub const LAST_LINES_KEPT: usize = 3;

/// Most who can wait for the end of one job: each connection counts once, however often it asks.
pub const LISTENERS_MAX: usize = 2048;

/// Clients without jobs that are remembered, with what they have used and how long their outputs were.
pub const RESTING_CLIENTS_MAX: usize = 1024;

/// Most dead letters that are kept. One client may have as many as it leaves free, half if it is alone.
pub const DEAD_LETTERS_MAX: usize = 1000;

/// Most bytes that dead letters hold, their inputs among them (64 MiB). One client may have as much as it leaves free.
pub const DEAD_BYTES_MAX: u64 = 64 << 20;

/// How long a dead letter is kept unless configured otherwise: over a weekend.
pub const KEEP_DEAD_LETTERS_DEFAULT: Duration = Duration::from_secs(72 * 3600);

/// Most clients connected to the local socket at a time; fewer where descriptors are scarce.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections beyond those, for who looks after the supervisor: `status`, `stop`, `drain` and the like are answered on
/// them, jobs are not taken.
pub const CONTROL_CONNECTIONS: usize = 16;

/// Most of those that one process has.
pub const CONTROL_CONNECTIONS_OF_ONE: usize = 4;

/// When only so many connections are left, or a quarter where there is room for few, a process gets one more of them only
/// while it has fewer than are left.
pub const LAST_CONNECTIONS: usize = 64;

/// Requests that are handled in one turn of the loop, of all clients together.
pub const REQUESTS_PER_TURN: usize = 64;

/// A client that asks for nothing and waits for nothing is disconnected after this long.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The same on a connection beyond the limit.
pub const CONTROL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// After this long a connection beyond the limit gives way to the next one that needs the room.
pub const CONTROL_TURN: Duration = Duration::from_secs(2);

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

/// While more bytes of answers than this (2 MiB) are held for the connections of one process, none of its requests is read
/// and none of its long answers is made. So this, and what one connection is told in one turn, is the most
/// that its answers take, outputs not counted; it is part of `max_bytes`.
pub const PROCESS_ANSWERS_MAX: usize = 2 << 20;

/// Longest line of a worker's last words in a list of dead letters, in bytes; each of them has all in `dead show`.
pub const LISTED_LINE_MAX: usize = 256;

/// Most waits of all clients together, beside that of each for the jobs which it submitted itself: for jobs of others, for
/// jobs that were there already under the same key, and repeated ones. One client may have as many as are left free, so
/// half of all if it is the only one.
pub const WAITS_MAX: usize = 20_000;

/// So many each client may have in any case.
pub const WAITS_IN_ANY_CASE: usize = 16;

/// How often one client may wait for one and the same job.
pub const REPEATED_WAITS_MAX: usize = 16;

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

/// A client for which more than [`CONNECTION_BACKLOG_MAX`] is held has to take so much of it in each
/// [`STALL_TIMEOUT`] (1 MiB), or it is disconnected.
pub const OUTPUT_TAKEN_MIN: usize = 1 << 20;

/// A message has to be complete after this long; one with a payload has as much longer as [`BODY_RATE_MIN`] says.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Bytes that have to come of a payload in a second, on average (1 MiB).
pub const BODY_RATE_MIN: u64 = 1 << 20;

/// A payload for which there is no room is left in the socket for so long, and then refused.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(10);

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

/// Bytes of what a worker printed last that are kept when it has ended, in whole lines and at least one (2 KiB).
pub const LAST_LINES_BYTES_MAX: usize = 2 << 10;

/// What this process needs for itself: its code, the loop, the log (1,024 lines) and what the allocator keeps back
/// (64 MiB).
pub const MEMORY_OF_ITS_OWN: u64 = 64 << 20;

/// What one worker costs at the most beside payloads: two buffers of its socket, the small outputs of one window, the
/// lines that it prints (2 MiB).
pub const MEMORY_OF_A_WORKER: u64 = 2 << 20;

/// What one connection costs at the most beside payloads: a buffer in each direction, and an answer (256 KiB).
pub const MEMORY_OF_A_CONNECTION: u64 = 256 << 10;

/// What is remembered of one job at the most beside payloads, most of it the last lines of the workers that it was lost
/// with (16 KiB).
pub const MEMORY_OF_A_JOB: u64 = 16 << 10;

/// What one wait costs at the most, from when it is asked for until its answer is written (1 KiB).
pub const MEMORY_OF_A_WAIT: u64 = 1 << 10;

/// What the memory of the whole process depends on, and its bound.
///
/// | what | how much |
/// |---|---|
/// | inputs that arrive, wait or run, checkpoints, and outputs until they are written: [`core::ledger`](crate::core::ledger) | `max_bytes` |
/// | results and keys that are kept | `max_kept_bytes` |
/// | dead letters with their inputs | `max_dead_bytes` |
/// | outputs that came when one of these was full, one a worker each; inputs of jobs that were cancelled on their way to a worker, one a worker | 3 x `workers` x `max_payload` |
/// | workers, connections, jobs that wait, run or are remembered | [`MEMORY_OF_A_WORKER`], [`MEMORY_OF_A_CONNECTION`], [`MEMORY_OF_A_JOB`] each |
/// | those who wait for jobs of others: [`WAITS_MAX`] and [`WAITS_IN_ANY_CASE`] for each connection | [`MEMORY_OF_A_WAIT`] each |
/// | reports of ended jobs | [`HISTORY_BYTES_MAX`] |
/// | the process itself | [`MEMORY_OF_ITS_OWN`] |
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// As configured, in bytes.
    pub max_bytes: u64,
    /// As configured, in bytes.
    pub max_payload: u64,
    /// As configured, in bytes.
    pub max_kept_bytes: u64,
    /// As configured, in bytes.
    pub max_dead_bytes: u64,
    /// Slots and the spare.
    pub workers: u64,
    /// At most [`CONNECTIONS_MAX`].
    pub connections: u64,
    /// Those that wait (at most `max_jobs`), those that workers have, and dead letters (at most [`DEAD_LETTERS_MAX`]).
    pub jobs: u64,
}

impl Memory {
    /// With the limits that apply unless others are configured.
    pub const fn of_defaults(workers: u64, connections: u64, jobs: u64) -> Memory {
        Memory {
            max_bytes: QUEUED_BYTES_MAX_DEFAULT,
            max_payload: PAYLOAD_MAX_DEFAULT as u64,
            max_kept_bytes: KEPT_BYTES_MAX_DEFAULT,
            max_dead_bytes: DEAD_BYTES_MAX,
            workers,
            connections,
            jobs,
        }
    }

    /// The most that the process takes, in bytes.
    pub const fn most(self) -> u64 {
        self.max_bytes
            + self.max_kept_bytes
            + self.max_dead_bytes
            + self.workers * (3 * self.max_payload + MEMORY_OF_A_WORKER)
            + self.connections * MEMORY_OF_A_CONNECTION
            + self.jobs * MEMORY_OF_A_JOB
            + (WAITS_MAX as u64 + self.connections * WAITS_IN_ANY_CASE as u64) * MEMORY_OF_A_WAIT
            + HISTORY_BYTES_MAX
            + MEMORY_OF_ITS_OWN
    }
}

const _: () =
    assert!(WORKERS_MAX * WINDOW_MAX <= JOBS_QUEUED_MAX_DEFAULT, "a full pool fits back into the queue");
const _: () = assert!(PAYLOAD_MAX_DEFAULT as u64 <= QUEUED_BYTES_MAX_DEFAULT, "one longest input fits");
const _: () = assert!(READ_CHUNK <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= CONNECTION_BACKLOG_MAX);
const _: () =
    assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= PROCESS_ANSWERS_MAX, "one connection is within it");
const _: () = assert!(LAST_CONNECTIONS + CONTROL_CONNECTIONS < CONNECTIONS_MAX);
const _: () = assert!(JOBS_SHOWN_MAX <= HISTORY_JOBS_MAX);
const _: () = assert!(
    PAYLOAD_MAX_DEFAULT as u64 <= KEPT_BYTES_MAX_DEFAULT / 2,
    "one longest output fits into what is kept for one client"
);
const _: () = assert!(TINY_RUN.as_nanos() < LONG_RUN.as_nanos());
const _: () = assert!(
    CHECKPOINT_MAX * WORKERS_MAX <= QUEUED_BYTES_MAX_DEFAULT as usize,
    "the checkpoints of a full pool fit into the default limit of bytes"
);
