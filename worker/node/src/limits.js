/**
 * Every bound of the package in one table. Those of the wire are the same as in `protocol/src/limits.rs`.
 */

/** Bytes before each header: its length and the payload's, as two little-endian `u32`. */
export const PREFIX_BYTES = 8;
/** Longest header, in bytes. */
export const HEADER_MAX = 16 << 10;
/** Longest payload that any supervisor takes, in bytes (1 GiB). Welcome says what this one takes. */
export const PAYLOAD_MAX_CEILING = 1 << 30;
/** Payloads of up to this many bytes are copied behind their header, so that a frame is one write. */
export const INLINE_PAYLOAD_MAX = 32 << 10;
/** Most bytes of one read. */
export const READ_CHUNK = 64 << 10;
/** Longest task name, in bytes. */
export const TASK_NAME_MAX = 64;
/** Most tasks of one worker. */
export const TASKS_OFFERED_MAX = 4096;
/** Longest description of a task, in bytes. */
export const DESCRIPTION_MAX = 256;
/** Most media types that a task may list as accepted. */
export const ACCEPTED_TYPES_MAX = 8;
/** Longest example and schema of one task together, in bytes. */
export const OFFER_TEXTS_MAX = 64 << 10;
/** Longest message of a failed job, in bytes. */
export const MESSAGE_MAX = 1024;
/** Longest name of a client, and longest idempotency key, in bytes. */
export const NAME_MAX = 64;
/** Longest name of a task, or ID of a job, that is asked for, in bytes. No supervisor knows one that is as long. */
export const ASKED_MAX = 1024;
/** Most pairs of metadata of one job. */
export const METADATA_PAIRS_MAX = 16;
/** Longest value of metadata, in bytes. */
export const METADATA_VALUE_MAX = 256;
/** Most labels of one job. */
export const LABELS_MAX = 8;
/** Longest label, in bytes. */
export const LABEL_MAX = 64;
/** Longest media type, in bytes. */
export const MEDIA_TYPE_MAX = 127;
/** Longest checkpoint, in bytes. */
export const CHECKPOINT_MAX = 64 << 10;
/** Longest part of an output, in bytes. */
export const PART_MAX = 64 << 10;
/** Most jobs that may run together. */
export const BATCH_JOBS_MAX = 32;
/** For how long the first job of a batch may wait for others at most, in milliseconds. */
export const BATCH_WAIT_MAX = 1000;
/** Bytes of parts that an attempt may send before it is given credit. */
export const PARTS_CREDIT = 256 << 10;
