//! The bounds of this crate that users or several modules need, and most of the others: some that only one module needs are in
//! that module. The bounds of jobs and memory are the supervisor's ([`offload_supervisor::limits`]).

use std::time::Duration;

/// Length of a request's head over HTTP/1: the request line and all header fields. Over HTTP/2 it is the sum of all names and
/// values, and 32 bytes for each field.
pub const HEAD_MAX: usize = 16 << 10;

/// Length of a request's target, in bytes.
pub const TARGET_MAX: usize = 2 << 10;

/// Routes of one table: each request is compared with all of them.
pub const ROUTES_MAX: usize = 256;

/// Longest part of a text from a client that a line of the access log has, in bytes before they are escaped.
pub const LOGGED_FIELD_MAX: usize = 1 << 10;

/// Trusted proxies that a request may have come through.
pub const HOPS_MAX: usize = 32;

/// Header fields of a request.
pub const FIELDS_MAX: usize = 64;

/// Length of what may follow the size of a chunk, in bytes.
pub const CHUNK_EXTENSION_MAX: usize = 64;

/// Fields behind a chunked body.
pub const TRAILERS_MAX: usize = 8;

/// Length of all these fields together, in bytes.
pub const TRAILER_BYTES_MAX: usize = 4 << 10;

/// How long the head of a request may take, from its first byte to its last one. A new connection has as long for its first
/// request. Over HTTP/2 it holds for each frame but DATA, and for all frames of a head together.
pub const HEAD_TIME: Duration = Duration::from_secs(5);

/// The time between the ends of two connections that are late: so many of them in a row take a small part of the loop.
pub(crate) const LATE_SPACING: Duration = Duration::from_micros(125);

/// Bytes that a client may send before its TLS handshake is complete. The handshake counts as part of the first head: together they
/// have [`HEAD_TIME`].
pub const HANDSHAKE_MAX: usize = 16 << 10;

/// Time of one turn of the loop in which TLS handshakes are computed, for all connections of a server together. A step that has begun
/// is finished.
pub const HANDSHAKE_TIME: Duration = Duration::from_millis(1);

/// Steps of TLS handshakes in one turn of the loop, however short they are. A handshake has two or three.
pub const HANDSHAKE_STEPS: usize = 8;

/// Time of one turn of the loop in which documents are written, such as lists of jobs, for all clients of a server together. One that has
/// begun is finished: a page of 1,000 jobs takes some milliseconds.
pub const DOCUMENT_TIME: Duration = Duration::from_millis(1);

/// Documents in one turn of the loop, however short they are.
pub const DOCUMENT_STEPS: usize = 32;

/// TLS sessions that clients may continue with a new connection, without the expensive part of a handshake. The oldest ones are forgotten.
pub const TLS_SESSIONS: usize = 256;

/// Bytes of answers that are encrypted and not written yet, of one connection.
pub const TLS_WRITE: usize = 16 << 10;

/// How long a connection may stay without a request.
pub const IDLE_TIME: Duration = Duration::from_secs(60);

/// How long a client may take for [`BODY_QUOTA`] bytes of a body, or for the rest of it.
pub const BODY_TIME: Duration = Duration::from_secs(10);

/// See [`BODY_TIME`]. Below 1 KiB/s on average over 10 s the request is given up.
pub const BODY_QUOTA: u64 = 10 << 10;

/// How long a client may take for a whole body, and a second more for each [`BODY_RATE`] bytes of it: what is announced holds memory
/// until all of it has come.
pub const BODY_IN_ALL: Duration = Duration::from_secs(30);

/// See [`BODY_IN_ALL`].
pub const BODY_RATE: u64 = 128 << 10;

/// How long a client may take for [`READ_QUOTA`] bytes of what waits to be written to it, or for the rest of that.
pub const READ_TIME: Duration = Duration::from_secs(10);

/// See [`READ_TIME`]. Below 16 KiB/s on average over 10 s the client is disconnected; over HTTP/2 the stream of that answer is reset, unless
/// the client reads nothing at all.
pub const READ_QUOTA: u64 = 160 << 10;

/// How long a client may have sent more than [`HEAD_MAX`] bytes of further requests while one of its requests is answered, or owe a rest
/// of its body that nobody reads. After that
/// they are thrown away, and the connection ends with that answer.
pub const AHEAD_TIME: Duration = Duration::from_secs(10);

/// Wrong tokens that are shown on one connection, before it ends.
pub const GUESSES_MAX: u32 = 10;

/// Wrong tokens of all connections of a server that are answered at once, in a second. The answers to others wait for
/// [`GUESS_DELAY`].
pub const GUESSES_PER_SECOND: u32 = 100;

/// See [`GUESSES_PER_SECOND`].
pub const GUESS_DELAY: Duration = Duration::from_secs(1);

/// How long the end of a connection is awaited after an answer that ends it, so that the client can read that. It is also how long the
/// end of a body is awaited that nobody wants. After an answer, both together take no longer.
pub const LINGER_TIME: Duration = Duration::from_secs(2);

/// How long an answer may take before a client that sends no more is asked whether it waits or is gone.
pub(crate) const HALF_CLOSED_GRACE: Duration = Duration::from_millis(100);

/// A client that has shut down its writing side gets its answer. The system looks so often whether it is still there.
pub(crate) const HALF_CLOSED_PROBE: Duration = Duration::from_secs(10);

/// Bytes that are read from one connection, or written to it, before others have their turn.
pub const TURN_BYTES: usize = 256 << 10;

/// A request costs as much of this turn as so many bytes: 32 requests that were sent at once have one turn.
pub(crate) const HEAD_COST: usize = 8 << 10;

/// A chunk of a body costs as much as so many bytes: 64 of them have one turn, even if they have a byte each.
pub(crate) const CHUNK_COST: usize = 4 << 10;

/// Each frame over HTTP/2 costs this many bytes of a turn, besides its own length. So others have their turn after 256 frames, even if
/// these are empty.
pub(crate) const FRAME_COST: usize = 1 << 10;

/// When memory is released, so many of the requests that wait for it are woken in each turn of the loop.
pub(crate) const WAKES_PER_TURN: usize = 16;

/// Chunks that are looked at together.
pub(crate) const CHUNKS_AT_ONCE: usize = 32;

/// Length of hyper's buffers. Over HTTP/1: one for what was read of the request under way, and one for answers that wait, beside the
/// piece that is being written. Over HTTP/2: one for the answer to each request. Requests that are sent ahead of an answer over HTTP/1
/// do not come so far: they wait in front of hyper, and nothing more is read once there are [`HEAD_MAX`] bytes of them.
pub const WRITE_BUFFER: usize = 64 << 10;

/// Length of an output that is a part of the document of its job; a longer one is only named there. To see whether it is sound JSON,
/// all of it is read on the loop, and then copied: 64 KiB take 0.2 to 0.25 ms.
pub const SHOWN_OUTPUT_MAX: usize = 64 << 10;

/// Bytes of the supervisor's own documents, such as lists, that one connection may have while they are not read; the last one may go
/// beyond that. Nobody is charged for them, and over HTTP/2 there may be many.
pub const DOCUMENTS_MAX: usize = 256 << 10;

/// Tasks that `/openapi.json` describes. Of more tasks the first ones by name are described, and the document says so.
pub const TASKS_DESCRIBED_MAX: usize = 1000;

/// Length of what `/openapi.json` says of tasks (8 MiB): the document is kept until the tasks change, and nobody is charged for it.
pub const TASKS_DESCRIBED_BYTES_MAX: usize = 8 << 20;

/// Tasks that `/openapi.json` describes before the loop does other things.
pub(crate) const TASKS_AT_ONCE: usize = 32;

/// Length of the pieces in which a long output is handed on.
pub const PIECE: usize = 64 << 10;

/// Requests of one HTTP/2 connection that are under way at a time.
pub const STREAMS_MAX: u32 = 64;

/// Bytes that a client may send ahead on one request of an HTTP/2 connection, and on all of them. So much of a body that nobody wants is
/// read, too, before its stream is reset; also over HTTP/1, before the connection ends.
pub const STREAM_WINDOW: u32 = 256 << 10;

/// Memory for a head that has begun to arrive: at first so much, then as much as it needs.
pub(crate) const HEAD_FIRST: usize = 1 << 10;

/// Connections of one server at a time, unless it is told otherwise.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections that are accepted in one turn of the loop.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// Clients that receive `/v1/events` ([`crate::api`]) at a time.
pub const WATCHERS_MAX: usize = 16;

/// Interval between these events.
pub(crate) const WATCH_EVERY: Duration = Duration::from_secs(1);
