/** Programs that tests start, and processes that they expect to end. */

import child_process from 'node:child_process';
import { readFileSync } from 'node:fs';
import { atEnd } from './testing.js';
import { LONGEST, until } from './within.js';

/** Starts a program, which ends with the test at the latest. @param {string} program @param {string[]} words @param {any} options as for Node's */
export function spawn(program, words, options) {
  const child = child_process.spawn(program, words, options);
  atEnd(() => {
    child.kill('SIGKILL');
    // What it has started may hold the other ends.
    for (const pipe of child.stdio) pipe?.destroy();
  });
  return child;
}

/** What a program prints. Nothing else happens meanwhile. @param {string} program @param {string[]} words @returns {string} */
export const outputOf = (program, words) =>
  child_process.execFileSync(program, words, { encoding: 'utf8', stdio: 'pipe', timeout: LONGEST, killSignal: 'SIGKILL' });

/** Whether a process runs. One that has ended and that nobody has asked for its exit code does not. @param {number} pid */
function isRunning(pid) {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

/** Resolved when none of these processes runs any more. @param {number[]} pids */
export const ended = (pids) => until(`the end of ${pids.join(', ')}`, () => !pids.some(isRunning));
