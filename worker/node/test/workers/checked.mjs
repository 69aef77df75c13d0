/** Tasks with all that can be promised, and an example of each. */

import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '../../index.js';

serve({
  tasks: {
    reverse: { run: (input) => Buffer.from(input).reverse(), idempotent: true, accepts: 'application/octet-stream', example: Buffer.from('abc') },
    parts: {
      idempotent: true,
      example: Buffer.from('a'),
      run: async function* () {
        for (let i = 0; i < 20; i++) yield Buffer.alloc(65_536, i);
      },
    },
    patient: {
      idempotent: true,
      progressEvery: 200,
      example: Buffer.from('a'),
      run: async (_, ctx) => {
        for (let i = 0; i < 50 && !ctx.cancelled; i++) {
          await sleep(20);
          ctx.progress(i, 50);
        }
        return Buffer.from('done');
      },
    },
    saving: {
      idempotent: true,
      checkpoints: true,
      example: Buffer.from('a'),
      run: (_, ctx) => {
        ctx.checkpoint('half');
        return Buffer.from(ctx.resumed ?? 'from the start');
      },
    },
  },
});
