/** A task that takes several jobs at once. A job that is `bad` fails alone; `worse` and `fewer` spoil the call; `abort` the process. */

import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '../../index.js';

let calls = 0;
const memory = Buffer.alloc(4 << 20);

const aborted = (signal) => signal.aborted || new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));

serve({
  tasks: {
    square: {
      accepts: 'application/json',
      batch: { max: 8, wait: 5 },
      example: 3,
      async runBatch(inputs) {
        calls++;
        if (inputs.includes('worse')) throw new Error(`${inputs.length} jobs with a worse one`);
        if (inputs.includes('fewer')) return [];
        if (inputs.includes('abort')) process.abort();
        return inputs.map((n) => (n === 'bad' ? new Error('no number') : n * n));
      },
    },
    // Each has a promise: a number is there at once, `wait` when it is aborted, which is an error, and `crash` ends the process after that.
    apart: {
      accepts: 'application/json',
      batch: { max: 8, wait: 50 },
      runBatch: (inputs, ctxs) => inputs.map(async (input, index) => {
        if (typeof input === 'number') return input;
        await aborted(ctxs[index].signal);
        if (input === 'crash') process.abort();
        throw new Error('it stopped');
      }),
    },
    // Each result is there after the one before, in the same memory.
    sameMemory: {
      batch: { max: 8 },
      runBatch: (inputs) => inputs.map((input, index) => sleep(10 * index).then(() => memory.fill(input))),
    },
    // One that takes all of the time, beside one that takes none.
    long: { batch: { max: 8 }, runBatch: (inputs) => inputs.map((milliseconds) => sleep(milliseconds, 'slept')) },
    // Twice as many results as jobs, all of which are rejected later.
    twice: { batch: { max: 2 }, runBatch: (inputs) => [...inputs, ...inputs].map((input) => sleep(20).then(() => Promise.reject(new Error(input)))) },
    sleep: (milliseconds) => sleep(milliseconds, 'slept'),
    spin: (milliseconds) => {
      const began = performance.now();
      while (performance.now() - began < milliseconds);
    },
    // Until a test writes the file, and for longer than a job that takes no time.
    block: (path) => {
      const began = performance.now();
      while (performance.now() - began < 5 || !existsSync(path));
    },
    pid: () => process.pid,
    calls: () => calls,
  },
});
