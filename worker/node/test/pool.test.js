/** A pool: a private supervisor that is there when it is needed, and ends with its program. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os, { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Client } from '../index.js';
import { GUARD } from '../src/pool/supervisor.js';
import { ended, spawn } from './programs.js';
import { atEnd, Pool, test } from './testing.js';
import { until, within } from './within.js';

const worker = new URL('./workers/tasks.mjs', import.meta.url);
const wait = (promise) => within('the end of a call', promise);
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

/** Starts a program with a pool, and reads what it prints. */
async function program(how) {
  const child = spawn(process.execPath, [fileURLToPath(new URL('workers/pool_user.mjs', import.meta.url)), how], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const exit = once(child, 'exit');
  const [line] = await within('what the program has started', once(createInterface({ input: child.stdout }), 'line'));
  const { output, socket, pids } = JSON.parse(line);
  assert.deepEqual([output, pids.length >= 2], [42, true]);
  return { child, exit, socket, pids };
}

test('a program ends when its calls have ended, and leaves nothing behind, whether it closes its pool or not', async () => {
  for (const [how, expected] of [['nothing', 0], ['close', 0], ['throw', 1]]) {
    const { exit, socket, pids } = await program(how);
    const [code] = await within('the end of the program', exit);
    assert.equal(code, expected, how);
    await ended(pids);
    await until('that the folder is gone', async () => !existsSync(dirname(socket)));
  }
});

test('when a program is killed, its supervisor and its workers end, in the middle of a job', async () => {
  const { child, exit, socket, pids } = await program('wait');
  child.kill('SIGKILL');
  await within('the end of the program', exit);
  await ended(pids);
  await until('that the folder is gone', async () => !existsSync(dirname(socket)));
});

test('a program whose calls are aborted while a pool starts, or a client connects, ends at once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const silent = net.createServer().listen(join(folder, 'socket'));
  await once(silent, 'listening');
  try {
    for (const words of [['call'], ['stream'], ['call', silent.address()], ['stream', silent.address()]]) {
      const program = fileURLToPath(new URL('workers/aborting_user.mjs', import.meta.url));
      const child = spawn(process.execPath, [program, ...words], { stdio: ['ignore', 'pipe', 'ignore'] });
      const lines = await within('the end of the program', child.stdout.setEncoding('utf8').toArray());
      assert.equal(lines.join(''), 'active: \nis there: true\n', words.join(' '));
    }
  } finally {
    silent.close();
    rmSync(folder, { recursive: true });
  }
});

test('whoever waits for a pool to be ready keeps the program from ending', async () => {
  const program = "import('./index.js').then(async ({ Pool }) => { await new Pool({ workers: 1, log: 'ignore' }).ready(); console.log('ready'); })";
  const folder = fileURLToPath(new URL('..', import.meta.url));
  const child = spawn(process.execPath, ['--eval', program], { stdio: ['ignore', 'pipe', 'ignore'], cwd: folder });
  assert.equal((await within('the end of the program', child.stdout.setEncoding('utf8').toArray())).join(''), 'ready\n');
});

test('a user without a home directory can have a pool, and a client with a socket', async () => {
  const { homedir } = os;
  const { env } = process;
  let pool;
  try {
    process.env = { PATH: env.PATH, OFFLOAD_BIN: env.OFFLOAD_BIN };
    os.homedir = () => assert.fail('nobody needs it');
    pool = new Pool({ workers: 1, log: 'ignore' });
    assert.equal(new Client({ socket: '/a' }).socket, '/a');
    process.env.XDG_RUNTIME_DIR = '/b';
    for (const options of [{}, { socket: undefined }, { socket: null }]) assert.equal(new Client(options).socket, '/b/offload/offload.sock');
  } finally {
    os.homedir = homedir;
    process.env = env;
  }
  assert.equal(await wait(pool.call('echo', 'a text')), 'a text');
  await within('the end of the pool', pool.close());
});

test('a pool with a wrong option starts nothing', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const { TMPDIR } = process.env;
  process.env.TMPDIR = folder;
  try {
    for (const wrong of [{ maxInFlight: 0 }, { maxStreams: 0 }, { maxWaiting: -1 }, { name: 5 }, { name: '\ud800' }, { worker: 5 }, { worker: [] }, { flags: 'x' },
      { maxInflight: 1 }, { log: 'loud' }, { log: 'pipe' }, { log: 'ipc' }, { log: true }, { log: null }, { log: -1 }, { log: 1e6 }, { log: process.stderr }, { program: 5 }, { program: '' }, { flags: ['with \0'] }]) {
      assert.throws(() => new Pool({ log: 'ignore', ...wrong }), TypeError, JSON.stringify(wrong));
      assert.deepEqual(readdirSync(folder), [], JSON.stringify(wrong));
    }
    process.env.TMPDIR = join(folder, 'x'.repeat(107));
    assert.throws(() => new Pool({ log: 'ignore' }), { name: 'TypeError', message: /^the path of a socket has at most 107 bytes, and this one / });
  } finally {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
    rmSync(folder, { recursive: true });
  }
});

test('a pool is closed when its calls have ended', async () => {
  const pool = new Pool({ worker, workers: 2, log: 'ignore' });
  const path = join(dirname(pool.socket), 'go on');
  const calls = Array.from({ length: 10 }, (_, i) => pool.call('later', i));
  const slow = pool.call('untilThere', path);
  const seen = [];
  const closed = pool.close().then(() => seen.push('closed'));
  assert.deepEqual(await wait(Promise.all(calls)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(seen, []);
  writeFileSync(path, '');
  slow.then(() => seen.push('slow'));
  await wait(closed);
  assert.deepEqual(seen, ['slow', 'closed']);
  const error = await errorOf(pool.call('echo', 1));
  assert.deepEqual([error.name, error.code], ['ConnectionError', 'closed']);
  assert.ok(!existsSync(dirname(pool.socket)));
  await wait(pool.close());
});

test('a pool that is ended at once does not wait for its calls', async () => {
  const pool = new Pool({ worker, workers: 1, log: 'ignore' });
  const inFlight = errorOf(pool.call('forever'));
  await until('a job that runs', async () => (await pool.status()).jobs.running === 1);
  await wait(pool.end());
  assert.equal((await inFlight).outcome, 'indeterminate');
});

test('crashes of workers cost a pool one call each', async () => {
  const pool = new Pool({ worker, workers: 2, log: 'ignore' });
  const outcomes = await wait(Promise.allSettled(Array.from({ length: 40 }, (_, i) => pool.call(i % 10 === 0 ? 'abort' : 'echo', i))));
  const failed = outcomes.filter(({ status }) => status === 'rejected').map(({ reason }) => reason.outcome);
  assert.deepEqual(failed, Array(4).fill('worker_crashed'));
  await wait(pool.close());
});

test('when its supervisor is killed, a pool says so', async () => {
  const pool = new Pool({ worker, workers: 1, log: 'ignore' });
  const { pid } = await wait(pool.status());
  const inFlight = errorOf(pool.call('forever'));
  await until('a job that runs', async () => (await pool.status()).jobs.running === 1);
  process.kill(pid, 'SIGKILL');
  assert.equal((await inFlight).outcome, 'indeterminate');
  await ended([pid]);
  await until('that the pool knows', async () => (await errorOf(pool.call('echo', 1))).message.includes('the supervisor of this pool has ended'));
  await wait(pool.end());
});

test('a pool that cannot start says why', async () => {
  const missing = new Pool({ worker, program: '/nonexistent/offload', log: 'ignore' });
  const error = await errorOf(missing.call('echo', 1));
  assert.deepEqual([error.name, error.code], ['ConnectionError', 'no_supervisor']);
  assert.match(error.message, /^\/nonexistent\/offload cannot be found: install it, or name it by OFFLOAD_BIN/);
  const silent = new Pool({ worker: ['node', '--eval', 'process.exit(64)'], log: 'ignore' });
  assert.match((await errorOf(silent.ready())).message, /^the supervisor of this pool did not start: /);
  const other = new Pool({ worker, program: '/bin/echo', log: 'ignore' });
  const { name, code, message } = await errorOf(other.call('echo'));
  assert.deepEqual([name, code], ['ConnectionError', 'no_supervisor']);
  assert.match(message, /^the supervisor of this pool did not start: it is another program: it printed "--socket /);
  const wrong = new Pool({ worker, workers: -1, log: 'ignore' });
  assert.match((await errorOf(wrong.call('echo'))).message, /--workers/);
  assert.throws(() => new Pool({ worker: [] }), TypeError);
  await wait(Promise.all([missing.end(), silent.end(), other.end(), wrong.end()]));
});

/** All that a program prints until it ends. @param {string} source */
async function printed(source) {
  const imports = `import fs from 'node:fs'; import module from 'node:module'; const { Pool } = await import(${JSON.stringify(new URL('../index.js', import.meta.url))});`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', imports + source], { stdio: ['ignore', 'pipe', 'ignore'] });
  return (await within('the end of the program', child.stdout.setEncoding('utf8').toArray())).join('');
}

test('a pool whose program ends before it is ready says so, also while what that has started holds its output', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const program = join(folder, 'program');
  writeFileSync(program, '#!/bin/sh\nsleep 1000 &\necho $! > "$0.pid"\nexit 3\n', { mode: 0o700 });
  try {
    const output = await printed(`
      const pool = new Pool({ program: ${JSON.stringify(program)}, log: 'ignore' });
      for (const asked of [pool.call('echo', 1), pool.ready(), pool.status()]) console.log((await asked.catch((error) => error)).message);
      await pool.end();`);
    const said = 'the supervisor of this pool did not start: exit code 3\n';
    assert.equal(output, said.repeat(3));
  } finally {
    if (existsSync(`${program}.pid`)) process.kill(Number(readFileSync(`${program}.pid`)), 'SIGKILL');
    rmSync(folder, { recursive: true });
  }
});

test('a supervisor that hangs does not keep its pool from ending, and ends with it', async () => {
  const pool = new Pool({ worker, workers: 1, log: 'ignore' });
  const [{ pid }, workers] = await wait(Promise.all([pool.status(), pool.workers()]));
  let isOver = false;
  atEnd(() => isOver || process.kill(pid, 'SIGKILL'));
  process.kill(pid, 'SIGSTOP');
  await within('the end of the pool', pool.end());
  await ended([pid, ...workers.map((each) => each.pid).filter((each) => each > 0)]);
  isOver = true;
  assert.ok(!existsSync(dirname(pool.socket)));
});

test('a pool whose folder cannot be removed ends all the same', async () => {
  const output = await printed(`
    fs.rmSync = () => { throw new Error('it cannot be removed'); };
    module.syncBuiltinESMExports();
    const pool = new Pool({ workers: 1, log: 'ignore' });
    console.log(await pool.call('echo', 'a text'));
    await pool.end();
    console.log('its end');`);
  assert.equal(output, 'a text\nits end\n');
});

test('a program with a pool may go to another folder, also if that for temporary files is relative to this one', async () => {
  const { TMPDIR } = process.env;
  const here = process.cwd();
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  try {
    process.env.TMPDIR = relative(here, folder);
    const pool = new Pool({ workers: 1, log: 'ignore' });
    process.chdir('/');
    assert.equal(await wait(pool.call('echo', 'a text')), 'a text');
    await wait(pool.close());
    assert.deepEqual(readdirSync(folder), []);
  } finally {
    process.chdir(here);
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
    rmSync(folder, { recursive: true });
  }
});

test('the shell of a pool does not wait for another process that has the number of the supervisor', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const isThere = 'kill() { [ "$1" = -0 ] || command kill "$@"; }'; // what it asks for is there whatever its number is
  const child = spawn('/bin/sh', ['-c', `${isThere}\n${GUARD}`, 'offload', folder, '/bin/sh', '-c', 'kill -KILL $$'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  await within('the end of the shell', once(child, 'exit'));
  assert.ok(!existsSync(folder));
});

test('a pool that cannot be started because no descriptors are left says so, and leaves no folder', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const program = fileURLToPath(new URL('workers/no_descriptors.mjs', import.meta.url));
  const child = spawn('/bin/sh', ['-c', 'ulimit -n 64; exec "$0" "$1"', process.execPath, program], {
    stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, TMPDIR: folder },
  });
  try {
    const [, ...lines] = (await within('the end of the program', child.stdout.setEncoding('utf8').toArray())).join('').trim().split('\n');
    const error = ['ConnectionError', 'no_supervisor', 'the supervisor of this pool did not start: spawn /bin/sh EMFILE'];
    const later = ['ConnectionError', 'no_supervisor', 'the supervisor of this pool has ended (spawn /bin/sh EMFILE)'];
    assert.deepEqual(lines.map((line) => JSON.parse(line)), [error, later, later, []]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the built-in tasks need no worker program', async () => {
  const pool = new Pool({ workers: 1, log: 'ignore' });
  assert.deepEqual(await wait(pool.call('primes', 1000)), { count: 168, largest: 997 });
  await wait(pool.close());
});
