/**
 * All messages, a table for each direction. The position of a message is its number on the wire. They are described in
 * `protocol/src/messages.rs`.
 */

import { HEADER_MAX, INLINE_PAYLOAD_MAX, PREFIX_BYTES } from './limits.js';
import {
  batching, labels, lane, mediaType, metadata, outcome, report, taskDescription, taskOffer, usage,
} from './nouns.js';
import { bool, enumeration, i8, i32, magic, Malformed, NOTHING, option, Reader, struct, text, u16, u32, u64, u128, variants, Writer } from './wire.js';

export const WORKER_MAGIC = 'OFFLOADW';
export const CLIENT_MAGIC = 'OFFLOADC';
/** Both ends must speak the same major version. */
export const VERSION_MAJOR = 3;
export const VERSION_MINOR = 0;
/** The capability of outputs in parts. */
export const PARTS = 1;
/** The capability of tasks that take several jobs at once. */
export const BATCHES = 1 << 5;
/** The capability of failures that say how a program ended. */
export const ENDS = 1 << 6;
/** The capability of failures that say that their message is meant for callers. */
export const REASONS = 1 << 12;
/** Those of a worker of this package. */
export const WORKER_CAPABILITIES = PARTS | BATCHES | ENDS | REASONS;

/** Whether `capabilities` has the bit `bit`. @param {number | bigint} capabilities @param {number} bit */
export const hasCapability = (capabilities, bit) => (BigInt(capabilities) & BigInt(bit)) !== 0n;

const failureKind = variants({
  app_error: null, panic: null, exited: { code: i32 }, signalled: { signal: i32 }, timed_out: null, out_of_memory: null,
  deliberate: null,
});
const programNews = variants({
  stopped: null, continued: null, not_begun: { job: u64, attempt: u32 }, broke_rules: { of_another: bool, how: text },
});
const view = enumeration(['status', 'workers', 'jobs', 'tasks', 'dead']);
const submitOptions = struct({
  timeout_ms: option(u64), deadline_ms: option(u64), attempts: option(u32), lane: option(lane), priority: i8,
  idempotency: option(struct({ key: text, digest: u128 })), metadata, labels, stream: bool,
});

export const TO_WORKER = direction({
  Welcome: { major: u16, minor: u16, capabilities: u64, payload_max: u64 },
  Run: { job: u64, attempt: u32, task: text, media_type: mediaType, timeout_ms: u64, deadline_ms: u64, metadata },
  Cancel: { job: u64 },
  Drain: {},
  Resume: { job: u64 },
  Yield: { job: u64 },
  Credit: { job: u64, bytes: u64 },
  Segment: { segment: u32, bytes: u64, holds: enumeration(['inputs', 'outputs']) },
  SegmentGone: { segment: u32 },
  InputIn: { job: u64, segment: u32, offset: u64, length: u64 },
  OutputRead: { segment: u32 },
  InputFile: { job: u64, bytes: u64 },
  Batch: { jobs: u32 },
});

export const FROM_WORKER = direction({
  Hello: { magic, major: u16, minor: u16, capabilities: u64, sdk: text },
  Offer: { task: taskOffer, about: taskDescription, example_length: u32, schema_length: u32 },
  Ready: {},
  Started: { job: u64, attempt: u32 },
  Finished: { job: u64, attempt: u32, run_ns: u64, media_type: mediaType, usage },
  Failed: { job: u64, attempt: u32, run_ns: u64, kind: failureKind, message: text, usage },
  Skipped: { job: u64 },
  Progress: { job: u64, attempt: u32, done: u64, total: u64 },
  Checkpoint: { job: u64, attempt: u32 },
  Yielded: { job: u64, attempt: u32, run_ns: u64, usage },
  Part: { job: u64, attempt: u32 },
  SegmentReady: { segment: u32 },
  SegmentLeft: { segment: u32 },
  OutputIn: { job: u64, segment: u32, offset: u64, length: u64 },
  OfferBatch: { batching },
  Program: { news: programNews },
});

export const TO_SUPERVISOR = direction({
  Hello: { magic, major: u16, minor: u16, capabilities: u64, client: text },
  Submit: { ticket: u64, task: text, media_type: mediaType, detach: bool, options: submitOptions },
  Wait: { ticket: u64, job: text },
  Result: { ticket: u64, job: text },
  Cancel: { ticket: u64, job: text },
  Show: { ticket: u64, view },
  Drain: { ticket: u64 },
  Stop: { ticket: u64 },
  Explain: { ticket: u64, job: text },
  Dead: { ticket: u64, action: enumeration(['show', 'retry', 'drop']), job: text },
  Reload: { ticket: u64 },
  Page: { ticket: u64, view, after: text, limit: u32, label: text },
  DrainWithin: { ticket: u64, limit_ms: u64 },
  InputFile: { ticket: u64, bytes: u64 },
});

export const TO_CLIENT = direction({
  Welcome: { magic, major: u16, minor: u16, capabilities: u64, payload_max: u64 },
  Accepted: { ticket: u64, job: text },
  Rejected: { ticket: u64, code: outcome, message: text, retry_after_ms: option(u64) },
  Finished: { ticket: u64, report },
  Answer: { ticket: u64 },
  Goodbye: { reason: text },
  Part: { ticket: u64 },
  SendInput: { ticket: u64 },
});

const writer = new Writer(PREFIX_BYTES + HEADER_MAX, INLINE_PAYLOAD_MAX);
/** Where `write` of every direction leaves a frame. The next one is written over it. */
export const scratch = writer.bytes;

/** Whether a payload is copied behind its header. @param {Uint8Array} payload */
export const isInline = (payload) => payload.length <= INLINE_PAYLOAD_MAX;

/**
 * @typedef {{ type: string, [field: string]: any }} Message its name and its fields
 * @typedef {ReturnType<typeof direction>} Direction
 */

/** @param {Record<string, Record<string, import('./wire.js').Type<any>>>} messages */
function direction(messages) {
  const names = Object.keys(messages);
  const types = names.map((name) => struct({ type: { read: () => name, write: () => {} }, ...messages[name] }));
  const numbers = new Map(names.map((name, number) => [name, number]));

  /**
   * The message in `bytes[start]` up to `bytes[end]`. Throws `Malformed` if it is none. A media type, metadata or labels that are not
   * understood make it none, too, unless somebody takes the complaints: then the message is as it came.
   * @param {Buffer} bytes @param {number} start @param {number} end @param {string[]} [complaints]
   * @returns {Message}
   */
  function decode(bytes, start, end, complaints) {
    const reader = new Reader(bytes, start, end);
    reader.complaints = complaints;
    const type = types[u32.read(reader)];
    if (type === undefined) throw new Malformed('malformed header: an unknown number');
    const message = type.read(reader);
    if (reader.at < end) throw new Malformed(`${end - reader.at} bytes too many in a header`, 'trailing_bytes');
    return /** @type {Message} */ (message);
  }

  /**
   * Writes the frame of a message, up to its payload, and a short payload, into `scratch`. Returns how many bytes that is.
   * Throws a RangeError or a TypeError if a field cannot be sent.
   * @param {string} name @param {Record<string, any>} fields @param {Uint8Array} payload
   */
  function write(name, fields, payload) {
    const number = /** @type {number} */ (numbers.get(name));
    const { bytes } = writer;
    writer.at = PREFIX_BYTES;
    u32.write(writer, number);
    types[number].write(writer, fields);
    const end = writer.at;
    bytes.writeUInt32LE(end - PREFIX_BYTES, 0);
    bytes.writeUInt32LE(payload.length, 4);
    if (!isInline(payload)) return end;
    bytes.set(payload, end);
    return end + payload.length;
  }

  /**
   * The frame of a message: one piece if the payload is short, otherwise the head and the payload itself. Throws as `write`.
   * @param {string} name @param {Record<string, any>} [fields] @param {Uint8Array} [payload]
   * @returns {Uint8Array[]}
   */
  function encode(name, fields = {}, payload = NOTHING) {
    const length = write(name, fields, payload);
    const frame = Buffer.allocUnsafe(length);
    scratch.copy(frame, 0, 0, length);
    return isInline(payload) ? [frame] : [frame, payload];
  }

  return { decode, write, encode };
}

/**
 * The major and minor version in a header that greets, whatever its version; null if it does not greet.
 * @param {Buffer} bytes @param {number} start @param {number} end @param {number} before bytes between number and version
 */
export function versionOf(bytes, start, end, before) {
  const at = start + 4 + before;
  if (at + 4 > end || end - start > HEADER_MAX || bytes.readUInt32LE(start) !== 0) return null;
  return { major: bytes.readUInt16LE(at), minor: bytes.readUInt16LE(at + 2) };
}
