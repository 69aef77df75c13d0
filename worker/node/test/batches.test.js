/** Jobs that run together: each has its own result, and only the guilty one is blamed. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeSupervisor } from './fake_supervisor.js';
import { withSupervisor } from './supervisor.js';
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
