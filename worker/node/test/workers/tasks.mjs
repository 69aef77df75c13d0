/** The tasks that most tests run. */

import { execFile, execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Payload, serve, TaskError } from '../../index.js';

/** Resolved when nobody wants the output any more. */
const aborted = (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve('aborted'), { once: true }));

serve({
  setUp: async () => ({ model: await Promise.resolve('loaded') }),
  tasks: {
    echo: { run: (input) => input, idempotent: true },
    double: {
      run: (n) => n * 2,
      idempotent: true,
      accepts: 'application/json',
      produces: 'application/json',
      description: 'twice a number',
      example: 21,
      schema: { type: 'number' },
    },
    later: (input) => sleep(1).then(() => input),
    picture: () => new Payload(Buffer.from([0x89, 0x50]), 'image/png'),
    shout: { run: (text) => text.toUpperCase(), accepts: ['text/plain', 'text/html'] },
    nothing: () => undefined,
    function: () => () => {},
    about: (_, ctx) => ({
      job: ctx.job, attempt: ctx.attempt, metadata: ctx.metadata, state: ctx.state, contentType: ctx.contentType,
      hasTime: ctx.remaining > 1000, isFinite: Number.isFinite(ctx.remaining), cancelled: ctx.cancelled,
    }),
    program: (script) => promisify(execFile)('sh', ['-c', script]),
    programAtOnce: (script) => execFileSync('sh', ['-c', script]),
    refuse: (exitCode) => { throw Object.assign(new Error('it refused'), { exitCode }); },
    fail: (message) => { throw new Error(message); },
    refuses: (message) => { throw new TaskError(message); },
    typeError: (input) => input.no.such.field,
    circular: () => {
      const thrown = {};
      thrown.self = thrown;
      throw thrown;
    },
    reject: () => Promise.reject('only a text'),
    uncaught: () => new Promise(() => setTimeout(() => { throw new Error('thrown by a timer'); }, 1)),
    unhandled: () => new Promise(() => void Promise.reject(new Error('a promise of nobody'))),
    untilAborted: (_, ctx) => aborted(ctx.signal),
    untilCancelled: async (_, ctx) => {
      while (!ctx.cancelled) await sleep(1);
      return ctx.signal.aborted;
    },
    forever: { run: () => new Promise((resolve) => setTimeout(resolve, 2 ** 30)), idempotent: true },
    // Runs until a test writes the file.
    untilThere: {
      run: async (path) => {
        while (!existsSync(path)) await sleep(1);
        return 'there';
      },
      idempotent: true,
    },
    sleep: { run: (ms) => sleep(ms, 'slept'), idempotent: true },
    count: async function* (to) {
      for (let i = 1; i <= to; i++) yield `${i}\n`;
    },
    write: {
      run: async ({ parts, bytes }, ctx) => {
        for (let i = 0; i < parts; i++) await ctx.write(Buffer.alloc(bytes, i));
        return 'end';
      },
      streams: true,
    },
    progress: async (to, ctx) => {
      for (let i = 1; !ctx.cancelled; i++) {
        ctx.progress(i, to);
        await sleep(1);
      }
    },
    checkpoint: {
      checkpoints: true,
      run: (state, ctx) => {
        if (ctx.resumed) return `resumed from ${ctx.resumed}`;
        ctx.checkpoint(state);
        return 'saved';
      },
    },
    resuming: {
      checkpoints: true,
      idempotent: true,
      run: async (state, ctx) => {
        if (ctx.resumed) return `attempt ${ctx.attempt} went on from ${ctx.resumed}`;
        ctx.checkpoint(state);
        process.kill(process.pid, 'SIGKILL');
        await sleep(2 ** 30);
      },
    },
    together: { run: (_, ctx) => Promise.all([1, 2, 3, 4, 5, 6].map((part) => ctx.write(Buffer.alloc(65_536, part)))).then(() => 'end'), streams: true },
    print: (line, ctx) => ctx.log('a line: %s', line),
    abort: () => process.abort(),
    exit: (code) => process.exit(code),
    kill: (signal) => process.kill(process.pid, signal),
    block: () => { for (;;); },
  },
});
