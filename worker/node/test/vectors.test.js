/** The golden vectors of the protocol: the package reads them as they are meant, writes the same bytes, and refuses what is wrong. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { FrameDecoder } from '../src/frame.js';
import { FROM_WORKER, TO_CLIENT, TO_SUPERVISOR, TO_WORKER, versionOf } from '../src/messages.js';
import { test } from './testing.js';

const { vectors: all } = JSON.parse(readFileSync(new URL('../../../protocol/vectors.json', import.meta.url), 'utf8'));
/** What operators ask for are capabilities that this package does not state. */
const isKnown = ({ message }) => message !== 'Operate';
const vectors = all.filter(({ meaning }) => !meaning || isKnown(meaning));
const DIRECTIONS = { to_worker: TO_WORKER, from_worker: FROM_WORKER, to_supervisor: TO_SUPERVISOR, to_client: TO_CLIENT };
const ENUMERATIONS = new Set(['code', 'outcome', 'kind', 'news', 'view', 'action', 'holds', 'lane']);
/** The longest payload of the vectors, in bytes; one is longer, on purpose. */
const PAYLOAD_MAX = 1024;

/** The frames in `bytes`, pushed in pieces of `piece` bytes. */
function framesOf(bytes, direction, piece) {
  const frames = [];
  const decoder = new FrameDecoder(PAYLOAD_MAX, (from, start, end, payload) => {
    frames.push({ message: direction.decode(from, start, end), payload });
  });
  for (let at = 0; at < bytes.length; at += piece) decoder.push(bytes.subarray(at, at + piece));
  assert.equal(decoder.isMidFrame, false);
  return frames;
}

/** Words of enumerations in the form of the vectors, and integers as they are after JSON. */
function comparable(value, key) {
  if (typeof value === 'string' && ENUMERATIONS.has(key)) return value.replaceAll('_', '').toLowerCase();
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Map) return Object.fromEntries(value);
  if (Array.isArray(value)) return value.map((element) => comparable(element, ''));
  if (value === null || typeof value !== 'object') return value;
  const name = (word) => (key === 'kind' || key === 'news' ? comparable(word, key) : word);
  return Object.fromEntries(Object.entries(value).map(([word, inner]) => [name(word), comparable(inner, word)]));
}

test('each vector is read as it is meant, in one piece and byte by byte', () => {
  const meant = vectors.filter((vector) => vector.meaning);
  assert.ok(meant.length >= 50, `${meant.length} vectors`);
  for (const { direction, about, frame, meaning } of meant) {
    const bytes = Buffer.from(frame, 'hex');
    for (const piece of [bytes.length, 1, 7]) {
      const [{ message, payload }, ...others] = framesOf(bytes, DIRECTIONS[direction], piece);
      const { type, ...fields } = message;
      assert.equal(type, meaning.message, about);
      assert.deepEqual(comparable(fields), comparable(meaning.fields), about);
      assert.equal(payload.toString('hex'), meaning.payload, about);
      assert.deepEqual(others, [], about);
    }
  }
});

test('what was read is written as the same bytes', () => {
  for (const { direction, about, frame, meaning } of vectors.filter((vector) => vector.meaning)) {
    const [{ message, payload }] = framesOf(Buffer.from(frame, 'hex'), DIRECTIONS[direction], frame.length);
    const written = Buffer.concat(DIRECTIONS[direction].encode(meaning.message, message, payload));
    assert.equal(written.toString('hex'), frame, about);
  }
});

test('each frame that the protocol forbids is refused for its reason', () => {
  const refused = vectors.filter((vector) => vector.error);
  assert.ok(refused.length >= 20, `${refused.length} vectors`);
  for (const { direction, about, frame, error } of refused) {
    const bytes = Buffer.from(frame, 'hex');
    const isRefused = (thrown) => thrown.name === 'Malformed' && thrown.code === error;
    assert.throws(() => framesOf(bytes, DIRECTIONS[direction], bytes.length), isRefused, about);
  }
});

test('the version of a greeting is read although the rest of it is of another version', () => {
  const old = vectors.find((vector) => vector.about.startsWith('a hello of protocol 2'));
  const bytes = Buffer.from(old.frame, 'hex');
  assert.deepEqual(versionOf(bytes, 8, bytes.length, 8), { major: 2, minor: 1 });
});

/** Numbers from 0 to 2^32 - 1 that are the same in each run (xorshift). @param {number} seed */
function* numbers(seed) {
  for (;;) {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    yield seed >>> 0;
  }
}

test('frames that were damaged are read or refused, and nothing else happens', () => {
  const random = numbers(7);
  const next = (below) => random.next().value % below;
  const counts = { read: 0, refused: 0 };
  for (let run = 0; run < 50_000; run++) {
    const { frame, direction } = vectors[next(vectors.length)];
    const bytes = Buffer.from(frame, 'hex');
    for (let i = next(4); i >= 0; i--) bytes[next(bytes.length)] = next(256);
    try {
      const decoder = new FrameDecoder(PAYLOAD_MAX, (from, start, end) => {
        DIRECTIONS[direction].decode(from, start, end);
        counts.read++;
      });
      const split = next(bytes.length + 1);
      decoder.push(bytes.subarray(0, split));
      decoder.push(bytes.subarray(split));
    } catch (error) {
      if (error.name !== 'Malformed') throw error;
      counts.refused++;
    }
  }
  assert.ok(counts.read > 5_000 && counts.refused > 5_000, JSON.stringify(counts));
});

test('two frames and the start of a third come in one piece', () => {
  const [ready, started] = ['Ready', 'Started'].map((name) => {
    return Buffer.from(vectors.find((vector) => vector.meaning?.message === name).frame, 'hex');
  });
  const seen = [];
  const decoder = new FrameDecoder(PAYLOAD_MAX, (bytes, start, end) => seen.push(FROM_WORKER.decode(bytes, start, end).type));
  decoder.push(Buffer.concat([ready, started, ready.subarray(0, 3)]));
  assert.deepEqual([seen, decoder.isMidFrame], [['Ready', 'Started'], true]);
  decoder.push(ready.subarray(3));
  assert.deepEqual([seen, decoder.isMidFrame], [['Ready', 'Started', 'Ready'], false]);
});
