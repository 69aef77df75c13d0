/**
 * The output of a job as its task sends it. Each stream has a connection of its own, which is read only as fast as the program
 * takes the parts: whoever reads slowly makes the task wait, and nobody else.
 *
 *   waiting --- its turn, and a connection ---> submitted --- Accepted ---> accepted --- Finished ---> over
 *    | ^                                           | '--- Rejected, the connection is lost ----------^
 *    | '--- no room while others are open ---------'
 *      '--- no connection, the deadline has passed, the signal is aborted, nobody reads on ---> over
 *
 *   Of a job that was submitted nobody wants the parts any more, by the signal or because the program reads no further: Cancel is sent
 *   as soon as its ID is known. Then it is over, and so it is if the ID does not come in time. A job of which the supervisor has not got all is over
 *   at once: the rest is not sent.
 *
 * Parts that have arrived can be read when it is over. Only an abort drops them.
 */

import { patiently } from '../patience.js';
import { Queue } from '../queue.js';
import { GIVE_UP_TIMEOUT } from './connection.js';
import { inputGone, JobError, Rejected } from './errors.js';
import { forget, listen } from './signals.js';
import { cancel } from './submission.js';

/** Nothing more is read while so many bytes of parts wait here. */
const HELD_MAX = 256 << 10;
/** What a part takes beside its bytes: there may be many without any. */
const PART_COST = 256;

/** The supervisor disconnects who reads nothing for so long while something is ready, in milliseconds. */
const PATIENCE_OF_SUPERVISOR = 10_000;
/** If no part was taken for so long, everything has been sent that will be: the rest is read, so that the end is seen. */
const HOLD_MAX = PATIENCE_OF_SUPERVISOR + 1000;
/** The rest has at most so many bytes: what fits into the buffers on the way. If there is more, it is not the rest: the task sends slowly. */
const REST_MAX = 1 << 20;

/** The parts that have arrived, and how it goes on. */
export class OutputStream {
  /** Its place among the streams that wait. */
  place = 0;
  /** @type {Queue<Buffer>} */
  #parts = new Queue();
  #held = 0;
  #heldMax = HELD_MAX;
  #isHolding = false;
  /** When that began, or a part was taken since, and how long it has lasted at most without that, in milliseconds. */
  #holdingSince = 0;
  #longestHold = 0;
  /** @type {NodeJS.Timeout | undefined} */
  #holdTimer;
  /** Nothing more comes. */
  #isOver = false;
  /** Nobody wants the parts that are still to come. */
  #isAbandoned = false;
  /** Nobody reads the parts that have come. */
  #isLeft = false;
  /** How it ended, behind the parts that came before. @type {{ error: Error } | undefined} */
  #failure;
  #onChange = () => {};
  #job = '';
  /** @type {import('./connection.js').Connection | undefined} */
  #connection;
  #submission;
  /** The submission on its way. @type {import('./outbox.js').Sending | undefined} */
  #sending;
  #stopWaiting = () => {};
  #signal;
  #onAbort = () => this.#abort();
  #ended;
  #waitsAgain;

  /**
   * Throws the reason of the signal if that is aborted.
   * @param {import('./submission.js').Submission} submission @param {() => void} ended called once: the job is over here
   * @param {() => boolean} [waitsAgain] the supervisor has no room for the job: whether it is submitted again later
   */
  constructor(submission, ended, waitsAgain = () => false) {
    this.#waitsAgain = waitsAgain;
    this.#submission = submission;
    this.#signal = submission.signal;
    this.#ended = ended;
    this.#signal?.throwIfAborted();
    if (this.#signal) listen(this.#signal, this.#onAbort);
    submission.deadline.watch(() => this.#expire());
  }

  /** Submits the job, on a connection that nobody else has. @param {import('./connection.js').Connection} connection */
  begin(connection) {
    this.#connection = connection;
    try {
      this.#sending = this.#submission.send(connection, this);
    } catch (error) {
      this.#end(error);
    }
  }

  /** It was not submitted, and will not be. @param {Error} error */
  fail(error) {
    this.#end(error);
  }

  /** The client is closed. @param {Error} error of a job that was not submitted */
  close(error) {
    if (this.#connection === undefined) this.#end(error);
    else this.#connection.close();
  }

  /** The parts in their order. Whoever reads no further abandons the job. @returns {AsyncGenerator<Buffer, void, void>} */
  async *read() {
    try {
      for (let part = await this.#next(); part !== undefined; part = await this.#next()) yield part;
    } finally {
      this.leave();
    }
  }

  /** Nobody reads on. Whoever waits for a part is told that there are no more. */
  leave() {
    this.#isLeft = true;
    this.#onChange();
    this.#abandon();
  }

  /** @param {import('../messages.js').Message} message @param {Buffer} payload */
  onMessage(message, payload) {
    if (message.type === 'Accepted') this.#accepted(message.job);
    if (payload.length > 0 && !this.#isAbandoned) this.#add(payload);
    if (message.type === 'Finished') this.#end(message.report.outcome === 'ok' ? undefined : new JobError(message.report));
    if (message.type === 'Rejected') this.#rejected(Rejected.by(message));
    return this.#isOver;
  }

  /** @param {import('./errors.js').ConnectionError} error @param {boolean} isUnsent */
  onLost(error, isUnsent) {
    if (isUnsent) return this.#end(error);
    this.#end(this.#indeterminate(error.message));
  }

  onInputGone() {
    this.#end(inputGone());
  }

  /** @param {Rejected} error */
  #rejected(error) {
    if (error.code !== 'overloaded' || this.#isAbandoned || !this.#waitsAgain()) return this.#end(error);
    this.#connection?.leave();
    this.#connection = undefined;
    this.#sending = undefined;
  }

  #accepted(job) {
    this.#job = job;
    this.#submission.accepted();
    if (this.#isAbandoned) this.#cancel();
  }

  #add(part) {
    this.#parts.push(part);
    this.#held += part.length + PART_COST;
    this.#regulate();
    this.#onChange();
  }

  /** Nothing more is read while many parts wait here, unless nothing more can come that somebody wants. */
  #regulate() {
    if (this.#held < HELD_MAX) this.#heldMax = HELD_MAX;
    this.#hold(this.#held >= this.#heldMax && !this.#isOver && !this.#isAbandoned);
  }

  /** What the program could take while it was busy with something else is not held against it: it looks once more after a poll. */
  #waitForReader(milliseconds) {
    this.#holdTimer = setTimeout(() => setImmediate(() => this.#lookAtReader()), milliseconds);
  }

  /** Nobody takes the parts. Whether more can come is seen only by who reads on; if much more comes, nobody will take that, either. */
  #lookAtReader() {
    if (!this.#isHolding) return;
    const left = HOLD_MAX - (performance.now() - this.#holdingSince);
    if (left > 0) return this.#waitForReader(left);
    if (this.#heldMax > HELD_MAX) return this.#end(this.#indeterminate('the client closed the connection'));
    this.#heldMax = HELD_MAX + REST_MAX;
    this.#regulate();
  }

  #hold(isHolding) {
    if (isHolding === this.#isHolding) return;
    this.#isHolding = isHolding;
    if (isHolding) {
      this.#holdingSince = performance.now();
      this.#waitForReader(HOLD_MAX);
    } else {
      clearTimeout(this.#holdTimer);
      this.#noteHold();
    }
    this.#connection?.hold(isHolding);
  }

  #noteHold() {
    const now = performance.now();
    this.#longestHold = Math.max(this.#longestHold, now - this.#holdingSince);
    this.#holdingSince = now;
  }

  /** @param {string} why */
  #indeterminate(why) {
    this.#hold(false);
    const seconds = Math.round(this.#longestHold / 1000);
    const more = this.#longestHold < PATIENCE_OF_SUPERVISOR ? '' : `: no part was taken for ${seconds} s, and 10 s are allowed`;
    return JobError.indeterminate(this.#submission.task, this.#job, why + more);
  }

  /** @param {Error} [error] */
  #end(error) {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#signal) forget(this.#signal, this.#onAbort);
    this.#submission.deadline.stop();
    this.#stopWaiting();
    this.#regulate();
    if (error !== undefined) this.#failure ??= { error };
    this.#connection?.leave();
    this.#onChange();
    this.#ended();
  }

  /** The next part, or nothing behind the last one. Rejected if the job ended badly. @returns {Promise<Buffer | undefined>} */
  async #next() {
    if (this.#isOver && this.#signal?.aborted) this.#drop(); // nothing listens to the signal any more
    while (this.#parts.length === 0 || this.#isLeft) {
      if (this.#isLeft) return undefined;
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#isOver) return undefined;
      await new Promise((resolve) => (this.#onChange = () => resolve(undefined)));
    }
    const part = /** @type {Buffer} */ (this.#parts.shift());
    this.#held -= part.length + PART_COST;
    if (this.#isHolding) this.#noteHold();
    this.#regulate();
    return part;
  }

  /** A job that was submitted is ended by the supervisor. */
  #expire() {
    if (this.#connection === undefined) this.#end(this.#submission.tooLate());
  }

  #abort() {
    this.#drop();
    this.#onChange();
    this.#abandon();
  }

  /** Nobody wants the parts any more, not even those that have arrived. */
  #drop() {
    this.#parts.clear();
    this.#held = 0;
    this.#failure = { error: this.#signal?.reason };
  }

  /** Nobody wants what is still to come. */
  #abandon() {
    const isKnown = this.#isAbandoned;
    this.#isAbandoned = true;
    this.#regulate();
    if (this.#isOver || isKnown) return;
    if (this.#connection === undefined) this.#end();
    else if (this.#job !== '') this.#cancel();
    else if (this.#sending !== undefined && !this.#connection.isOut(this.#sending)) this.#end();
    else this.#stopWaiting = patiently(GIVE_UP_TIMEOUT, () => this.#end());
  }

  #cancel() {
    cancel(/** @type {import('./connection.js').Connection} */ (this.#connection), this.#job);
    this.#end();
  }
}
