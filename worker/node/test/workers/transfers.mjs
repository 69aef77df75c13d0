/** Tasks that give the memory of their inputs to another thread. */

import { serve } from '../../index.js';

const transfer = (bytes) => structuredClone(bytes, { transfer: [bytes.buffer] }).length;

serve({
  tasks: {
    give: { accepts: 'application/octet-stream', run: transfer },
    giveCheckpoint: { checkpoints: true, run: (_, ctx) => transfer(ctx.resumed) },
    echo: (input) => input,
    nothing: { streams: true, run: async (_, ctx) => ctx.write('') },
  },
});
