/** What a client makes of a supervisor of another version, or of something else that listens at the socket. */

import assert from 'node:assert/strict';
import { on, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client } from '../index.js';
import { TO_CLIENT } from '../src/messages.js';
import { spawn } from './programs.js';
import { test } from './testing.js';
import { within } from './within.js';

const frame = (name, fields, payload) => Buffer.concat(TO_CLIENT.encode(name, fields, payload));
const welcome = (fields) => frame('Welcome', { magic: 'OFFLOADC', major: 3, minor: 0, capabilities: 0, payload_max: 1024, ...fields });

/** The error of a call to somebody who answers Hello with `first`, and then perhaps ends the connection, and Submit with `second`. */
async function errorOfCallTo(first, { ends = false, second = Buffer.alloc(0) } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const server = net.createServer((socket) => {
    const answers = [first, second];
    socket.on('error', () => {}).on('data', () => {
      socket.write(answers.shift() ?? '');
      if (ends) socket.end();
    });
  });
  server.listen(join(folder, 'socket'));
  await once(server, 'listening');
  const client = new Client({ socket: join(folder, 'socket') });
  try {
    return await within('an error', client.call('echo', 1).then(() => assert.fail('it gave an output'), (error) => error));
  } finally {
    client.close();
    server.close();
    rmSync(folder, { recursive: true });
  }
}

test('a supervisor of an older or a newer version is named, with what to do', async () => {
  const older = await errorOfCallTo(welcome({ major: 2, minor: 1 }));
  assert.deepEqual([older.name, older.code], ['ConnectionError', 'unsupported']);
  assert.equal(older.message, 'this supervisor speaks protocol 2.1, this client 3.0: restart the supervisor with the newer offload');
  const newer = await errorOfCallTo(welcome({ major: 4 }));
  assert.match(newer.message, /protocol 4\.0, this client 3\.0: use the package of this supervisor's release/);
});

test('a Goodbye tells why, in any version', async () => {
  const error = await errorOfCallTo(frame('Goodbye', { reason: 'too many clients' }, Buffer.from('overloaded')), { ends: true });
  assert.deepEqual([error.name, error.code], ['ConnectionError', 'overloaded']);
  assert.equal(error.message, 'the supervisor closed the connection: too many clients');
});

test('what is no supervisor is recognized', async () => {
  assert.match((await errorOfCallTo(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'))).message, /broke the protocol: header of/);
  assert.match((await errorOfCallTo(welcome({ magic: 'SOMEBODY' }))).message, /is no supervisor/);
  assert.equal((await errorOfCallTo(Buffer.alloc(0), { ends: true })).message, 'the supervisor closed the connection');
});

test('a job whose connection breaks is indeterminate, and one that was not sent is not', async () => {
  const noMessage = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 9]);
  const sent = await errorOfCallTo(welcome({}), { second: noMessage });
  assert.deepEqual([sent.name, sent.outcome], ['JobError', 'indeterminate']);
  assert.match(sent.message, /broke the protocol: malformed header: it ends too early; the job may or may not have run$/);
  const unsent = await errorOfCallTo(Buffer.concat([welcome({}), noMessage]));
  assert.deepEqual([unsent.name, unsent.code], ['ConnectionError', 'protocol']);
});

test('a client that is closed before it is greeted answers calls, streams and questions at once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const silent = net.createServer().listen(join(folder, 'socket'));
  await once(silent, 'listening');
  const connections = on(silent, 'connection');
  const client = new Client({ socket: join(folder, 'socket') });
  try {
    const codes = [];
    const asked = [client.call('echo', 1), client.stream('echo', 1).next(), client.status(), client.workers()];
    for (const each of asked) each.then(() => codes.push('an answer'), (error) => codes.push(error.code));
    for (let i = 0; i < 2; i++) await within('a connection', connections.next()); // the stream has its own
    client.close();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(codes, Array(asked.length).fill('closed'));
  } finally {
    client.close();
    silent.close();
    rmSync(folder, { recursive: true });
  }
});

test('a supervisor that does not greet is given up after 5 s', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const silent = net.createServer().listen(join(folder, 'socket'));
  await once(silent, 'listening');
  const client = new Client({ socket: join(folder, 'socket') });
  try {
    const began = performance.now();
    const error = client.call('echo', 1).catch(({ code, message }) => [code, message, performance.now() - began > 4900]);
    const said = await Promise.race([error, sleep(20_000, 'nothing', { ref: false })]);
    assert.deepEqual(said, ['overloaded', `the supervisor at ${client.socket} is busy: it does not answer`, true]);
  } finally {
    client.close();
    silent.close();
    rmSync(folder, { recursive: true });
  }
});

test('where nobody listens, the error says how to start a supervisor', async () => {
  for (const socket of ['/nonexistent/socket', '/dev/null/socket', fileURLToPath(import.meta.url)]) {
    await assert.rejects(new Client({ socket }).call('echo'), {
      name: 'ConnectionError', code: 'no_supervisor', message: `no supervisor at ${socket}; start one with: offload serve --socket ${socket}`,
    });
  }
});

test('what the system refuses to this program is no word about the supervisor', async () => {
  const program = `
    const { openSync } = await import('node:fs');
    const { Client } = await import(${JSON.stringify(new URL('../index.js', import.meta.url))});
    const client = new Client({ socket: process.argv[1] });
    try { for (;;) openSync('/dev/null'); } catch {}
    for (const ask of [() => client.call('echo', 1), () => client.stream('echo', 1).next()]) await ask().catch(({ name, code }) => console.log(name, code));`;
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const server = net.createServer().listen(join(folder, 'socket'));
  await once(server, 'listening');
  const words = [process.execPath, '--input-type=module', '--eval', program, join(folder, 'socket')];
  const child = spawn('/bin/sh', ['-c', 'ulimit -n 64; exec "$0" "$@"', ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const lines = await within('the end of the program', child.stdout.setEncoding('utf8').toArray());
    assert.equal(lines.join(''), 'ConnectionError io_error\nConnectionError io_error\n');
  } finally {
    server.close();
    rmSync(folder, { recursive: true });
  }
});

test('who asks again at once when nobody listens is told again', async () => {
  const asked = { run: (client) => client.run('echo', 1), call: (client) => client.call('echo', 1), stream: (client) => client.stream('echo', 1).next() };
  for (const [name, ask] of Object.entries(asked)) {
    const client = new Client({ socket: '/nonexistent/socket' });
    const codes = [];
    const again = (error) => codes.push(error.code) < 3 && ask(client).catch(again);
    await within(`the last error of ${name}`, ask(client).catch(again));
    assert.deepEqual(codes, Array(3).fill('no_supervisor'), name);
    await within('idleness', client.idle());
  }
});
