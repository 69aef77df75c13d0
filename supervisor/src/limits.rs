//! Every bound of this crate in one table: sizes, numbers and time limits. The compiler checks them against each other.
//! The bounds of the core are in [`offload_core::limits`], those of the protocol in [`offload_protocol::limits`].
//! Intervals at which something is checked, and what formats prescribe, stay where they are used.

mod memory;

pub use memory::Memory;
pub use offload_core::limits::PRIORITY_MAX;
use offload_protocol::limits::{PART_MAX, PREFIX_BYTES, READ_CHUNK};
use std::time::Duration;

/// Most jobs that one [`PoolHandle`](crate::PoolHandle) and its clones have under way, unless it is told otherwise.
pub const HANDLE_JOBS_MAX: usize = 4096;

/// Most bytes of their inputs, and of outputs that nobody has taken, unless it is told otherwise (64 MiB).
pub const HANDLE_BYTES_MAX: u64 = 64 << 20;

/// What other threads have asked for, and the loop does before everything else has its turn.
pub(crate) const HANDLE_ORDERS_PER_TURN: usize = 64;

/// A start of a worker that was given up hangs if it began longer ago than this. Its process is killed if possible,
/// and further starts of its program are refused until it is over.
pub const LAUNCH_HANGS_AFTER: Duration = Duration::from_secs(1);

/// Longest input of a task that is done here, in bytes: the longest path of Linux fits, however it is escaped.
pub const IO_INPUT_MAX: usize = 32 << 10;

/// Longest name of a host that is looked up, in bytes: the longest that there is.
pub const HOST_MAX: usize = 253;

/// Most addresses of one host that are returned.
pub const ADDRESSES_MAX: usize = 64;

/// How often a path is looked up while directories above it are being renamed.
pub const LOOK_UPS_MAX: usize = 64;

/// Number of earlier supervisors whose stray processes could not be killed yet. They are looked for at each start on
/// the same socket.
pub const GENERATIONS_KEPT: usize = 8;

/// Maximum number of ended jobs that are remembered for `jobs` and `explain` although nothing is promised for them
/// (any more). When there are more, or their reports take more than [`HISTORY_BYTES_MAX`], the client whose reports
/// take most bytes loses its oldest job.
pub const HISTORY_JOBS_MAX: usize = 10_000;

/// Maximum size of the reports of these jobs, in bytes (16 MiB). Outputs are not included.
pub const HISTORY_BYTES_MAX: u64 = 16 << 20;

/// Tasks whose jobs are measured one by one; those of further tasks are measured together. So a scrape has a bounded size.
pub const TASKS_MEASURED_MAX: usize = 32;

/// So many jobs, the oldest, are looked at to tell how many of each task wait and run.
pub const LOADS_JOBS_MAX: usize = 10_000;

/// The bounds by which the times of jobs are counted. Longer times are counted, too.
pub const TIME_BOUNDS: [Duration; 14] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(300),
];

/// Maximum number of subscribers of one job. Each session counts once, however often it waits: a connection to the local socket is
/// one session, and over HTTP each request that waits is one. One client may have as many as it leaves free, so half of all if it is
/// the only one.
pub const SUBSCRIBERS_MAX: usize = 2048;

/// Longest path of a socket, in bytes: the kernel's `sun_path` holds 108 with the NUL that ends it.
pub const SOCKET_PATH_MAX: usize = 107;

/// Most requests that one call of [`Connection::receive`](crate::front::Connection::receive) hands over: one turn of one
/// client.
pub const REQUESTS_PER_CALL_MAX: usize = 16;

/// Most connections of other users that one call of [`Listener::accept`](crate::front::Listener::accept) turns away.
pub(crate) const OTHER_USERS_PER_CALL_MAX: usize = 64;

/// Most lines that wait in a [printer](crate::printer).
pub(crate) const PRINTER_LINES_MAX: usize = 1024;

/// Most bytes that wait in a printer or are being written by it (1 MiB).
pub(crate) const PRINTER_BYTES_MAX: usize = 1 << 20;

/// How long dropping a printer waits until its last lines are written.
pub(crate) const PRINTER_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest line of a worker's output once it is escaped, in bytes.
pub const WORKER_LINE_MAX: usize = 1024;

/// Maximum number of bytes that are read from a worker's output in one call.
pub const CAPTURE_CHUNK: usize = 16 << 10;

/// Maximum number of lines of one worker that are passed on in one second, of both output streams together.
pub const WORKER_LINES_PER_SECOND: usize = 100;

/// Number of bytes after which a worker's output is not read for the rest of a second, of both streams together.
pub const WORKER_BYTES_PER_SECOND: usize = 256 << 10;

/// Number of last lines that are kept for the report of a worker's end.
pub const TAIL_LINES: usize = 10;

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

/// The longest wait for the end of all processes that were killed in one of these rounds.
pub(crate) const KILLED_STRAYS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long dropping a worker process waits for its end after SIGKILL.
pub(crate) const KILLED_WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time for the last sweep of stray processes, when the supervisor ends.
pub(crate) const LAST_SWEEP_TIMEOUT: Duration = Duration::from_millis(500);

/// How long dropping a launcher waits for the threads that start workers, and then again for the one that ends them.
pub(crate) const LAST_ORDERS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client of the local socket may take for its last answer, when the supervisor ends. Over HTTP it is no less.
pub(crate) const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of process ids of ended workers that are remembered.
pub(crate) const PAST_PIDS_MAX: usize = 1024;

/// How much is read of the environment of a process, in bytes.
pub(crate) const ENVIRONMENT_READ_MAX: u64 = 256 * 1024;

/// How much is read of a file that the kernel cannot run, to say why, in bytes. The kernel looks at no more either.
pub(crate) const EXECUTABLE_HEAD_MAX: u64 = 256;

/// Maximum number of clients connected to the local socket at a time. It is lower if descriptors are scarce.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections beyond those, for looking after the supervisor: `status`, `stop`, `drain` and similar requests are
/// answered on them, jobs are not accepted.
pub const CONTROL_CONNECTIONS: usize = 16;

/// A process gets another control connection only while it has fewer connections than this, of both kinds together, and
/// fewer than there are control connections left.
pub const CONTROL_CONNECTIONS_OF_ONE: usize = 4;

/// When no more connections than this are left (or a quarter of all, if that is fewer), a process gets one more only
/// while it has fewer than are left.
pub const LAST_CONNECTIONS: usize = 64;

/// Places for descriptors of clients' files beyond those of jobs ([`FILES_OPEN`](offload_core::limits::FILES_OPEN)): for those
/// whose jobs are not submitted yet, or have ended and whose files are being closed. Fewer if descriptors are scarce.
pub const FILES_ON_THE_WAY: usize = 16;

/// Of the descriptors that came with one read, so many are looked at. More than one is a mistake of the client.
pub(crate) const DESCRIPTORS_SEEN: usize = 2;

/// Requests that are handled in one turn of the event loop, of all clients together.
pub const REQUESTS_PER_TURN: usize = 64;

/// When this time is used up, no further client is read in this turn of the event loop. The same limit applies to
/// writing to clients, to writing to workers, and to copies out of the segments of all workers.
pub(crate) const TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Maximum number of bytes that one flush writes to one worker or client (1 MiB), so that a large payload does not hold
/// up the event loop.
pub const FLUSH_MAX: usize = 1 << 20;

/// Maximum number of messages of all workers together that are taken in one turn of the event loop. Each costs the core some
/// microseconds.
pub const MESSAGES_PER_TURN: usize = 256;

/// Maximum number of messages of one worker that are taken before the next one has its turn.
pub const MESSAGES_AT_A_TIME: usize = 64;

/// Maximum number of bytes that are read from the sockets of all workers, and copied out of their segments, in one turn of
/// the event loop (1 MiB); one read more may be made. An output whose time limit is due is copied as a whole. What is copied
/// into a segment counts as written, see [`FLUSH_MAX`].
pub const BYTES_PER_TURN: usize = 1 << 20;

/// The same of one worker, before the next one has its turn (256 KiB).
pub const BYTES_AT_A_TIME: usize = 256 << 10;

/// A read counts as so many bytes at least (4 KiB).
pub(crate) const READ_BYTES_MIN: usize = 4 << 10;

/// Number of bytes that are copied out of a segment at once (64 KiB). Fresh memory is cleared for so many, right before.
pub(crate) const COPY_PIECE: usize = 64 << 10;

/// Maximum number of bytes of a segment that get their memory in one turn of the event loop (256 KiB, some 0.4 ms), and of
/// which the memory is returned.
pub(crate) const SEGMENT_PIECE: usize = 256 << 10;

/// A segment is made when a payload missed it twice within this time. One that is not used for this long is given up.
pub const SEGMENT_IDLE: Duration = Duration::from_secs(4);

/// A worker that has left this many of its segments unasked gets no more.
pub const SEGMENTS_LEFT_MAX: usize = 4;

/// Maximum number of segments that are being made at a time. Each has a descriptor until its worker has it.
pub(crate) const SEGMENTS_MADE_AT_ONCE: usize = 8;

/// All segments together take at most this fraction of `max_bytes` (a half).
pub const SEGMENTS_SHARE: u64 = 2;

/// The buffers that are kept for outputs in segments take at most this fraction of `max_bytes` (a quarter).
pub const BUFFERS_SHARE: u64 = 4;

/// Maximum number of clients that are accepted in one turn of the event loop.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// Maximum number of jobs that closed connections leave in one turn of the event loop. Each may have to be cancelled.
pub(crate) const LEAVES_PER_TURN: usize = 64;

/// Maximum number of workers whose memory is measured at one check. One measurement takes some ten microseconds.
pub(crate) const MEASURED_AT_A_TIME: usize = 32;
/// Of how many processes that a worker has started the memory is counted, the children of how many threads are looked for.
pub(crate) const DESCENDANTS_MAX: usize = 32;

/// A worker that has ended is read from in this many turns, until there is nothing more. There always is if a process that
/// has inherited its socket goes on writing. Together they take more than the kernel usually buffers for one socket, also if
/// all of it is the shortest messages.
pub(crate) const LAST_TURNS: u32 = 128;

/// What the kernel usually buffers for one socket, in bytes.
const SOCKET_BUFFER_USUAL: usize = 208 << 10;

/// When the kernel cannot take a message now, although the socket has room, it is tried again after this time.
pub(crate) const SEND_PAUSE: Duration = Duration::from_millis(10);

/// Only of jobs that have run for this long it is read what their workers have used until then. So the kernel's figure, which may be
/// a clock tick old, is not from before the job.
pub(crate) const BASELINE_AFTER: Duration = Duration::from_millis(10);

/// When the kernel has not taken a message for this long, the socket has failed.
pub(crate) const SEND_REFUSED_MAX: Duration = Duration::from_secs(1);

/// Maximum number of reads of change reports for the directory of the socket in one call. One read has room for more
/// than a hundred reports.
pub(crate) const CHANGE_READS_MAX: usize = 16;

/// A client that asks for nothing and waits for nothing is disconnected after this long.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The idle time limit of a control connection.
pub const CONTROL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// After this time a control connection is closed if another client needs its place.
pub const CONTROL_TURN: Duration = Duration::from_secs(2);

/// A client that has been idle for this long is disconnected if a new client has no room otherwise.
pub const GIVE_WAY_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of late answers (to a drain, a stop, a reload) that one client may wait for.
pub const LATE_ANSWERS_MAX: usize = 64;

/// Maximum size of one page of a list, in bytes. A longer single row is sent alone.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of rows of one page.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Most bytes of the lines that the worker of one slot printed and that are kept (256 KiB), with [`PRINTED_LINE_EXTRA`] for each.
pub const PRINTED_SLOT_BYTES_MAX: usize = 256 << 10;

/// The same for all slots together (4 MiB). If there are many slots, each has an equal part of this.
pub const PRINTED_BYTES_MAX: usize = 4 << 20;

/// What a line takes beside its text, in bytes, at most.
pub const PRINTED_LINE_EXTRA: usize = 256;

/// Most numbers that are looked up for the end of an id. That is enough for the youngest billion jobs.
pub const FIND_LOOKS_MAX: usize = 1024;

/// Most rows of a list that are looked at for one page without being wanted.
pub const PAGE_LOOKS_MAX: usize = 10_000;

/// A request with a long answer waits while more bytes than this are to be written to its client.
pub const ANSWER_BACKLOG_MAX: usize = 64 << 10;

/// While more bytes of answers than this (2 MiB) are held for the connections of one process, none of its requests is
/// read and none of its long answers is made. So the answers of a process, outputs not counted, take at most this plus
/// what one connection is sent in one turn. They are part of `max_bytes`.
pub const PROCESS_ANSWERS_MAX: usize = 2 << 20;

/// Maximum length of the line that a list of dead letters shows of a worker's last lines, in bytes. `dead show` shows
/// all of them.
pub const LISTED_LINE_MAX: usize = 256;

/// Maximum number of waits of all clients together. The wait of a client for a job that it submitted itself does not
/// count. Waits for jobs of others, for jobs that existed already under the same key, and repeated waits do. One
/// client may have as many as it leaves free, so half of all if it is the only one.
pub const WAITS_MAX: usize = 20_000;

/// Number of waits that each client may have in any case.
pub const WAITS_IN_ANY_CASE: usize = 16;

/// How often one connection to the local socket may wait for the same job.
pub const REPEATED_WAITS_MAX: usize = 16;

/// Maximum number of bytes that wait to be written to one client before it is disconnected as too slow. The message
/// that is partly written is not counted.
pub const CONNECTION_BACKLOG_MAX: usize = 1 << 20;

/// A client that reads streams is sent no further part while more bytes than this (128 KiB) wait to be written to it.
pub const STREAM_AHEAD_MAX: usize = 128 << 10;

/// While so many parts of a stream wait for its reader, further ones are joined: a part of one byte takes a hundred times as
/// much memory while it is apart.
pub const PARTS_APART_MAX: usize = 64;

/// A client that has not sent a valid hello after this time is disconnected.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// A worker is killed after this time if it stops in the middle of a message, or does not read the job that it was
/// given although it has no other job.
pub const WORKER_STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A worker that has not said hello for this long is told of. With the interval of the checks that is at most two seconds after its
/// start.
pub(crate) const SILENT_START: Duration = Duration::from_millis(1500);

/// A check or a timer that is this late was not delayed by work: this process did not run.
pub(crate) const LATE_MIN: Duration = Duration::from_millis(100);

/// A delay of this length counts as a gap of its own, even right after another one. It is taken out of the core's time,
/// so no time limit and no receipt includes it.
pub(crate) const GAP_MIN: Duration = Duration::from_secs(1);

/// How often a [`RunningClock`](crate::pauses::RunningClock) looks at the time: a pause is measured up to so much too short.
pub(crate) const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// The longest time that the others get to catch up after one gap, and after all gaps shorter than [`GAP_MIN`] together.
pub(crate) const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// The longest time by which all gaps together put off one limit of the core, in the core's time.
pub(crate) const CATCH_UP_IN_ALL: Duration = Duration::from_secs(5);

/// The longest single wait of the core's timer while jobs or starts are under way, so that a gap is measured in full.
pub(crate) const WAIT_PART: Duration = Duration::from_millis(250);

/// The last part of each time limit of a client. A client is disconnected only if this process ran during all of it.
pub(crate) const LAST_CHANCE: Duration = Duration::from_secs(1);

/// Maximum number of gaps in a row that excuse a client.
pub(crate) const EXCUSES_MAX: u32 = 5;

/// A client for which more than [`CONNECTION_BACKLOG_MAX`] bytes are held must take at least this many bytes (1 MiB)
/// in each [`STALL_TIMEOUT`](offload_core::limits::STALL_TIMEOUT), or it is disconnected.
pub const OUTPUT_TAKEN_MIN: usize = 1 << 20;

/// A message must be complete after this time. A message with a payload has additional time, as [`BODY_RATE_MIN`]
/// says.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Minimum average rate at which a payload must arrive, in bytes per second (1 MiB).
pub const BODY_RATE_MIN: u64 = 1 << 20;

/// A payload for which there is no room stays in the socket for this long, and is then refused.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// Pause after `accept` ran out of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of jobs that a line of the log names if any of them may have printed it.
pub(crate) const LINE_AUTHORS_MAX: usize = 4;

/// Number of ends of jobs that are noted in one round of the event loop. If there are more, lines that are read then name
/// no job.
pub(crate) const ENDS_NOTED_MAX: usize = 4096;

/// Maximum length of a line of the log, in bytes.
pub const LOG_LINE_MAX: usize = 4096;

/// Number of lines of one kind that the log writes without a pause, of all workers and clients together.
pub const LOG_LINES_AT_ONCE: u32 = 20;

/// Lines of one kind per second after that.
pub const LOG_LINES_PER_SECOND: u32 = 1;

/// Of jobs that ran together when their worker ended, this many are named in the log.
pub(crate) const JOBS_NAMED_MAX: usize = 3;

/// Minimum time between two lines about failed starts of one program.
pub(crate) const START_FAILED_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of different lines from failed starts that are remembered for each program, so that none is logged
/// twice.
pub(crate) const FAILED_START_LINES_MAX: usize = 64;

/// Number of lines that all workers together may print into the log without a pause.
pub const OUTPUT_LINES_AT_ONCE: u32 = 1000;

/// Lines that all workers together may print into the log per second after that.
pub const OUTPUT_LINES_PER_SECOND: u32 = 100;

/// Number of bytes that all workers together may print into the log without a pause (256 KiB).
pub const OUTPUT_BYTES_AT_ONCE: u32 = 256 << 10;

/// Bytes that all workers together may print into the log per second after that (8 KiB).
pub const OUTPUT_LOGGED_PER_SECOND: u32 = 8 << 10;

/// Maximum number of clients that the `status` view lists.
pub const CLIENTS_SHOWN_MAX: usize = 32;

/// How many of the workers that have ended are remembered, for whoever asks how they did.
pub const ENDED_WORKERS_MAX: usize = 32;

/// Maximum number of jobs that `offload jobs` lists unless told otherwise.
pub const JOBS_SHOWN_MAX: usize = 1000;

/// Maximum size of a worker's last lines that are kept when it has ended, in bytes (2 KiB). Whole lines are kept, and
/// at least one.
pub const LAST_LINES_BYTES_MAX: usize = 2 << 10;

/// Memory of this process itself, in bytes (64 MiB): its code, the event loop, the log (1,024 lines) and what the
/// allocator keeps back.
pub const MEMORY_OF_ITS_OWN: u64 = 64 << 20;

/// Maximum memory for one worker beside payloads, in bytes (2 MiB): two buffers of its socket, the small outputs of
/// one window, the lines that it prints.
pub const MEMORY_OF_A_WORKER: u64 = 2 << 20;

/// Maximum memory for one connection beside payloads, in bytes (256 KiB): a buffer in each direction, and an answer.
pub const MEMORY_OF_A_CONNECTION: u64 = 256 << 10;

/// Maximum memory for one job that has not ended or is a dead letter, beside payloads, in bytes (16 KiB). Most of it is
/// the last lines of the workers that ended while they had the job.
pub const MEMORY_OF_A_JOB: u64 = 16 << 10;

/// Maximum memory for one wait, from the request until its answer is written, in bytes (1 KiB).
pub const MEMORY_OF_A_WAIT: u64 = 1 << 10;

const _: () = assert!(READ_CHUNK <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= CONNECTION_BACKLOG_MAX);
const _: () = assert!(STREAM_AHEAD_MAX + PART_MAX < CONNECTION_BACKLOG_MAX, "a stream alone is no backlog");
const _: () =
    assert!(ANSWER_BACKLOG_MAX + PAGE_BYTES_MAX <= PROCESS_ANSWERS_MAX, "one connection is within it");
const _: () = assert!(LAST_CONNECTIONS + CONTROL_CONNECTIONS < CONNECTIONS_MAX);
const _: () = assert!(JOBS_SHOWN_MAX <= HISTORY_JOBS_MAX);
const _: () = assert!(
    SUBSCRIBERS_MAX >= CONNECTIONS_MAX + CONTROL_CONNECTIONS,
    "each connection to the local socket may wait for any job"
);
const _: () =
    assert!(REQUESTS_PER_CALL_MAX <= REQUESTS_PER_TURN, "one client's turn fits into one of the loop");
const _: () =
    assert!(SEND_REFUSED_MAX.as_nanos() < WORKER_STALL_TIMEOUT.as_nanos(), "a worker is not blamed for it");
const _: () = assert!(MESSAGES_AT_A_TIME <= MESSAGES_PER_TURN && BYTES_AT_A_TIME <= BYTES_PER_TURN);
const _: () = assert!(READ_CHUNK <= BYTES_AT_A_TIME);
const _: () = assert!(
    LAST_TURNS as usize * MESSAGES_PER_TURN * (PREFIX_BYTES + 1) > SOCKET_BUFFER_USUAL + READ_CHUNK,
    "all that a worker sent before it ended is read"
);
const _: () = assert!(CAPTURE_CHUNK <= WORKER_BYTES_PER_SECOND);
const _: () =
    assert!(LATE_MIN.as_nanos() < GAP_MIN.as_nanos() && CATCH_UP_MAX.as_nanos() < CATCH_UP_IN_ALL.as_nanos());
