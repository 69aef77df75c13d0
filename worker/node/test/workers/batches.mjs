/** A task that takes several jobs at once. A job that is `bad` fails alone; `worse` and `fewer` spoil the call; `abort` the process. */

import { serve } from '../../index.js';

let calls = 0;

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
    calls: () => calls,
  },
});
