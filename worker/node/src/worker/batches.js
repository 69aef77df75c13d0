/**
 * Jobs that run together, in one call of their task.
 *
 *   all of them ---> runBatch --- as many results as jobs ---> each job has its own: an output, an Error, or a promise of them
 *    ^                  '-------- it throws, or returns another number of results ---> one job: that is its error
 *    '--- each half of them <--------------------------------------------------------- several: nobody knows whose fault it is
 */

import { isError } from '../json.js';
import { inputOf } from './tasks.js';

/**
 * @typedef {import('./session.js').Member} Member
 * @typedef {{ member: Member, value?: unknown, error?: unknown }} Result it has failed if it has an error, which may be undefined
 */

/**
 * The result of each job. One whose input is not what the task takes fails alone, and its task does not get it.
 * @param {import('./tasks.js').Task} task @param {Member[]} members
 * @returns {Promise<Result[]>}
 */
export async function resultsOf(task, members) {
  /** @type {Result[]} */
  const failed = [];
  const given = [];
  for (const member of members) {
    try {
      given.push({ member, input: inputOf(task, member.job) });
    } catch (error) {
      failed.push({ member, error });
    }
  }
  return [...failed, ...(await runApart(task, given))];
}

/** @param {import('./tasks.js').Task} task @param {{ member: Member, input: unknown }[]} given @returns {Promise<Result[]>} */
async function runApart(task, given) {
  if (given.length === 0) return [];
  try {
    return await runOnce(task, given);
  } catch (error) {
    if (given.length === 1) return [{ member: given[0].member, error }];
    const half = given.length >> 1;
    return [...(await runApart(task, given.slice(0, half))), ...(await runApart(task, given.slice(half)))];
  }
}

async function runOnce(task, given) {
  const outputs = await task.runBatch(given.map(({ input }) => input), given.map(({ member }) => member.context));
  if (!Array.isArray(outputs) || outputs.length !== given.length) {
    const count = Array.isArray(outputs) ? outputs.length : 'no list of';
    throw new Error(`it returned ${count} results for ${given.length} jobs`);
  }
  const settled = await Promise.allSettled(outputs);
  return given.map(({ member }, index) => {
    const { status, value, reason } = /** @type {any} */ (settled[index]);
    if (status === 'rejected') return { member, error: reason };
    return isError(value) ? { member, error: value } : { member, value };
  });
}
