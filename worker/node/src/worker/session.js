/**
 * The life of a worker: one job after another. Each is announced before its task runs, and answered when that has ended.
 *
 *   greeting --- setUp, Ready ---> idle <------------------------------------------.
 *                                   |  |                                           |
 *               a job, not cancelled|  | Drain and no job waiting,                 | the answer is sent
 *                                   |  | or the supervisor is gone                 |
 *                                   v  '---> the process exits                     |
 *                                starting                                          |
 *                                   | Started is with the kernel                   |
 *                                   v                                              |
 *                                running --- returns, throws, rejects -------------'
 *                                   '--- an error that nobody caught ---> answered as a panic, the process exits
 *
 * While a task waits for something, the event loop goes on: a Cancel reaches the task's signal. While a task computes, nothing
 * is read; the supervisor ends the process if it has to.
 */

import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { MESSAGE_MAX, PAYLOAD_MAX_CEILING } from '../limits.js';
import { hasCapability, PARTS, VERSION_MAJOR, VERSION_MINOR, WORKER_MAGIC } from '../messages.js';
import { cut } from '../nouns.js';
import { encodePayload, Payload } from '../payload.js';
import { JobContext } from './context.js';
import { Link } from './link.js';
import { inputOf } from './tasks.js';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
/** For people. */
const LIBRARY = `offload for Node ${version}`;
/** The exit code that says that starting this program again is pointless. */
const POINTLESS = 64;
/** What a job used, if nobody has asked: unknown. */
const UNKNOWN = Object.freeze({ cpu_user_us: 0, cpu_system_us: 0, peak_rss_bytes: 0 });
/** A task that has run for so many milliseconds is worth asking what its jobs use: to ask takes some 3 us. */
const MEASURED_FROM = 2;

/** @typedef {{ run: import('../messages.js').Message, input: Buffer, checkpoint?: Buffer, isCancelled: boolean }} Job */

/** A job between Started and its answer. @typedef {{ job: Job, task: import('./tasks.js').Task, context: JobContext, startedAt: number, usage: NodeJS.ResourceUsage | undefined }} Running */

export class Session {
  /** What `setUp` returned. @type {any} */
  state = undefined;
  /** Whether the supervisor takes outputs in parts. */
  sendsParts = false;
  #tasks;
  #link;
  #payloadMax = PAYLOAD_MAX_CEILING;
  /** Jobs that were given and have not started. @type {Job[]} */
  #waiting = [];
  /** @type {Running | undefined} */
  #running;
  /** The checkpoint for the job of the next Run. @type {Buffer | undefined} */
  #checkpoint;
  /** Parts that wait for the answer, because this supervisor takes none. @type {Uint8Array[]} */
  #kept = [];
  #isDraining = false;
  /** After an error that nobody caught, no further job is started. */
  #isBroken = false;

  /** @param {Map<string, import('./tasks.js').Task>} tasks */
  constructor(tasks) {
    this.#tasks = tasks;
    this.#link = new Link({
      onMessage: (message, payload) => this.#onMessage(message, payload),
      onRead: () => this.#work(),
      onEnd: (error) => this.#onEnd(error),
    });
  }

  /** Introduces the worker, and says that it is ready once `setUp` has ended. @param {(() => any) | undefined} setUp */
  async begin(setUp) {
    process.on('uncaughtException', (error) => this.#onUncaught(error));
    const [magic, major, minor] = [WORKER_MAGIC, VERSION_MAJOR, VERSION_MINOR];
    this.send('Hello', { magic, major, minor, capabilities: PARTS, sdk: LIBRARY });
    for (const task of this.#tasks.values()) this.#link.push('Offer', task.offer, task.texts);
    this.state = await setUp?.();
    this.send('Ready');
  }

  /** @param {string} name @param {Record<string, any>} [fields] @param {Uint8Array} [payload] */
  send(name, fields, payload) {
    this.#link.push(name, fields, payload);
    this.#link.flush();
  }

  /** When everything that was sent is with the kernel. */
  flushed() {
    return this.#link.flushed();
  }

  /** Keeps a part of the output until the task returns. @param {Uint8Array} part */
  keepPart(part) {
    const length = this.#kept.reduce((sum, kept) => sum + kept.length, part.length);
    if (length > this.#payloadMax) throw new RangeError(tooLong(length, this.#payloadMax));
    this.#kept.push(Buffer.from(part));
  }

  /** @param {import('../messages.js').Message} message @param {Buffer} payload */
  #onMessage(message, payload) {
    switch (message.type) {
      case 'Welcome': return this.#onWelcome(message);
      case 'Run': {
        this.#waiting.push({ run: message, input: payload, checkpoint: this.#checkpoint, isCancelled: false });
        this.#checkpoint = undefined;
        return;
      }
      case 'Resume': return void (this.#checkpoint = payload);
      case 'Cancel': return this.#onCancel(message.job);
      case 'Credit': return this.#runningAs(message.job)?.context._addCredit(message.bytes);
      case 'Drain': return void (this.#isDraining = true);
      default: return; // Yield may be ignored, and the others belong to capabilities that this worker has not stated
    }
  }

  /** @param {Record<string, any>} welcome */
  #onWelcome({ major, minor, capabilities, payload_max: payloadMax }) {
    if (major !== VERSION_MAJOR) {
      const [theirs, ours] = [`${major}.${minor}`, `${VERSION_MAJOR}.${VERSION_MINOR}`];
      fail(`the supervisor speaks protocol ${theirs}, this worker ${ours}: use the package of the supervisor's release`, POINTLESS);
    }
    this.sendsParts = hasCapability(capabilities, PARTS);
    this.#payloadMax = Number(payloadMax);
  }

  #onCancel(id) {
    this.#runningAs(id)?.context._cancel();
    const waiting = this.#waiting.find((job) => job.run.job === id);
    if (waiting !== undefined) waiting.isCancelled = true;
  }

  /** The job that runs, if it is this one. @param {number | bigint} id */
  #runningAs(id) {
    return this.#running?.job.run.job === id ? this.#running : undefined;
  }

  /** The supervisor is gone, or what it sent is no message. */
  #onEnd(error) {
    if (error) fail(`the supervisor broke the protocol: ${error.message}`, 1);
    process.exit(0);
  }

  /** Starts the next job, unless one runs. */
  #work() {
    if (this.#running !== undefined || this.#isBroken) return;
    let job = this.#waiting.shift();
    while (job?.isCancelled) {
      this.send('Skipped', { job: job.run.job });
      job = this.#waiting.shift();
    }
    if (job !== undefined) this.#start(job);
    else if (this.#isDraining) void this.#leave();
  }

  /** All jobs are answered. */
  async #leave() {
    await this.#link.flushed();
    process.exit(0);
  }

  #start(job) {
    const { job: id, attempt, task: name } = job.run;
    const task = this.#tasks.get(name);
    if (task === undefined) return fail(`the supervisor asked for task ${JSON.stringify(name)}, which is not offered`, 1);
    const context = new JobContext(job, task, this);
    this.#running = { job, task, context, startedAt: 0, usage: undefined };
    this.#link.push('Started', { job: id, attempt });
    if (this.#link.flush()) this.#run(this.#running);
    else this.#link.flushed().then(() => this.#run(/** @type {Running} */ (this.#running)));
  }

  /** Calls the task. What it returns at once is answered at once. @param {Running} running */
  #run(running) {
    const { job, task, context } = running;
    running.startedAt = performance.now();
    if (task.isLong) running.usage = process.resourceUsage();
    let returned;
    try {
      returned = task.run(inputOf(task, job.input, job.run.media_type), context);
    } catch (error) {
      return this.#failed(running, error);
    }
    if (isAsync(returned)) void this.#settle(running, returned);
    else this.#finished(running, returned);
  }

  /** Waits for what the task has promised. Each value of an iterator is a part of the output. */
  async #settle(running, returned) {
    try {
      const value = await returned;
      if (!isIterator(value)) return this.#finished(running, value);
      let isText = true;
      for await (const part of value) {
        isText &&= typeof part === 'string';
        await running.context.write(part);
      }
      this.#finished(running, isText ? '' : Buffer.alloc(0));
    } catch (error) {
      this.#failed(running, error);
    }
  }

  #finished(running, returned) {
    let output;
    try {
      output = this.#outputOf(running.task, returned);
    } catch (error) {
      return this.#failed(running, error);
    }
    this.#answer(running, 'Finished', { media_type: output.contentType }, output.bytes);
  }

  /** What is sent as the output. Throws if it cannot be sent. */
  #outputOf(task, returned) {
    const output = encodePayload(returned, returned instanceof Payload ? undefined : task.produces);
    const bytes = this.#kept.length > 0 ? Buffer.concat([...this.#kept, output.bytes]) : output.bytes;
    if (bytes.length > this.#payloadMax) throw new RangeError(tooLong(bytes.length, this.#payloadMax));
    return { bytes, contentType: output.contentType };
  }

  /** The task threw, or rejected its promise: an error of the application. */
  #failed(running, error) {
    this.#answer(running, 'Failed', { kind: 'app_error', message: cut(messageOf(error), MESSAGE_MAX) });
  }

  /** @param {Running} running @param {string} name @param {Record<string, any>} fields @param {Uint8Array} [payload] */
  #answer(running, name, fields, payload) {
    if (this.#running !== running) return; // it was answered as a panic
    const { job, attempt } = running.job.run;
    const elapsed = performance.now() - running.startedAt;
    if (elapsed >= MEASURED_FROM) running.task.isLong = true;
    running.context._end();
    this.send(name, { job, attempt, run_ns: Math.round(elapsed * 1e6), usage: usageOf(running), ...fields }, payload);
    this.#kept = [];
    this.#running = undefined;
    // The next job gets a turn of the event loop of its own, so that a Cancel that has arrived is read first.
    if (this.#waiting.length > 0 || this.#isDraining) setImmediate(() => this.#work());
  }

  /** An error that no task caught: nobody knows what state the process is in. The job that runs has panicked; the process ends. */
  #onUncaught(error) {
    const running = this.#running;
    this.#isBroken = true;
    process.stderr.write(`offload worker: an error that nobody caught: ${error?.stack ?? String(error)}\n`);
    if (running !== undefined) {
      this.#answer(running, 'Failed', { kind: 'panic', message: cut(messageOf(error), MESSAGE_MAX) });
    }
    this.#link.flushed().then(() => process.exit(1));
  }
}

const isAsync = (value) => typeof value?.then === 'function' || isIterator(value);
const isIterator = (value) =>
  typeof value === 'object' && value !== null &&
  (typeof value[Symbol.asyncIterator] === 'function' || (typeof value.next === 'function' && typeof value[Symbol.iterator] === 'function'));

const tooLong = (length, max) => `the output has ${length} bytes, at most ${max} can be sent`;

/** What the attempt used. @param {Running} running */
function usageOf({ usage: before }) {
  if (before === undefined) return UNKNOWN;
  const now = process.resourceUsage();
  return {
    cpu_user_us: now.userCPUTime - before.userCPUTime,
    cpu_system_us: now.systemCPUTime - before.systemCPUTime,
    peak_rss_bytes: now.maxRSS * 1024,
  };
}

/** The reason for people: with the name of the error, unless that is `Error`. @param {any} error */
function messageOf(error) {
  if (!(error instanceof Error)) return typeof error === 'string' ? error : inspect(error);
  return error.name === 'Error' || error.name === '' ? error.message : `${error.name}: ${error.message}`;
}

/** Ends the process. @param {string} why @param {number} code @returns {never} */
export function fail(why, code) {
  process.stderr.write(`offload worker: ${why}\n`);
  process.exit(code);
}

export { POINTLESS };
