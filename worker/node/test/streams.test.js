/** Streams are as many at a time as jobs are in flight, and wait for each other. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until, withSupervisor } from './supervisor.js';
import { within } from './within.js';

const wait = (promise) => within('the end of a stream', promise);
/** The error of a promise that has to be rejected. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

/** What all parts of a stream are together. */
async function outputOf(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
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
    const client = supervisor.client({ maxInFlight: 2, maxWaiting: 1 });
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
    const client = supervisor.client({ maxInFlight: 1, maxWaiting: 1 });
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
    const client = supervisor.client({ maxInFlight: 1 });
    const streams = Array.from({ length: 3 }, () => errorOf(client.stream('untilAborted').next()));
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    client.close();
    const [first, ...others] = await Promise.all(streams);
    assert.equal(first.outcome, 'indeterminate');
    for (const { name, code } of others) assert.deepEqual([name, code], ['ConnectionError', 'closed']);
    await within('idleness', client.idle());
  });
});
