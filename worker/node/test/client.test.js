/** What a client gets from a real supervisor, whose workers are written with this package. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Client, Payload } from '../index.js';
import { FrameDecoder } from '../src/frame.js';
import { CLIENT_MAGIC, TO_CLIENT, TO_SUPERVISOR } from '../src/messages.js';
import { Killer } from './killer.js';
import { outputOf } from './programs.js';
import { PROGRAM, withSupervisor } from './supervisor.js';
import { test } from './testing.js';
import { until, within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** The error of a call that has to fail. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);
const jobsRunning = async (client) => (await client.status()).jobs.running;

test('values go to a task and come back as what they are', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    for (const value of [0, 21, 'grüße 🦀 \u0000', '', true, null, [1, [2]], { a: { b: 'ü' } }]) {
      assert.deepEqual(await wait(client.call('echo', value)), value);
    }
    for (const length of [0, 1, 64 << 10, 8 << 20]) {
      const bytes = Buffer.alloc(length, 'offload');
      assert.ok(bytes.equals(await wait(client.call('echo', bytes))), `${length} bytes`);
    }
    assert.deepEqual(await wait(client.call('echo', new Payload('{"a":1}', 'application/json'))), { a: 1 });
    assert.deepEqual(await wait(client.call('echo', new Uint16Array([1, 256]))), Buffer.from([1, 0, 0, 1]));
    const { output, contentType, attempts, job, receipt } = await wait(client.run('picture'));
    assert.deepEqual([output, contentType, attempts, receipt.output_bytes], [Buffer.from([0x89, 0x50]), 'image/png', 1, 2]);
    assert.match(job, /^[0-9A-Z]{26}$/);
  });
});

test('1,000 calls at once get the answer of each', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const outputs = await wait(Promise.all(Array.from({ length: 1000 }, (_, i) => client.call('double', i))));
    assert.deepEqual(outputs, Array.from({ length: 1000 }, (_, i) => 2 * i));
    assert.equal((await client.status()).jobs.ok, 1000);
  });
});

test('a crash costs exactly one call, and says what it was', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    for (const [task, input, signal, exitCode] of [['abort', null, 6, null], ['kill', 'SIGKILL', 9, null], ['exit', 3, null, 3]]) {
      const innocent = Array.from({ length: 50 }, (_, i) => client.call('echo', i));
      const guilty = errorOf(client.call(task, input));
      const others = Array.from({ length: 50 }, (_, i) => client.call('later', i));
      const error = await guilty;
      const seen = [error.name, error.outcome, error.code, error.signal, error.exitCode, error.attempts];
      assert.deepEqual(seen, ['JobError', 'worker_crashed', 'worker_crashed', signal, exitCode, 1]);
      assert.deepEqual((await wait(Promise.all([...innocent, ...others]))).length, 100);
    }
    const { jobs } = await client.status();
    assert.deepEqual([jobs.worker_crashed, jobs.ok], [3, 300]);
  });
});

test('errors of tasks, of time limits and of requests are told apart', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const failed = await errorOf(client.call('fail', 'no luck'));
    assert.deepEqual([failed.outcome, failed.message], ['app_error', 'app_error: no luck']);
    assert.equal((await errorOf(client.call('uncaught'))).outcome, 'panic');
    assert.equal((await errorOf(client.call('forever', null, { timeout: 50, attempts: 1 }))).outcome, 'timeout');
    assert.equal((await errorOf(client.call('block', null, { timeout: 50, attempts: 1 }))).outcome, 'timeout');
    assert.equal((await errorOf(client.call('forever', null, { deadline: 50 }))).outcome, 'timeout');
    const unknown = await errorOf(client.call('no_such_task'));
    assert.deepEqual([unknown.name, unknown.code, unknown.retryAfter], ['Rejected', 'unknown_task', null]);
    for (const options of [{ timeout: -1 }, { priority: 11 }, { attempts: 0 }, { idempotencyKey: '' }, { labels: ['two words'] },
      { metadata: { Upper: '' } }, { metadata: { half: '\ud800' } }, { labels: ['\ud800'] }, { labels: 'nightly' }, { metadata: 'blue' }, { metadata: ['blue'] },
      { metadata: null }, { idempotencyKey: 'k\ud800' }, { contentType: 'png' }, { timeOut: 1 }]) {
      const error = await errorOf(client.call('echo', 'text', options));
      assert.equal(error.name, 'TypeError', JSON.stringify(options));
    }
    assert.equal((await errorOf(client.call('echo', () => {}))).name, 'TypeError');
    assert.equal(await wait(client.call('echo', 'still here')), 'still here');
  });
});

test('an input over the limit of the supervisor is rejected here, and an output over it is an error of its job', async () => {
  await withSupervisor({ flags: ['--max-payload', '1MiB'] }, async (supervisor) => {
    const client = supervisor.client();
    const tooLarge = await errorOf(client.call('echo', Buffer.alloc((1 << 20) + 1)));
    assert.deepEqual([tooLarge.name, tooLarge.code], ['Rejected', 'too_large']);
    const error = await errorOf(client.call('write', { parts: 17, bytes: 65_536 }));
    assert.equal(error.outcome, 'app_error');
    assert.equal((await wait(client.call('echo', Buffer.alloc(1 << 20)))).length, 1 << 20);
  });
});

test('a call that is aborted is rejected at once and its job is cancelled, whether it waits or runs', async () => {
  await withSupervisor({ workers: 1, flags: ['--spares', '0'] }, async (supervisor) => {
    const client = supervisor.client();
    const [running, queued] = [new AbortController(), new AbortController()];
    const errors = [errorOf(client.call('untilAborted', null, { signal: running.signal }))];
    await until('a job that runs', async () => (await jobsRunning(client)) === 1);
    errors.push(errorOf(client.call('echo', 1, { signal: queued.signal })));
    await until('a job that waits', async () => (await client.status()).jobs.queued === 1);
    queued.abort();
    running.abort(new Error('enough'));
    assert.equal((await errors[0]).message, 'enough');
    assert.equal((await errors[1]).name, 'AbortError');
    await until('two cancelled jobs', async () => (await client.status()).jobs.cancelled === 2);
    assert.equal((await client.status()).workers.restarts, 0, 'a task that heeds the signal keeps its process');
    assert.equal((await errorOf(client.call('echo', 1, { signal: AbortSignal.abort() }))).name, 'AbortError');
    assert.equal((await errorOf(client.call('forever', 1, { signal: AbortSignal.timeout(50) }))).name, 'TimeoutError');
    assert.equal(await wait(client.call('echo', 'next')), 'next');
  });
});

test('a call with a key that is aborted leaves its job to others', async () => {
  await withSupervisor({ workers: 1 }, async (supervisor) => {
    const client = supervisor.client();
    const controller = new AbortController();
    const path = join(supervisor.folder, 'go on');
    const first = errorOf(client.call('untilThere', path, { idempotencyKey: 'shared', signal: controller.signal }));
    await until('a job that runs', async () => (await jobsRunning(client)) === 1);
    controller.abort();
    assert.equal((await first).name, 'AbortError');
    const second = client.call('untilThere', path, { idempotencyKey: 'shared' });
    writeFileSync(path, '');
    assert.equal(await wait(second), 'there');
    assert.deepEqual([(await client.status()).jobs.cancelled, (await client.status()).jobs.ok], [0, 1]);
  });
});

test('a task that blocks is cancelled with its process', async () => {
  await withSupervisor({ workers: 1 }, async (supervisor) => {
    const client = supervisor.client();
    const controller = new AbortController();
    const error = errorOf(client.call('block', null, { signal: controller.signal }));
    await until('a job that runs', async () => (await jobsRunning(client)) === 1);
    controller.abort();
    await error;
    await until('a cancelled job', async () => (await client.status()).jobs.cancelled === 1);
    assert.equal(await wait(client.call('echo', 'next')), 'next');
  });
});

test('another attempt goes on from the checkpoint of one that was lost', async () => {
  await withSupervisor({}, async (supervisor) => {
    assert.equal(await wait(supervisor.client().call('resuming', 'half')), 'attempt 2 went on from half');
  });
});

test('what a task prints is in the log beside the ID of its job', async () => {
  await withSupervisor({ log: 'pipe' }, async (supervisor) => {
    const { job } = await wait(supervisor.client().run('print', 'hello'));
    for await (const line of createInterface({ input: supervisor.process.stderr })) {
      if (line.includes('a line: hello')) return assert.ok(line.includes(`job ${job}]`), line);
    }
    assert.fail('the line is not there');
  });
});

test('a stream gives the parts as they come, and errors behind the parts that came before', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const parts = [];
    for await (const part of client.stream('count', 3)) parts.push(part.toString());
    assert.deepEqual(parts, ['1\n', '2\n', '3\n']);
    let bytes = 0;
    for await (const part of client.stream('write', { parts: 100, bytes: 65_536 })) bytes += part.length;
    assert.equal(bytes, 100 * 65_536 + 'end'.length);
    const whole = await wait(client.run('together'));
    assert.equal(whole.bytes.length, 6 * 65_536 + 'end'.length);
    assert.equal(await wait(client.call('count', 3)), '1\n2\n3\n');
    const failing = client.stream('fail', 'no luck');
    assert.equal((await errorOf(failing.next())).outcome, 'app_error');
    const unknown = client.stream('no_such_task');
    assert.equal((await errorOf(unknown.next())).code, 'unknown_task');
  });
});

test('whoever stops reading a stream cancels its job, and a reader that waits holds up its task and nobody else', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    for await (const part of client.stream('write', { parts: 1e6, bytes: 65_536 })) {
      assert.equal(part.length, 65_536);
      break;
    }
    await until('a cancelled job', async () => (await client.status()).jobs.cancelled === 1);
    const controller = new AbortController();
    const slow = client.stream('write', { parts: 1e6, bytes: 65_536 }, { signal: controller.signal });
    await wait(slow.next());
    const outputs = await wait(Promise.all(Array.from({ length: 100 }, (_, i) => client.call('echo', i))));
    assert.equal(outputs.length, 100);
    controller.abort();
    assert.equal((await errorOf(slow.next())).name, 'AbortError');
    await until('another cancelled job', async () => (await client.status()).jobs.cancelled === 2);
  });
});

test('no more calls are in flight than the client allows, and no more wait', async () => {
  await withSupervisor({ workers: 1 }, async (supervisor) => {
    const watcher = supervisor.client();
    const client = supervisor.client({ maxInFlight: 2, maxWaiting: 1 });
    const controller = new AbortController();
    const { signal } = controller;
    const held = [1, 2].map(() => errorOf(client.call('untilAborted', null, { signal })));
    await until('two jobs', async () => {
      const { jobs } = await watcher.status();
      return jobs.queued + jobs.running === 2;
    });
    const waiting = wait(client.call('echo', 'in time'));
    const refused = await errorOf(client.call('echo', 'too many'));
    assert.deepEqual([refused.name, refused.code], ['Rejected', 'overloaded']);
    assert.equal((await watcher.status()).jobs.accepted, 2);
    controller.abort();
    await Promise.all(held);
    assert.equal(await waiting, 'in time');
  });
});

test('large inputs go out one behind another while the jobs before them run, and a small call behind them, too', async () => {
  await withSupervisor({ workers: 3 }, async (supervisor) => {
    const watcher = supervisor.client();
    const client = supervisor.client(); // an answer to anything else that it asks would send what waits
    const controller = new AbortController();
    const { signal } = controller;
    const large = [1, 2].map(() => errorOf(client.call('untilAborted', Buffer.alloc(4 << 20), { signal })));
    assert.equal(await wait(client.call('echo', 'small')), 'small');
    await until('that both large jobs run', async () => (await jobsRunning(watcher)) === 2);
    controller.abort();
    for (const error of large) assert.equal((await error).name, 'AbortError');
  });
});

test('a supervisor that is full rejects with its reason', async () => {
  await withSupervisor({ workers: 1, flags: ['--max-jobs', '2'] }, async (supervisor) => {
    const client = supervisor.client();
    const controller = new AbortController();
    const calls = Array.from({ length: 20 }, () => errorOf(client.call('untilAborted', null, { signal: controller.signal })));
    const rejected = await wait(Promise.race(calls));
    assert.equal(rejected.name, 'Rejected');
    assert.ok(['overloaded', 'quota'].includes(rejected.code) && rejected.retryAfter > 0, rejected.message);
    controller.abort();
    await Promise.all(calls);
  });
});

test('a key gives the same job to this client and to the command line', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const first = await wait(client.run('about', 'same', { idempotencyKey: 'k' }));
    const again = await wait(client.run('about', 'same', { idempotencyKey: 'k' }));
    assert.equal(again.job, first.job);
    const arguments_ = ['--socket', supervisor.socket, '--json', 'submit', '--idempotency-key', 'k', '--content-type', 'text/plain; charset=utf-8'];
    const { job } = JSON.parse(outputOf(PROGRAM, [...arguments_, 'about', 'same']));
    assert.equal(job, first.job);
    assert.equal((await errorOf(client.call('about', 'other', { idempotencyKey: 'k' }))).code, 'conflict');
  });
});

test('metadata, labels and priority reach the job', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client({ name: 'tester' });
    const options = { metadata: { tenant: 'blue' }, labels: ['nightly'], priority: 5, timeout: 3_600_000 };
    const { metadata, hasTime } = await wait(client.call('about', null, options));
    assert.deepEqual([metadata, hasTime], [{ tenant: 'blue' }, true]);
    const listed = JSON.parse(outputOf(PROGRAM, ['--socket', supervisor.socket, '--json', 'jobs']));
    assert.deepEqual([listed[0].client, listed[0].labels], ['tester', ['nightly']]);
    assert.ok((await client.tasks()).some((task) => task.name === 'double' && task.example === '21'));
  });
});

test('drain finishes what was accepted, then there is no supervisor', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const path = join(supervisor.folder, 'go on');
    const running = client.call('untilThere', path);
    await until('a job that runs', async () => (await jobsRunning(client)) === 1);
    const drained = wait(client.drain());
    assert.equal((await errorOf(client.call('echo', 1))).code, 'unavailable');
    writeFileSync(path, '');
    assert.equal(await wait(running), 'there');
    await drained;
    await within('the end of the supervisor', supervisor.exit);
    const error = await errorOf(client.call('echo', 1));
    assert.equal(error.name, 'ConnectionError');
    assert.match(error.message, /offload serve --socket|closed the connection/);
  });
});

test('who takes no part of a stream for 10 s loses it, and is told why', async () => {
  await withSupervisor({ log: 'pipe' }, async (supervisor) => {
    const stream = supervisor.client().stream('write', { parts: 1e6, bytes: 65_536 });
    await wait(stream.next());
    const gone = async () => {
      for await (const line of createInterface({ input: supervisor.process.stderr })) if (line.includes('it did not read for 10 s')) return;
    };
    await wait(gone());
    const rest = async () => {
      for await (const part of stream) assert.equal(part.length, 65_536);
    };
    const lost = await errorOf(rest());
    assert.equal(lost.outcome, 'indeterminate');
    assert.match(lost.message, /closed the connection: no part was taken for \d\d s, and 10 s are allowed; the job may/);
  });
});

test('workers are killed again and again, and every answer of an idempotent task is right', async () => {
  const flags = ['--max-restarts=1000', '--backoff-min=1ms', '--backoff-max=10ms'];
  await withSupervisor({ workers: 3, flags }, async (supervisor) => {
    const [client, watcher] = [supervisor.client(), supervisor.client()];
    const killer = new Killer(watcher);
    let right = 0;
    const caller = async (first) => {
      for (let i = first; killer.count < 10 || i < first + 50; i++) {
        if ((await client.call('double', i, { attempts: 100 })) === 2 * i) right++;
        else assert.fail(`a wrong answer to ${i}`);
      }
    };
    try {
      await wait(Promise.all(Array.from({ length: 20 }, (_, i) => caller(i * 1000))));
    } finally {
      await killer.stop();
    }
    assert.ok(right >= 1000 && killer.count >= 10, `${right} answers, ${killer.count} kills`);
  });
});

test('when the supervisor is gone, calls in flight are indeterminate and later ones say how to start one', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    const inFlight = errorOf(client.call('forever'));
    await until('a job that runs', async () => (await jobsRunning(client)) === 1);
    await supervisor.kill();
    const lost = await inFlight;
    assert.deepEqual([lost.name, lost.outcome], ['JobError', 'indeterminate']);
    assert.match(lost.message, /the supervisor closed the connection; the job may or may not have run/);
    // On a busy machine its socket may still take a connection for a moment, which nobody accepts (in 1 of 52 trials).
    let later;
    await until('an end of that', async () => (later = await errorOf(client.call('echo', 1))).code !== 'closed');
    assert.deepEqual([later.name, later.code], ['ConnectionError', 'no_supervisor']);
    assert.match(later.message, /^no supervisor at .*; start one with: offload serve --socket /);
    client.close();
    assert.equal((await errorOf(client.call('echo', 1))).message, 'this client was closed');
  });
});

test('an output that is not what its media type says is an error that has its bytes', async () => {
  await withSupervisor({ worker: 'parts.mjs' }, async (supervisor) => {
    const client = supervisor.client();
    for (const contentType of ['text/plain', 'application/json', 'text/plain; charset=klingon']) {
      for (const error of [await errorOf(client.call('claims', contentType)), await errorOf(client.run('claims', contentType))]) {
        assert.deepEqual([error.name, error instanceof SyntaxError, error.contentType], ['OutputError', true, contentType]);
        assert.deepEqual([error.bytes, error.attempts, error.job.length], [Buffer.from([0x22, 0xff, 0x22]), 1, 26]);
      }
    }
    assert.equal(await wait(client.call('claims', 'text/plain; charset=iso-8859-1')), '"ÿ"');
    assert.deepEqual(await wait(client.call('claims', 'image/png')), Buffer.from([0x22, 0xff, 0x22]));
  });
});

test('an output whose description is not understood costs no other job, and its bytes are there', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const server = net.createServer((socket) => {
    const send = (name, fields, payload) => Buffer.concat(TO_CLIENT.encode(name, fields, payload));
    const decoder = new FrameDecoder(1 << 20, (bytes, start, end, payload) => {
      const { type, ticket } = TO_SUPERVISOR.decode(bytes, start, end);
      if (type === 'Hello') socket.write(send('Welcome', { magic: CLIENT_MAGIC, major: 3, minor: 0, capabilities: 0, payload_max: 1 << 20 }));
      if (type !== 'Submit') return;
      const usage = { cpu_user_us: 0, cpu_system_us: 0, peak_rss_bytes: 0 };
      const times = { queued_us: 0, run_us: 0, returned_us: 0, worker_pid: 1, slot: 0, incarnation: 0, input_bytes: 0, output_bytes: 0, usage };
      const report = { job: 'its ID', task: 'any', outcome: 'ok', error: null, attempts: 1, receipt: times, media_type: 'new/type;a=bb', labels: [] };
      const frame = send('Finished', { ticket, report }, payload);
      if (payload.toString() === 'odd') frame.write('a=b;', frame.indexOf('a=bb'), 'latin1');
      socket.write(frame);
    });
    socket.on('data', (bytes) => decoder.push(bytes)).on('error', () => {});
  });
  const socket = join(folder, 'socket');
  await within('the server', new Promise((resolve) => server.listen(socket, resolve)));
  const client = new Client({ socket });
  try {
    const [odd, even] = await wait(Promise.all(['odd', 'even'].map((input) => client.run('any', input))));
    assert.deepEqual([odd.bytes, odd.contentType, even.bytes], [Buffer.from('odd'), 'new/type;a=b;', Buffer.from('even')]);
  } finally {
    client.close();
    server.close();
    rmSync(folder, { recursive: true });
  }
});
