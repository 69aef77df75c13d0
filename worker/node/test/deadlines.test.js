/** The deadline of a call counts from the call, and ends it wherever it is. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, ConnectionError, JobError } from '../index.js';
import { Call } from '../src/client/call.js';
import { Deadline } from '../src/client/deadline.js';
import { Submission } from '../src/client/submission.js';
import { withSupervisor } from './supervisor.js';
import { Pool, test } from './testing.js';
import { until, within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** The error of a call that has to fail. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

/** Nothing else happens for so long, not even in this program. */
function block(milliseconds) {
  const began = performance.now();
  while (performance.now() - began < milliseconds);
}

/** What is known of a call whose deadline passed before it was sent. */
async function expectTooLate(promise) {
  const error = await errorOf(promise);
  const { name, outcome, code, message, job, attempts } = error;
  assert.deepEqual([name, outcome, code, job, attempts], ['JobError', 'timeout', 'timeout', '', 0]);
  assert.equal(message, 'timeout: the deadline passed before it was sent');
}

test('a call whose deadline passes while others are in flight is a timeout, is never sent, and makes room', async () => {
  await withSupervisor({}, async (supervisor) => {
    const watcher = supervisor.client();
    const client = supervisor.client({ maxInFlight: 1, maxWaiting: 1 });
    const controller = new AbortController();
    const first = errorOf(client.call('untilAborted', null, { signal: controller.signal }));
    await until('a job that runs', async () => (await watcher.status()).jobs.running === 1);
    await expectTooLate(client.call('echo', 2, { deadline: 20 }));
    const third = client.call('echo', 3);
    controller.abort();
    assert.equal((await first).name, 'AbortError');
    assert.equal(await wait(third), 3);
    assert.equal((await watcher.status()).jobs.accepted, 2);
    await within('idleness', client.idle());
  });
});

test('calls and streams whose deadline passes while a pool starts are timeouts', async () => {
  const pool = new Pool({ worker: new URL('./workers/never_ready.mjs', import.meta.url), workers: 1, log: 'ignore' });
  await Promise.all([expectTooLate(pool.call('echo', 1, { deadline: 20 })), expectTooLate(pool.stream('echo', 1, { deadline: 20 }).next())]);
  await within('idleness', pool.idle());
  await within('the end of the pool', pool.close());
});

test('calls and streams whose deadline passes while a supervisor does not greet are timeouts', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const silent = net.createServer().listen(join(folder, 'socket'));
  await once(silent, 'listening');
  const client = new Client({ socket: join(folder, 'socket') });
  try {
    await Promise.all([expectTooLate(client.call('echo', 1, { deadline: 20 })), expectTooLate(client.stream('echo', 1, { deadline: 20 }).next())]);
    await within('idleness', client.idle());
  } finally {
    client.close();
    silent.close();
    rmSync(folder, { recursive: true });
  }
});

test('a stream that is read first when its deadline has passed is a timeout', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const stream = client.stream('echo', 1, { deadline: 5 });
    block(10);
    await expectTooLate(stream.next());
    await within('idleness', client.idle());
    assert.equal((await client.status()).jobs.accepted, 0);
  });
});

test('what is left until the deadline is sent, and nothing is sent when nothing is left', () => {
  for (const isStream of [true, false]) {
    const sent = [];
    const connection = { payloadMax: 100, request: (name, fields) => void sent.push({ name, ...fields }) };
    const early = new Submission('echo', 1, { deadline: 60_000 }, isStream);
    block(2);
    early.send(connection, {});
    assert.deepEqual([sent[0].name, sent[0].options.stream], ['Submit', isStream]);
    assert.ok(sent[0].options.deadline_ms < 60_000, `${sent[0].options.deadline_ms}`);
    const late = new Submission('echo', 1, { deadline: 1 }, isStream);
    block(2);
    assert.throws(() => late.send(connection, {}), (error) => error instanceof JobError && error.outcome === 'timeout');
    assert.equal(sent.length, 1);
  }
});

test('a call that did not get out is not sent again behind its deadline', () => {
  const told = [];
  const tell = (what) => (value) => told.push([what, value?.outcome]);
  const owner = { resolve: tell('resolve'), reject: tell('reject'), left: tell('left'), unsent: tell('unsent'), freed: tell('freed'), done: tell('done') };
  const call = new Call('echo', 'input', { deadline: 5 }, owner);
  call.send({ payloadMax: 100, request: () => {} });
  block(10);
  call.onLost(new ConnectionError('closed', 'gone'), true);
  assert.deepEqual(told, [['reject', 'timeout'], ['freed', undefined], ['done', undefined]]);
});

test('a deadline in a hundred years is one, and none is none', async () => {
  const century = new Deadline(100 * 366 * 86_400_000);
  century.watch(() => assert.fail('it has passed'));
  new Deadline(null).watch(() => assert.fail('it has passed'));
  await within('a shorter one', new Promise((resolve) => {
    const shorter = new Deadline(20);
    shorter.watch(() => resolve(assert.equal(shorter.left, 0)));
    // Timers of the program keep it from ending, and deadlines do not.
    const timer = setInterval(() => shorter.left === 0 && clearInterval(timer), 1);
  }));
  assert.ok(century.left > 99 * 366 * 86_400_000);
  century.stop();
});
