/** What a worker says and does, seen by its supervisor. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ENDS, PARTS, REASONS } from '../src/messages.js';
import { FakeSupervisor } from './fake_supervisor.js';
import { test } from './testing.js';
import { LONGEST } from './within.js';

const CREDIT = 262_144;

/** A worker with the usual tasks, which has introduced itself. */
async function started(welcome) {
  const supervisor = await FakeSupervisor.start('tasks.mjs', welcome);
  await supervisor.introduced();
  return supervisor;
}

/** The answer to a job, of which Started comes first. */
async function answerTo(supervisor, job) {
  const { job: begun, attempt } = await supervisor.expect('Started');
  const answer = await supervisor.hear();
  assert.deepEqual([begun, attempt, answer.job, answer.attempt], [job, 1, job, 1]);
  return answer;
}

const said = ({ type, kind, message, media_type: mediaType, payload }) =>
  type === 'Failed' ? [type, kind, message] : [type, mediaType, payload.toString()];

test('a worker offers its tasks with what they say of themselves and is ready after setUp', async () => {
  const supervisor = await FakeSupervisor.start('tasks.mjs');
  const [hello, ...offers] = (await supervisor.introduced()).slice(0, -1);
  assert.deepEqual([hello.type, hello.magic, hello.major, hello.capabilities], ['Hello', 'OFFLOADW', 3, 4193]);
  const double = offers.find((offer) => offer.task.name === 'double');
  const { task, about, example_length: example, schema_length: schema, payload } = double;
  assert.deepEqual([task.idempotent, task.stepped, task.checkpoints, task.lane], [true, false, false, 'cpu']);
  assert.deepEqual([about.description, about.accepts, about.produces], ['twice a number', ['application/json'], 'application/json']);
  assert.deepEqual([payload.toString(), example, schema], ['21{"type":"number"}', 2, 17]);
  assert.ok(offers.find((offer) => offer.task.name === 'count').about.streams, 'a generator streams');
  supervisor.run(1, 'about', null, { metadata: { tenant: 'blue' }, timeout_ms: 60_000 });
  const answer = JSON.parse((await answerTo(supervisor, 1)).payload);
  assert.deepEqual(answer, {
    job: 1, attempt: 1, metadata: { tenant: 'blue' }, state: { model: 'loaded' }, contentType: 'application/json',
    hasTime: true, isFinite: true, cancelled: false,
  });
  assert.equal(await supervisor.leave(), 0);
});

test('how a program of a task ended is said if the supervisor understands it', async () => {
  const cases = [
    ['program', 'exit 3', { exited: { code: 3 } }],
    ['programAtOnce', 'exit 4', { exited: { code: 4 } }],
    ['program', 'kill -9 $$', { signalled: { signal: 9 } }],
    ['programAtOnce', 'kill -9 $$', { signalled: { signal: 9 } }],
    ['refuse', 5, { exited: { code: 5 } }],
    ['refuse', 300, 'app_error'],
    ['fail', 'no luck', 'app_error'],
  ];
  for (const capabilities of [PARTS | ENDS, PARTS]) {
    const supervisor = await started({ capabilities });
    for (const [index, [task, input, kind]] of cases.entries()) {
      supervisor.run(index, task, input);
      assert.deepEqual((await answerTo(supervisor, index)).kind, capabilities & ENDS ? kind : 'app_error', `${task} ${input}`);
    }
    assert.equal(await supervisor.leave(), 0);
  }
});

test('an error that a task throws on purpose is for its callers, and what it met is not, if the supervisor understands it', async () => {
  const cases = [
    ['refuses', 'no luck', 'deliberate', 'no luck'],
    ['shout', 7, 'deliberate', /^the input is not what this task takes: /],
    ['fail', 'no luck', 'app_error', 'no luck'],
    ['refuse', 5, { exited: { code: 5 } }, /./],
  ];
  for (const capabilities of [ENDS | REASONS, ENDS]) {
    const supervisor = await started({ capabilities });
    for (const [index, [task, input, kind, said]] of cases.entries()) {
      supervisor.run(index, task, input);
      const answer = await answerTo(supervisor, index);
      assert.deepEqual(answer.kind, kind === 'deliberate' && !(capabilities & REASONS) ? 'app_error' : kind, task);
      assert.match(answer.message, said instanceof RegExp ? said : new RegExp(`^${said}$`));
    }
    assert.equal(await supervisor.leave(), 0);
  }
});

test('what a task gets and what becomes of its result follow the media types', async () => {
  const supervisor = await started();
  const JSON_TYPE = 'application/json';
  const cases = [
    ['double', 21, {}, ['Finished', JSON_TYPE, '42']],
    ['double', Buffer.from('4'), { media_type: 'text/plain' }, ['Finished', JSON_TYPE, '8']],
    ['echo', { a: [1, 'ü'] }, {}, ['Finished', JSON_TYPE, '{"a":[1,"ü"]}']],
    ['echo', Buffer.from('grüße 🦀'), { media_type: 'text/plain; charset=utf-8' }, ['Finished', 'text/plain; charset=utf-8', 'grüße 🦀']],
    ['echo', Buffer.from('bytes'), {}, ['Finished', 'application/octet-stream', 'bytes']],
    ['later', 'soon', {}, ['Finished', 'text/plain; charset=utf-8', 'soon']],
    ['shout', Buffer.from('hey'), {}, ['Finished', 'text/plain; charset=utf-8', 'HEY']],
    ['nothing', null, {}, ['Finished', JSON_TYPE, 'null']],
    ['function', null, {}, ['Failed', 'app_error', 'TypeError: a function cannot be written as JSON']],
    ['fail', 'no luck', {}, ['Failed', 'app_error', 'no luck']],
    ['reject', null, {}, ['Failed', 'app_error', 'only a text']],
    ['circular', null, {}, ['Failed', 'app_error', '<ref *1> { self: [Circular *1] }']],
  ];
  for (const [index, [task, input, fields, expected]] of cases.entries()) {
    supervisor.run(index, task, input, fields);
    assert.deepEqual(said(await answerTo(supervisor, index)), expected, task);
  }
  supervisor.run(99, 'picture', null);
  assert.equal((await answerTo(supervisor, 99)).media_type, 'image/png');
  supervisor.run(100, 'double', Buffer.from('{'));
  assert.match((await answerTo(supervisor, 100)).message, /^the input is not what this task takes: /);
  supervisor.run(101, 'typeError', {});
  assert.match((await answerTo(supervisor, 101)).message, /^TypeError: /);
  assert.equal(await supervisor.leave(), 0);
});

test('inputs and outputs of any length go there and back', async () => {
  const supervisor = await started();
  for (const length of [0, 1, 64 << 10, 8 << 20]) {
    const bytes = Buffer.alloc(length, 'offload');
    supervisor.run(length, 'echo', bytes);
    assert.ok((await answerTo(supervisor, length)).payload.equals(bytes), `${length} bytes`);
  }
  assert.equal(await supervisor.leave(), 0);
});

test('an output over the limit and a message over its limit are cut to what can be sent', async () => {
  const supervisor = await started({ payload_max: 3 });
  supervisor.run(1, 'echo', Buffer.from('four'));
  assert.equal((await answerTo(supervisor, 1)).message, 'RangeError: the output has 4 bytes, at most 3 can be sent');
  supervisor.run(2, 'fail', `x${'ä'.repeat(1024)}`);
  assert.equal((await answerTo(supervisor, 2)).message, `x${'ä'.repeat(511)}`);
  assert.equal(await supervisor.leave(), 0);
});

test('jobs run one after another in the order in which they came, and each is started before it is answered', async () => {
  const supervisor = await started();
  for (const job of [1, 2, 3]) supervisor.run(job, 'later', job);
  for (const job of [1, 2, 3]) assert.deepEqual(said(await answerTo(supervisor, job))[2], String(job));
  assert.equal(await supervisor.leave(), 0);
});

test('an error that nobody caught is a panic of the job that runs, and the process ends', async () => {
  for (const [task, message] of [['uncaught', 'thrown by a timer'], ['unhandled', 'a promise of nobody']]) {
    const supervisor = await started();
    supervisor.run(1, task, null);
    supervisor.run(2, 'echo', 'never started');
    assert.deepEqual(said(await answerTo(supervisor, 1)), ['Failed', 'panic', message]);
    await supervisor.expect('nothing');
    assert.equal(await supervisor.ended(), 1);
    assert.match(supervisor.stderr, new RegExp(message));
  }
});

test('a job that is cancelled while it waits is skipped, and one that runs is told', async () => {
  const supervisor = await started();
  supervisor.run(1, 'untilAborted', null);
  supervisor.run(2, 'echo', 2);
  supervisor.run(3, 'untilCancelled', null);
  await supervisor.expect('Started');
  supervisor.send('Cancel', { job: 2 });
  supervisor.send('Cancel', { job: 99 });
  supervisor.send('Cancel', { job: 1 });
  assert.deepEqual(said(await supervisor.hear())[2], 'aborted');
  assert.equal((await supervisor.expect('Skipped')).job, 2);
  assert.equal((await supervisor.expect('Started')).job, 3);
  supervisor.send('Cancel', { job: 3 });
  assert.deepEqual(said(await supervisor.hear())[2], 'true');
  assert.equal(await supervisor.leave(), 0);
});

test('drain lets the jobs that were given finish, and then the worker exits', async () => {
  const supervisor = await started();
  supervisor.run(1, 'later', 1);
  supervisor.run(2, 'later', 2);
  supervisor.send('Drain');
  for (const job of [1, 2]) assert.equal((await answerTo(supervisor, job)).type, 'Finished');
  await supervisor.expect('nothing');
  assert.equal(await supervisor.ended(), 0);
});

test('a worker without a job exits at a drain, and one whose supervisor is gone exits in the middle of a job', async () => {
  const idle = await started();
  idle.send('Drain');
  assert.equal(await idle.ended(), 0);
  const busy = await started();
  busy.run(1, 'forever', null);
  await busy.expect('Started');
  assert.equal(await busy.leave(), 0);
});

test('parts are sent as far as there is credit, and a cancel ends the wait for more', async () => {
  const supervisor = await started();
  supervisor.run(1, 'write', { parts: 5, bytes: 65_536 });
  await supervisor.expect('Started');
  for (let sent = 0; sent < CREDIT; sent += 65_536) assert.equal((await supervisor.expect('Part')).payload.length, 65_536);
  supervisor.send('Credit', { job: 2, bytes: 99_999 });
  supervisor.send('Credit', { job: 1, bytes: 65_536 });
  assert.equal((await supervisor.expect('Part')).payload[0], 4);
  assert.deepEqual(said(await supervisor.hear())[2], 'end');
  supervisor.run(2, 'write', { parts: 1, bytes: CREDIT + 1 });
  await supervisor.expect('Started');
  for (let part = 0; part < 4; part++) await supervisor.expect('Part');
  supervisor.send('Cancel', { job: 2 });
  assert.deepEqual(said(await supervisor.hear()), ['Failed', 'app_error', 'AbortError: cancelled']);
  supervisor.run(3, 'count', 3);
  await supervisor.expect('Started');
  for (const part of ['1\n', '2\n', '3\n']) assert.equal((await supervisor.expect('Part')).payload.toString(), part);
  assert.equal((await supervisor.expect('Finished')).payload.length, 0);
  assert.equal(await supervisor.leave(), 0);
});

test('a supervisor that takes no parts gets one answer', async () => {
  const supervisor = await started({ capabilities: 0, payload_max: 100 });
  supervisor.run(1, 'count', 3);
  assert.equal((await answerTo(supervisor, 1)).payload.toString(), '1\n2\n3\n');
  supervisor.run(2, 'write', { parts: 1, bytes: 101 });
  assert.match((await answerTo(supervisor, 2)).message, /101 bytes, at most 100/);
  supervisor.run(3, 'echo', Buffer.from('nothing is left over'));
  assert.equal((await answerTo(supervisor, 3)).payload.toString(), 'nothing is left over');
  assert.equal(await supervisor.leave(), 0);
});

test('progress is told while the task runs, and a checkpoint is what another attempt goes on from', async () => {
  const supervisor = await started();
  supervisor.run(1, 'progress', 1_000_000);
  await supervisor.expect('Started');
  const [first, second] = [await supervisor.expect('Progress'), await supervisor.expect('Progress')];
  assert.ok(first.done >= 1 && second.done > first.done && second.total === 1_000_000);
  supervisor.send('Cancel', { job: 1 });
  let answer;
  do answer = await supervisor.hear();
  while (answer.type === 'Progress');
  supervisor.run(2, 'checkpoint', 'half');
  await supervisor.expect('Started');
  assert.equal((await supervisor.expect('Checkpoint')).payload.toString(), 'half');
  assert.deepEqual(said(await supervisor.hear())[2], 'saved');
  supervisor.send('Resume', { job: 3 }, Buffer.from('half'));
  supervisor.run(3, 'checkpoint', 'any');
  assert.deepEqual(said(await answerTo(supervisor, 3))[2], 'resumed from half');
  supervisor.run(4, 'checkpoint', 'x'.repeat(65_537));
  assert.equal((await answerTo(supervisor, 4)).message, 'RangeError: a checkpoint of 65537 bytes, 65536 are allowed');
  assert.equal(await supervisor.leave(), 0);
});

test('the answer says what a job has used, once its task is known to take some time', async () => {
  const supervisor = await started();
  supervisor.run(1, 'sleep', 20);
  await answerTo(supervisor, 1);
  supervisor.run(2, 'sleep', 20);
  const { usage, run_ns: runTime } = await answerTo(supervisor, 2);
  assert.ok(runTime >= 19e6 && usage.peak_rss_bytes > 1 << 20, JSON.stringify({ runTime, usage }));
  assert.equal(await supervisor.leave(), 0);
});

test('a supervisor of another version, or one that breaks the protocol, is left with a sentence', async () => {
  const newer = await FakeSupervisor.start('tasks.mjs', { major: 4 });
  assert.equal(await newer.ended(), 64);
  assert.match(newer.stderr, /the supervisor speaks protocol 4\.0, this worker 3\.0: use the package of the supervisor's release/);
  const garbage = await started();
  garbage.socket.write(Buffer.alloc(8, 0xff));
  assert.equal(await garbage.ended(), 1);
  assert.match(garbage.stderr, /the supervisor broke the protocol: header of 4294967295 bytes/);
  const unknown = await started();
  unknown.run(1, 'no_such_task', null);
  assert.equal(await unknown.ended(), 1);
  assert.match(unknown.stderr, /asked for task "no_such_task", which is not offered/);
});

test('a worker whose `setUp` is null has none', async () => {
  const supervisor = await FakeSupervisor.start('no_set_up.mjs');
  await supervisor.introduced();
  await supervisor.leave();
});

test('a worker that cannot work says why, and whether to start it again is of use', async () => {
  const wrong = await FakeSupervisor.start('no_name.mjs');
  assert.equal(await wrong.ended(), 64);
  assert.match(wrong.stderr, /task "two words": "two words" is no name of a task: 1 to 64 letters/);
  const misspelt = await FakeSupervisor.start('wrong_option.mjs');
  assert.equal(await misspelt.ended(), 64);
  assert.match(misspelt.stderr, /`serve` has no option "setup"; there are tasks, setUp/);
  const failing = await FakeSupervisor.start('set_up_fails.mjs');
  assert.equal(await failing.ended(), 1);
  assert.match(failing.stderr, /setUp has failed: Error: the model is not there/);
  const program = fileURLToPath(new URL('workers/tasks.mjs', import.meta.url));
  const alone = spawnSync(process.execPath, [program], { stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8', timeout: LONGEST });
  assert.deepEqual([alone.status, alone.stderr.includes("offload serve --worker 'node FILE'")], [64, true]);
});
