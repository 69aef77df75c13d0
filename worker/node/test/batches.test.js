/** Jobs that run together: each has its own result, and only the guilty one is blamed. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FakeSupervisor } from './fake_supervisor.js';
import { withSupervisor } from './supervisor.js';
import { atEnd, test } from './testing.js';
import { within } from './within.js';

const BATCHES = 32;

/** The answers to jobs 1, 2, ... that are given together. */
async function answersTo(supervisor, inputs) {
  supervisor.send('Batch', { jobs: inputs.length });
  inputs.forEach((input, index) => supervisor.run(index + 1, 'square', input));
  assert.equal((await supervisor.expect('Started')).job, 1);
  const answers = new Map();
  while (answers.size < inputs.length) {
    const { job, message, payload } = await supervisor.hear();
    answers.set(job, message ?? JSON.parse(payload));
  }
  return inputs.map((_, index) => answers.get(index + 1));
}

test('a task says how it takes several jobs, if the supervisor knows that', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  const messages = await supervisor.introduced();
  const at = messages.findIndex(({ type }) => type === 'OfferBatch');
  assert.deepEqual([messages[at - 1].task.name, messages[at - 1].task.idempotent], ['square', true]);
  assert.deepEqual(messages[at].batching, { max: 8, wait_us: 5000 });
  assert.equal(await supervisor.leave(), 0);
  const older = await FakeSupervisor.start('batches.mjs', { capabilities: 0 });
  assert.ok((await older.introduced()).every(({ type }) => type !== 'OfferBatch'));
  older.run(1, 'square', 4);
  await older.expect('Started');
  assert.equal((await older.expect('Finished')).payload.toString(), '16');
  assert.equal(await older.leave(), 0);
});

test('jobs that run together have one call and each its own result', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  assert.deepEqual(await answersTo(supervisor, [1, 2, 'bad', 4]), [1, 4, 'no number', 16]);
  supervisor.run(9, 'calls', null);
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Finished')).payload.toString(), '1');
  assert.deepEqual(await answersTo(supervisor, [1, 'worse', 3, 4]), [1, '1 jobs with a worse one', 9, 16]);
  assert.deepEqual(await answersTo(supervisor, ['fewer', 2, 3]), ['it returned 0 results for 1 jobs', 4, 9]);
  assert.equal(await supervisor.leave(), 0);
});

/** A worker that has begun a batch of `task`: job 1, 2, ... has one of these inputs each. */
async function begun(task, inputs) {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  supervisor.send('Batch', { jobs: inputs.length });
  inputs.forEach((input, index) => supervisor.run(index + 1, task, input));
  await supervisor.expect('Started');
  return supervisor;
}

test('each job is answered as soon as its own result is there, and stays answered whatever becomes of the others', async () => {
  const supervisor = await begun('apart', ['wait', 2, 'crash', 4]);
  assert.deepEqual([(await supervisor.expect('Finished')).job, (await supervisor.expect('Finished')).job], [2, 4]);
  supervisor.send('Cancel', { job: 1 });
  const { job, message } = await supervisor.expect('Failed');
  assert.deepEqual([job, message], [1, 'it stopped']);
  supervisor.send('Cancel', { job: 3 });
  await supervisor.expect('nothing');
  assert.equal(await supervisor.ended(), 'SIGABRT');
});

test('an output of a batch is sent as it was when its job ended, whatever the jobs beside it do with its memory', async () => {
  const supervisor = await begun('sameMemory', [1, 2, 3]);
  for (const input of [1, 2, 3]) {
    const { job, payload } = await supervisor.expect('Finished');
    assert.deepEqual([job, payload.length, payload.findIndex((byte) => byte !== input)], [input, 4 << 20, -1]);
  }
  assert.equal(await supervisor.leave(), 0);
});

test('a job whose input is not what the task takes is answered before the others have ended', async () => {
  const supervisor = await begun('apart', ['wait', Buffer.from([0xff]), 'wait']);
  const { job, message } = await supervisor.expect('Failed');
  assert.deepEqual([job, message], [2, 'the input is not what this task takes: it is not UTF-8']);
  supervisor.send('Cancel', { job: 3 });
  assert.equal((await supervisor.expect('Failed')).job, 3);
  supervisor.send('Cancel', { job: 1 });
  assert.equal((await supervisor.expect('Failed')).job, 1);
  assert.equal(await supervisor.leave(), 0);
});

test('the time until a job is answered falls to those that were not answered before', async () => {
  const supervisor = await begun('long', [0, 40]);
  const [first, second] = [await supervisor.expect('Finished'), await supervisor.expect('Finished')];
  assert.deepEqual([first.job, second.job], [1, 2]);
  // The first one has half of its time, and the second one as much, and all that came behind it. On a busy machine both may end together.
  assert.ok(first.run_ns + second.run_ns >= 39e6 && second.run_ns >= first.run_ns, `${first.run_ns} ${second.run_ns}`);
  assert.equal(await supervisor.leave(), 0);
});

test('a job of a batch that heeds its cancel costs neither the process nor the jobs beside it', async () => {
  await withSupervisor({ worker: 'batches.mjs', workers: 1 }, async (supervisor) => {
    const client = supervisor.client();
    const options = { contentType: 'application/json' };
    const pid = await within('the process', client.call('pid'));
    const controllers = [new AbortController(), new AbortController()];
    const waiting = controllers.map(({ signal }) => client.call('apart', 'wait', { ...options, signal }).catch((error) => error.name));
    assert.equal(await within('the job beside them', client.call('apart', 3, options)), 3);
    controllers.forEach((controller) => controller.abort());
    assert.deepEqual(await Promise.all(waiting), ['AbortError', 'AbortError']);
    assert.equal(await within('the process', client.call('pid')), pid);
    assert.equal((await client.status()).workers.restarts, 0);
  });
});

test('a job that was cancelled before its batch began is answered with the others', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  supervisor.send('Batch', { jobs: 2 });
  supervisor.run(1, 'square', 3);
  supervisor.send('Cancel', { job: 1 });
  supervisor.run(2, 'square', 4);
  await supervisor.expect('Started');
  const answers = [await supervisor.expect('Finished'), await supervisor.expect('Finished')];
  assert.deepEqual(answers.map(({ payload }) => payload.toString()), ['9', '16']);
  assert.equal(await supervisor.leave(), 0);
});

test('a job that is cancelled before its batch begins is told, and a batch that nobody wants does not run', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  for (const cancelled of [[1], [1, 2]]) {
    supervisor.send('Batch', { jobs: 2 });
    supervisor.run(1, 'apart', 'wait');
    if (cancelled.includes(2)) supervisor.send('Cancel', { job: 1 });
    supervisor.socket.cork(); // the worker reads both at once
    supervisor.run(2, 'apart', 5);
    supervisor.send('Cancel', { job: cancelled.at(-1) });
    supervisor.socket.uncork();
    const answers = [];
    await supervisor.expect('Started');
    while (answers.length < 2) answers.push(await supervisor.hear());
    const seen = answers.sort((a, b) => a.job - b.job).map(({ type, message }) => message ?? type);
    assert.deepEqual(seen, cancelled.length === 1 ? ['it stopped', 'Finished'] : Array(2).fill('AbortError: cancelled'));
  }
  assert.equal(await supervisor.leave(), 0);
});

test('promises of a result list of the wrong length are no error of the job behind', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  supervisor.run(1, 'twice', 'a');
  supervisor.run(2, 'sleep', 100);
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Failed')).message, 'it returned 2 results for 1 jobs');
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Finished')).payload.toString(), 'slept');
  assert.equal(await supervisor.leave(), 0);
});

test('a Cancel that has arrived while a job computes is read before the next one', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  atEnd(() => rmSync(folder, { recursive: true }));
  const supervisor = await FakeSupervisor.start('batches.mjs');
  await supervisor.introduced();
  for (let job = 1; job < 10; job += 3) {
    supervisor.socket.cork();
    const path = join(folder, String(job));
    supervisor.run(job, 'block', path);
    for (const next of [job + 1, job + 2]) supervisor.run(next, 'spin', 1);
    supervisor.socket.uncork();
    await supervisor.expect('Started');
    // The event loop of the worker does not run until the first one has ended.
    for (const next of [job + 1, job + 2]) supervisor.send('Cancel', { job: next });
    writeFileSync(path, '');
    await supervisor.expect('Finished');
    for (const next of [job + 1, job + 2]) assert.equal((await supervisor.expect('Skipped')).job, next);
  }
  assert.equal(await supervisor.leave(), 0);
});

test('a job that came alone and was cancelled before it began is skipped, also if its task takes several', async () => {
  const supervisor = await FakeSupervisor.start('batches.mjs', { capabilities: BATCHES });
  await supervisor.introduced();
  supervisor.socket.cork(); // the worker reads all of it before the first job ends
  supervisor.run(1, 'square', 3);
  supervisor.run(2, 'square', 4);
  supervisor.send('Cancel', { job: 2 });
  supervisor.run(3, 'square', 5);
  supervisor.socket.uncork();
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Finished')).payload.toString(), '9');
  assert.equal((await supervisor.expect('Skipped')).job, 2);
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Finished')).payload.toString(), '25');
  assert.equal(await supervisor.leave(), 0);
});

test('of many calls only the guilty ones fail, although their workers had others with them', async () => {
  await withSupervisor({ worker: 'batches.mjs', flags: ['--max-restarts', '1000', '--backoff-max', '100ms'] }, async (supervisor) => {
    const client = supervisor.client();
    const inputs = Array.from({ length: 200 }, (_, i) => (i === 50 ? 'abort' : i % 40 === 7 ? 'worse' : i));
    // A string would be sent as text, which is no JSON.
    const options = (input) => ({ contentType: 'application/json', ...(input === 'abort' ? { attempts: 1 } : {}) });
    const calls = inputs.map((input) => client.call('square', input, options(input)));
    const outcomes = await within('the end of all calls', Promise.allSettled(calls));
    const seen = outcomes.map(({ value, reason }) => value ?? reason.outcome);
    const expected = inputs.map((input) => (input === 'abort' ? 'worker_crashed' : input === 'worse' ? 'app_error' : input * input));
    assert.deepEqual(seen, expected);
    const { workers } = await client.status();
    assert.ok(workers.batches > 0, 'none ran together');
  });
});
