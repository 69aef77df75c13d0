/**
 * A program that aborts what it asked of a pool that starts, or of a client whose supervisor does not greet. It prints what keeps it from
 * ending then, and at its end whether the folder of the supervisor is there, that is whether it ended before the supervisor did.
 */

import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { Client, Pool } from '../../index.js';

const [how, socket] = process.argv.slice(2);
const client = socket ? new Client({ socket }) : new Pool({ worker: new URL('./never_ready.mjs', import.meta.url), workers: 1, log: 'ignore' });
const controller = new AbortController();
const options = { signal: controller.signal, deadline: 3_600_000 };
if (how === 'call') client.call('echo', 1, options).catch(() => {});
else client.stream('echo', 1, options).next().catch(() => {});
setImmediate(() => {
  controller.abort();
  setImmediate(() => setImmediate(() => console.log(`active: ${process.getActiveResourcesInfo().filter((each) => each !== 'Immediate')}`)));
});
process.on('exit', () => console.log(`is there: ${existsSync(dirname(client.socket))}`));
