//! Every bound of this crate in one table: what the SDK takes from a supervisor, what a confined worker gets, and what the
//! built-in tasks accept. The bounds of the wire are in [`offload_protocol::limits`].

use offload_protocol::limits::{OPEN_FILES_HIGHEST, PAYLOAD_MAX_DEFAULT};
use std::time::Duration;

/// Most jobs that a worker takes in while it looks for jobs between two steps. Further jobs stay in the socket.
pub const LOOK_AHEAD_JOBS_MAX: usize = 1024;

/// Once this many bytes of inputs and checkpoints wait, it takes in no further jobs either.
pub const LOOK_AHEAD_BYTES_MAX: usize = PAYLOAD_MAX_DEFAULT;

/// How many jobs a worker may have begun: a stepped job, and one that runs between two of its steps. With more, a job would
/// wait for jobs that came after it.
pub const RUNNING_MAX: usize = 2;

/// After a job that took less than this, a worker does not look into its tray. The supervisor puts nothing behind tasks that are
/// so short on average, and a look takes a good part of that time.
pub const TRAY_RUN_MIN: Duration = Duration::from_micros(20);

/// How often at most a worker goes to sleep without looking for a job, after looking has found nothing.
pub(crate) const SLEEPS_BETWEEN_LOOKS_MAX: u32 = 4_095;

/// How many descriptors from the supervisor wait for the rest of their messages.
pub(crate) const DESCRIPTORS_MAX: usize = 2;

/// The shortest time that [`Task::progress_every`](crate::Task::progress_every) accepts. It leaves time for some steps between
/// two reports.
pub const PROMISE_MIN: Duration = Duration::from_millis(10);

/// The most steps of a stepped job between two looks at the clock. The next thousands may cost more than those before.
pub const STEPS_AT_ONCE_MAX: u32 = 4096;

/// How many files a worker may have open unless configured otherwise.
pub const OPEN_FILES_DEFAULT: u64 = 128;

/// The lowest limit of open files: with fewer, even the dynamic loader fails.
pub const OPEN_FILES_LOWEST: u64 = 16;

/// Longest stack of a worker's main thread unless configured otherwise, in bytes (8 MiB, the default of Linux).
pub const STACK_DEFAULT: u64 = 8 << 20;

/// The lowest limit of the stack, in bytes: with less, many programs cannot start, because arguments and environment are on
/// the stack too.
pub const STACK_LOWEST: u64 = 1 << 20;

const _: () = assert!(OPEN_FILES_LOWEST <= OPEN_FILES_DEFAULT && OPEN_FILES_DEFAULT <= OPEN_FILES_HIGHEST);
const _: () = assert!(STACK_LOWEST <= STACK_DEFAULT);

#[cfg(feature = "exec")]
pub use exec::*;

/// Bounds of tasks that are programs.
#[cfg(feature = "exec")]
mod exec {
    use std::time::Duration;

    /// How long a program that is asked to end (SIGTERM) may take before it is killed. The supervisor ends an adapter that
    /// has not done so 100 ms after its job was cancelled.
    pub const EXEC_GRACE: Duration = Duration::from_millis(60);

    /// How long the output of a program is read after its end, if processes that it left behind have it open.
    pub const EXEC_LEFT_OPEN: Duration = Duration::from_millis(100);

    /// How many of the last lines that a program said are part of the message if it fails.
    pub const EXEC_LINES_KEPT: usize = 5;

    /// The most bytes of these lines. With the rest of the message they fit into [`MESSAGE_MAX`](offload_protocol::limits::MESSAGE_MAX).
    pub const EXEC_LINES_KEPT_BYTES: usize = 800;

    /// How many bytes of what a program said may wait for room in the log before no more is read from it.
    pub const EXEC_LOG_WAITING_MAX: usize = 64 << 10;

    /// How much is written to the log at once: what a pipe takes without waiting if it takes anything.
    pub const EXEC_LOG_PIECE: usize = 4096;

    /// How long the log may take after the end of a program. What waits then is dropped.
    pub const EXEC_LOG_TIME: Duration = Duration::from_secs(1);

    /// The most that is read from a pipe before the others are looked at, in bytes.
    pub const EXEC_READ_MAX: u64 = 1 << 20;

    /// The longest input that can be a part of a command, in bytes. The kernel takes words of 128 KiB.
    pub const EXEC_WORD_MAX: usize = 64 << 10;

    /// How often the memory of a program is looked at, if it is limited.
    pub const EXEC_MEMORY_LOOK: Duration = Duration::from_millis(10);

    /// How long an adapter waits for the count of a program's pages before it turns to its pipes again.
    pub const EXEC_MEMORY_WAIT: Duration = Duration::from_millis(10);

    /// How long such a count may take. After that, what each process has to itself is what counts.
    pub const EXEC_MEMORY_COUNT_MAX: Duration = Duration::from_secs(10);

    /// How many times as long as a count took to wait before the next one, so that counting takes no more than a fifth of a core.
    pub const EXEC_MEMORY_REST: u32 = 4;

    /// Of how many processes of one program the memory is counted.
    pub const EXEC_PROCESSES_MAX: usize = 256;
}

/// How long ending the processes that a program left behind may take.
#[cfg(any(feature = "exec", feature = "http-app", feature = "jsonl"))]
pub const STRAYS_TIME: std::time::Duration = std::time::Duration::from_secs(1);

/// How long to wait for processes that were killed before they are looked for again.
#[cfg(any(feature = "exec", feature = "http-app", feature = "jsonl"))]
pub const STRAYS_PAUSE: std::time::Duration = std::time::Duration::from_micros(500);

/// How long a program behind an adapter may go on after it was told that there are no more jobs, or has closed its output, before
/// it is killed.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
pub const FOREIGN_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// How long a program behind an adapter may take until it accepts or reads the next job. It may still do something after its last
/// answer.
#[cfg(any(feature = "http-app", feature = "jsonl"))]
pub const FOREIGN_BEGIN_MAX: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(feature = "http-app")]
pub use http_app::*;

/// Bounds of HTTP applications.
#[cfg(feature = "http-app")]
mod http_app {
    use std::time::Duration;

    /// How long to wait before an application that does not answer yet is asked again.
    pub const HTTP_APP_LOOK: Duration = Duration::from_millis(5);

    /// After this time without an answer the log says that it is waited for, and why.
    pub const HTTP_APP_TOLD_AFTER: Duration = Duration::from_secs(1);

    /// How long a connection to a port may take to be made. What listens on this machine takes it at once.
    pub const HTTP_APP_CONNECT_MAX: Duration = Duration::from_secs(5);

    /// How long to wait at least before it is looked again whether an application has accepted a connection. After a while it is half the
    /// time that has passed.
    pub const HTTP_APP_ACCEPT_LOOK_MIN: Duration = Duration::from_micros(50);

    /// How long to wait at most for that.
    pub const HTTP_APP_ACCEPT_LOOK_MAX: Duration = Duration::from_millis(5);

    /// How long to wait for the reset of a connection whose other end is gone. The kernel removes one before it sends the other.
    pub const HTTP_APP_RESET_MAX: Duration = Duration::from_millis(50);

    /// How long an application may take to end that broke a connection, or of which the kernel says that it is ending. So its own end is
    /// what is reported.
    pub const HTTP_APP_END_MAX: Duration = Duration::from_millis(500);

    /// The longest head of an answer, with those of 1xx answers before it, in bytes; also the longest line between two chunks.
    pub const HTTP_APP_HEAD_MAX: usize = 64 << 10;

    /// The most that is read from an application at once, in bytes.
    pub const HTTP_APP_READ_MAX: usize = 64 << 10;

    /// An answer that says that it has at most this many bytes is passed on as a whole, any other in parts.
    pub const HTTP_APP_WHOLE_MAX: u64 = 1 << 20;
}

#[cfg(feature = "jsonl")]
pub use jsonl::*;

/// Bounds of programs with JSON Lines.
#[cfg(feature = "jsonl")]
mod jsonl {
    /// What a line may have beside twice the largest payload, in bytes.
    pub const JSONL_OVERHEAD_MAX: usize = 1 << 20;

    /// The most that is read from a program before its input is looked at, in bytes.
    pub const JSONL_READ_MAX: u64 = 1 << 20;

    /// How deep JSON for a program, or of one, is nested at most. Its line is an object around it, so that is 127 deep: serde_json
    /// reads no deeper one. Python's parser reads about a thousand levels.
    pub const JSONL_DEPTH_MAX: usize = 126;

    /// How many digits in a row a number there has at most: Python reads no longer one.
    pub const JSONL_DIGITS_MAX: usize = 4300;

    /// How many bytes of a line are shown if it is wrong.
    pub const JSONL_BEGINNING_MAX: usize = 120;
}

#[cfg(feature = "builtin")]
pub use builtin::*;

/// Bounds of the built-in tasks.
#[cfg(feature = "builtin")]
mod builtin {
    /// The largest `n` of the task `average`.
    pub const AVERAGE_N_MAX: u64 = 10_000_000_000;

    /// The largest `n` of the task `primes`.
    pub const PRIMES_N_MAX: u64 = 1_000_000_000;

    /// The largest `n` of the task `primes.batch`. It is not done in steps, so no job takes long.
    pub const PRIMES_BATCH_N_MAX: u64 = 10_000_000;

    /// The longest time of the tasks `sleep` and `spin`, in milliseconds: an hour.
    pub const TIME_MS_MAX: u64 = 3_600_000;

    /// The largest number that the task `count` counts to.
    pub const COUNT_TO_MAX: u64 = 10_000_000_000;

    /// The longest pattern of the tasks that search text, in bytes.
    pub const PATTERN_MAX: usize = 4096;

    /// The most that the task `gunzip` unpacks, in bytes: 64 MiB.
    pub const UNPACKED_MAX: usize = 64 << 20;

    /// The most that is unpacked for each byte of the file. Deflate reaches 1032 at its best.
    pub const UNPACKED_RATIO_MAX: usize = 1000;

    /// Up to this many bytes the ratio does not count: they harm nobody.
    pub const UNPACKED_FREE: usize = 1 << 20;

    /// The most pixels of a picture that the task `thumbnail` takes: 67 million, more than cameras of phones have.
    pub const PIXELS_MAX: u64 = 1 << 26;

    /// The longest side of what it returns, in pixels.
    pub const THUMBNAIL_SIDE: usize = 256;

    /// The longest side of a picture of the task `mandelbrot`, in pixels.
    pub const MANDELBROT_SIDE_MAX: u64 = 4096;

    /// The most iterations for each of its pixels.
    pub const MANDELBROT_ITERATIONS_MAX: u64 = 10_000;

    /// How far from 0 its middle may be, in each direction. The set ends at 2.
    pub const MANDELBROT_CENTER_MAX: f64 = 4.0;

    /// The least of the plane that its width may show. With less, neighbouring pixels would be the same number.
    pub const MANDELBROT_SCALE_MIN: f64 = 1e-12;

    /// The most of the plane that its width may show.
    pub const MANDELBROT_SCALE_MAX: f64 = 16.0;

    /// The most iterations of `pbkdf2`.
    pub const DIGEST_ITERATIONS_MAX: u64 = 10_000_000;

    /// The longest result of `pbkdf2`, in bytes.
    pub const DIGEST_LENGTH_MAX: u64 = 1024;
}
