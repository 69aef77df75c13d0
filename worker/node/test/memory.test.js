/** Whose memory bytes are: what is given out is the receiver's own, and what was handed in is the caller's own again. */

import assert from 'node:assert/strict';
import { FrameDecoder } from '../src/frame.js';
import { TO_CLIENT } from '../src/messages.js';
import { withFront } from './fake_front.js';
import { FakeSupervisor } from './fake_supervisor.js';
import { withSupervisor } from './supervisor.js';
import { spawn } from './programs.js';
import { test } from './testing.js';
import { within } from './within.js';

const wait = (promise) => within('the end of a call', promise);
/** Gives the memory of bytes to another thread, if it is theirs alone. Node keeps that of short ones for itself. */
const transfer = (bytes) => bytes.byteLength === bytes.buffer.byteLength && structuredClone(bytes, { transfer: [bytes.buffer] });

test('each payload has memory of its own, also one without bytes, whether its frame comes at once or in pieces', () => {
  const frame = Buffer.concat(TO_CLIENT.encode('Answer', { ticket: 1 }));
  const payloads = [];
  const decoder = new FrameDecoder(100, (bytes, start, end, payload) => payloads.push(payload));
  for (const piece of [frame.length, 1]) {
    for (let i = 0; i < 2; i++) for (let at = 0; at < frame.length; at += piece) decoder.push(frame.subarray(at, at + piece));
  }
  assert.equal(new Set(payloads.map(({ buffer }) => buffer)).size, 4);
  for (const payload of payloads) transfer(payload);
  assert.deepEqual(Buffer.concat(TO_CLIENT.encode('Answer', { ticket: 1 })), frame);
});

test('a caller may transfer an output without bytes, and a task such an input or checkpoint', async () => {
  await withSupervisor({ worker: 'transfers.mjs', workers: 1 }, async (supervisor) => {
    const client = supervisor.client();
    for (let i = 0; i < 3; i++) {
      const output = await wait(client.call('echo', Buffer.alloc(0)));
      assert.equal(output.length, 0);
      transfer(output);
      assert.equal(await wait(client.call('give', Buffer.alloc(0))), 0);
      assert.equal(await wait(client.call('echo', 'goes on')), 'goes on');
      assert.deepEqual(await wait(client.stream('nothing').next()), { value: undefined, done: true });
    }
    assert.equal((await wait(client.status())).workers.restarts, 0);
  });
  const supervisor = await FakeSupervisor.start('transfers.mjs');
  await supervisor.introduced();
  for (let job = 1; job < 4; job++) {
    supervisor.send('Resume', { job });
    supervisor.run(job, 'giveCheckpoint', null);
    await supervisor.expect('Started');
    assert.equal((await supervisor.expect('Finished')).payload.toString(), '0');
  }
  assert.equal(await supervisor.leave(), 0);
});

test('a listener to a shared signal that throws costs no other, and its error is one that nobody caught', async () => {
  const program = `
    const { listen } = await import(${JSON.stringify(new URL('../src/client/signals.js', import.meta.url))});
    const controller = new AbortController();
    listen(controller.signal, () => { throw new Error('the first'); });
    listen(controller.signal, () => console.log('the second'));
    process.on('uncaughtException', (error) => console.log(error.message));
    controller.abort();`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = await within('the end of the program', child.stdout.setEncoding('utf8').toArray());
  assert.equal(lines.join(''), 'the second\nthe first\n');
});

const LONG = 4 << 20;

test('whoever uses the memory of an input again after an abort changes nothing of what is sent, with and without a key', async () => {
  await withFront({}, async (client, front) => {
    const first = client.call('any', 'first');
    const { guest, ticket } = await front.hear();
    guest.finish(ticket, 'connected');
    await wait(first);
    for (const options of [{ idempotencyKey: 'k' }, {}]) {
      const input = Buffer.alloc(LONG, 1);
      const controller = new AbortController();
      const call = client.call('any', input, { ...options, signal: controller.signal }).catch((error) => error.name);
      controller.abort();
      assert.equal(await wait(call), 'AbortError');
      input.fill(2);
      const sent = await front.hear();
      assert.ok(sent.payload.equals(Buffer.alloc(LONG, 1)));
      guest.finish(sent.ticket, '');
    }
  });
});

test('whoever uses the memory of an input again after a refusal, in the middle of it, changes nothing of what is sent', async () => {
  await withFront({}, async (client, front) => {
    front.onHello = (guest) => {
      guest.welcome();
      guest.socket.once('data', () => {
        guest.send('Rejected', { ticket: 1, code: 'overloaded', message: 'no room', retry_after_ms: null });
        guest.socket.pause();
      });
    };
    const input = Buffer.alloc(LONG, 1);
    assert.equal(await wait(client.call('any', input).catch((error) => error.code)), 'overloaded');
    input.fill(2);
    front.guests[0].socket.resume();
    assert.ok((await front.hear()).payload.equals(Buffer.alloc(LONG, 1)));
  });
});

test('whoever transfers the memory of an input before it is sent is told so, its job is cancelled, and no other call is lost', async () => {
  await withFront({}, async (client, front) => {
    const first = client.call('any', 'first');
    const { guest, ticket } = await front.hear();
    guest.finish(ticket, 'connected');
    await wait(first);
    for (const idempotencyKey of [undefined, 'a key']) {
      for (const isAborted of [false, true]) {
        const input = Buffer.alloc(LONG, 1);
        const controller = new AbortController();
        const options = { signal: controller.signal, idempotencyKey };
        const calls = [client.call('any', input, options).catch((error) => error.name), client.call('any', 'behind it')];
        transfer(input);
        if (isAborted) controller.abort();
        const [long, behind] = [await front.hear(), await front.hear()];
        assert.deepEqual([long.payload.length, long.payload.at(-1), behind.payload.toString()], [LONG, 0, 'behind it']);
        guest.finish(behind.ticket, 'done');
        assert.deepEqual(await wait(Promise.all(calls)), [isAborted ? 'AbortError' : 'TypeError', 'done']);
        guest.send('Accepted', { ticket: long.ticket, job: 'spoilt' });
        const cancel = await front.hear();
        assert.deepEqual([cancel.type, cancel.job], ['Cancel', 'spoilt']);
        guest.finish(long.ticket, 'too late');
      }
    }
  });
});

test('an input whose memory was transferred while its call waited is not sent, and neither is it by a stream', async () => {
  await withFront({}, async (client, front) => {
    const input = Buffer.alloc(LONG, 1);
    const call = client.call('any', input);
    transfer(input);
    await assert.rejects(wait(call), TypeError);
    const parts = Buffer.alloc(LONG, 1);
    const stream = client.stream('any', parts);
    const part = stream.next();
    transfer(parts);
    await assert.rejects(wait(part), TypeError);
    const next = client.call('any', 'next');
    const { guest, ticket } = await front.hear();
    guest.finish(ticket, 'done');
    assert.equal(await wait(next), 'done');
  });
});
