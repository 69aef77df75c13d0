/**
 * The types that messages consist of, with the bounds that both ends check: outcomes, media types, metadata, labels, reports.
 */

import {
  ASKED_MAX, LABEL_MAX, LABELS_MAX, MEDIA_TYPE_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_MAX, TASK_NAME_MAX,
} from './limits.js';
import { bool, checked, enumeration, i32, isWellFormed, list, option, struct, text, u32, u64 } from './wire.js';

/** How a job ended, or why it was rejected, in the order of the wire. */
export const OUTCOMES = Object.freeze([
  'ok', 'app_error', 'panic', 'worker_crashed', 'worker_oom', 'worker_protocol', 'confinement', 'timeout', 'cancelled', 'poison',
  'indeterminate', 'io_error', 'io_panic', 'overloaded', 'quota', 'too_large', 'bad_request', 'unauthenticated', 'forbidden',
  'conflict', 'unavailable', 'storage_full', 'unsupported', 'unknown_task', 'no_such_job',
]);

export const outcome = enumeration(OUTCOMES);
export const lane = enumeration(['cpu', 'io']);

export const JSON_TYPE = 'application/json';
export const JSON_LINES_TYPE = 'application/x-ndjson';
export const TEXT_TYPE = 'text/plain; charset=utf-8';
export const BYTES_TYPE = 'application/octet-stream';
export const ANY_TYPE = '*/*';

const TOKEN = "[A-Za-z0-9!#$%&'*+\\-.^_`|~]+";
const QUOTED = '"(?:[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e])*"';
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(?:[ \\t]*;[ \\t]*${TOKEN}=(?:${TOKEN}|${QUOTED}))*[ \\t]*$`);

/** Those that were found to be valid, up to 64: nearly all payloads have one of a few. @type {Set<string>} */
const known = new Set([JSON_TYPE, TEXT_TYPE, BYTES_TYPE, ANY_TYPE]);

/** Returns the text if it is a media type, and throws a TypeError otherwise. @param {string} value */
export function checkMediaType(value) {
  if (known.has(value)) return value;
  const isSpaced = /[ \t]$/.test(value);
  if (typeof value !== 'string' || value.length > MEDIA_TYPE_MAX || !MEDIA_TYPE.test(value) || (isSpaced && !value.includes(';'))) {
    throw new TypeError(`${JSON.stringify(value)} is no media type: 1 to ${MEDIA_TYPE_MAX} bytes such as 'image/png'`);
  }
  if (known.size < 64) known.add(value);
  return value;
}

/** The type without its parameters, in small letters. @param {string} mediaType */
const essence = (mediaType) => mediaType.split(';', 1)[0].trimEnd().toLowerCase();

/** Whether a payload of this type is a JSON document. @param {string} mediaType */
export function isJson(mediaType) {
  if (mediaType === JSON_TYPE) return true;
  if (mediaType === BYTES_TYPE || mediaType === TEXT_TYPE) return false;
  return essence(mediaType) === JSON_TYPE || essence(mediaType).endsWith('+json');
}

/** Whether a payload of this type is text. @param {string} mediaType */
export const isText = (mediaType) => mediaType === TEXT_TYPE || (mediaType !== BYTES_TYPE && /^text\//i.test(mediaType));

export const mediaType = checked(text, checkMediaType, checkMediaType);

/** Returns the name if a task may have it, and throws a TypeError otherwise. @param {string} name */
export function checkTaskName(name) {
  if (typeof name === 'string' && name.length <= TASK_NAME_MAX && /^[A-Za-z][A-Za-z0-9._-]*$/.test(name)) return name;
  const rule = `1 to ${TASK_NAME_MAX} letters, digits, '.', '_' or '-', the first a letter`;
  throw new TypeError(`${JSON.stringify(name)} is no name of a task: ${rule}`);
}

/** Returns the name of what is asked for, if it can be sent, and throws a TypeError otherwise. @param {string} what @param {string} name */
export function checkAsked(what, name) {
  if (typeof name !== 'string') throw new TypeError(`${what} is a text, and not of the type ${typeof name}`);
  if (!isWellFormed(name)) throw new TypeError(`${JSON.stringify(name)} has half of a surrogate pair, and cannot be sent`);
  if (Buffer.byteLength(name) > ASKED_MAX) throw new TypeError(`${what} has at most ${ASKED_MAX} bytes`);
  return name;
}

/** Pairs of metadata, from an object or a map. Throws a TypeError if they exceed a bound. */
function metadataToWire(metadata) {
  if (metadata === undefined || (metadata instanceof Map && metadata.size === 0)) return NONE;
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata)) throw new TypeError('`metadata` is an object or a Map');
  const pairs = metadata instanceof Map ? [...metadata] : Object.entries(metadata);
  return checkPairs(pairs.map(([key, value]) => ({ key, value })));
}

/**
 * A copy of what a client attaches to a job. Throws a TypeError if it exceeds a bound.
 * @param {Record<string, string> | Map<string, string> | undefined} metadata
 */
export const metadataOf = (metadata) => mapOf(metadataToWire(metadata));

/** @param {{ key: string, value: string }[]} pairs */
const mapOf = (pairs) => (pairs.length === 0 ? NO_METADATA : new Map(pairs.map(({ key, value }) => [key, value])));

/** @param {{ key: string, value: string }[]} pairs */
function checkPairs(pairs) {
  if (pairs.length > METADATA_PAIRS_MAX) {
    throw new TypeError(`${pairs.length} pairs of metadata, at most ${METADATA_PAIRS_MAX} are allowed`);
  }
  if (new Set(pairs.map((pair) => pair.key)).size < pairs.length) throw new TypeError('a key of metadata twice');
  for (const { key, value } of pairs) checkPair(key, value);
  return pairs;
}

function checkPair(key, value) {
  if (!/^[a-z0-9._-]{1,64}$/.test(key)) {
    throw new TypeError(`${JSON.stringify(key)} is no key of metadata: 1 to 64 of a-z, 0-9, '.', '_' and '-'`);
  }
  if (typeof value !== 'string' || !isWellFormed(value) || Buffer.byteLength(value) > METADATA_VALUE_MAX || /\p{Cc}/u.test(value)) {
    throw new TypeError(`the value of the metadata key ${key} is no text of at most ${METADATA_VALUE_MAX} bytes without control characters`);
  }
}

/** What most jobs have. */
const NO_METADATA = new Map();
/** @type {any[]} */
const NONE = [];

/** What a client attached to a job: a `Map` when it is read; a `Map` or an object when it is written. */
export const metadata = checked(list(struct({ key: text, value: text })), metadataToWire, (pairs) =>
  pairs.length === 0 ? NO_METADATA : mapOf(checkPairs(pairs)),
);

/** @param {string} label */
function checkLabel(label) {
  const isLabel = /^(?:[^=\s\p{Cc}]+|[^=\s\p{Cc}]+=[^\s\p{Cc}]+)$/u;
  if (typeof label === 'string' && isWellFormed(label) && Buffer.byteLength(label) <= LABEL_MAX && isLabel.test(label)) return label;
  throw new TypeError(`${JSON.stringify(label)} is no label: a word, or KEY=VALUE, of 1 to ${LABEL_MAX} bytes without spaces`);
}

/** A copy of the labels, each once. Throws a TypeError if they exceed a bound. @param {string[] | undefined} labels */
export function checkLabels(labels) {
  if (labels === undefined) return NONE;
  if (!Array.isArray(labels)) throw new TypeError('`labels` is a list');
  if (labels.length === 0) return NONE;
  const unique = [...new Set(labels)].map(checkLabel);
  if (unique.length > LABELS_MAX) throw new TypeError(`${unique.length} labels, at most ${LABELS_MAX} are allowed`);
  return unique;
}

export const labels = checked(list(text), checkLabels, checkLabels);

export const usage = struct({ cpu_user_us: u64, cpu_system_us: u64, peak_rss_bytes: u64 });

export const batching = struct({ max: u32, wait_us: u32 });

export const taskOffer = struct({
  name: text, idempotent: bool, lane, stepped: bool, checkpoints: bool, progress_ms: u32,
});

export const taskDescription = struct({
  description: text, accepts: list(mediaType), produces: mediaType, streams: bool, memory_bytes: u64, exclusive: bool,
});

const receipt = struct({
  queued_us: u64, run_us: u64, returned_us: u64, worker_pid: u32, slot: u32, incarnation: u64, input_bytes: u64, output_bytes: u64,
  usage,
});

const errorDetail = struct({
  code: outcome, message: text, signal: option(i32), exit_code: option(i32), retry_after_ms: option(u64),
});

export const report = struct({
  job: text, task: text, outcome, error: option(errorDetail), attempts: u32, receipt, media_type: mediaType, metadata, labels,
});

/** The longest beginning of `string` that has at most `max` bytes and ends between two characters. @param {string} string @param {number} max */
export function cut(string, max) {
  const bytes = Buffer.from(string);
  if (bytes.length <= max) return string;
  let end = max;
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}
