/** What is sent, over which connection, and what is kept of it until when. */

import assert from 'node:assert/strict';
import { ConnectionError } from '../index.js';
import { Call } from '../src/client/call.js';
import { Deadline } from '../src/client/deadline.js';
import { OutputStream } from '../src/client/stream.js';
import { Submission } from '../src/client/submission.js';
import { Waiting } from '../src/client/waiting.js';
import { Queue } from '../src/queue.js';
import { withFront } from './fake_front.js';
import { test } from './testing.js';
import { within } from './within.js';

const wait = (promise) => within('the end of a call', promise);

/** A call, and what its owner is told. */
function callOf(options) {
  const told = [];
  const tell = (what) => () => told.push(what);
  const owner = { resolve: tell('resolve'), reject: tell('reject'), left: tell('left'), unsent: tell('unsent'), freed: tell('freed'), done: tell('done') };
  return { call: new Call('echo', 'input', options, owner), told };
}

test('a call that waits again is in front of those that came behind it', () => {
  const [a, b, c] = [{ place: 0 }, { place: 0 }, { place: 0 }];
  const waiting = new Waiting();
  for (const entry of [a, b, c]) waiting.push(entry);
  assert.deepEqual([waiting.shift(), waiting.shift()], [a, b]);
  waiting.putBack(a);
  for (const next of [a, c, undefined]) assert.equal(waiting.shift(), next);
});

test('a queue gives what was pushed, in its order, however its entries come and go', () => {
  const queue = new Queue();
  let [pushed, read] = [0, 0];
  for (const [pushes, reads] of [[3, 3], [5000, 4000], [10, 1005], [1, 6], [0, 1]]) {
    for (let i = 0; i < pushes; i++) queue.push(pushed++);
    for (let i = 0; i < reads && read < pushed; i++) assert.deepEqual([queue.first, queue.shift()], [read, read++]);
    assert.equal(queue.length, pushed - read);
  }
  assert.deepEqual([queue.length, queue.first, queue.shift()], [0, undefined, undefined]);
});

test('a call that did not get out and is aborted while it waits again leaves those that wait', () => {
  const controller = new AbortController();
  const { call, told } = callOf({ signal: controller.signal });
  const connection = { payloadMax: 100, request: () => call.onLost(new ConnectionError('closed', 'gone'), true) };
  call.send(connection);
  controller.abort();
  assert.deepEqual(told, ['unsent', 'reject', 'left']);
});

test('a stream that did not get out was not submitted', async () => {
  const stream = new OutputStream(new Submission('echo', 'input', {}, true), () => {});
  const error = new ConnectionError('closed', 'gone');
  stream.begin({ payloadMax: 100, request: () => stream.onLost(error, true), leave: () => {}, hold: () => {} });
  await assert.rejects(stream.read().next(), error);
});

test('the deadline of a call that has left is nobody\'s any more', async () => {
  const controller = new AbortController();
  const { told } = callOf({ deadline: 5, signal: controller.signal });
  controller.abort();
  await within('a later deadline', new Promise((resolve) => new Deadline(20).watch(() => resolve(undefined))));
  assert.deepEqual(told, ['reject', 'left']);
});

test('an input is checked before it is sent, and nothing is kept of it once its job is accepted', () => {
  const inputs = [];
  const connection = { payloadMax: 5, request: (name, fields, asker, payload) => void inputs.push(payload.toString()) };
  assert.throws(() => new Submission('echo', 'six...', {}, false).send(connection, {}), { name: 'Rejected', code: 'too_large' });
  const submission = new Submission('echo', 'input', {}, false);
  submission.send(connection, {});
  submission.accepted();
  submission.send(connection, {});
  assert.deepEqual(inputs, ['input', '']);
});

test('no further job is written while a MiB waits for the socket', async () => {
  await withFront({}, async (client, front) => {
    const first = client.call('any', 1);
    const { guest, ticket } = await front.hear();
    guest.finish(ticket, '');
    await wait(first);
    guest.socket.pause();
    const calls = Array.from({ length: 10 }, () => client.call('any', Buffer.alloc(1 << 20), { deadline: 50 }));
    const late = calls.map((call) => call.then(() => assert.fail('nobody answers'), (error) => error.outcome));
    for (const outcome of late.slice(3)) assert.equal(await wait(outcome), 'timeout');
    // The first one was written, so its deadline is the supervisor's; it did not get out as a whole.
    const seen = [];
    late[0].then((outcome) => seen.push(outcome));
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(seen, []);
  });
});

test('a connection that has rested for half a minute is not used again', async () => {
  await withFront({}, async (client, front) => {
    front.onRequest = ({ guest, ticket }) => guest.finish(ticket, '');
    const { now } = performance;
    try {
      for (const [later, connections] of [[0, 1], [29_000, 1], [62_000, 2]]) {
        performance.now = () => now.call(performance) + later;
        await wait(client.call('any', 1));
        assert.equal(front.guests.length, connections, `${later} ms`);
      }
    } finally {
      performance.now = now;
    }
  });
});
