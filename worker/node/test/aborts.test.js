/** Callers who change their minds, and clients that are closed, in each state of a call, a stream and a pool. */

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { Readable } from 'node:stream';
import { Client } from '../index.js';
import { Connection } from '../src/client/connection.js';
import { OutputStream } from '../src/client/stream.js';
import { Submission } from '../src/client/submission.js';
import { withFront } from './fake_front.js';
import { spawn } from './programs.js';
import { withSupervisor } from './supervisor.js';
import { Pool, test } from './testing.js';
import { until, within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** The error of a call that has to fail. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);
const neverReady = () => new Pool({ worker: new URL('./workers/never_ready.mjs', import.meta.url), workers: 1, log: 'ignore' });

/** A client that connects when `open` is called. */
function gated(supervisor, options) {
  let open = () => {};
  const gate = new Promise((resolve) => (open = resolve));
  const client = new Client({ socket: supervisor.socket, ...options }, () => gate);
  supervisor.clients.push(client);
  return { client, open };
}

test('calls and streams that are aborted while a pool starts are rejected at once, and the pool can be closed', async () => {
  const pool = neverReady();
  const controller = new AbortController();
  const { signal } = controller;
  const errors = [pool.call('echo', 1, { signal }), pool.stream('echo', 1, { signal }).next()].map(errorOf);
  controller.abort();
  for (const error of errors) assert.equal((await error).name, 'AbortError');
  await within('the end of the pool', pool.close());
});

test('a pool is closed or ended while it starts', async () => {
  const closed = neverReady();
  await within('the end of the pool', closed.close());
  assert.equal((await errorOf(closed.ready())).message, 'this pool was closed');
  const ended = neverReady();
  const errors = [ended.call('echo', 1), ended.stream('echo', 1).next(), ended.ready(), ended.status()].map(errorOf);
  await within('the end of the pool', ended.end());
  for (const error of errors) {
    const { name, code, message } = await error;
    assert.deepEqual([name, code], ['ConnectionError', 'closed'], message);
  }
});

test('a job that is aborted before there is a connection is never submitted', async () => {
  await withSupervisor({}, async (supervisor) => {
    const { client, open } = gated(supervisor);
    const controller = new AbortController();
    const { signal } = controller;
    const errors = [client.call('echo', 1, { signal }), client.stream('echo', 1, { signal }).next()].map(errorOf);
    controller.abort(new Error('enough'));
    for (const error of errors) assert.equal((await error).message, 'enough');
    await within('idleness', client.idle());
    const call = client.call('echo', 2);
    open();
    assert.equal(await wait(call), 2);
    assert.equal((await client.status()).jobs.accepted, 1);
    // The signal is aborted while the input is written, behind the first look at it.
    for (const start of [(...job) => client.call(...job), (...job) => client.stream(...job).next()]) {
      const late = new AbortController();
      const input = { toJSON: () => late.abort() ?? 'written' };
      assert.equal((await errorOf(start('forever', input, { signal: late.signal }))).name, 'AbortError');
    }
    assert.equal((await client.status()).jobs.accepted, 1);
  });
});

test('calls that are aborted make room for others, and those that wait for a connection are counted', async () => {
  await withSupervisor({}, async (supervisor) => {
    const { client, open } = gated(supervisor, { maxInFlight: 1, maxWaiting: 2 });
    const controllers = Array.from({ length: 3 }, () => new AbortController());
    const calls = controllers.map(({ signal }, i) => client.call('echo', i, { signal }));
    const first = errorOf(calls[0]);
    const second = errorOf(calls[1]);
    assert.equal((await errorOf(client.call('echo', 3))).code, 'overloaded');
    controllers[1].abort();
    const fourth = client.call('echo', 4);
    assert.equal((await errorOf(client.call('echo', 5))).code, 'overloaded');
    controllers[0].abort();
    for (const error of [first, second]) assert.equal((await error).name, 'AbortError');
    open();
    assert.deepEqual(await wait(Promise.all([calls[2], fourth])), [2, 4]);
    await within('idleness', client.idle());
  });
});

test('a signal that many calls and streams share has one listener, and none when they are over', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const { signal } = new AbortController();
    const listeners = () => getEventListeners(signal, 'abort').length;
    const calls = Array.from({ length: 20 }, (_, i) => client.call('echo', i, { signal }));
    const streams = Array.from({ length: 20 }, () => client.stream('count', 1, { signal }).next());
    assert.equal(listeners(), 1);
    await wait(Promise.all([...calls, ...streams]));
    await within('idleness', client.idle());
    assert.equal(listeners(), 0);
    assert.equal(await wait(client.call('echo', 'again', { signal })), 'again');
  });
});

test('all calls and streams that share a signal are told when it is aborted, whatever the first of them does then', async () => {
  await withSupervisor({ workers: 1 }, async (supervisor) => {
    const client = supervisor.client({ maxInFlight: 2 });
    const controller = new AbortController();
    const { signal } = controller;
    const errors = Array.from({ length: 20 }, () => errorOf(client.call('untilAborted', null, { signal })));
    errors.push(...Array.from({ length: 20 }, () => errorOf(client.stream('untilAborted', null, { signal }).next())));
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    controller.abort();
    for (const error of errors) assert.equal((await error).name, 'AbortError');
    await within('idleness', client.idle());
    assert.equal(await wait(client.call('echo', 'next')), 'next');
  });
});

test('a stream that is aborted while nobody reads is cancelled at once', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const controller = new AbortController();
    const stream = client.stream('write', { parts: 1e6, bytes: 65_536 }, { signal: controller.signal });
    await wait(stream.next());
    controller.abort();
    await until('a cancelled job', async () => (await client.status()).jobs.cancelled === 1);
    await within('idleness', client.idle());
    assert.equal((await errorOf(stream.next())).name, 'AbortError');
  });
});

test('whoever leaves a stream while it waits for a part cancels its job at once', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const stream = client.stream('untilAborted');
    const next = stream.next();
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    await wait(stream.return());
    assert.deepEqual(await wait(next), { value: undefined, done: true });
    await until('a cancelled job', async () => (await client.status()).jobs.cancelled === 1);
    // So do the streams of Node, whose readers may go away.
    const piped = Readable.from(client.stream('untilAborted'));
    piped.on('error', () => {}).read();
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    piped.destroy();
    await until('another cancelled job', async () => (await client.status()).jobs.cancelled === 2);
    const never = client.stream('untilAborted');
    await wait(never.return());
    assert.deepEqual(await wait(never.next()), { value: undefined, done: true });
    await within('idleness', client.idle());
    assert.equal((await client.status()).jobs.accepted, 2);
  });
});

/** A stream over a connection of the test, and what becomes of both: the requests, the holds, and how often it ended. */
function streamOf() {
  const seen = { requests: [], holds: [], ends: 0, changed: () => {}, ended: () => {} };
  const hold = (isHeld) => seen.changed(seen.holds.push(isHeld));
  const connection = { payloadMax: 100, request: (name) => void seen.requests.push(name), hold, leave: () => {} };
  const controller = new AbortController();
  const stream = new OutputStream(new Submission('echo', 1, { signal: controller.signal }, true), () => seen.ended(seen.ends++));
  stream.begin(connection);
  stream.onMessage({ type: 'Accepted', job: 'its ID' }, Buffer.alloc(0));
  return { stream, controller, seen };
}

const part = (stream, bytes, type = 'Part') => stream.onMessage({ type, report: { outcome: 'ok' } }, Buffer.alloc(bytes));

test('whoever leaves a stream cancels its job', () => {
  const { controller, seen } = streamOf();
  controller.abort();
  assert.deepEqual([seen.requests, seen.ends], [['Submit', 'Cancel'], 1]);
});

test('a stream that is over, left or aborted holds nothing up, whatever waits in it', async () => {
  for (const [isAborted, isOver] of [[true, true], [true, false], [false, true], [false, false]]) {
    const { stream, controller, seen } = streamOf();
    const parts = stream.read();
    part(stream, 4);
    assert.equal((await wait(parts.next())).value.length, 4);
    part(stream, 300_000, isOver ? 'Finished' : 'Part');
    if (isAborted) controller.abort();
    else await wait(parts.return());
    assert.deepEqual([seen.holds, seen.ends], [[true, false], 1]);
    if (isAborted) assert.equal((await errorOf(parts.next())).name, 'AbortError');
    else assert.ok((await wait(parts.next())).done);
    assert.deepEqual(seen.holds, [true, false]);
  }
  const { stream, seen } = streamOf();
  part(stream, 300_000);
  part(stream, 300_000, 'Finished');
  for await (const { length } of stream.read()) assert.equal(length, 300_000);
  assert.deepEqual(seen.holds, [true, false]);
});

test('a stream that is over listens to its signal no more, and an abort still drops its parts', async () => {
  const { stream, controller, seen } = streamOf();
  assert.equal(getEventListeners(controller.signal, 'abort').length, 1);
  part(stream, 4);
  part(stream, 4, 'Finished');
  assert.equal(getEventListeners(controller.signal, 'abort').length, 0);
  const parts = stream.read();
  assert.equal((await wait(parts.next())).value.length, 4);
  controller.abort(new Error('enough'));
  assert.equal((await errorOf(parts.next())).message, 'enough');
  assert.deepEqual([seen.requests, seen.ends], [['Submit'], 1]);
});

test('who reads nothing for 11 s gets all that was on the way at once, and not a part in 11 s', async () => {
  const { stream, seen } = streamOf();
  part(stream, 300_000);
  assert.deepEqual(seen.holds, [true]);
  await within('the end of the hold', new Promise((resolve) => (seen.changed = resolve)));
  for (let i = 0; i < 10; i++) part(stream, 65_536);
  assert.deepEqual(seen.holds, [true, false]);
  for (let i = 0; i < 10; i++) part(stream, 65_536);
  assert.deepEqual(seen.holds, [true, false, true]);
  // More than fits on the way has come, so the task goes on sending. After as long again the stream ends: its reader is gone.
  await within('the end of the stream', new Promise((resolve) => (seen.ended = resolve)));
  const read = async () => {
    let bytes = 0;
    for await (const { length } of stream.read()) bytes += length;
    assert.fail(`it ended well after ${bytes} bytes`);
  };
  const { outcome, message } = await errorOf(read());
  assert.equal(outcome, 'indeterminate');
  assert.match(message, /the client closed the connection: no part was taken for \d\d s, and 10 s are allowed/);
});

test('many short parts are held back, too, and read in no time', async () => {
  const { stream, seen } = streamOf();
  const COUNT = 200_000;
  for (let i = 0; i < COUNT; i++) part(stream, 1);
  assert.deepEqual(seen.holds, [true]);
  part(stream, 0, 'Finished');
  let read = 0;
  for await (const { length } of stream.read()) read += length;
  assert.equal(read, COUNT);
});

test('an error that is thrown into a stream leaves it at once, although it waits for a part', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const stream = client.stream('untilAborted');
    const next = stream.next();
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    assert.equal((await errorOf(stream.throw(new Error('mine')))).message, 'mine');
    assert.deepEqual(await wait(next), { value: undefined, done: true });
    await until('a cancelled job', async () => (await client.status()).jobs.cancelled === 1);
  });
});

test('a pool that is being closed takes no more jobs, answers questions, and waits for the jobs that it has', async () => {
  const pool = new Pool({ worker: new URL('./workers/tasks.mjs', import.meta.url), workers: 1, log: 'ignore' });
  const running = wait(pool.run('untilAborted').catch((error) => error));
  let job = null;
  await until('a job that runs', async () => (job = (await pool.workers())[0].job) !== null);
  const closed = pool.close();
  for (const late of [pool.call('echo', 1), pool.stream('echo', 1).next()]) assert.equal((await errorOf(late)).message, 'this client was closed');
  await wait(pool.cancel(job));
  assert.equal((await running).outcome, 'cancelled');
  await within('the end of the pool', closed);
});

test('a pool is closed although nobody reads a stream to its end, and its parts are still there', async () => {
  const pool = new Pool({ worker: new URL('./workers/tasks.mjs', import.meta.url), workers: 1, log: 'ignore' });
  const stream = pool.stream('count', 3);
  const parts = [(await wait(stream.next())).value];
  await within('the end of the pool', pool.close());
  for await (const part of stream) parts.push(part);
  assert.equal(Buffer.concat(parts).toString(), '1\n2\n3\n');
});

test('a pool is closed although a stream is held up by its reader', async () => {
  const pool = new Pool({ worker: new URL('./workers/tasks.mjs', import.meta.url), workers: 1, log: 'ignore' });
  // All of the short one fits into the buffers on the way. The supervisor disconnects the long one after 10 s.
  const [short, long] = [6, 100].map((parts) => pool.stream('write', { parts, bytes: 65_536 }));
  await wait(Promise.all([short.next(), long.next()]));
  await within('the end of the pool', pool.close());
  let bytes = 65_536;
  for await (const part of short) bytes += part.length;
  assert.equal(bytes, 6 * 65_536 + 'end'.length);
  const rest = async () => {
    for await (const part of long) assert.equal(part.length, 65_536);
  };
  assert.match((await errorOf(rest())).message, /no part was taken for 1\d s, and 10 s are allowed/);
});

test('what cannot be asked is rejected, and nothing is left of it', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    assert.equal((await errorOf(client.cancel(undefined))).name, 'TypeError');
    for (const error of [client.call('\ud800'), client.stream('\ud800').next(), client.cancel('\ud800')].map(errorOf)) {
      const { name, message } = await error;
      assert.deepEqual([name, message], ['TypeError', '"\\ud800" has half of a surrogate pair, and cannot be sent']);
    }
    assert.equal((await errorOf(client.stream('echo', 1n).next())).name, 'TypeError');
    assert.equal((await errorOf(client.stream('echo', 1, { priority: 11 }).next())).name, 'TypeError');
    const keyed = await errorOf(client.stream('echo', 1, { idempotencyKey: 'k' }).next());
    assert.equal(keyed.name, 'TypeError');
    assert.match(keyed.message, /^a stream has no option "idempotencyKey"; there are timeout, /);
    await within('idleness', client.idle());
    assert.throws(() => new Client({ name: 5 }), TypeError);
    const connection = new Connection(supervisor.socket);
    await connection.greet('');
    connection.close();
    const asker = { onMessage: () => true, onLost: () => {} };
    assert.throws(() => connection.request('Show', { view: 'status' }, asker), { name: 'ConnectionError', code: 'closed' });
  });
});

test('an aborted call with a key gives its place back at once, and nobody waits for its answer', async () => {
  await withFront({ maxInFlight: 1 }, async (client, front) => {
    for (const isAccepted of [true, false]) {
      const controller = new AbortController();
      const first = errorOf(client.call('any', 1, { idempotencyKey: 'k', signal: controller.signal }));
      const { guest, ticket } = await front.hear();
      if (isAccepted) guest.accept(ticket);
      controller.abort();
      assert.equal((await first).name, 'AbortError');
      const second = client.call('any', 2);
      const next = await front.hear();
      guest.finish(next.ticket, 'its output');
      assert.equal(await wait(second), 'its output');
      await within('idleness', client.idle());
    }
  });
});

test('nobody waits for an aborted call when its Cancel is out, and its place is free when it is answered', async () => {
  await withFront({ maxInFlight: 1 }, async (client, front) => {
    const controller = new AbortController();
    const first = errorOf(client.call('any', 1, { signal: controller.signal }));
    const { guest, ticket } = await front.hear();
    guest.accept(ticket);
    // What the client is answered next is behind that it was accepted.
    const asked = client.status();
    guest.send('Answer', { ticket: (await front.hear()).ticket }, Buffer.from('{}'));
    await wait(asked);
    controller.abort();
    await first;
    await within('idleness', client.idle());
    const second = client.call('any', 2);
    const cancel = await front.hear();
    assert.deepEqual([cancel.type, cancel.job], ['Cancel', 'its ID']);
    guest.finish(ticket, '');
    const next = await front.hear();
    guest.finish(next.ticket, 'its output');
    assert.equal(await wait(second), 'its output');
  });
});

test('nobody waits for long for a supervisor that does not say whether it has accepted what was aborted', async () => {
  await withFront({}, async (client, front) => {
    for (const start of [(options) => client.call('any', 1, options), (options) => client.stream('any', 1, options).next()]) {
      const controller = new AbortController();
      const error = errorOf(start({ signal: controller.signal }));
      await front.hear();
      controller.abort();
      assert.equal((await error).name, 'AbortError');
      await within('idleness', client.idle());
    }
  });
});

test('a program ends although a supervisor that takes no more has not got all of an input that nobody wants any more', async () => {
  for (const options of ['{ signal }', "{ signal, idempotencyKey: 'k' }"]) {
    await withFront({}, async (client, front) => {
      const program = `
        import { Client } from ${JSON.stringify(new URL('../index.js', import.meta.url))};
        const client = new Client({ socket: ${JSON.stringify(client.socket)} });
        await client.call('any', 'first');
        const controller = new AbortController();
        const { signal } = controller;
        const call = client.call('any', Buffer.alloc(4 << 20), ${options});
        controller.abort();
        await call.catch((error) => console.log(error.name));`;
      const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'inherit'] });
      const output = child.stdout.setEncoding('utf8').toArray();
      const { guest, ticket } = await front.hear();
      guest.socket.pause();
      guest.finish(ticket, '');
      assert.equal((await within('the end of the program', output)).join(''), 'AbortError\n');
    });
  }
});
