/**
 * How a call wants to be treated: the options of `call` become those of Submit.
 */

import { createHash } from 'node:crypto';
import { checkKeys } from '../keys.js';
import { NAME_MAX } from '../limits.js';
import { checkLabels, metadataOf } from '../nouns.js';
import { isWellFormed } from '../wire.js';

const STREAM_KEYS = ['timeout', 'deadline', 'priority', 'attempts', 'metadata', 'labels', 'contentType', 'signal'];
const KEYS = [...STREAM_KEYS, 'idempotencyKey'];

/**
 * @typedef {object} CallOptions
 * @property {number} [timeout] milliseconds that one attempt may run
 * @property {number} [deadline] milliseconds from the call until nobody wants the output any more, waiting included
 * @property {number} [priority] -10 to 10; jobs of a higher priority start sooner
 * @property {number} [attempts] 1 to 100
 * @property {string} [idempotencyKey] 1 to 64 bytes; calling again with the same key gives the same job. Not of a stream
 * @property {Record<string, string> | Map<string, string>} [metadata] what goes with the job to its task
 * @property {string[]} [labels] words by which the job can be found
 * @property {string} [contentType] the media type of an input that is bytes or a string; of any other value one of JSON or text
 * @property {AbortSignal} [signal] cancels the job, but for one with a key, which may be that of others
 */

/**
 * A copy of the options, so that the caller may change them. Throws a TypeError for one that there is not, or a value that it cannot have.
 * @param {CallOptions} options @param {{ bytes: Uint8Array, contentType: string }} input @param {boolean} stream
 */
export function submitOptions(options, input, stream) {
  // Nothing of a stream is kept, so there is nothing that a key could give again.
  if (stream) checkKeys('a stream', options, STREAM_KEYS);
  else checkKeys('a call', options, KEYS);
  const { timeout, deadline, priority = 0, attempts, idempotencyKey: key, metadata, labels } = options;
  return {
    timeout_ms: milliseconds('timeout', timeout),
    deadline_ms: milliseconds('deadline', deadline),
    attempts: attempts === undefined ? null : whole('attempts', attempts, 1, 100),
    lane: null,
    priority: whole('priority', priority, -10, 10),
    idempotency: key === undefined ? null : { key: checkKey(key), digest: digestOf(input) },
    metadata: metadataOf(metadata),
    labels: checkLabels(labels),
    stream,
  };
}

/** Throws a TypeError if it is none. @param {AbortSignal | null | undefined} signal */
export function checkSignal(signal) {
  if (signal === undefined || signal === null || typeof signal.throwIfAborted === 'function') return signal;
  throw new TypeError('`signal` is an AbortSignal');
}

function milliseconds(name, value) {
  if (value === undefined || value === Infinity) return null;
  if (typeof value !== 'number' || !(value > 0)) throw new TypeError(`\`${name}\` is a number of milliseconds, more than 0`);
  return Math.min(Math.ceil(value), Number.MAX_SAFE_INTEGER);
}

function whole(name, value, min, max) {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new TypeError(`\`${name}\` is a whole number from ${min} to ${max}`);
}

function checkKey(key) {
  if (typeof key === 'string' && isWellFormed(key) && key !== '' && Buffer.byteLength(key) <= NAME_MAX) return key;
  throw new TypeError(`\`idempotencyKey\` is a text of 1 to ${NAME_MAX} bytes`);
}

/** By this an idempotency key tells inputs apart; all clients of the project compute the same. */
function digestOf({ bytes, contentType }) {
  const hash = createHash('sha256').update(contentType).update(Buffer.from([0])).update(bytes).digest();
  return (hash.readBigUInt64BE(0) << 64n) | hash.readBigUInt64BE(8);
}
