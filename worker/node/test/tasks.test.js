/** Which definitions of tasks are refused, and what the others become. */

import assert from 'node:assert/strict';
import { defineTasks, inputOf as inputOfJob } from '../src/worker/tasks.js';
import { test } from './testing.js';

const inputOf = (task, input, contentType) => inputOfJob(task, { input, run: { media_type: contentType } });

const run = () => 1;
const runBatch = () => [];

test('a definition that cannot be kept is refused with its reason', () => {
  const refused = [
    [{}, /1 to 4096 tasks, these are 0/],
    [{ 'a b': run }, /is no name of a task/],
    [{ a: {} }, /no function `run`/],
    [{ a: { run, idempotant: true } }, /it has no option "idempotant"; there are run, /],
    [{ a: { runBatch, batch: { maxi: 4 } } }, /`batch` has no option "maxi"; there are max, wait$/],
    [{ a: { run, description: 'x'.repeat(257) } }, /its description has 257, 256 are allowed/],
    [{ a: { run, accepts: 'png' } }, /no media type/],
    [{ a: { run, accepts: Array(9).fill('a/b') } }, /media types has 9, 8 are allowed/],
    [{ a: { run, example: 'x'.repeat(65_537) } }, /example and schema has 65537, 65536 are allowed/],
    [{ a: { run, progressEvery: 0.5 } }, /whole number of milliseconds/],
    [{ a: { run, memory: '1GiB' } }, /`memory` is a whole number of bytes/],
    [{ a: { run, memory: -1 } }, /`memory` is a whole number of bytes/],
    [{ a: { run, description: 5 } }, /`description` is a text/],
    [{ a: { run, description: '\ud800' } }, /`description` is a text/],
    [{ a: { run, example: { ratio: NaN } } }, /NaN \("ratio"\) cannot be written as JSON/],
    [{ a: { run, schema: () => {} } }, /a function cannot be written as JSON/],
    [{ a: { run, batch: { max: 2 } } }, /no function `runBatch`/],
    [{ a: { run, runBatch } }, /then it has no `run`/],
    [{ a: { runBatch, idempotent: false } }, /is idempotent/],
    [{ a: { runBatch, progressEvery: 5 } }, /promise of progress/],
    [{ a: { runBatch, batch: { max: 1 } } }, /`max`, 2 to 32/],
    [{ a: { runBatch, batch: { max: 33 } } }, /`max`, 2 to 32/],
    [{ a: { runBatch, batch: { wait: 1001 } } }, /`wait`, 0 to 1000 ms/],
  ];
  for (const [tasks, reason] of refused) assert.throws(() => defineTasks(tasks), { name: 'TypeError', message: reason });
});

test('an offer says what was defined, and generators stream', () => {
  const tasks = defineTasks({
    plain: run,
    all: { run, idempotent: true, checkpoints: true, progressEvery: 50, memory: 1 << 30, exclusive: true, accepts: 'image/*', schema: {} },
    parts: function* () {},
    batch: { runBatch },
  });
  assert.deepEqual(tasks.get('plain').offer.task, {
    name: 'plain', idempotent: false, lane: 'cpu', stepped: false, checkpoints: false, progress_ms: 0,
  });
  const { task, about } = tasks.get('all').offer;
  assert.deepEqual([task.idempotent, task.checkpoints, task.progress_ms], [true, true, 50]);
  assert.deepEqual([about.memory_bytes, about.exclusive, about.accepts, about.produces], [1 << 30, true, ['image/*'], '*/*']);
  assert.deepEqual([tasks.get('parts').offer.about.streams, tasks.get('plain').offer.about.streams], [true, false]);
  assert.deepEqual([tasks.get('batch').offer.task.idempotent, tasks.get('batch').batching], [true, { max: 32, wait_us: 0 }]);
});

test('what a task accepts decides how its inputs are read, if it accepts one kind', () => {
  const inputs = [
    [undefined, 'application/json', 1],
    [undefined, 'text/plain', '1'],
    [undefined, 'image/png', Buffer.from('1')],
    ['application/json', 'text/plain', 1],
    ['text/plain', 'application/json', 'ü"', Buffer.from('"ü\\""')],
    ['text/plain', 'application/json; charset=utf-8', 'a', Buffer.from('"a"')],
    [['text/plain', 'text/html'], 'Application/LD+JSON', 'a', Buffer.from('"a"')],
    ['text/plain', 'image/png', '1'],
    ['image/png', 'application/json', Buffer.from('1')],
    ['application/octet-stream', 'text/plain; charset=shift_jis', Buffer.from('1')],
    ['text/plain', 'text/plain; charset=utf-16le', '\u3131', Buffer.from('11')],
    ['*/*', 'application/json', 1],
    [['application/json', 'image/png'], 'image/png', Buffer.from('1')],
  ];
  for (const [accepts, contentType, expected, input = Buffer.from('1')] of inputs) {
    const task = defineTasks({ a: { run, accepts } }).get('a');
    assert.deepEqual(inputOf(task, input, contentType), expected, `${accepts} ${contentType}`);
  }
});

test('an input that is not what its media type says is refused, and no byte of it is replaced', () => {
  const inputs = [
    [undefined, 'text/plain', [0xff], /^the input is not what this task takes: it is not UTF-8$/],
    [undefined, 'application/json', [0x22, 0xff, 0x22], /it is not UTF-8$/],
    ['text/plain', 'image/png', [0x61, 0xc3], /it is not UTF-8$/],
    ['text/plain', 'application/json', [0x31], /it is JSON, and no string$/],
    ['text/plain', 'application/json', [0x61], /JSON/],
    ['application/json', 'text/plain', [0x22, 0xff, 0x22], /it is not UTF-8$/],
    [undefined, 'text/plain; charset=klingon', [0x61], /it is in the charset klingon, which is not read here$/],
    [undefined, 'text/plain; charset="UTF-16"', [0xff, 0xfe, 0x00, 0xd8], /it is no text in utf-16$/],
  ];
  for (const [accepts, contentType, bytes, message] of inputs) {
    const task = defineTasks({ a: { run, accepts } }).get('a');
    assert.throws(() => inputOf(task, Buffer.from(bytes), contentType), { message }, `${accepts} ${contentType}`);
  }
  const task = defineTasks({ a: run }).get('a');
  assert.deepEqual(inputOf(task, Buffer.from([0xff]), 'image/png'), Buffer.from([0xff]));
  assert.equal(inputOf(task, Buffer.from([0xfc]), 'text/plain; a="; charset=x"; Charset=ISO-8859-1'), 'ü');
});
