/**
 * Jobs that run together, in one call of their task.
 *
 *   all of them ---> runBatch --- as many results as jobs ---> each job is answered when its own is there: an output, or an Error
 *    ^                  '-------- it throws, or returns another number of results ---> one job: that is its error
 *    '--- each half of them <--------------------------------------------------------- several: nobody knows whose fault it is
 */

import { isError } from '../json.js';
import { inputOf } from './tasks.js';

/**
 * @typedef {import('./session.js').Member} Member
 * @typedef {{ member: Member, input: unknown }} Given
 */

/**
 * Who is told the result of each job, once.
 * @typedef {object} Answers
 * @property {(member: Member, value: unknown) => Promise<void>} returned resolved when the job is answered
 * @property {(member: Member, error: unknown) => void} failed
 */

/**
 * Runs the jobs. One whose input is not what the task takes fails alone, and its task does not get it. Resolved when all are answered.
 * @param {import('./tasks.js').Task} task @param {Member[]} members @param {Answers} answers
 */
export async function runTogether(task, members, answers) {
  /** @type {Given[]} */
  const given = [];
  for (const member of members) {
    try {
      given.push({ member, input: inputOf(task, member.job) });
    } catch (error) {
      answers.failed(member, error);
    }
  }
  await runApart(task, given, answers);
}

/** @param {import('./tasks.js').Task} task @param {Given[]} given @param {Answers} answers */
async function runApart(task, given, answers) {
  if (given.length === 0) return;
  let outputs;
  try {
    outputs = await outputsOf(task, given);
  } catch (error) {
    if (given.length === 1) return answers.failed(given[0].member, error);
    const half = given.length >> 1;
    await runApart(task, given.slice(0, half), answers);
    return runApart(task, given.slice(half), answers);
  }
  await Promise.all(given.map(({ member }, index) => answer(member, outputs[index], answers)));
}

/** @param {import('./tasks.js').Task} task @param {Given[]} given @returns {Promise<unknown[]>} outputs, or promises of them */
async function outputsOf(task, given) {
  const outputs = await task.runBatch?.(given.map(({ input }) => input), given.map(({ member }) => member.context));
  if (Array.isArray(outputs) && outputs.length === given.length) return outputs;
  disown(outputs);
  const count = Array.isArray(outputs) ? outputs.length : 'no list of';
  throw new Error(`it returned ${count} results for ${given.length} jobs`);
}

/** @param {Member} member @param {unknown} output or a promise of it @param {Answers} answers */
async function answer(member, output, answers) {
  let value;
  try {
    value = await output;
  } catch (error) {
    return answers.failed(member, error);
  }
  if (isError(value)) answers.failed(member, value);
  else await answers.returned(member, value);
}

/** Results that are refused: nobody waits for the promises among them, and that they are rejected is no error that nobody caught. @param {unknown} outputs */
function disown(outputs) {
  if (Array.isArray(outputs)) for (const output of outputs) Promise.resolve(output).catch(() => {});
}
