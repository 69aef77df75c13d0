/**
 * The tasks of a worker: their definitions are checked once, when the worker starts, and become the offers that it makes.
 */

import { ACCEPTED_TYPES_MAX, DESCRIPTION_MAX, OFFER_TEXTS_MAX, TASKS_OFFERED_MAX } from '../limits.js';
import { ANY_TYPE, checkMediaType, checkTaskName, isJson, isText, JSON_TYPE, TEXT_TYPE } from '../nouns.js';
import { decodePayload, encodePayload } from '../payload.js';

/**
 * @typedef {object} Task
 * @property {string} name
 * @property {(input: any, ctx: import('./context.js').JobContext) => any} run
 * @property {string | undefined} reads the media type that every input is read as, whatever it says of itself
 * @property {string | undefined} produces the media type of outputs that have none of their own
 * @property {number} progressEvery milliseconds; 0 if nothing is promised
 * @property {Record<string, any>} offer the fields of the message
 * @property {Buffer} texts its payload
 * @property {boolean} isLong it has run for some milliseconds at least once
 */

const KEYS = new Set([
  'run', 'idempotent', 'accepts', 'produces', 'description', 'schema', 'example', 'checkpoints', 'progressEvery', 'streams', 'memory',
  'exclusive',
]);

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
  const { example, schema } = textsOf(told, accepts);
  bound('its description', Buffer.byteLength(description), DESCRIPTION_MAX);
  bound('its list of media types', accepts.length, ACCEPTED_TYPES_MAX);
  bound('its example and schema', example.length + schema.length, OFFER_TEXTS_MAX);
  const offer = {
    task: {
      name, idempotent: told.idempotent === true, lane: 'cpu', stepped: false, checkpoints: told.checkpoints === true,
      progress_ms: progressEvery,
    },
    about: {
      description, accepts, produces: produces ?? ANY_TYPE, streams: told.streams ?? isGenerator(told.run),
      memory_bytes: told.memory ?? 0, exclusive: told.exclusive === true,
    },
    example_length: example.length,
    schema_length: schema.length,
  };
  return { name, run: told.run, reads: readAs(accepts), produces, progressEvery, offer, texts: Buffer.concat([example, schema]), isLong: false };
}

function checkShape(told) {
  if (typeof told.run !== 'function') throw new TypeError('it has no function `run`');
  const unknown = Object.keys(told).find((key) => !KEYS.has(key));
  if (unknown !== undefined) throw new TypeError(`it has no setting ${JSON.stringify(unknown)}; there are ${[...KEYS].join(', ')}`);
  const { progressEvery = 1 } = told;
  if (!Number.isInteger(progressEvery) || progressEvery < 1 || progressEvery > 0xffff_ffff) {
    throw new TypeError('`progressEvery` is a whole number of milliseconds');
  }
}

function bound(what, length, max) {
  if (length > max) throw new TypeError(`${what} has ${length}, ${max} are allowed`);
}

/** The example as an input of this task, and the schema as JSON; each may be empty. */
function textsOf({ example, schema }, accepts) {
  const reads = readAs(accepts);
  return {
    example: example === undefined ? Buffer.alloc(0) : Buffer.from(encodePayload(example, reads).bytes),
    schema: schema === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(schema)),
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

/** What the task gets. Throws an Error if the input is not what the task takes. @param {Task} task @param {Buffer} bytes @param {string} contentType */
export function inputOf(task, bytes, contentType) {
  try {
    return decodePayload(bytes, task.reads ?? contentType);
  } catch (error) {
    throw new Error(`the input is not what this task takes: ${error.message}`);
  }
}
