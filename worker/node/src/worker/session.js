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
import { PAYLOAD_MAX_CEILING } from '../limits.js';
import {
  BATCHES, ENDS, hasCapability, PARTS, REASONS, VERSION_MAJOR, VERSION_MINOR, WORKER_CAPABILITIES, WORKER_MAGIC,
} from '../messages.js';
import { runTogether } from './batches.js';
import { Cancelled, JobContext } from './context.js';
import { failureOf, traceOf } from './failure.js';
import { Link } from './link.js';
import { lastPart, sendParts } from './parts.js';
import { Shares } from './shares.js';
import { inputOf } from './tasks.js';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
/** For people. */
const LIBRARY = `offload for Node ${version}`;
/** The exit code that says that starting this program again is pointless. */
const POINTLESS = 64;
/** If the last run of a task took so many milliseconds, it is asked what the next one uses. */
const MEASURED_FROM = 2;
/** Jobs that together took fewer milliseconds than this may run without a look between them at what has arrived: to look takes a tiny job's time. */
const UNPOLLED_MAX = 1;

/**
 * A job that was given. If something of its description is not understood, that is its failure, and not the end of the worker.
 * @typedef {{ run: import('../messages.js').Message, input: Buffer, wrong?: string, checkpoint?: Buffer, isCancelled: boolean }} Job
 */

/** A job between Started and its answer. @typedef {{ job: Job, context: JobContext, isAnswered: boolean }} Member */

/**
 * What runs: one job, or several of a task that run together.
 * @typedef {{ task: import('./tasks.js').Task, members: Member[], shares: Shares }} Running
 */

export class Session {
  /** What `setUp` returned. @type {any} */
  state = undefined;
  /** Whether the supervisor takes outputs in parts. */
  sendsParts = false;
  #takesBatches = false;
  /** Whether the supervisor understands how a program ended. */
  #saysEnds = false;
  #saysReasons = false;
  #tasks;
  #link;
  #payloadMax = PAYLOAD_MAX_CEILING;
  /** Jobs that were given and have not started; those that run together are one entry. @type {Job[][]} */
  #waiting = [];
  /** Jobs of a batch that has not arrived as a whole, and how many are to come. @type {Job[]} */
  #gathering = [];
  #toGather = 0;
  /** @type {Running | undefined} */
  #running;
  /** The checkpoint for the job of the next Run. @type {Buffer | undefined} */
  #checkpoint;
  /** Parts that wait for the answer, because this supervisor takes none. @type {Uint8Array[]} */
  #kept = [];
  #isDraining = false;
  /** After an error that nobody caught, no further job is started. */
  #isBroken = false;
  /** How many milliseconds jobs took since it was certain that the event loop polled. */
  #unpolled = 0;
  /** The event loop has polled, and nothing has run since but what is called here. */
  #isBehindPoll = false;
  #workBehindPoll = () => {
    this.#isBehindPoll = true;
    this.#work();
    this.#isBehindPoll = false;
  };

  /** Resolved by Welcome. */
  #welcomed = () => {};
  #welcome = new Promise((resolve) => (this.#welcomed = () => resolve(undefined)));

  /** @param {Map<string, import('./tasks.js').Task>} tasks */
  constructor(tasks) {
    this.#tasks = tasks;
    this.#link = new Link({
      onMessage: (message, payload, wrong) => this.#onMessage(message, payload, wrong),
      onRead: () => this.#work(),
      onEnd: (error) => this.#onEnd(error),
    });
  }

  /** Introduces the worker, and says that it is ready once `setUp` has ended. @param {(() => any) | undefined} setUp */
  async begin(setUp) {
    process.on('uncaughtException', (error) => this.#onUncaught(error));
    const [magic, major, minor] = [WORKER_MAGIC, VERSION_MAJOR, VERSION_MINOR];
    this.send('Hello', { magic, major, minor, capabilities: WORKER_CAPABILITIES, sdk: LIBRARY });
    // Whether it may be said which tasks take several jobs at once, the supervisor has to say.
    if ([...this.#tasks.values()].some((task) => task.batching)) await this.#welcome;
    for (const task of this.#tasks.values()) this.#offer(task);
    this.state = await setUp?.();
    this.send('Ready');
  }

  #offer({ offer, texts, batching }) {
    this.send('Offer', offer, texts);
    if (batching && this.#takesBatches) this.send('OfferBatch', { batching });
  }

  /** @param {string} name @param {Record<string, any>} [fields] @param {Uint8Array} [payload] @param {boolean} [isLent] it may be changed at once */
  send(name, fields, payload, isLent) {
    this.#link.send(name, fields, payload, isLent);
  }

  /** When everything that was sent is with the kernel. */
  flushed() {
    return this.#link.flushed();
  }

  /** Keeps a part of the output until the task returns. @param {Uint8Array} part */
  keepPart(part) {
    const length = this.#kept.reduce((sum, kept) => sum + kept.length, part.length);
    if (length > this.#payloadMax) throw new RangeError(tooLong(length, this.#payloadMax));
    this.#kept.push(part);
  }

  /** @param {import('../messages.js').Message} message @param {Buffer} payload @param {string} [wrong] what is not understood */
  #onMessage(message, payload, wrong) {
    switch (message.type) {
      case 'Welcome': return this.#onWelcome(message);
      case 'Run': return this.#onRun(message, payload, wrong);
      case 'Batch': return void (this.#toGather = message.jobs);
      case 'Resume': return void (this.#checkpoint = payload);
      case 'Cancel': return this.#onCancel(message.job);
      case 'Credit': return this.#member(message.job)?.context._addCredit(message.bytes);
      case 'Drain': return void (this.#isDraining = true);
      default: return; // Yield may be ignored, and the others belong to capabilities that this worker has not stated
    }
  }

  #onRun(run, input, wrong) {
    this.#gathering.push({ run, input, wrong, checkpoint: this.#checkpoint, isCancelled: false });
    this.#checkpoint = undefined;
    this.#toGather--;
    if (this.#toGather > 0) return;
    this.#waiting.push(this.#gathering);
    this.#gathering = [];
    this.#toGather = 0;
  }

  /** @param {Record<string, any>} welcome */
  #onWelcome({ major, minor, capabilities, payload_max: payloadMax }) {
    if (major !== VERSION_MAJOR) {
      const [theirs, ours] = [`${major}.${minor}`, `${VERSION_MAJOR}.${VERSION_MINOR}`];
      fail(`the supervisor speaks protocol ${theirs}, this worker ${ours}: use the package of the supervisor's release`, POINTLESS);
    }
    this.sendsParts = hasCapability(capabilities, PARTS);
    this.#takesBatches = hasCapability(capabilities, BATCHES);
    this.#saysEnds = hasCapability(capabilities, ENDS);
    this.#saysReasons = hasCapability(capabilities, REASONS);
    this.#payloadMax = Number(payloadMax);
    this.#welcomed();
  }

  #onCancel(id) {
    this.#member(id)?.context._cancel();
    const waiting = [...this.#waiting.flat(), ...this.#gathering].find((job) => job.run.job === id);
    if (waiting !== undefined) waiting.isCancelled = true;
  }

  /** A job that runs. @param {number | bigint} id */
  #member(id) {
    return this.#running?.members.find((member) => member.job.run.job === id);
  }

  /** The supervisor is gone, or what it sent is no message. */
  #onEnd(error) {
    if (error) fail(`the supervisor broke the protocol: ${error.message}`, 1);
    process.exit(0);
  }

  /** Starts the next job, unless one runs. */
  #work() {
    if (this.#running !== undefined || this.#isBroken) return;
    let jobs = this.#waiting.shift();
    // Those that were given together are answered together.
    while (jobs?.length === 1 && jobs[0].isCancelled) {
      this.send('Skipped', { job: jobs[0].run.job });
      jobs = this.#waiting.shift();
    }
    if (jobs !== undefined) this.#start(jobs);
    else if (this.#isDraining) void this.#leave();
  }

  /** All jobs are answered. */
  async #leave() {
    await this.#link.flushed();
    process.exit(0);
  }

  /** @param {Job[]} jobs of one task */
  #start(jobs) {
    const { job, attempt, task: name } = jobs[0].run;
    const task = this.#tasks.get(name);
    if (task === undefined) return fail(`the supervisor asked for task ${JSON.stringify(name)}, which is not offered`, 1);
    const members = jobs.map((each) => ({ job: each, context: new JobContext(each, task, this), isAnswered: false }));
    const running = { task, members, shares: new Shares(members.length) };
    this.#running = running;
    if (this.#link.send('Started', { job, attempt })) this.#run(running);
    else this.#link.flushed().then(() => this.#run(running));
  }

  /** Calls the task. What it returns at once is answered at once. @param {Running} running */
  #run(running) {
    if (this.#isBroken) return; // it was answered as a panic, before Started was with the kernel
    const { task, members } = running;
    running.shares.begin(task.isLong);
    if (task.runBatch) return void this.#runTogether(running);
    const [member] = members;
    let returned;
    try {
      returned = task.run(inputOf(task, member.job), member.context);
      if (isAsync(returned) || member.context._isWriting) return void this.#settle(running, member, returned);
    } catch (error) {
      return this.#failed(running, member, error);
    }
    this.#finished(running, member, returned);
  }

  /** Waits for what the task has promised, and for the parts that it has written. Each value of an iterator is a part of the output. */
  async #settle(running, member, returned) {
    let output;
    try {
      const value = await returned;
      output = isIterator(value) ? await sendParts(member.context, value, running.task.produces) : value;
      await member.context._written();
    } catch (error) {
      return this.#failed(running, member, error);
    }
    this.#finished(running, member, output);
  }

  /** @param {Running} running */
  #runTogether(running) {
    if (running.members.every(({ context }) => context.cancelled)) {
      return running.members.forEach((member) => this.#failed(running, member, new Cancelled()));
    }
    return runTogether(running.task, running.members, {
      returned: (member, value) => this.#settle(running, member, value),
      failed: (member, error) => this.#failed(running, member, error),
    });
  }

  #finished(running, member, returned) {
    let output;
    try {
      output = this.#outputOf(running.task, member.context, returned);
    } catch (error) {
      return this.#failed(running, member, error);
    }
    this.#answer(running, member, 'Finished', { media_type: output.contentType }, output.bytes);
  }

  /** What is sent as the output. Throws if it cannot be sent. */
  #outputOf(task, context, returned) {
    const output = lastPart(returned, context._partTypes, task.produces);
    const bytes = this.#kept.length > 0 ? Buffer.concat([...this.#kept, output.bytes]) : output.bytes;
    if (bytes.length > this.#payloadMax) throw new RangeError(tooLong(bytes.length, this.#payloadMax));
    return { bytes, contentType: output.contentType };
  }

  /** The task threw, or rejected its promise: an error of the application. */
  #failed(running, member, error) {
    const { kind, message } = failureOf(error);
    const isUnderstood = kind === 'deliberate' ? this.#saysReasons : this.#saysEnds;
    this.#answer(running, member, 'Failed', { kind: isUnderstood ? kind : 'app_error', message });
  }

  /** @param {Running} running @param {Member} member @param {string} name @param {Record<string, any>} fields @param {Uint8Array} [payload] */
  #answer(running, member, name, fields, payload) {
    if (this.#running !== running || member.isAnswered) return; // it was answered as a panic
    const { job, attempt } = member.job.run;
    const { share, elapsed } = running.shares.take();
    running.task.isLong = elapsed >= MEASURED_FROM;
    this.#unpolled += elapsed;
    member.isAnswered = true;
    member.context._end();
    const goesOn = running.members.some((each) => !each.isAnswered); // with memory that it may use again
    try {
      this.send(name, { job, attempt, ...share, ...fields }, payload, goesOn);
    } catch (error) {
      // Nothing of it was written, because a field cannot be sent, such as a media type that the task has changed.
      this.send('Failed', { job, attempt, ...share, kind: 'app_error', message: failureOf(error).message });
    }
    this.#kept = [];
    if (running.members.every((each) => each.isAnswered)) this.#ended();
  }

  #ended() {
    this.#running = undefined;
    if (this.#waiting.length === 0 && !this.#isDraining) return;
    // Between two jobs the event loop polls, so that a Cancel that has arrived meanwhile is read first. An immediate of the phase behind the poll runs
    // behind the next one; any other may run before that, which is good enough behind jobs that took no time.
    if (this.#isBehindPoll || this.#unpolled < UNPOLLED_MAX) return void setImmediate(this.#workBehindPoll);
    this.#unpolled = 0;
    setImmediate(() => setImmediate(this.#workBehindPoll));
  }

  /**
   * An error that no task caught: nobody knows what state the process is in, so it ends. A job that runs alone has panicked; of
   * several that run together nobody knows whose fault it is, and the supervisor finds out by running them apart.
   */
  #onUncaught(error) {
    const running = this.#running;
    this.#isBroken = true;
    process.stderr.write(`offload worker: an error that nobody caught: ${traceOf(error)}\n`);
    if (running?.members.length === 1) {
      this.#answer(running, running.members[0], 'Failed', { kind: 'panic', message: failureOf(error).message });
    }
    this.#link.flushed().then(() => process.exit(1));
  }
}

const isAsync = (value) => typeof value?.then === 'function' || isIterator(value);
const isIterator = (value) =>
  typeof value === 'object' && value !== null &&
  (typeof value[Symbol.asyncIterator] === 'function' || (typeof value.next === 'function' && typeof value[Symbol.iterator] === 'function'));

const tooLong = (length, max) => `the output has ${length} bytes, at most ${max} can be sent`;

/** Ends the process. @param {string} why @param {number} code @returns {never} */
export function fail(why, code) {
  process.stderr.write(`offload worker: ${why}\n`);
  process.exit(code);
}

export { POINTLESS };
