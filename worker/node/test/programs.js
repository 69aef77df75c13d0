/** Looks after processes that a test expects to end. */

import { readFileSync } from 'node:fs';
import { within } from './within.js';

/** Whether a process runs. One that has ended and that nobody has asked for its exit code does not. @param {number} pid */
function isRunning(pid) {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

/** Resolved when none of these processes runs any more. @param {number[]} pids */
export async function ended(pids) {
  const look = async () => {
    while (pids.some(isRunning)) await new Promise((resolve) => setImmediate(resolve));
  };
  await within(`the end of ${pids.join(', ')}`, look());
}
