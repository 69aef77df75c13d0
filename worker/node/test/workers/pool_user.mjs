/** A program with a pool. Its argument says how it goes on after a call; it prints what it has started. */

import { Pool } from '../../index.js';

const pool = new Pool({ worker: new URL('./tasks.mjs', import.meta.url), workers: 2, log: 'ignore' });
const output = await pool.call('double', 21);
const [{ pid }, workers] = [await pool.status(), await pool.workers()];
console.log(JSON.stringify({ output, socket: pool.socket, pids: [pid, ...workers.map((worker) => worker.pid)].filter((each) => each > 0) }));
if (process.argv[2] === 'wait') await pool.call('forever');
if (process.argv[2] === 'close') await pool.close();
if (process.argv[2] === 'throw') throw new Error('the program fails');
