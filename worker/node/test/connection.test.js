/** What a connection loses, and what it does not, when the other end goes away or does not answer. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Connection } from '../src/client/connection.js';
import { submitOptions } from '../src/client/options.js';
import { patiently } from '../src/patience.js';
import { withFront } from './fake_front.js';
import { spawn } from './programs.js';
import { test, withEnd } from './testing.js';
import { within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** The error of a call that has to fail. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

test('an answer that has arrived is read although the next call cannot be written, which is sent over another connection', async () => {
  await withFront({}, async (client, front) => {
    const first = client.call('any', 1);
    const { guest, ticket } = await front.hear();
    guest.finish(ticket, 'its output');
    guest.socket.destroy();
    const second = client.call('any', 2); // the client has not read anything since
    const again = await front.hear();
    again.guest.finish(again.ticket, 'the other output');
    assert.deepEqual(await wait(Promise.all([first, second])), ['its output', 'the other output']);
    assert.equal(front.guests.length, 2);
  });
});

test('the reason that has arrived is told although the next call cannot be written', async () => {
  await withFront({}, async (client, front) => {
    const first = errorOf(client.call('any', 1));
    const { guest } = await front.hear();
    guest.goodbye('unavailable', 'it is being replaced');
    guest.socket.destroy();
    front.onHello = (other) => other.socket.destroy();
    const second = errorOf(client.call('any', 2));
    assert.equal((await first).message, 'indeterminate: the supervisor closed the connection: it is being replaced; the job may or may not have run');
    assert.equal((await second).name, 'ConnectionError');
    await within('idleness', client.idle());
  });
});

test('a client that is closed while it reads what has arrived tells those that wait for an answer', async () => {
  await withFront({}, async (client, front) => {
    const first = errorOf(client.call('any', 1));
    const { guest } = await front.hear();
    guest.socket.destroy();
    const second = errorOf(client.call('any', 2));
    client.close();
    assert.deepEqual([(await first).outcome, (await second).code], ['indeterminate', 'closed']);
    await within('idleness', client.idle());
  });
});

test('of what waits behind a long input, nothing is lost when that is refused', async () => {
  await withFront({}, async (client, front) => {
    const first = client.call('any', 0);
    const { guest: { socket }, ticket } = await front.hear();
    front.guests[0].finish(ticket, '');
    await wait(first);
    socket.pause(); // so the long one stops in its middle, and the short one waits behind it
    const calls = [client.call('any', Buffer.alloc(900_000, 'a')), client.call('any', 'short')];
    await new Promise((resolve) => setImmediate(resolve));
    socket.destroy();
    for (let i = 0; i < 2; i++) {
      const again = await front.hear();
      again.guest.finish(again.ticket, String(again.payload.length));
    }
    assert.deepEqual(await wait(Promise.all(calls)), ['900000', '5']);
  });
});

/** A connection of its own, and the one at its other end. */
async function connected(client, front) {
  const connection = new Connection(client.socket);
  await wait(connection.greet(''));
  return { connection, guest: front.guests.at(-1) };
}

const submit = { task: 'any', media_type: 'a/b', detach: false, options: submitOptions({}, { bytes: Buffer.alloc(0), contentType: 'a/b' }, false) };
const nobody = { onMessage: () => true, onLost: () => {} };

test('a connection that is left is closed behind all that was sent, and at last although the other end reads nothing', async () => {
  await withFront({}, async (client, front) => {
    const { connection, guest } = await connected(client, front);
    for (let i = 0; i < 3; i++) connection.request('Show', { view: 'status' }, { ...nobody, onLost: () => assert.fail('it was left') });
    connection.leave();
    for (let i = 1; i <= 3; i++) assert.equal((await front.hear()).ticket, i);
    await within('the end of the connection', Promise.all([connection.closed, guest.closed]));
    const stopped = await connected(client, front);
    stopped.guest.socket.pause();
    for (let i = 0; i < 10; i++) stopped.connection.request('Submit', submit, nobody, Buffer.alloc(100_000));
    stopped.connection.leave();
    await within('the end of the connection', stopped.connection.closed);
  });
});

test('a connection that is left before it is connected is closed at last although the other end does not close it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const theirs = [];
  const silent = net.createServer({ pauseOnConnect: true }, (socket) => theirs.push(socket)).listen(join(folder, 'socket'));
  await once(silent, 'listening');
  const connection = new Connection(join(folder, 'socket'));
  const end = () => {
    connection.close();
    silent.close();
    for (const socket of theirs) socket.destroy();
    rmSync(folder, { recursive: true });
  };
  await withEnd(end, async () => {
    const refused = errorOf(connection.greet(''));
    connection.leave();
    assert.equal((await refused).code, 'closed');
    await within('the end of the connection', connection.closed);
  });
});

test('the connection of a stream that is aborted, or left, before all of its input is sent is closed without the rest', async () => {
  await withFront({}, async (client, front) => {
    front.onRequest = () => assert.fail('the input came as a whole');
    for (const isAborted of [true, false]) {
      const controller = new AbortController();
      const stream = client.stream('any', Buffer.alloc(4 << 20), { signal: controller.signal });
      front.onHello = (guest) => {
        guest.welcome();
        guest.socket.once('data', () => (isAborted ? controller.abort() : void stream.return()));
      };
      const next = stream.next().catch((error) => error.name);
      assert.deepEqual(await wait(next), isAborted ? 'AbortError' : { value: undefined, done: true });
      await within('the end of the connection', front.guests.at(-1).closed);
    }
  });
});

test('nobody is blamed for a pause of this program: what has come meanwhile is seen first', async () => {
  await withFront({}, async (client, front) => {
    const { connection, guest } = await connected(client, front);
    for (const isThere of [true, false]) {
      const seen = [];
      const answered = new Promise((resolve) => connection.request('Show', { view: 'status' }, { ...nobody, onMessage: () => resolve(seen.push('answer')) ?? true }));
      const { ticket } = await front.hear();
      let stop = () => {};
      const late = new Promise((resolve) => (stop = patiently(10, () => resolve(seen.push('late')))));
      if (isThere) guest.send('Answer', { ticket });
      const began = performance.now();
      while (performance.now() - began < 50);
      await wait(Promise.race([answered.then(() => stop()), late]));
      assert.deepEqual(seen, [isThere ? 'answer' : 'late']);
    }
    connection.close();
  });
});

test('a wait has its end also in a program in which nothing else happens', async () => {
  const program = `
    import net from 'node:net';
    const { patiently } = await import(${JSON.stringify(new URL('../src/patience.js', import.meta.url))});
    const server = net.createServer().listen({ port: 0, host: '127.0.0.1' });
    server.on('listening', () => patiently(10, () => server.close(() => console.log('its end'))));`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  assert.equal((await within('the end of the program', child.stdout.setEncoding('utf8').toArray())).join(''), 'its end\n');
});
