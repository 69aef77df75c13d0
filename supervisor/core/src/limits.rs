//! Every bound of the core in one table, checked against each other when this crate is compiled. The bounds of the wire
//! are in [`offload_protocol::limits`].

use offload_protocol::limits::{CHECKPOINT_MAX, PAYLOAD_MAX_DEFAULT};
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

/// Lost attempts of one job that are remembered: the first one and the last ones.
pub const LOST_ATTEMPTS_KEPT: usize = 8;

/// Of so many of them, the last ones, all that the process printed last is kept.
pub const LAST_LINES_KEPT: usize = 3;

/// Clients without jobs that are remembered for what they used ahead of the others.
pub const RESTING_CLIENTS_MAX: usize = 1024;

/// Most dead letters that are kept. One client may have as many as it leaves free, half if it is alone.
pub const DEAD_LETTERS_MAX: usize = 1000;

/// Most bytes that dead letters hold, their inputs among them (64 MiB). One client may have as much as it leaves free.
pub const DEAD_BYTES_MAX: u64 = 64 << 20;

/// How long a dead letter is kept unless configured otherwise: over a weekend.
pub const KEEP_DEAD_LETTERS_DEFAULT: Duration = Duration::from_secs(72 * 3600);

/// A peer that stops in the middle of a frame, or takes none of what is written to it, is gone after this long.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(10);

const _: () =
    assert!(WORKERS_MAX * WINDOW_MAX <= JOBS_QUEUED_MAX_DEFAULT, "a full pool fits back into the queue");
const _: () = assert!(PAYLOAD_MAX_DEFAULT as u64 <= QUEUED_BYTES_MAX_DEFAULT, "one longest input fits");
const _: () = assert!(
    PAYLOAD_MAX_DEFAULT as u64 <= KEPT_BYTES_MAX_DEFAULT / 2,
    "one longest output fits into what is kept for one client"
);
const _: () = assert!(TINY_RUN.as_nanos() < LONG_RUN.as_nanos());
const _: () = assert!(
    CHECKPOINT_MAX * WORKERS_MAX <= QUEUED_BYTES_MAX_DEFAULT as usize,
    "the checkpoints of a full pool fit into the default limit of bytes"
);
