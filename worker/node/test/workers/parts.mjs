/** Tasks that send parts of all kinds, also without waiting for them, and tasks whose results and errors are odd. */

import { inspect } from 'node:util';
import { Payload, serve } from '../../index.js';

const NOTHING = Buffer.alloc(0);

/** What can be yielded, and what becomes of it. */
const VALUES = {
  objects: [{ a: 1 }, 5, null, undefined, [true]],
  bytes: [new Uint8Array([65]).buffer, new Uint16Array([0x4342]), Buffer.from('D'), NOTHING],
  pictures: [new Payload(Buffer.from('A'), 'image/png'), new Payload(Buffer.from('B'), 'image/png')],
  mixed: ['text ', { a: 1 }],
  notFinite: ['first', { ratio: NaN }],
  half: ['first', '\ud83e'],
};

/** Parts, and what is returned behind them. */
const WRITTEN = {
  text: { parts: ['hello'] },
  bytes: { parts: [Buffer.from('A'), new Uint8Array([66])] },
  pictures: { parts: [new Payload('A', 'image/png'), new Payload('B', 'image/png')] },
  mixed: { parts: ['text', Buffer.from('A')] },
  empty: { parts: [''] },
  textBehind: { parts: ['hello'], returned: ' world' },
  bytesBehind: { parts: ['hello'], returned: Buffer.from('!') },
  valueBehind: { parts: ['hello'], returned: { a: 1 } },
  nullBehind: { parts: ['hello'], returned: null },
  payloadBehind: { parts: [Buffer.from('A')], returned: new Payload('B', 'image/png') },
};

/** What is no part. */
const ODD = [{ a: 1 }, 5, undefined, null, [1], '\ud800', { get then() { throw new Error('looked at'); } }];

/** Anything that may be thrown. */
const THROWN = {
  undefined: () => undefined,
  number: () => Object.assign(new Error('x'), { message: 5 }),
  name: () => Object.assign(new Error('no name'), { name: { a: 1 } }),
  half: () => new Error('a \ud800 b'),
  getter: () => Object.defineProperty(new Error('x'), 'message', { get: () => { throw new Error('from a getter'); } }),
  exitCode: () => Object.defineProperty(new Error('known'), 'exitCode', { get: () => { throw new Error('from a getter'); } }),
  inspected: () => ({ [inspect.custom]: () => { throw new Error('from inspect'); } }),
  proxy: () => new Proxy({}, { getPrototypeOf: () => { throw new Error('from a proxy'); }, get: () => { throw new Error('from a proxy'); } }),
  signal: () => Object.assign(new Error('no signal'), { signal: 'toString' }),
};

const ODD_UNITS = [-1, NaN, Infinity, 'a', '7', {}, null, Symbol('x'), -1n, { toString: () => { throw new Error('looked at'); } }];

/** Reports 5 of 9, and then what are no units of work, each when it is time for a report. */
function reportOdd(ctx, pause) {
  const report = (...units) => {
    const began = performance.now();
    while (performance.now() - began < pause);
    ctx.progress(...units);
  };
  report(5n, 9.5);
  for (const odd of ODD_UNITS) {
    report(odd, 9);
    report(odd);
    report(6, odd);
  }
  report(2 ** 60);
  return 'reported';
}

serve({
  tasks: {
    yields: function* (name) {
      yield* VALUES[name];
    },
    yieldsLate: async function* (name) {
      for (const value of VALUES[name]) yield Promise.resolve(value);
    },
    json: { produces: 'application/json', run: function* () { yield '{"a":'; yield '1}'; } },
    picture: { produces: 'image/png', run: function* () { yield Buffer.from('A'); yield Buffer.from('B'); } },
    anything: { produces: '*/*', run: (input) => input },
    anyPicture: { produces: 'image/*', run: () => new Payload('x', 'image/png') },
    returns: function* () {
      yield 'a';
      return 'b';
    },
    // Forty parts, none of which is waited for. The credit is enough for four.
    together: { streams: true, run: (_, ctx) => {
      for (let i = 0; i < 40; i++) void ctx.write(Buffer.alloc(65_536, i));
      return 'end';
    } },
    short: { streams: true, run: (_, ctx) => {
      void ctx.write('a');
      void ctx.write('b');
      return 'c';
    } },
    leaves: { streams: true, run: async (_, ctx) => {
      void ctx.write(Buffer.alloc(1 << 20));
      throw new Error('it left its parts');
    } },
    writes: { streams: true, run: async (_, ctx) => {
      await ctx.write(new Uint16Array([0x4241]));
      await ctx.write(new Payload('C', 'text/plain'));
      await ctx.write('D');
    } },
    writesOdd: { streams: true, run: (odd, ctx) => void ctx.write(ODD[odd]) },
    writesOddLate: { streams: true, run: async (odd, ctx) => {
      void ctx.write(ODD[odd]);
      await new Promise((resolve) => setImmediate(resolve)); // an error that nobody caught would be seen now
      return 'as if nothing were';
    } },
    writesOddAndCatches: { streams: true, run: async (odd, ctx) => {
      await ctx.write(ODD[odd]).catch(() => {});
      return 'as if nothing were';
    } },
    // Forty times the same memory. The credit is enough for four.
    writesSame: { streams: true, run: (_, ctx) => {
      const part = Buffer.alloc(65_536);
      for (let i = 0; i < 40; i++) void ctx.write(part.fill(i));
      return 'end';
    } },
    writesAndReturns: { streams: true, run: async (name, ctx) => {
      const { parts, returned } = WRITTEN[name];
      for (const part of parts) await ctx.write(part);
      return returned;
    } },
    writesJson: { streams: true, produces: 'application/json', run: async (last, ctx) => {
      await ctx.write('{"a":');
      await ctx.write(Buffer.from('1'));
      return last ? '}' : void (await ctx.write('}'));
    } },
    writesAndYields: async function* (_, ctx) {
      await ctx.write('a');
      yield 'b';
      await ctx.write('c');
    },
    writesInBatch: { runBatch: (inputs, ctxs) => ctxs.map((ctx) => void ctx.write('a part')) },
    notAllWritten: { streams: true, run: async (length, ctx) => {
      await ctx.write(Buffer.alloc(length)).catch(() => {});
      return 'as if nothing were';
    } },
    throws: (name) => { throw THROWN[name](); },
    rejects: (name) => Promise.reject(THROWN[name]()),
    uncaught: (name) => new Promise(() => setImmediate(() => { throw THROWN[name](); })),
    late: () => {
      setTimeout(() => { throw new Error('a late one'); }, 1000); // the next job has begun by then, also on a busy machine
      return Buffer.alloc(8 << 20);
    },
    prints: () => void process.stderr.write('it ran\n'),
    then: () => Object.defineProperty({}, 'then', { get: () => { throw new Error('from then'); } }),
    toJSON: () => ({ toJSON: () => { throw Object.defineProperty(new Error('x'), 'message', { get: () => { throw new Error('no'); } }); } }),
    changed: () => Object.assign(new Payload('x', 'a/b'), { contentType: 'no type' }),
    bytesChanged: () => Object.assign(new Payload('x', 'a/b'), { bytes: 5 }),
    ratio: () => ({ results: [1, { ratio: 0 / 0 }] }),
    infinite: { run: () => -Infinity, produces: 'text/plain' },
    map: () => new Map([[1, 2]]),
    claims: (contentType) => new Payload(Buffer.from([0x22, 0xff, 0x22]), contentType),
    error: () => new Error('returned'),
    big: () => ({ a: 1n }),
    half: () => 'a \ud800 b',
    halfInJson: () => ['\ud800'],
    echo: { run: (input) => input, idempotent: true },
    text: { run: (text) => text, accepts: 'text/plain' },
    readsJson: { run: (value) => value, accepts: 'application/json' },
    batch: {
      batch: { max: 8 },
      runBatch: (inputs) => inputs.map((input) => {
        if (input === 'promise') return Promise.resolve('later');
        if (input === 'rejected') return Promise.reject(undefined);
        return input === 'nothing' ? undefined : input;
      }),
    },
    throwsNothing: { runBatch: () => Promise.reject(undefined) },
    progress: { progressEvery: 2, run: (_, ctx) => reportOdd(ctx, 3) },
    progressUnpromised: (_, ctx) => reportOdd(ctx, 101),
    checkpoint: { checkpoints: true, run: (_, ctx) => {
      const names = [];
      for (const state of [5, { a: 1 }, [1, 2], '\ud800', undefined]) {
        try {
          ctx.checkpoint(state);
        } catch (error) {
          names.push(error.name);
        }
      }
      ctx.checkpoint(new Uint16Array([0x4241, 0x4443]));
      return names.join(' ');
    } },
  },
});
