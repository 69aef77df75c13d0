/**
 * What a running task can ask about its job, how it reports progress, and how it sends parts of its output.
 */

import { format } from 'node:util';
import { CHECKPOINT_MAX, PART_MAX, PARTS_CREDIT } from '../limits.js';
import { bytesOf, Payload, typeOf } from '../payload.js';

/** Time between two reports of progress, in milliseconds, unless the task promised to report more often. */
const PROGRESS_EVERY = 100;

/** Nobody wants the output any more: the job was cancelled, or has ended. */
export class Cancelled extends Error {
  constructor() {
    super('cancelled');
    this.name = 'AbortError';
  }
}

/** The job that a task runs for. */
export class JobContext {
  #job;
  #task;
  #session;
  /** @type {AbortController | undefined} */
  #controller;
  #isCancelled;
  #hasEnded = false;
  #startedAt = performance.now();
  #progressAt = this.#startedAt;
  /** Units of work, as they were reported last. */
  #done = 0;
  #total = 0;
  #credit = PARTS_CREDIT;
  /** Parts that wait for credit. @type {((value?: any) => void)[]} */
  #onCredit = [];
  /** The last part, until it is sent. Rejected for good if a part could not be sent. @type {Promise<void> | undefined} */
  #writing;
  /** The media types of the parts. @type {Set<string>} */
  #partTypes = new Set();

  /** @param {import('./session.js').Job} job @param {import('./tasks.js').Task} task @param {import('./session.js').Session} session */
  constructor(job, task, session) {
    this.#job = job;
    this.#task = task;
    this.#session = session;
    this.#isCancelled = job.isCancelled; // one of a batch runs with the others
  }

  /** The supervisor's number for the job, the same in each of its attempts. @returns {number | bigint} */
  get job() {
    return this.#job.run.job;
  }

  /** Which attempt at the job this is, counted from 1. @returns {number} */
  get attempt() {
    return this.#job.run.attempt;
  }

  /** The media type of the input. @returns {string} */
  get contentType() {
    return this.#job.run.media_type;
  }

  /** What the client attached to the job. @returns {Record<string, string>} */
  get metadata() {
    return Object.fromEntries(this.#job.run.metadata);
  }

  /** What `setUp` returned. */
  get state() {
    return this.#session.state;
  }

  /** The last checkpoint of an earlier attempt, if there is one. @returns {Buffer | undefined} */
  get resumed() {
    return this.#job.checkpoint;
  }

  /** Milliseconds until the supervisor ends this attempt; `Infinity` if there is no limit. */
  get remaining() {
    const { timeout_ms: timeout, deadline_ms: deadline } = this.#job.run;
    const over = Math.min(...[timeout, deadline].filter((limit) => limit !== 0).map(Number), Infinity);
    return Math.max(0, over - (performance.now() - this.#startedAt));
  }

  /** Whether nobody wants the output any more. It changes only while the event loop runs. */
  get cancelled() {
    return this.#isCancelled;
  }

  /** Aborted when nobody wants the output any more. @returns {AbortSignal} */
  get signal() {
    this.#controller ??= new AbortController();
    if (this.#isCancelled && !this.#controller.signal.aborted) this.#controller.abort(new Cancelled());
    return this.#controller.signal;
  }

  /**
   * Reports progress: `done` units of work of `total` (0 if not known). It may be called often: a message is sent at most every
   * 100 ms, or twice in the time that the task promised. It is sent at once, also by a task that never waits. Jobs that run together
   * report none. What is no finite number from 0 on is not reported; to report progress never fails a job.
   * @param {number | bigint} done @param {number | bigint} [total]
   */
  progress(done, total = 0) {
    const { progressEvery } = this.#task;
    const every = progressEvery > 0 ? Math.min(PROGRESS_EVERY, progressEvery / 2) : PROGRESS_EVERY;
    const now = performance.now();
    const isUnits = isCount(done) && isCount(total);
    const units = isUnits ? { done: wholeOf(done), total: wholeOf(total) } : { done: this.#done, total: this.#total };
    // A promise is kept by the report, whatever it says.
    const isNews = progressEvery > 0 || units.done !== this.#done || units.total !== this.#total;
    if (this.#hasEnded || this.#task.runBatch || now - this.#progressAt < every || !isNews) return;
    this.#progressAt = now;
    this.#done = units.done;
    this.#total = units.total;
    this.#send('Progress', units);
  }

  /** Prints a line on standard error. The supervisor's log names the job beside it. @param {...unknown} values as in `console.log` */
  log(...values) {
    process.stderr.write(`${format(...values)}\n`);
  }

  /**
   * Saves a state of at most 65,536 bytes, from which another attempt can go on (`resumed`). Only for a task with `checkpoints`.
   * Throws a RangeError if it is longer, and a TypeError if it is neither bytes nor a string, or if the task has no checkpoints.
   * @param {Uint8Array | ArrayBuffer | string} state
   */
  checkpoint(state) {
    const bytes = bytesOf(state);
    if (!this.#task.offer.task.checkpoints) throw new TypeError(`task ${this.#task.name} was defined without \`checkpoints: true\``);
    if (bytes.length > CHECKPOINT_MAX) throw new RangeError(`a checkpoint of ${bytes.length} bytes, ${CHECKPOINT_MAX} are allowed`);
    if (!this.#hasEnded) this.#send('Checkpoint', {}, bytes);
  }

  /**
   * Sends the next part of the output, behind those of earlier calls and in front of what the task returns. Await the promise: it is
   * resolved when the client has taken enough of the parts before, and rejected with an `AbortError` if nobody wants the output
   * any more. The job is answered when its parts are sent, also if the task does not await them. A part that cannot be sent makes the job
   * fail, also if the task catches the error.
   * @param {Uint8Array | ArrayBuffer | Payload | string} part its bytes are copied. Rejected with a TypeError if it is anything else
   * @returns {Promise<void>}
   */
  write(part) {
    /** @type {Uint8Array} */
    let bytes;
    /** @type {{ error: unknown } | undefined} */
    let refusal;
    try {
      bytes = this.#copyOf(part);
    } catch (error) {
      refusal = { error };
    }
    const send = async () => {
      if (refusal !== undefined) throw refusal.error;
      await this.#writeAll(bytes);
    };
    // Behind a part that was lost none is sent: the promise of each follows from the one before.
    const writing = this.#writing === undefined ? send() : this.#writing.then(send);
    this.#writing = writing;
    const onWritten = () => {
      if (this.#writing === writing) this.#writing = undefined;
    };
    writing.then(onWritten, () => {}); // an error is that of the job, also if nobody waits for it
    return writing;
  }

  /** The bytes of a part, which the task may change now. Throws a TypeError if they cannot be sent. @param {unknown} part */
  #copyOf(part) {
    if (this.#task.runBatch) throw new TypeError('a task with `runBatch` sends no parts');
    const given = part instanceof Payload ? part.bytes : part;
    const bytes = bytesOf(given);
    this.#partTypes.add(typeOf(part, this.#task.produces));
    return typeof given === 'string' ? bytes : Buffer.from(bytes);
  }

  /** Its first pieces are with the kernel when it returns, as far as there is credit. @param {Uint8Array} bytes */
  async #writeAll(bytes) {
    for (let at = 0; at < bytes.length; at += PART_MAX) await this.#writePiece(bytes.subarray(at, at + PART_MAX));
  }

  async #writePiece(piece) {
    while (this.#credit < piece.length && !this.#isOver()) {
      await new Promise((resolve) => this.#onCredit.push(resolve));
    }
    if (this.#isOver()) throw new Cancelled();
    if (!this.#session.sendsParts) return this.#session.keepPart(piece);
    this.#credit -= piece.length;
    this.#send('Part', {}, piece);
    await this.#session.flushed();
  }

  #isOver() {
    return this.#isCancelled || this.#hasEnded;
  }

  /** @param {string} name @param {Record<string, any>} fields @param {Uint8Array} [payload] */
  #send(name, fields, payload) {
    this.#session.send(name, { job: this.job, attempt: this.attempt, ...fields }, payload);
  }

  /** Internal: the parts may have so many bytes more. @param {number | bigint} bytes */
  _addCredit(bytes) {
    this.#credit += Number(bytes);
    this.#tellParts();
  }

  /** Internal: the media types of the parts so far. */
  get _partTypes() {
    return this.#partTypes;
  }

  /** Internal: whether parts are not sent yet, or could not be. */
  get _isWriting() {
    return this.#writing !== undefined;
  }

  /** Internal: when all parts are sent. Rejected if one could not be. */
  async _written() {
    while (this.#writing !== undefined) await this.#writing;
  }

  /** Internal: nobody wants the output any more. */
  _cancel() {
    this.#isCancelled = true;
    this.#controller?.abort(new Cancelled());
    this.#tellParts();
  }

  /** Internal: the job is answered, so nothing more can be sent for it. */
  _end() {
    this.#hasEnded = true;
    this.#tellParts();
  }

  #tellParts() {
    for (const resolve of this.#onCredit.splice(0)) resolve();
  }
}

/** @param {unknown} units */
const isCount = (units) => (typeof units === 'number' && Number.isFinite(units) && units >= 0) || (typeof units === 'bigint' && units >= 0n);

/** Units of work as they are sent. @param {number | bigint} units */
const wholeOf = (units) => Math.min(Math.floor(Number(units)), Number.MAX_SAFE_INTEGER);
