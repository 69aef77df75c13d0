/** Many clients with tight limits, guilty and innocent jobs, slow readers and callers that change their minds, all at once. */

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { withSupervisor } from './supervisor.js';
import { test } from './testing.js';
import { until, within } from './within.js';

/** What each kind of call does, and how it has to end. */
const KINDS = {
  echo: async (client, i) => assert.equal(await client.call('echo', i), i),
  later: async (client, i) => assert.equal(await client.call('later', `${i}`), `${i}`),
  large: async (client, i) => assert.ok((await client.call('echo', Buffer.alloc(300_000, i))).equals(Buffer.alloc(300_000, i))),
  fail: (client, i) => assert.rejects(client.call('fail', `${i}`), { outcome: 'app_error', message: `app_error: ${i}` }),
  panic: (client) => assert.rejects(client.call('uncaught'), { outcome: 'panic' }),
  crash: (client) => assert.rejects(client.call('abort'), { outcome: 'worker_crashed', signal: 6, attempts: 1 }),
  block: (client) => assert.rejects(client.call('block', null, { timeout: 20 }), { outcome: 'timeout' }),
  abort: (client) => assert.rejects(client.call('untilAborted', null, { signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' }),
  unknown: (client) => assert.rejects(client.call('nobody'), { name: 'Rejected', code: 'unknown_task' }),
  stream: async (client) => {
    const parts = [];
    for await (const part of client.stream('count', 5)) parts.push(part.toString());
    assert.equal(parts.join(''), '1\n2\n3\n4\n5\n');
  },
  slowReader: async (client) => {
    let bytes = 0;
    for await (const part of client.stream('write', { parts: 10, bytes: 65_536 })) {
      await sleep(20); // a call could take longer than the supervisor waits for a reader
      bytes += part.length;
    }
    assert.equal(bytes, 10 * 65_536 + 'end'.length);
  },
  leave: async (client) => {
    for await (const part of client.stream('write', { parts: 1e6, bytes: 65_536 })) return assert.equal(part.length, 65_536);
  },
};

test('each call of a mixture ends as it has to', async () => {
  const flags = ['--max-restarts=1000', '--backoff-min=1ms', '--backoff-max=10ms', '--max-bytes=32MiB'];
  await withSupervisor({ workers: 3, flags }, async (supervisor) => {
    const names = Object.keys(KINDS);
    const user = async (index) => {
      const client = supervisor.client({ maxInFlight: 1 + (index % 4), name: `user ${index % 3}` });
      const calls = Array.from({ length: 24 }, (_, i) => KINDS[names[(index + i) % names.length]](client, i));
      await Promise.all(calls);
    };
    await within('the end of all calls', Promise.all(Array.from({ length: 8 }, (_, index) => user(index))));
    const watcher = supervisor.client();
    await until('that no job is left', async () => {
      const { jobs } = await watcher.status();
      return jobs.queued + jobs.running === 0;
    });
    const { jobs, ledger } = await watcher.status();
    // Each of 12 kinds was called 16 times.
    assert.deepEqual([jobs.app_error, jobs.panic, jobs.worker_crashed, jobs.timeout, ledger.balanced], [16, 16, 16, 16, true]);
  });
});
