//! Every bound of the core in one table, and the defaults of those that can be configured. They are checked against
//! each other when this crate is compiled. The bounds of the wire are in [`offload_protocol::limits`]. Default times are
//! in [`CoreConfig`](crate::config::CoreConfig); what a priority is worth is in [`queue`](crate::queue).

use offload_protocol::limits::{BATCH_JOBS_MAX, CHECKPOINT_MAX, PAYLOAD_MAX_DEFAULT, TASKS_OFFERED_MAX};
use std::time::Duration;

/// Most worker processes that can be configured.
pub const WORKERS_MAX: usize = 256;

/// Most jobs that may wait, unless configured otherwise.
pub const JOBS_QUEUED_MAX_DEFAULT: usize = 10_000;

/// Most bytes that are held for clients (inputs, checkpoints and outputs), unless configured otherwise (256 MiB).
pub const QUEUED_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// This fraction of the bytes that may be held (one sixteenth) counts as almost nothing: while no more is held, one
/// input or output of any size passes.
pub const IDLE_SHARE: u64 = 16;

/// So many bytes of inputs may be held for a client, however much others hold (4 KiB, and at most one part in 4,096
/// of the limit), and a job with as short an output may run for it. So a client that asks for little is not turned away because
/// others do not read. This is part of what a connection or a job costs.
pub const LITTLE: u64 = 4 << 10;

/// How many bytes count as little when `limit` bytes may be held in total.
pub const fn little(limit: u64) -> u64 {
    if limit / 4096 < LITTLE { limit / 4096 } else { LITTLE }
}

/// The last places of the queue, one tenth of it, are shared out: a client gets another of them only while fewer of
/// its jobs wait than places are left.
pub const LAST_JOBS: usize = 10;

/// Most files that jobs hold open as their inputs. One client may have as many as it leaves free, half if it is alone.
pub const FILES_OPEN: usize = 256;

/// Most attempts that a job may ask for.
pub const ATTEMPTS_MAX: u32 = 100;

/// The least that a worker costs, as worker time: the client whose job ends a worker is charged this much or more.
pub const WORKER_COST_MIN: Duration = Duration::from_millis(5);

/// The longest run of a job that is done here, whatever its run timeout: it waits for something outside, and somebody else may
/// want its place. The name service of Linux gives up after about as long.
pub const HERE_TIME_MAX: Duration = Duration::from_secs(30);

/// A thread is not given up as stuck before this, however short the run timeout of its job is: a client that asks for
/// no time at all must not use up the threads.
pub const HERE_TIME_MIN: Duration = Duration::from_secs(1);

const _: () = assert!(HERE_TIME_MIN.as_millis() <= HERE_TIME_MAX.as_millis());

/// Most short jobs given to one worker at a time.
pub const WINDOW_MAX: usize = 32;

/// A task whose runs take less than this on average counts as tiny: several of its jobs are given to one worker at a
/// time.
pub const TINY_RUN: Duration = Duration::from_micros(50);

/// For how long a tiny job keeps its worker is an average over about the newest so many: over two full windows.
pub(crate) const TINY_COST_MEMORY: u32 = 2 * WINDOW_MAX as u32;

/// Work of which at least nine runs in ten, and three of the newest four, take at most this long counts as short, all other work as long.
pub const LONG_RUN: Duration = Duration::from_millis(10);

/// Behind a job that is expected to run no longer than this, another one may lie in the worker's tray. If it runs longer
/// after all, the other one is taken back. By so much worker time a job in a tray may come before a more urgent one.
pub const PREFETCH_RUN_MAX: Duration = LONG_RUN;

/// Once so many jobs were taken back from a tray while one job ran, the tray stays empty until that one has ended. Whatever an
/// order may look like, jobs do not go to and fro for ever.
pub const TAKE_BACKS_MAX: u32 = 8;

/// For this long after short work came, began or ended, slots stay reserved for more of it.
pub const SHORT_MEMORY: Duration = Duration::from_millis(200);

/// If short work had to wait longer than [`SHORT_MEMORY`] for a slot, slots stay reserved for that long, but at most
/// for this time.
pub const SHORT_MEMORY_MAX: Duration = Duration::from_secs(60);

/// The largest weight of a client; the default is 1.
pub const WEIGHT_MAX: u32 = 1000;

/// The largest priority; the smallest is its negative.
pub const PRIORITY_MAX: i8 = 10;

/// Most task names that an error lists when the task that was asked for is unknown.
pub const NAMES_TOLD: usize = 16;

/// Names of tasks that are compared with one that there is not, to tell the nearest. A comparison takes a time that grows with both lengths,
/// and thousands of tasks may be offered.
pub const NAMES_COMPARED_MAX: usize = 256;

/// Most waiting jobs that end in one event because no worker offers their task. Each is told which tasks there are, and to find the
/// nearest of thousands of names takes as long as moving several jobs.
pub const UNKNOWN_ENDED_MAX: usize = 8;

/// Most different tasks that the workers of a program may offer together: four times what one of them may, so that a program can be
/// replaced by one with other tasks while both run. A worker that offers more is unfit.
pub const TASKS_OF_PROGRAM_MAX: usize = 4 * TASKS_OFFERED_MAX;

/// Most tasks that are remembered after nobody offers them any more, beside those that jobs or pauses refer to.
pub const GONE_TASKS_MAX: usize = 1000;

/// How many of the last jobs of a worker are remembered, to find out later what it died of.
pub const RECENT_JOBS: usize = 8;

/// How many processes may hang in the kernel after SIGKILL and still have their places filled again.
pub const HANGING_MAX: usize = 2;

/// How many workers in a row may end without being counted as failed starts, because the reason is probably outside the
/// program: SIGKILL from outside, or a job that the worker had not started. A job that is done starts the count again.
pub const DEATHS_EXCUSED: u32 = 20;

/// Most clients of one program that are remembered because their jobs may be the reason of its failed starts. Further
/// ones are not refused: nobody may be refused because of others.
pub const SUSPECTS_MAX: usize = 64;

/// A job is on probation after this many workers in a row, which had no other job, ended before they had started it.
pub const UNSTARTED_MAX: u32 = 2;

/// So many of these do not count if they had done other jobs before: one of those may be the reason. If it is not, a worker that has
/// done none comes before that, as a rule.
pub const EXCUSED_MAX: u32 = 10;

/// A job on probation is given up after this many of its tests have failed at the longest pause. With the default
/// configuration it has been tried for more than a minute by then.
pub const LATE_TESTS_MAX: u32 = 12;

/// So often a job may have run when its worker's program broke the rules with another job. Then it is not believed any more: the
/// program may do what the job tells it to.
pub const BYSTANDER_MAX: u32 = 3;

/// The run time that is assumed for a job if nothing is known of its task.
pub const RUN_UNKNOWN: Duration = Duration::from_millis(1);

/// The shortest time after which a client that is refused for lack of room is told to ask again: sooner is of no use.
pub const RETRY_AFTER_MIN: Duration = Duration::from_millis(100);

/// The same where all jobs that wait are paused, or held back until somebody collects outputs: nobody knows when that is.
pub const RETRY_AFTER_OTHERS: Duration = Duration::from_secs(10);

/// The longest such time, however long the queue is.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Most bytes of results and idempotency keys that are kept as promised, unless configured otherwise (128 MiB). One
/// client may have as much as it leaves free, half if it is alone.
pub const KEPT_BYTES_MAX_DEFAULT: u64 = 128 << 20;

/// What one promise costs in bytes, beside its output and its texts: its report, its key, and their entries in
/// tables.
pub const PROMISE_BYTES: u64 = 1 << 10;

/// Jobs that are held back because too much is kept go on when one part in this many of the limit is free again.
pub const ROOM_AGAIN: u64 = 8;

/// So many accounts, those that keep most, take no more room from others than their shares, however much they have.
pub const ACCOUNTS_CAPPED: usize = 8;

/// What a thread has read goes beyond its client's share of what is kept only while one part in this many of the limit stays free.
pub const LEFT_FOR_OTHERS: u64 = 32;

/// Most jobs that are moved, or end, in one event for one reason: they are held back, or released again, their deadlines have passed, no
/// worker can be had for them, or it has become known who offers their task. The rest follows at once, in further events.
pub const MOVED_MAX: usize = 64;

/// Most ends of promises that are looked at to predict when there will be room.
pub const ENDS_LOOKED_AT: usize = 64;

/// How long the result of a detached job is kept after the job's end until somebody collects it, unless configured
/// otherwise.
pub const KEEP_RESULTS_DEFAULT: Duration = Duration::from_secs(3600);

/// How long an idempotency key is known, and the result of its job kept, after the job's end, unless configured
/// otherwise.
pub const KEEP_KEYS_DEFAULT: Duration = Duration::from_secs(3600);

/// How many expired idempotency keys are remembered, so that a client which uses one again can be told.
pub const EXPIRED_KEYS_MAX: usize = 1024;

/// How many lost attempts of one job are remembered: the first one and the last ones.
pub const LOST_ATTEMPTS_KEPT: usize = 8;

/// How many of the last lost attempts keep all the lines that the process printed last. Earlier ones keep one line.
pub const LAST_LINES_KEPT: usize = 3;

/// Most clients without jobs that are remembered: how much worker time they used ahead of the others, and how long
/// their outputs were. The one that used least is forgotten first.
pub const RESTING_CLIENTS_MAX: usize = 1024;

/// Most dead letters that are kept. One client may have as many as it leaves free, half if it is alone.
pub const DEAD_LETTERS_MAX: usize = 1000;

/// Most bytes that dead letters hold, their inputs included (64 MiB). One client may have as much as it leaves free.
pub const DEAD_BYTES_MAX: u64 = 64 << 20;

/// How long a dead letter is kept unless configured otherwise: 72 hours, which is longer than a weekend.
pub const KEEP_DEAD_LETTERS_DEFAULT: Duration = Duration::from_secs(72 * 3600);

/// How many of the jobs that keep workers busy are named to who asks why a job waits.
pub const HOLDERS_TOLD: usize = 4;

/// Jobs that are looked at to explain how long another one waits.
pub const EXPLAINED_BY: usize = 10_000;

/// Most workers of a new version that are tried, one after the other, if each ends in a job that ends other workers, too.
pub const TRIAL_WORKERS_MAX: u32 = 5;

/// If a worker on trial has ended in a job, and no other worker has done that job for so long, the version is taken back.
pub const TRIAL_QUESTION_TIME: Duration = Duration::from_secs(30);

/// A peer that stops in the middle of a frame, or reads nothing of what is written to it, is cut off after this long.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(10);

const _: () =
    assert!(WORKERS_MAX * WINDOW_MAX <= JOBS_QUEUED_MAX_DEFAULT, "a full pool fits back into the queue");
const _: () =
    assert!(BATCH_JOBS_MAX as usize <= WINDOW_MAX, "a worker has no more jobs at a time than a window");
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

const _: () = assert!(ATTEMPTS_MAX <= u8::MAX as u32, "a job has a byte for its number of attempts");
