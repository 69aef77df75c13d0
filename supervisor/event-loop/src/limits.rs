//! Every bound of this crate in one table: how much one source, one pool or one turn may take of memory and time. Other
//! constants stay where they are used: they tune how the loop works and bound nothing that comes from outside.

use std::time::Duration;

/// How often one source is read, written, or accepted from for one event. Another event follows if there is more, after the
/// other sources had theirs.
pub(crate) const TURNS_PER_EVENT: u32 = 32;

/// How many events the kernel hands over in one call. Those that are left come with the next call.
pub(crate) const EVENTS_PER_CALL: usize = 1_024;

/// How many rounds of dropping callbacks the end of a loop takes. Callbacks that are dropped may register new ones, which
/// are dropped in the next round. What is left after the last round is leaked.
pub(crate) const CLEARING_ROUNDS: usize = 1_000;

/// How many emptied blocks of 1,024 posts are kept for the next ones while posts of other threads keep coming: 5 MiB. About
/// as many come while a thread that posts as fast as it can has the processor of the loop for itself.
pub(crate) const SPARE_BLOCKS: usize = 128;

/// The most bytes that one read takes: 64 KiB. A datagram is never longer.
pub(crate) const INCOMING_BYTES: usize = 64 * 1_024;
const _: () = assert!(INCOMING_BYTES > u16::MAX as usize, "the longest datagram fits into one read");

/// How many connections the kernel holds that nobody has accepted yet, unless the owner of a listener says otherwise. The
/// kernel may hold fewer.
pub(crate) const BACKLOG: u32 = 1_024;

/// How many bytes may wait in the write queue of one stream, unless its owner says otherwise: 1 MiB.
pub(crate) const WRITE_QUEUE_BYTES: usize = 1_024 * 1_024;

/// What a write that is not answered yet counts beside its own bytes. So the limit of the write queue bounds the number of
/// writes too, even of empty ones.
pub(crate) const BYTES_PER_WRITE: usize = 64;

/// How many writes of a queue are handed to the kernel in one call.
pub(crate) const SLICES_PER_CALL: usize = 64;

/// The longest that a loop polls for events before it goes to sleep.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(1);

/// How often at most a loop that lingers goes to sleep without looking for events, after looking has found nothing.
pub(crate) const SLEEPS_BETWEEN_LOOKS_MAX: u32 = 4_095;

/// How many datagrams of one UDP socket may wait to be sent or for their answer.
pub const SEND_QUEUE_LEN_MAX: usize = 1_024;

/// How many bytes may wait to be sent in the datagrams of one UDP socket: 1 MiB.
pub const SEND_QUEUE_BYTES_MAX: usize = 1_024 * 1_024;
const _: () = assert!(SEND_QUEUE_BYTES_MAX > u16::MAX as usize, "every datagram fits into an empty queue");

/// How many threads of a pool serve tasks by default.
pub(crate) const POOL_THREADS: usize = 4;

/// How many threads a pool may have by default, those included that are stuck in a task.
pub(crate) const POOL_THREADS_MAX: usize = 16;
const _: () = assert!(POOL_THREADS <= POOL_THREADS_MAX, "a pool may have the threads that serve");

/// How many tasks may wait in each lane of a pool by default.
pub(crate) const POOL_QUEUE_MAX: usize = 10_000;

/// How long after its submission a task of a pool must be done by default.
pub(crate) const POOL_DEADLINE: Duration = Duration::from_secs(30);

/// How many bytes one part of reading a file has by default: 512 KiB.
pub const READ_PART: usize = 512 * 1_024;

/// How many random bytes are made in one part: 64 KiB.
pub const RANDOM_PART: usize = 64 * 1_024;
