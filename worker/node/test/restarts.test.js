/** Supervisors that are replaced while the program does not look: what did not get out is asked again, once, and nothing else is. */

import assert from 'node:assert/strict';
import { linkSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { ConnectionError } from '../index.js';
import { Call } from '../src/client/call.js';
import { withSupervisor } from './supervisor.js';
import { test } from './testing.js';
import { blockUntil, until, within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** The error of a call that has to fail. */
const errorOf = (promise) => wait(promise).then((output) => assert.fail(`it gave ${output}`), (error) => error);

/** Whether no thread of a child is left, so that all of its sockets are closed. Nobody asks for its exit code meanwhile. */
const hasEnded = (pid) => readdirSync(`/proc/${pid}/task`).length === 1 && /^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));

/** Runs `body` with a client, and with what puts another supervisor in the place of its supervisor before the event loop turns. */
async function withReplacement(body) {
  await withSupervisor({}, (first) => withSupervisor({}, async (second) => {
    const client = first.client();
    assert.equal(await wait(client.call('echo', 'first')), 'first');
    const replace = () => {
      first.process.kill('SIGKILL');
      blockUntil('the end of the supervisor', () => hasEnded(first.process.pid));
      rmSync(first.socket);
      linkSync(second.socket, first.socket); // its own path stays, or it would make itself a new one
    };
    await body(client, replace);
  }));
}

test('the first calls after a restart reach the new supervisor, and those in flight are indeterminate', async () => {
  await withReplacement(async (client, replace) => {
    const inFlight = errorOf(client.call('forever'));
    await until('a job that runs', async () => (await client.status()).jobs.running === 1);
    replace();
    const calls = Array.from({ length: 50 }, (_, i) => client.call('echo', i));
    assert.deepEqual(await wait(Promise.all(calls)), Array.from({ length: 50 }, (_, i) => i));
    assert.equal((await inFlight).outcome, 'indeterminate');
    assert.equal((await client.status()).jobs.accepted, 50);
    await within('idleness', client.idle());
  });
});

test('the first question after a restart is answered by the new supervisor', async () => {
  await withReplacement(async (client, replace) => {
    replace();
    const [status, workers] = await wait(Promise.all([client.status(), client.workers()]));
    assert.deepEqual([status.jobs.accepted, workers.length > 0], [0, true]);
  });
});

test('of two calls with a restart between them, in one turn of the event loop, the second one is sent again', async () => {
  await withReplacement(async (client, replace) => {
    const sent = errorOf(client.call('forever'));
    replace();
    const unsent = client.call('echo', 2);
    assert.equal(await wait(unsent), 2);
    assert.equal((await sent).outcome, 'indeterminate');
  });
});

test('of two calls with the end of their client behind them the second one was not sent', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    await wait(client.call('echo', 1));
    const [sent, unsent] = [errorOf(client.call('echo', 2)), errorOf(client.call('echo', 3))];
    client.close();
    assert.equal((await sent).outcome, 'indeterminate');
    const { name, code } = await unsent;
    assert.deepEqual([name, code], ['ConnectionError', 'closed']);
    await within('idleness', client.idle());
  });
});

test('a call that does not get out twice is rejected, and was not sent', () => {
  const told = [];
  const tell = (what) => (value) => told.push([what, value]);
  const owner = { resolve: tell('resolve'), reject: tell('reject'), left: tell('left'), unsent: tell('unsent'), freed: tell('freed'), done: tell('done') };
  const call = new Call('echo', 'input', {}, owner);
  const error = new ConnectionError('closed', 'gone');
  const inputs = [];
  const connection = { payloadMax: 100, request: (name, fields, asker, payload) => void (inputs.push(payload.toString()) && asker.onLost(error, true)) };
  call.send(connection);
  call.send(connection);
  assert.deepEqual(inputs, ['input', 'input']);
  assert.deepEqual(told, [['unsent', call], ['reject', error], ['freed', call], ['done', call]]);
});
