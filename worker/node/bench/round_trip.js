/**
 * What the package costs: `OFFLOAD_BIN=target/release/offload node bench/round_trip.js`. Trips of all kinds take turns, so that a
 * busy machine hurts all of them alike; what is printed is the median of each, in microseconds.
 *
 *   package    a call: this package as client and as worker, and the supervisor between them
 *   bare       the same supervisor between a client and a worker that write and read constant bytes (bare_worker.mjs)
 *   socket     two processes of Node and nothing between them: half as many messages as with a supervisor
 *   two hops   twice that: as many messages as with a supervisor
 */

import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Client } from '../index.js';
import { TO_SUPERVISOR } from '../src/messages.js';
import { submitOptions } from '../src/client/options.js';

const ROUNDS = 400;
const TRIPS = 25;
const INPUT = Buffer.from('sixteen bytes...');
const FINISHED = 3;

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'offload-'));
const children = [];

/** A supervisor with one worker. */
async function supervisorOf(name) {
  const socket = join(folder, name);
  const worker = `'${process.execPath}' '${here(`${name}_worker.mjs`)}'`;
  const flags = ['--socket', socket, 'serve', '--workers', '1', '--worker', worker];
  const child = spawn(process.env.OFFLOAD_BIN ?? 'offload', flags, { stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  await once(createInterface({ input: child.stdout }), 'line');
  return socket;
}

/** A trip over a socket: a write, and a wait until the bytes that came are an answer. */
function tripOver(socket, bytes, isAnswer) {
  let arrived = () => {};
  socket.on('data', (data) => isAnswer(data) && arrived());
  return () =>
    new Promise((resolve) => {
      arrived = () => resolve(undefined);
      socket.write(bytes);
    });
}

async function connected(path) {
  const socket = net.connect(path);
  await once(socket, 'connect');
  return socket;
}

async function packageTrip() {
  const client = new Client({ socket: await supervisorOf('package') });
  await client.call('echo', INPUT);
  return () => client.call('echo', INPUT);
}

async function bareTrip() {
  const socket = await connected(await supervisorOf('bare'));
  socket.write(Buffer.concat(TO_SUPERVISOR.encode('Hello', { magic: 'OFFLOADC', major: 3, minor: 0, capabilities: 0, client: '' })));
  await once(socket, 'data');
  const input = { bytes: INPUT, contentType: 'application/octet-stream' };
  const fields = { ticket: 1, task: 'echo', media_type: input.contentType, detach: false, options: submitOptions({}, input, false) };
  return tripOver(socket, Buffer.concat(TO_SUPERVISOR.encode('Submit', fields, INPUT)), hasFinished);
}

/** Whether one of the messages in these bytes is Finished. */
function hasFinished(bytes) {
  for (let at = 0; at < bytes.length; at += 8 + bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4)) {
    if (bytes.readUInt32LE(at + 8) === FINISHED) return true;
  }
  return false;
}

async function socketTrip() {
  const path = join(folder, 'echo');
  const child = fork(here('echo_server.mjs'), [path]);
  children.push(child);
  await once(child, 'message');
  return tripOver(await connected(path), INPUT, () => true);
}

/** Microseconds of each trip. */
async function measure(trip) {
  const times = [];
  for (let i = 0; i < TRIPS; i++) {
    const start = performance.now();
    await trip();
    times.push((performance.now() - start) * 1000);
  }
  return times;
}

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

try {
  const trips = [['package', await packageTrip()], ['bare', await bareTrip()], ['socket', await socketTrip()]];
  const times = new Map(trips.map(([name]) => [name, []]));
  for (const [, trip] of trips) for (let i = 0; i < 40; i++) await measure(trip);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, trip] of trips) times.get(name).push(...(await measure(trip)));
  }
  const [ours, bare, socket] = [...times.values()].map(median);
  const lines = { package: ours, bare, socket, 'two hops': 2 * socket };
  for (const [name, us] of Object.entries(lines)) console.log(`${name.padEnd(9)} ${us.toFixed(1).padStart(7)} us  ${(ours / us).toFixed(2)}`);
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
}
process.exit();
