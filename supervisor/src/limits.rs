//! Every bound of this crate in one table, checked against each other when it is compiled. The bounds of the core are in
//! [`offload_core::limits`], those of the wire in [`offload_protocol::limits`].

use offload_core::limits::{DEAD_BYTES_MAX, KEPT_BYTES_MAX_DEFAULT, QUEUED_BYTES_MAX_DEFAULT};
use offload_protocol::limits::{PAYLOAD_MAX_DEFAULT, READ_CHUNK};
use std::time::Duration;

/// A start of a worker that nobody waits for any more hangs if it was begun so long ago: it is killed where it can be, and
/// others of its program are refused until it is over.
pub const LAUNCH_HANGS_AFTER: Duration = Duration::from_secs(1);

/// Supervisors whose strays could not be ended yet, and are looked for at each start on the same socket.
pub const GENERATIONS_KEPT: usize = 8;

/// Ended jobs of which nothing was promised, or not any more, and that are remembered for `jobs` and `explain`; those
/// of the client that has most of them are forgotten first.
pub const HISTORY_JOBS_MAX: usize = 10_000;

/// Bytes of their reports (16 MiB).
pub const HISTORY_BYTES_MAX: u64 = 16 << 20;

/// Most who can wait for the end of one job: each connection counts once, however often it asks.
pub const LISTENERS_MAX: usize = 2048;

/// Longest path of a socket, in bytes: the kernel's `sun_path` holds 108 with the NUL that ends it.
pub const SOCKET_PATH_MAX: usize = 107;

/// Most requests that one call of [`Connection::receive`](crate::front::Connection::receive) hands over: one turn of one
/// client.
pub const REQUESTS_PER_CALL_MAX: usize = 16;

/// Most connections of other users that one call of [`Listener::accept`](crate::front::Listener::accept) turns away.
pub(crate) const STRANGERS_PER_CALL_MAX: usize = 64;

/// Most lines that wait in a [printer](crate::printer).
pub(crate) const PRINTER_LINES_MAX: usize = 1024;

/// Most bytes that wait in a printer or are being written by it (1 MiB).
pub(crate) const PRINTER_BYTES_MAX: usize = 1 << 20;

/// Longest line of a worker's output once it is escaped, in bytes.
pub const WORKER_LINE_MAX: usize = 1024;

/// How often one call of [`Sweeper::sweep`](crate::workers::sweep::Sweeper::sweep) looks at all children.
pub const SWEEP_ROUNDS_MAX: usize = 8;

/// How many processes one call of [`Sweeper::sweep`](crate::workers::sweep::Sweeper::sweep) signals for the first time.
pub const SWEEP_KILLS_MAX: usize = 256;

/// How much is read of one thread's list of children: some 8000 of them.
pub(crate) const CHILDREN_LIST_READ_MAX: usize = 64 * 1024;

/// How often the search for the processes of a dead supervisor looks at all processes: those that were found may have
/// forked meanwhile.
pub(crate) const STRAYS_ROUNDS_MAX: usize = 8;

/// How many of them are killed in one round; each takes a descriptor until it is gone.
pub(crate) const STRAYS_KILLS_MAX: usize = 128;

/// How much is read of the environment of a process, in bytes.
pub(crate) const ENVIRONMENT_READ_MAX: u64 = 256 * 1024;

/// How much is read of a file that the kernel cannot run, to say why, in bytes. The kernel looks at no more either.
pub(crate) const EXECUTABLE_HEAD_MAX: u64 = 256;

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

/// A worker that stops in the middle of a message, or takes nothing of the job that it was given although it has no
/// other, is killed after this long.
pub const WORKER_STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A client for which more than [`CONNECTION_BACKLOG_MAX`] is held has to take so much of it in each
/// [`STALL_TIMEOUT`](offload_core::limits::STALL_TIMEOUT) (1 MiB), or it is disconnected.
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
/// | inputs that arrive, wait or run, checkpoints, and outputs until they are written: [`offload_core::ledger`] | `max_bytes` |
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
    /// Those that wait (at most `max_jobs`), those that workers have, and dead letters (at most [`DEAD_LETTERS_MAX`](offload_core::limits::DEAD_LETTERS_MAX)).
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

const _: () = assert!(READ_CHUNK <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= CONNECTION_BACKLOG_MAX);
const _: () =
    assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= PROCESS_ANSWERS_MAX, "one connection is within it");
const _: () = assert!(LAST_CONNECTIONS + CONTROL_CONNECTIONS < CONNECTIONS_MAX);
const _: () = assert!(JOBS_SHOWN_MAX <= HISTORY_JOBS_MAX);
