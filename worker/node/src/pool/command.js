/**
 * How the program of a pool's workers is written for `offload serve --worker`.
 */

import { fileURLToPath } from 'node:url';

/**
 * A module is run by this same Node; a list is a program with its arguments; a string is taken as it is.
 * @param {URL | string | string[]} worker
 * @returns {string}
 */
export function commandOf(worker) {
  if (typeof worker === 'string') return worker;
  if (worker instanceof URL) return [process.execPath, fileURLToPath(worker)].map(quote).join(' ');
  if (Array.isArray(worker) && worker.length > 0) return worker.map(quote).join(' ');
  throw new TypeError('`worker` is a URL of a module, a command line, or a list of its words');
}

/** @param {string} word */
const quote = (word) => `'${String(word).replaceAll("'", "'\\''")}'`;
