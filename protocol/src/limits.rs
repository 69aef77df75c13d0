//! Every bound of the wire in one table, and the names of the environment variables by which a worker learns some of them.
//! Both ends use it, and the bounds are checked against each other when this crate is compiled.

use std::time::Duration;

/// Bytes before each header: two little-endian `u32`, the header's length and the payload's.
pub const PREFIX_BYTES: usize = 8;

/// Longest header, in bytes. A peer that announces a longer one is refused before anything is allocated.
pub const HEADER_MAX: usize = 16 << 10;

/// Longest payload that a supervisor takes unless configured otherwise, in bytes (64 MiB).
pub const PAYLOAD_MAX_DEFAULT: usize = 64 << 20;

/// The environment variable in which a worker finds the payload limit of its supervisor, in bytes.
pub const PAYLOAD_MAX_VARIABLE: &str = "OFFLOAD_PAYLOAD_MAX";

/// The environment variable in which a worker finds its mark: a number that no other worker of any supervisor has. It
/// identifies the worker and all processes that the worker starts.
pub const MARK_VARIABLE: &str = "OFFLOAD_MARK";

/// The environment variable in which a worker finds the number of the CPU core that it has to bind itself to, if any.
pub const CORE_VARIABLE: &str = "OFFLOAD_CORE";

/// Most files that a worker may have open, whatever its configuration says.
pub const OPEN_FILES_HIGHEST: u64 = 4096;

/// How much the niceness of a worker is above that of its supervisor, and that of the threads that start workers above
/// that of the others: the loop that feeds all workers gets the CPU first.
pub const NICENESS_ADDED: i32 = 5;

/// The highest niceness that there is.
pub const NICENESS_HIGHEST: i32 = 19;

/// The largest payload limit that can be configured, in bytes (1 GiB). Lengths are sent as `u32`.
pub const PAYLOAD_MAX_CEILING: usize = 1 << 30;

/// Payloads of up to this many bytes stay in the decoder's own buffer; longer ones get an allocation of their own (32 KiB).
pub const INLINE_PAYLOAD_MAX: usize = 32 << 10;

/// A chunk of copied frames that has this many bytes gets no more frames. A chunk is freed when its last byte is written, so
/// without this bound it would grow for ever for a peer that is always a little behind.
pub(crate) const COPIED_MAX: usize = 4 * INLINE_PAYLOAD_MAX;

/// Most bytes that one read asks for (64 KiB). One peer cannot hold up the loop longer than it takes to copy them.
pub const READ_CHUNK: usize = 64 << 10;

/// Longest frame that is put into a worker's tray, in bytes (64 KiB). Larger jobs are sent when the worker is idle.
pub const TRAY_PACKET_MAX: usize = READ_CHUNK;

/// Payloads of at least this many bytes are put into a segment if there is one (64 KiB).
pub const SEGMENT_PAYLOAD_MIN: usize = 64 << 10;

/// Where a payload in a segment begins, in bytes, unless it is a part of another one.
pub const SEGMENT_START: usize = 64;

/// A file of more than this many bytes is worth passing its descriptor (64 KiB). Clients send the bytes of shorter ones.
pub const FILE_INPUT_MIN: usize = 64 << 10;

/// Longest task name, in bytes.
pub const TASK_NAME_MAX: usize = 64;

/// Most tasks that one worker may offer.
pub const TASKS_OFFERED_MAX: usize = 4096;

/// Most bytes that the offers of one worker may take together, headers and payloads (1 MiB).
pub const OFFERS_BYTES_MAX: usize = 1 << 20;

/// Longest description of a task, in bytes.
pub const DESCRIPTION_MAX: usize = 256;

/// Most media types that a task may list as accepted.
pub const ACCEPTED_TYPES_MAX: usize = 8;

/// Longest example and schema of one task together, in bytes (64 KiB).
pub const OFFER_TEXTS_MAX: usize = 64 << 10;

/// Longest name of the library that a worker is written with, in bytes.
pub const SDK_NAME_MAX: usize = 64;

/// Longest human-readable message in a header, in bytes. Senders cut longer ones at a character boundary.
pub const MESSAGE_MAX: usize = 1024;

/// Longest client name and idempotency key, in bytes.
pub const NAME_MAX: usize = 64;

/// Most pairs of metadata of one job.
pub const METADATA_PAIRS_MAX: usize = 16;

/// Longest key of metadata, in bytes.
pub const METADATA_KEY_MAX: usize = 64;

/// Longest value of metadata, in bytes.
pub const METADATA_VALUE_MAX: usize = 256;

/// Most labels of one job.
pub const LABELS_MAX: usize = 8;

/// Longest label, in bytes.
pub const LABEL_MAX: usize = 64;

/// Longest media type of a payload, in bytes.
pub const MEDIA_TYPE_MAX: usize = 127;

/// Fewest characters of the end of a job's id by which it is found. Ids of one supervisor differ in their last characters.
pub const ID_END_MIN: usize = 4;

/// Most jobs that are named when a shortened id may stand for several.
pub const CANDIDATES_MAX: usize = 8;

/// Longest checkpoint, in bytes (64 KiB).
pub const CHECKPOINT_MAX: usize = 64 << 10;

/// Longest part of an output, in bytes (64 KiB).
pub const PART_MAX: usize = 64 << 10;

/// So many bytes of parts may be under way for one attempt, from its worker to whoever takes them (256 KiB). A worker may
/// send as many before it is given credit.
pub const PARTS_CREDIT: u64 = 256 << 10;

/// For how long the supervisor looks for an answer, and a worker for its next job, before it goes to sleep: about as long as a
/// wake-up takes on a virtual machine. So who looks in vain loses no more than could have been won.
pub const LINGER: Duration = Duration::from_micros(50);

/// Most jobs that may run together as a batch.
pub const BATCH_JOBS_MAX: u32 = 32;

/// For how long the first job of a batch may wait for others at most.
pub const BATCH_WAIT_MAX: Duration = Duration::from_secs(1);

/// A text on the wire has its length before it.
const TEXT: usize = 8;

/// Most bytes of a header that what a client attaches to a job can take.
const TAGS_MAX: usize = TEXT
    + METADATA_PAIRS_MAX * (2 * TEXT + METADATA_KEY_MAX + METADATA_VALUE_MAX)
    + TEXT
    + LABELS_MAX * (TEXT + LABEL_MAX);

const _: () = assert!(
    TAGS_MAX + TASK_NAME_MAX + MEDIA_TYPE_MAX + NAME_MAX + 2 * MESSAGE_MAX + 512 <= HEADER_MAX,
    "a job with all that may be attached to it, and its report, must fit into one header"
);
const _: () = assert!(
    TASK_NAME_MAX + DESCRIPTION_MAX + (ACCEPTED_TYPES_MAX + 1) * (TEXT + MEDIA_TYPE_MAX) + 128 <= HEADER_MAX,
    "an offer must fit into one header"
);
const _: () = assert!(HEADER_MAX + OFFER_TEXTS_MAX <= OFFERS_BYTES_MAX, "the longest offer must be allowed");
const _: () = assert!(
    PREFIX_BYTES + HEADER_MAX + INLINE_PAYLOAD_MAX <= READ_CHUNK,
    "a frame with an inline payload must fit into the decoder's buffer"
);
const _: () = assert!(
    PREFIX_BYTES + HEADER_MAX + INLINE_PAYLOAD_MAX <= TRAY_PACKET_MAX && TRAY_PACKET_MAX <= READ_CHUNK,
    "a job with an inline payload must fit into a tray, and a packet into the decoder's buffer"
);
const _: () = assert!(
    INLINE_PAYLOAD_MAX < SEGMENT_PAYLOAD_MIN,
    "what is copied behind its header is not worth a segment"
);
const _: () = assert!(PAYLOAD_MAX_DEFAULT <= PAYLOAD_MAX_CEILING);
const _: () = assert!(PAYLOAD_MAX_CEILING <= u32::MAX as usize, "lengths travel as u32");
const _: () = assert!(
    2 * PART_MAX as u64 <= PARTS_CREDIT,
    "credit is given back in halves: whoever waits until a longest part may be sent must not wait for ever"
);
