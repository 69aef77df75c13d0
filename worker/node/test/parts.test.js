/** Whatever a task yields, writes, returns or throws: nothing of it is lost without a word, and its job gets an answer. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { BATCHES, PARTS } from '../src/messages.js';
import { FakeSupervisor } from './fake_supervisor.js';
import { test } from './testing.js';
import { within } from './within.js';

/** A worker with these tasks, which has introduced itself. */
async function started(welcome) {
  const supervisor = await FakeSupervisor.start('parts.mjs', welcome);
  await supervisor.introduced();
  return supervisor;
}

/** The output of a job as a whole, or its failure. Parts that are waited for are given credit. */
async function outcomeOf(supervisor, job, task, input, fields) {
  supervisor.run(job, task, input, fields);
  await supervisor.expect('Started');
  const bytes = [];
  for (;;) {
    const heard = await supervisor.hear();
    if (heard.type === 'Failed') return [heard.kind, heard.message];
    bytes.push(heard.payload);
    if (heard.type === 'Finished') return [heard.media_type, Buffer.concat(bytes).toString()];
    assert.equal(heard.type, 'Part');
    supervisor.send('Credit', { job, bytes: heard.payload.length });
  }
}

const TEXT = 'text/plain; charset=utf-8';

test('each value of a generator is a part: bytes and strings as they are, other values as lines of JSON', async () => {
  const expected = {
    objects: ['application/x-ndjson', '{"a":1}\n5\nnull\nnull\n[true]\n'],
    bytes: ['application/octet-stream', 'ABCD'],
    pictures: ['image/png', 'AB'],
    mixed: ['application/octet-stream', 'text {"a":1}\n'],
    notFinite: ['app_error', 'TypeError: NaN ("ratio") cannot be written as JSON'],
    half: ['app_error', 'TypeError: a text with half of a surrogate pair cannot be sent'],
  };
  for (const capabilities of [PARTS, 0]) {
    const supervisor = await started({ capabilities });
    let job = 0;
    for (const [name, outcome] of Object.entries(expected)) {
      assert.deepEqual(await outcomeOf(supervisor, ++job, 'yields', name), outcome, name);
      assert.deepEqual(await outcomeOf(supervisor, ++job, 'yieldsLate', name), outcome, name);
    }
    assert.deepEqual(await outcomeOf(supervisor, ++job, 'json', null), ['application/json', '{"a":1}']);
    assert.deepEqual(await outcomeOf(supervisor, ++job, 'picture', null), ['image/png', 'AB']);
    assert.deepEqual(await outcomeOf(supervisor, ++job, 'returns', null), [TEXT, 'ab']);
    assert.equal(await supervisor.leave(), 0);
  }
});

test('parts that nobody waits for come in their order and before the answer', async () => {
  const supervisor = await started();
  const [, output] = await outcomeOf(supervisor, 1, 'together', null);
  const firsts = Array.from({ length: 40 }, (_, i) => output.charCodeAt(i * 65_536));
  assert.deepEqual(firsts, Array.from({ length: 40 }, (_, i) => i));
  assert.deepEqual([output.length, output.slice(-3)], [40 * 65_536 + 3, 'end']);
  assert.deepEqual(await outcomeOf(supervisor, 2, 'short', null), [TEXT, 'abc']);
  assert.equal(await supervisor.leave(), 0);
});

test('parts that are left are no error that nobody caught, and a part that is lost is the job\'s', async () => {
  const supervisor = await started({ capabilities: 0, payload_max: 100 });
  assert.deepEqual(await outcomeOf(supervisor, 1, 'notAllWritten', 101), ['app_error', 'RangeError: the output has 101 bytes, at most 100 can be sent']);
  assert.deepEqual(await outcomeOf(supervisor, 2, 'notAllWritten', 1), ['application/octet-stream', '\0as if nothing were']);
  assert.equal(await supervisor.leave(), 0);
  const taking = await started();
  assert.deepEqual(await outcomeOf(taking, 1, 'leaves', null), ['app_error', 'it left its parts']);
  taking.run(2, 'together', null);
  await taking.expect('Started');
  for (let part = 0; part < 4; part++) await taking.expect('Part');
  taking.send('Cancel', { job: 2 });
  const { kind, message } = await taking.expect('Failed');
  assert.deepEqual([kind, message], ['app_error', 'AbortError: cancelled']);
  assert.deepEqual(await outcomeOf(taking, 3, 'echo', 'next'), [TEXT, 'next']);
  assert.equal(await taking.leave(), 0);
});

test('a part that is neither bytes nor a string is the error of its job, whoever waits for it, and the worker goes on', async () => {
  const supervisor = await started();
  let job = 0;
  for (let odd = 0; odd < 7; odd++) {
    for (const task of ['writesOdd', 'writesOddLate', 'writesOddAndCatches']) {
      const [kind, message] = await outcomeOf(supervisor, ++job, task, odd);
      assert.equal(kind, 'app_error', `${task} ${odd}`);
      assert.match(message, /^TypeError: (an? .* is neither bytes nor a string|a text with half of a surrogate pair cannot be sent)$/);
    }
  }
  const [kind, message] = await outcomeOf(supervisor, ++job, 'writesInBatch', null);
  assert.deepEqual([kind, message], ['app_error', 'TypeError: a task with `runBatch` sends no parts']);
  assert.deepEqual(await outcomeOf(supervisor, ++job, 'writes', null), ['application/octet-stream', 'ABCD']);
  assert.equal(await supervisor.leave(), 0);
});

test('what a task returns is the last of its parts, and nothing adds nothing: the media type is that of all of them', async () => {
  const BYTES = 'application/octet-stream';
  const expected = {
    text: [TEXT, 'hello'],
    bytes: [BYTES, 'AB'],
    pictures: ['image/png', 'AB'],
    mixed: [BYTES, 'textA'],
    empty: [TEXT, ''],
    textBehind: [TEXT, 'hello world'],
    bytesBehind: [BYTES, 'hello!'],
    valueBehind: [BYTES, 'hello{"a":1}\n'],
    nullBehind: [BYTES, 'hellonull\n'],
    payloadBehind: ['image/png', 'AB'],
  };
  for (const capabilities of [PARTS, 0]) {
    const supervisor = await started({ capabilities });
    let job = 0;
    for (const [name, outcome] of Object.entries(expected)) {
      assert.deepEqual(await outcomeOf(supervisor, ++job, 'writesAndReturns', name), outcome, name);
    }
    for (const last of [true, false]) {
      assert.deepEqual(await outcomeOf(supervisor, ++job, 'writesJson', last), ['application/json', '{"a":1}']);
    }
    assert.deepEqual(await outcomeOf(supervisor, ++job, 'writesAndYields', null), [TEXT, 'abc']);
    assert.equal(await supervisor.leave(), 0);
  }
});

test('a part is what its bytes were when it was written, whatever becomes of their memory', async () => {
  for (const capabilities of [PARTS, 0]) {
    const supervisor = await started({ capabilities });
    const [, output] = await outcomeOf(supervisor, 1, 'writesSame', null);
    const parts = Array.from({ length: 40 }, (_, i) => output.slice(i * 65_536, (i + 1) * 65_536));
    assert.ok(parts.every((part, i) => part === String.fromCharCode(i).repeat(65_536)));
    assert.equal(await supervisor.leave(), 0);
  }
});

test('whatever is thrown, the job gets an answer and the process goes on', async () => {
  const supervisor = await started();
  const expected = {
    undefined: 'undefined',
    number: '5',
    name: 'no name',
    half: 'a \\ud800 b',
    getter: 'an error that cannot be shown',
    exitCode: 'known',
    inspected: 'an error that cannot be shown',
    proxy: '{}',
    signal: 'no signal',
  };
  let job = 0;
  for (const [name, message] of Object.entries(expected)) {
    for (const task of ['throws', 'rejects']) {
      assert.deepEqual(await outcomeOf(supervisor, ++job, task, name), ['app_error', message], `${task} ${name}`);
    }
  }
  for (const [task, message] of [
    ['then', 'from then'],
    ['toJSON', 'an error that cannot be shown'],
    ['changed', /"no type" is no media type/],
    ['bytesChanged', 'TypeError: a number is neither bytes nor a string'],
    ['throwsNothing', 'undefined'],
  ]) {
    const [kind, said] = await outcomeOf(supervisor, ++job, task, null);
    assert.equal(kind, 'app_error');
    if (typeof message === 'string') assert.equal(said, message);
    else assert.match(said, message);
  }
  assert.equal(await supervisor.leave(), 0);
});

test('whatever nobody caught, the job that runs has panicked', async () => {
  for (const [name, message] of [['getter', 'an error that cannot be shown'], ['proxy', '{}'], ['number', '5']]) {
    const supervisor = await started();
    assert.deepEqual(await outcomeOf(supervisor, 1, 'uncaught', name), ['panic', message]);
    assert.equal(await supervisor.ended(), 1);
    assert.match(supervisor.stderr, /an error that nobody caught: /);
  }
});

test('a job that was answered as a panic before it could be announced does not run', async () => {
  const supervisor = await started();
  // Nothing is read, so behind eight megabytes the worker cannot say that it has started the next job.
  supervisor.socket.pause();
  supervisor.socket.cork(); // the second one is there when the first one ends
  supervisor.run(1, 'late', null);
  supervisor.run(2, 'prints', null);
  supervisor.socket.uncork();
  while (!supervisor.stderr.includes('a late one')) await within('the late error', once(supervisor.child.stderr, 'data'));
  supervisor.socket.resume();
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Finished')).payload.length, 8 << 20);
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Failed')).kind, 'panic');
  await supervisor.expect('nothing');
  assert.equal(await supervisor.ended(), 1);
  assert.ok(!supervisor.stderr.includes('it ran'), supervisor.stderr);
});

test('an output that JSON cannot express is an error of the job', async () => {
  const supervisor = await started();
  const expected = {
    ratio: ['app_error', 'TypeError: NaN ("ratio") cannot be written as JSON'],
    infinite: ['app_error', 'TypeError: -Infinity cannot be written as JSON'],
    map: ['app_error', 'TypeError: an object (Map) cannot be written as JSON'],
    error: ['app_error', 'TypeError: an object (Error) cannot be written as JSON'],
    big: ['app_error', 'TypeError: Do not know how to serialize a BigInt'],
    half: ['app_error', 'TypeError: a text with half of a surrogate pair cannot be sent'],
    halfInJson: ['app_error', 'TypeError: a text with half of a surrogate pair ("0") cannot be sent'],
  };
  for (const [index, [task, outcome]] of Object.entries(expected).entries()) {
    assert.deepEqual(await outcomeOf(supervisor, index, task, null), outcome, task);
  }
  assert.equal(await supervisor.leave(), 0);
});

test('an input whose bytes are no text is refused, and a task of bytes gets them', async () => {
  const supervisor = await started();
  const bytes = Buffer.from([0x22, 0xff, 0x22]);
  const refused = ['app_error', 'the input is not what this task takes: it is not UTF-8'];
  assert.deepEqual(await outcomeOf(supervisor, 1, 'echo', bytes, { media_type: 'text/plain' }), refused);
  assert.deepEqual(await outcomeOf(supervisor, 2, 'echo', bytes, { media_type: 'application/json' }), refused);
  assert.deepEqual(await outcomeOf(supervisor, 3, 'text', bytes), refused);
  assert.deepEqual(await outcomeOf(supervisor, 4, 'readsJson', bytes), refused);
  assert.deepEqual(await outcomeOf(supervisor, 5, 'text', Buffer.from([0xfc]), { media_type: 'text/plain; charset=latin1' }), [TEXT, 'ü']);
  assert.equal((await outcomeOf(supervisor, 6, 'echo', bytes))[0], 'application/octet-stream');
  assert.equal(await supervisor.leave(), 0);
});

test('a result of a batch may be a promise, and one that is rejected fails alone', async () => {
  const supervisor = await started({ capabilities: PARTS | BATCHES });
  supervisor.send('Batch', { jobs: 4 });
  ['promise', 'rejected', 'nothing', 'other'].forEach((input, index) => supervisor.run(index, 'batch', input));
  await supervisor.expect('Started');
  const answers = new Map();
  while (answers.size < 4) {
    const { job, message, payload } = await supervisor.hear();
    answers.set(job, message ?? payload.toString());
  }
  assert.deepEqual([0, 1, 2, 3].map((job) => answers.get(job)), ['later', 'undefined', 'null', 'other']);
  assert.equal(await supervisor.leave(), 0);
});

test('to report progress never fails a job, and a checkpoint is bytes or a string', async () => {
  const supervisor = await started();
  // A task that promised to report keeps that promise by what it said last.
  for (const [task, repeated] of [['progress', 30], ['progressUnpromised', 0]]) {
    supervisor.run(1, task, null);
    await supervisor.expect('Started');
    for (let i = 0; i < 1 + repeated; i++) {
      const { done, total } = await supervisor.expect('Progress');
      assert.deepEqual([done, total], [5, 9], task);
    }
    const { done, total } = await supervisor.expect('Progress');
    assert.deepEqual([done, total], [Number.MAX_SAFE_INTEGER, 0], task);
    assert.equal((await supervisor.expect('Finished')).payload.toString(), 'reported');
  }
  supervisor.run(9, 'checkpoint', null);
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Checkpoint')).payload.toString(), 'ABCD');
  assert.equal((await supervisor.expect('Finished')).payload.toString(), Array(5).fill('TypeError').join(' '));
  assert.equal(await supervisor.leave(), 0);
});

test('a job whose description is not understood fails, alone, and the worker goes on', async () => {
  const supervisor = await started({ capabilities: PARTS | BATCHES });
  const message = /^this worker does not understand the job: .*(is no media type|is no key of metadata|the metadata key tenant is no text)/;
  const said = [
    [{ media_type: 'text/plain;a=bb' }, 'a=bb', 'a=b;'],
    [{ metadata: { tenant: 'blue' } }, 'tenant', 'Tenant'],
    [{ metadata: { tenant: 'blue' } }, 'blue', 'bl\ne'],
  ];
  for (const [index, words] of said.entries()) {
    supervisor.runWith(index, 'echo', ...words);
    await supervisor.expect('Started');
    const answer = await supervisor.expect('Failed');
    assert.equal(answer.kind, 'app_error');
    assert.match(answer.message, message);
  }
  supervisor.send('Batch', { jobs: 2 });
  supervisor.runWith(8, 'batch', ...said[0]);
  supervisor.run(9, 'batch', 'other');
  await supervisor.expect('Started');
  assert.match((await supervisor.expect('Failed')).message, message);
  assert.equal((await supervisor.expect('Finished')).payload.toString(), 'other');
  assert.deepEqual(await outcomeOf(supervisor, 10, 'echo', 'next'), [TEXT, 'next']);
  assert.equal(await supervisor.leave(), 0);
});

test('a pattern of media types is what a task produces, and not what an output is', async () => {
  const supervisor = await started();
  assert.deepEqual(await outcomeOf(supervisor, 1, 'anything', 'text'), [TEXT, 'text']);
  assert.deepEqual(await outcomeOf(supervisor, 2, 'anything', [1]), ['application/json', '[1]']);
  assert.deepEqual(await outcomeOf(supervisor, 3, 'anything', Buffer.from('x')), ['application/octet-stream', 'x']);
  assert.deepEqual(await outcomeOf(supervisor, 4, 'anyPicture', null), ['image/png', 'x']);
  assert.equal(await supervisor.leave(), 0);
});
