/** So many streams are open at a time. Others wait for them. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '../index.js';
import { withFront } from './fake_front.js';
import { withSupervisor } from './supervisor.js';
import { test, withEnd } from './testing.js';
import { until, within } from './within.js';

const wait = (promise) => within('the end of a stream', promise);
/** The error of a promise that has to be rejected. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

/** What all parts of a stream are together. */
async function outputOf(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
}

/** Somebody who is no supervisor: what becomes of each connection is up to `onConnection`, which gets the socket and how many came before. */
async function withServer(onConnection, body) {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const sockets = [];
  const server = net.createServer((socket) => {
    socket.on('error', () => {}).resume();
    onConnection(socket, sockets.push(socket) - 1);
  });
  server.listen(join(folder, 'socket'));
  await once(server, 'listening');
  const client = new Client({ socket: join(folder, 'socket'), maxStreams: 2 });
  const end = () => {
    client.close();
    server.close();
    for (const socket of sockets) socket.destroy();
    rmSync(folder, { recursive: true });
  };
  await withEnd(end, () => body(client, sockets, server));
}

/** Counts the connections of this program while `body` runs. */
async function counting(body) {
  const { connect } = net.Socket.prototype;
  const count = { opened: 0, now: 0, most: 0 };
  net.Socket.prototype.connect = function (...options) {
    count.opened++;
    count.most = Math.max(count.most, ++count.now);
    return connect.apply(this.on('close', () => count.now--), options);
  };
  try {
    await body(count);
  } finally {
    net.Socket.prototype.connect = connect;
  }
}

test('1,500 streams at once are all read to their end', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const outputs = await wait(Promise.all(Array.from({ length: 1500 }, () => outputOf(client.stream('count', 2)))));
    assert.deepEqual(new Set(outputs), new Set(['1\n2\n']));
  });
});

test('streams wait for each other and hold up no call, and too many are rejected', async () => {
  await withSupervisor({ workers: 3 }, async (supervisor) => {
    const client = supervisor.client({ maxInFlight: 1, maxStreams: 2, maxWaiting: 1 });
    const controllers = [1, 2].map(() => new AbortController());
    const held = controllers.map(({ signal }) => errorOf(client.stream('untilAborted', null, { signal }).next()));
    await until('two jobs that run', async () => (await client.status()).jobs.running === 2);
    const waiting = outputOf(client.stream('count', 3));
    const refused = await errorOf(client.stream('count', 3).next());
    assert.deepEqual([refused.name, refused.code], ['Rejected', 'overloaded']);
    assert.equal(await wait(client.call('echo', 'a call')), 'a call');
    assert.equal((await client.status()).jobs.accepted, 3);
    controllers[0].abort();
    assert.equal((await held[0]).name, 'AbortError');
    assert.equal(await wait(waiting), '1\n2\n3\n');
    controllers[1].abort();
    await held[1];
    await within('idleness', client.idle());
  });
});

test('a stream that is aborted, left or late while it waits is never submitted, and makes room', async () => {
  await withSupervisor({ workers: 2 }, async (supervisor) => {
    const client = supervisor.client({ maxStreams: 1, maxWaiting: 1 });
    const holder = new AbortController();
    const held = errorOf(client.stream('untilAborted', null, { signal: holder.signal }).next());
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    const controller = new AbortController();
    const aborted = errorOf(client.stream('count', 1, { signal: controller.signal }).next());
    controller.abort();
    assert.equal((await aborted).name, 'AbortError');
    const left = client.stream('count', 1);
    const next = left.next();
    await wait(left.return());
    assert.ok((await wait(next)).done);
    assert.equal((await errorOf(client.stream('count', 1, { deadline: 10 }).next())).outcome, 'timeout');
    const waiting = outputOf(client.stream('count', 1));
    assert.equal((await client.status()).jobs.accepted, 1);
    holder.abort();
    await held;
    assert.equal(await wait(waiting), '1\n');
    assert.equal((await client.status()).jobs.accepted, 2);
    await within('idleness', client.idle());
  });
});

test('a client that is closed ends the streams that wait', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client({ maxStreams: 1 });
    const streams = Array.from({ length: 3 }, () => errorOf(client.stream('untilAborted').next()));
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    client.close();
    const [first, ...others] = await Promise.all(streams);
    assert.equal(first.outcome, 'indeterminate');
    for (const { name, code } of others) assert.deepEqual([name, code], ['ConnectionError', 'closed']);
    await within('idleness', client.idle());
  });
});

test('streams that are aborted together open no connection for those that wait, and close those that are opened', async () => {
  await withServer(() => {}, async (client, sockets, server) => {
    const controller = new AbortController();
    const streams = Array.from({ length: 20 }, () => errorOf(client.stream('echo', 1, { signal: controller.signal }).next()));
    while (sockets.length < 2) await within('a connection', once(server, 'connection'));
    const closed = sockets.map((socket) => once(socket, 'close'));
    controller.abort();
    for (const error of await Promise.all(streams)) assert.equal(error.name, 'AbortError');
    await within('idleness', client.idle());
    await within('the end of the connections', Promise.all(closed));
    // Its connection is accepted behind all that were opened before.
    const next = errorOf(client.stream('echo', 1).next());
    await within('a connection', once(server, 'connection'));
    assert.equal(sockets.length, 2 + 1);
    client.close();
    assert.equal((await next).code, 'closed');
  });
});

test('streams that are left at once open nothing', async () => {
  await withServer(() => {}, (client) => counting(async (count) => {
    for (let i = 0; i < 20; i++) {
      const stream = client.stream('echo', 1);
      const next = stream.next();
      await Promise.all([stream.return(), next]);
    }
    await within('idleness', client.idle());
    assert.equal(count.opened, 0);
  }));
});

test('streams whose deadline passes while their connections are opened give their places back when those are closed', async () => {
  await withServer(() => {}, (client) => counting(async (count) => {
    const deadlines = Array.from({ length: 40 }, (_, i) => 10 + 5 * (i >> 2));
    const errors = await Promise.all(deadlines.map((deadline) => errorOf(client.stream('echo', 1, { deadline }).next())));
    assert.deepEqual(new Set(errors.map((error) => error.outcome)), new Set(['timeout']));
    assert.equal(count.most, 2);
  }));
});

test('when nobody is there, all streams that wait for a connection are told', async () => {
  const client = new Client({ socket: fileURLToPath(import.meta.url), maxStreams: 2 });
  await counting(async (count) => {
    const errors = await Promise.all(Array.from({ length: 20 }, () => errorOf(client.stream('echo', 1).next())));
    assert.deepEqual(new Set(errors.map((error) => `${error.name} ${error.code}`)), new Set(['ConnectionError no_supervisor']));
    assert.equal(count.opened, 2);
  });
});

test('a connection that is refused for another reason is the error of its stream alone', async () => {
  await withFront({ maxStreams: 2 }, async (client, front) => {
    front.onHello = (guest) => (guest === front.guests[0] ? guest.goodbye('unavailable', 'not now') ?? guest.socket.end() : guest.welcome());
    front.onRequest = ({ guest, ticket }) => guest.finish(ticket, 'its output');
    const outcomes = await wait(Promise.allSettled(Array.from({ length: 5 }, () => outputOf(client.stream('any', 1)))));
    assert.deepEqual(outcomes.map(({ value, reason }) => value ?? reason.code).sort(), ['its output', 'its output', 'its output', 'its output', 'unavailable']);
  });
});

test('streams for which the supervisor has no room wait until others of their client have ended', async () => {
  await withFront({}, async (client, front) => {
    const ROOM = 3;
    const isThere = new Set();
    const jobs = [];
    let most = 0;
    let refusals = 0;
    front.onHello = (guest) => {
      guest.closed.then(() => isThere.delete(guest));
      // Every other time it greets, and refuses the job.
      guest.isRefused = isThere.size >= ROOM;
      if (guest.isRefused) refusals++;
      else most = Math.max(most, isThere.add(guest).size);
      if (guest.isRefused && refusals % 2 === 0) guest.goodbye('overloaded', 'no room') ?? guest.socket.end();
      else guest.welcome();
    };
    front.onRequest = ({ guest, ticket }) => {
      if (guest.isRefused) return guest.send('Rejected', { ticket, code: 'overloaded', message: 'no room', retry_after_ms: null });
      guest.accept(ticket);
      jobs.push(() => guest.finish(ticket, 'its output'));
      if (jobs.length === ROOM) setImmediate(() => jobs.splice(0).forEach((finish) => finish()));
    };
    const outputs = Array.from({ length: 12 }, () => outputOf(client.stream('any', 1)));
    assert.deepEqual(await wait(Promise.all(outputs)), Array(12).fill('its output'));
    assert.ok(most === ROOM && refusals > 0 && refusals < 40, `${most} ${refusals}`);
    await within('idleness', client.idle());
  });
});

test('a stream for which there is no room is refused if no other is open', async () => {
  await withFront({}, async (client, front) => {
    front.onHello = (guest) => guest.goodbye('overloaded', 'no room') ?? guest.socket.end();
    const errors = await Promise.all(Array.from({ length: 3 }, () => errorOf(client.stream('any', 1).next())));
    for (const { name, code, message } of errors) assert.deepEqual([name, code, message], ['ConnectionError', 'overloaded', 'the supervisor closed the connection: no room']);
  });
});

test('a place is free when the other end of its connection is closed', async () => {
  await withFront({ maxStreams: 1 }, async (client, front) => {
    let open = 0;
    front.onHello = (guest) => {
      assert.equal(++open, 1);
      guest.socket.allowHalfOpen = true;
      guest.socket.on('end', () => setImmediate(() => setImmediate(() => --open || guest.socket.end())));
      guest.welcome();
    };
    front.onRequest = ({ guest, ticket, type }) => type === 'Submit' && guest.finish(ticket, 'its output');
    const outputs = Array.from({ length: 5 }, () => outputOf(client.stream('any', 1)));
    assert.deepEqual(await wait(Promise.all(outputs)), Array(5).fill('its output'));
  });
});

test('one stream after another waits for none, although the connection of the last one is still being closed', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client({ maxStreams: 1, maxWaiting: 0 });
    await counting(async (count) => {
      for (let i = 0; i < 10; i++) assert.equal(await wait(outputOf(client.stream('count', 1))), '1\n');
      assert.deepEqual([count.opened, count.most], [10, 1]);
    });
  });
});
