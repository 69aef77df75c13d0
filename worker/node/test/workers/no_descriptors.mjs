/** A program that makes a pool when it has no descriptors left. It prints what its calls are told, and the folders that are left. */

import { closeSync, openSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { Pool } from '../../index.js';

console.log('starting'); // what prints has its descriptors
const held = [];
try {
  for (;;) held.push(openSync('/dev/null'));
} catch {
  // there are no more
}
const pool = new Pool({ workers: 1, log: 'ignore' });
held.forEach(closeSync);
for (const asked of [() => pool.call('echo', 1), () => pool.ready(), () => pool.status()]) {
  const { name, code, message } = await asked().catch((error) => error);
  console.log(JSON.stringify([name, code, message]));
}
await pool.close();
console.log(JSON.stringify(readdirSync(tmpdir())));
