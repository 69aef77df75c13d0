/**
 * Tests, each of which has an end, and ends what it has started, whatever becomes of it: otherwise the process of its file would stay when a
 * test fails, and the run with it.
 */

import nodeTest from 'node:test';
import { Pool as PoolOfUsers } from '../index.js';
import { LONGEST, within } from './within.js';

/** How long a test may take, in milliseconds. Several of its waits may have been long. */
const TEST_LONGEST = 2 * LONGEST;

/** What ends what the test that runs has started. @type {(() => unknown)[] | undefined} */
let ends;

/** The test that runs, or ran last. */
let latest = 'none';

// What runs the files asks one that does not end. It can answer unless it computes.
process.on('SIGUSR2', () => console.log(`its last test: ${latest}; what keeps it from ending: ${process.getActiveResourcesInfo().join(', ')}`));

/** Has something ended when the test ends, the last one first. At once if none runs, as behind one that took too long. @param {() => unknown} end */
export function atEnd(end) {
  if (ends === undefined) void end();
  else ends.push(end);
}

/** @param {string} name a sentence @param {() => unknown} body */
export function test(name, body, longest = TEST_LONGEST) {
  return nodeTest(name, async () => {
    const mine = (ends = []);
    latest = name;
    try {
      await within('the end of the test', Promise.resolve().then(body), longest);
    } finally {
      if (ends === mine) ends = undefined; // the next test may have begun, if an error that nobody caught ended this one
      await within('the end of what the test has started', endAll(mine));
    }
  });
}

/** @param {(() => unknown)[]} all one that throws costs no other */
async function endAll(all) {
  const outcomes = await Promise.allSettled(all.reverse().map(async (end) => end()));
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}

/**
 * Runs `body`, and then `end`, once: when `body` has ended, or the test has, if that is before.
 * @template T @param {() => unknown} end @param {() => Promise<T>} body @returns {Promise<T>}
 */
export async function withEnd(end, body) {
  let ended;
  const endOnce = () => (ended ??= (async () => end())());
  atEnd(endOnce);
  try {
    return await body();
  } finally {
    await endOnce();
  }
}

/** A pool that ends with its test. */
export class Pool extends PoolOfUsers {
  /** @param {any} [options] */
  constructor(options) {
    super(options);
    atEnd(() => this.end());
  }
}
