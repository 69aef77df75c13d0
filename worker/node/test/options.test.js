/** Options and names are checked and copied when a call is made, whether there is a connection or not. */

import assert from 'node:assert/strict';
import { Client, Payload, Pool } from '../index.js';
import { encodeInput } from '../src/payload.js';
import { withSupervisor } from './supervisor.js';
import { test } from './testing.js';
import { within } from './within.js';

/** The error of a promise that has to be rejected. */
const errorOf = (promise) => within('an error', promise.then((output) => assert.fail(`it gave ${output}`), (error) => error));

/** The outputs of a call and of a stream, as values. */
const STARTS = {
  call: (client, ...job) => client.call(...job),
  stream: async (client, ...job) => {
    const stream = client.stream(...job);
    const parts = [];
    for await (const part of stream) parts.push(part);
    return JSON.parse(Buffer.concat(parts).toString());
  },
};

test('metadata and labels are those of the moment of the call, also of a stream that is read later', async () => {
  await withSupervisor({}, async (supervisor) => {
    const client = supervisor.client();
    for (const connection of ['none yet', 'one']) {
      for (const [name, start] of Object.entries(STARTS)) {
        const [metadata, map, labels] = [{}, new Map(), []];
        const outputs = ['1', '2', '3'].flatMap((id) => {
          metadata.id = id;
          map.set('id', id);
          labels[0] = `id=${id}`;
          return [metadata, map].map((each) => start(client, 'about', null, { metadata: each, labels }));
        });
        labels.push('two words');
        metadata.Upper = 'no key';
        const seen = (await within('the outputs', Promise.all(outputs))).map((about) => about.metadata.id);
        assert.deepEqual(seen, ['1', '1', '2', '2', '3', '3'], `${name}, connection: ${connection}`);
      }
    }
    const options = { metadata: { id: 'early' } };
    const stream = client.stream('about', null, options);
    options.metadata = { id: 'late' };
    const { value } = await within('a part', stream.next());
    assert.equal(JSON.parse(value.toString()).metadata.id, 'early');
  });
});

test('what cannot be sent is a TypeError although there is no connection', async () => {
  const client = new Client({ socket: '/nonexistent/socket' });
  const wrong = [
    [5], [undefined], ['\ud800'], ['x'.repeat(1025)], ['echo', 'text', { metadata: { Upper: '' } }], ['echo', 'text', { labels: ['two words'] }],
    ['echo', 'text', { contentType: 'png' }], ['echo', 'text', { priority: 11 }], ['echo', 'text', { signal: {} }], ['echo', 'text', { timeOut: 1 }],
    ['echo', 'text', { contentType: 5 }], ['echo', { a: 1 }, { contentType: 'image/png' }], ['echo', new Payload('x', 'text/html'), { contentType: 'text/plain' }],
    ['echo', { toJSON: () => NaN }],
  ];
  for (const job of wrong) {
    for (const error of [await errorOf(client.call(...job)), await errorOf(client.stream(...job).next())]) {
      assert.equal(error.name, 'TypeError', `${JSON.stringify(job)}: ${error.message}`);
    }
  }
  for (const job of [5, undefined, '\ud800', 'x'.repeat(1025)]) assert.equal((await errorOf(client.cancel(job))).name, 'TypeError', String(job));
  assert.equal((await errorOf(client.call(5))).message, 'the name of a task is a text, and not of the type number');
  assert.equal((await errorOf(client.cancel(5))).message, 'the ID of a job is a text, and not of the type number');
  await within('idleness', client.idle());
});

test('an option that there is not is told, whose it is and what there are', () => {
  assert.throws(() => new Client({ maxInflight: 1 }), { message: 'a client has no option "maxInflight"; there are socket, name, maxInFlight, maxStreams, maxWaiting' });
  assert.throws(() => new Pool({ worker: 'builtin', socket: '/a' }), { name: 'TypeError', message: /^a pool has no option "socket"; there are worker, / });
  assert.throws(() => new Client({ socket: 5 }), { name: 'TypeError', message: '`socket` is a path' });
  for (const path of [`/${'x'.repeat(107)}`, `/${'ü'.repeat(54)}`]) {
    assert.throws(() => new Client({ socket: path }), { name: 'TypeError', message: `the path of a socket has at most 107 bytes, and this one ${Buffer.byteLength(path)}: ${path}` });
  }
  assert.throws(() => new Client({ socket: 'a\0b' }), { name: 'TypeError', message: '`socket` is a path' });
  assert.throws(() => new Client('/a/socket'), { name: 'TypeError', message: 'the options of a client are an object' });
  for (const [value, contentType] of [[{ a: 1 }, 'application/ld+json'], [5, 'text/plain'], ['x', 'image/svg+xml'], [Buffer.from('x'), 'image/png'],
    [new Payload('x', 'text/html'), 'text/html']]) {
    assert.equal(encodeInput(value, contentType).contentType, contentType);
  }
});
