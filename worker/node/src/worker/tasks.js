/**
 * The tasks of a worker: their definitions are checked once, when the worker starts, and become the offers that it makes.
 */

import { ACCEPTED_TYPES_MAX, BATCH_JOBS_MAX, BATCH_WAIT_MAX, DESCRIPTION_MAX, OFFER_TEXTS_MAX, TASKS_OFFERED_MAX } from '../limits.js';
import { toJson } from '../json.js';
import { checkKeys } from '../keys.js';
import { ANY_TYPE, checkMediaType, checkTaskName, isJson, isText, JSON_TYPE, TEXT_TYPE } from '../nouns.js';
import { decodePayload, encodePayload } from '../payload.js';
import { isWellFormed, NOTHING } from '../wire.js';
import { TaskError } from './task_error.js';

/**
 * @typedef {object} Task
 * @property {string} name
 * @property {(input: any, ctx: import('./context.js').JobContext) => any} run
 * @property {((inputs: any[], contexts: import('./context.js').JobContext[]) => any) | undefined} runBatch in place of `run`
 * @property {{ max: number, wait_us: number } | undefined} batching how it takes several jobs at once
 * @property {string | undefined} reads the media type that every input is read as; of text the charset is its own, and JSON is a string
 * @property {string | undefined} produces the media type of outputs that have none of their own
 * @property {number} progressEvery milliseconds; 0 if nothing is promised
 * @property {Record<string, any>} offer the fields of the message
 * @property {Buffer} texts its payload
 * @property {boolean} isLong its last run took some milliseconds
 */

const KEYS = [
  'run', 'idempotent', 'accepts', 'produces', 'description', 'schema', 'example', 'checkpoints', 'progressEvery', 'streams', 'memory',
  'exclusive', 'runBatch', 'batch',
];

/**
 * The tasks by name. Throws a TypeError that names the task and what is wrong with it.
 * @param {Record<string, any>} definitions
 * @returns {Map<string, Task>}
 */
export function defineTasks(definitions) {
  const entries = Object.entries(definitions ?? {});
  if (entries.length === 0 || entries.length > TASKS_OFFERED_MAX) {
    throw new TypeError(`a worker has 1 to ${TASKS_OFFERED_MAX} tasks, these are ${entries.length}`);
  }
  return new Map(entries.map(([name, definition]) => [name, defineTask(name, definition)]));
}

/** @param {string} name @param {any} definition an object, or only the function @returns {Task} */
function defineTask(name, definition) {
  const told = typeof definition === 'function' ? { run: definition } : { ...definition };
  try {
    checkTaskName(name);
    return withOffer(name, told);
  } catch (error) {
    throw new TypeError(`task ${JSON.stringify(name)}: ${error.message}`);
  }
}

function withOffer(name, told) {
  checkShape(told);
  const accepts = [told.accepts ?? []].flat().map(checkMediaType);
  const produces = told.produces === undefined ? undefined : checkMediaType(told.produces);
  const { description = '', progressEvery = 0 } = told;
  const reads = readAs(accepts);
  const { example, schema } = textsOf(told, reads);
  bound('its description', Buffer.byteLength(description), DESCRIPTION_MAX);
  bound('its list of media types', accepts.length, ACCEPTED_TYPES_MAX);
  bound('its example and schema', example.length + schema.length, OFFER_TEXTS_MAX);
  const offer = {
    task: {
      name, idempotent: told.idempotent === true || told.runBatch !== undefined, lane: 'cpu', stepped: false, checkpoints: told.checkpoints === true,
      progress_ms: progressEvery,
    },
    about: {
      description, accepts, produces: produces ?? ANY_TYPE, streams: told.streams ?? isGenerator(told.run),
      memory_bytes: told.memory ?? 0, exclusive: told.exclusive === true,
    },
    example_length: example.length,
    schema_length: schema.length,
  };
  const { run, runBatch } = told;
  const texts = Buffer.concat([example, schema]);
  // A pattern, such as `image/*`, does not say what an output is.
  const outputs = produces?.includes('*') ? undefined : produces;
  return { name, run, runBatch, batching: batchingOf(told), reads, produces: outputs, progressEvery, offer, texts, isLong: false };
}

function checkShape(told) {
  if (typeof (told.runBatch ?? told.run) !== 'function') throw new TypeError('it has no function `run`');
  checkKeys('it', told, KEYS);
  const { progressEvery = 1, memory = 0, description = '' } = told;
  if (typeof description !== 'string' || !isWellFormed(description)) throw new TypeError('`description` is a text');
  if (!Number.isSafeInteger(memory) || memory < 0) throw new TypeError('`memory` is a whole number of bytes');
  if (!Number.isInteger(progressEvery) || progressEvery < 1 || progressEvery > 0xffff_ffff) {
    throw new TypeError('`progressEvery` is a whole number of milliseconds');
  }
}

/** How a task takes several jobs at once, if it does. */
function batchingOf({ run, runBatch, batch, idempotent, checkpoints, streams, progressEvery }) {
  if (runBatch === undefined) {
    if (batch !== undefined) throw new TypeError('it has `batch` and no function `runBatch`');
    return undefined;
  }
  if (run !== undefined || idempotent === false || checkpoints || streams || progressEvery) {
    throw new TypeError('it has `runBatch`: then it has no `run`, is idempotent, and has no checkpoints, parts or promise of progress');
  }
  const bounds = batch ?? {};
  checkKeys('`batch`', bounds, ['max', 'wait']);
  const { max = BATCH_JOBS_MAX, wait = 0 } = bounds;
  const isBounded = Number.isInteger(max) && max >= 2 && max <= BATCH_JOBS_MAX && wait >= 0 && wait <= BATCH_WAIT_MAX;
  if (!isBounded) throw new TypeError(`\`batch\` has \`max\`, 2 to ${BATCH_JOBS_MAX}, and \`wait\`, 0 to ${BATCH_WAIT_MAX} ms`);
  return { max, wait_us: Math.round(wait * 1000) };
}

function bound(what, length, max) {
  if (length > max) throw new TypeError(`${what} has ${length}, ${max} are allowed`);
}

/** The example as an input of this task, and the schema as JSON; each may be empty. */
function textsOf({ example, schema }, reads) {
  return {
    example: example === undefined ? NOTHING : Buffer.from(encodePayload(example, reads).bytes),
    schema: schema === undefined ? NOTHING : Buffer.from(toJson(schema)),
  };
}

/** What all inputs are read as, if everything that the task accepts is read in the same way. */
function readAs(accepts) {
  if (accepts.length === 0 || accepts.includes(ANY_TYPE)) return undefined;
  if (accepts.every(isJson)) return JSON_TYPE;
  if (accepts.every(isText)) return TEXT_TYPE;
  return accepts.some((type) => isJson(type) || isText(type)) ? undefined : accepts[0];
}

const isGenerator = (run) => /GeneratorFunction$/.test(Object.prototype.toString.call(run).slice(8, -1));

/**
 * What the task gets. Throws an Error if the job is not understood, or if its input is not what the task takes.
 * @param {Task} task @param {Pick<import('./session.js').Job, 'run' | 'input' | 'wrong'>} job
 */
export function inputOf(task, { run: { media_type: contentType }, input, wrong }) {
  if (wrong !== undefined) throw new Error(`this worker does not understand the job: ${wrong}`);
  try {
    return task.reads === TEXT_TYPE ? textOf(input, contentType) : decodePayload(input, task.reads ?? contentType);
  } catch (error) {
    throw new TaskError(`the input is not what this task takes: ${error.message}`);
  }
}

/** An input as the text that a task reads: each in its own charset, and of JSON a string. @param {Buffer} input @param {string} contentType */
function textOf(input, contentType) {
  const text = decodePayload(input, isText(contentType) || isJson(contentType) ? contentType : TEXT_TYPE);
  if (typeof text !== 'string') throw new TypeError('it is JSON, and no string');
  return text;
}
