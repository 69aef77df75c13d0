/**
 * One job of a client, from the call to its promise.
 *
 *   waiting --- there is room, and a connection ---> sent --- Accepted ---> accepted --- Finished ---> settled
 *    ^ |                                              | '--- Rejected, the connection is lost ----------^
 *    | |--- the signal is aborted: it leaves ---> settled
 *    | '--- its deadline has passed: it leaves ---> settled
 *    '--- once: it is known that it did not get out --'
 *
 *   The signal of a job that was sent is aborted, or the memory of its input is gone before all of it was sent: settled at once. Cancel is sent once its
 *   ID is known, and its place stays taken until the supervisor has answered. An aborted job with a key goes on for others, and its place is free at once.
 *   Either keeps the program from ending only until what has to be sent is out, or has had its time.
 */

import { decodePayload } from '../payload.js';
import { patiently } from '../patience.js';
import { GIVE_UP_TIMEOUT } from './connection.js';
import { inputGone, JobError, OutputError, Rejected } from './errors.js';
import { forget, listen } from './signals.js';
import { cancel, Submission } from './submission.js';

export class Call {
  /** The job's ID, once it is accepted. */
  job = '';
  /** Its place among the calls that wait. */
  place = 0;
  /** @type {import('./connection.js').Connection | undefined} */
  #connection;
  #submission;
  /** The input on its way, until the job is accepted. @type {import('./outbox.js').Sending | undefined} */
  #sending;
  #signal;
  #onAbort = () => this.#abort();
  #isSettled = false;
  #hasPlace = false;
  #isDone = false;
  #stopWaiting = () => {};
  /** It was sent over a connection that turned out to be lost, and is sent again. */
  #isAgain = false;
  /** Not all of its input was sent: nobody else may have the job. */
  #isSpoilt = false;
  #owner;

  /**
   * Throws a TypeError if the input or an option cannot be sent, and the reason of the signal if that is aborted.
   * @param {string} task @param {unknown} input @param {import('./options.js').CallOptions} options
   * @param {object} owner
   * @param {(value: any) => void} owner.resolve
   * @param {(error: Error) => void} owner.reject
   * @param {(call: Call) => void} owner.left it was not sent, and waits no more
   * @param {(call: Call) => void} owner.unsent it did not get out: its place is free, and it waits again
   * @param {(call: Call) => void} owner.freed it was sent, and its place is free again
   * @param {(call: Call) => void} owner.done it was sent, and nothing has to be done for it any more
   */
  constructor(task, input, options, owner) {
    this.#submission = new Submission(task, input, options, false);
    this.#owner = owner;
    this.#signal = this.#submission.signal;
    this.#signal?.throwIfAborted();
    if (this.#signal) listen(this.#signal, this.#onAbort);
    this.#submission.deadline.watch(() => this.#expire());
  }

  /** Submits the job. Its place is taken until `freed` or `unsent` is called. @param {import('./connection.js').Connection} connection */
  send(connection) {
    this.#connection = connection;
    this.#hasPlace = true;
    try {
      this.#sending = this.#submission.send(connection, this);
    } catch (error) {
      this.#end(error);
    }
  }

  /** @param {import('../messages.js').Message} message @param {Buffer} payload */
  onMessage(message, payload) {
    switch (message.type) {
      case 'Accepted':
        this.job = message.job;
        this.#submission.accepted();
        this.#sending = undefined;
        if (this.#isSettled && !this.#goesOn) this.#cancel();
        return false;
      case 'Finished':
        this.#finish(message.report, payload);
        return true;
      case 'Rejected':
        this.#end(Rejected.by(message));
        return true;
      default:
        return false;
    }
  }

  /** @param {import('./errors.js').ConnectionError} error @param {boolean} isUnsent */
  onLost(error, isUnsent) {
    if (!isUnsent) return this.#end(JobError.indeterminate(this.#submission.task, this.job, error.message));
    if (this.#isSettled || this.#isAgain) return this.#end(error);
    if (this.#submission.deadline.left === 0) return this.#end(this.#submission.tooLate());
    this.#isAgain = true;
    this.#hasPlace = false;
    this.#connection = undefined;
    this.#owner.unsent(this);
  }

  onInputGone() {
    this.#isSpoilt = true;
    if (!this.#isSettled) this.#giveUp(inputGone());
  }

  /** It was not sent, and will not be. @param {Error} error */
  fail(error) {
    this.#settle(error);
  }

  #finish(report, payload) {
    if (report.outcome !== 'ok') return this.#end(new JobError(report));
    const told = { bytes: payload, ...resultOf(report) };
    let output;
    try {
      output = decodePayload(payload, report.media_type);
    } catch (error) {
      return this.#end(new OutputError(error, told));
    }
    this.#end(undefined, { output, ...told });
  }

  /** @param {Error} [error] @param {object} [result] */
  #end(error, result) {
    this.#settle(error, result);
    this.#free();
    this.#done();
  }

  #free() {
    if (!this.#hasPlace) return;
    this.#hasPlace = false;
    this.#owner.freed(this);
  }

  #done() {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#stopWaiting();
    this.#owner.done(this);
  }

  #settle(error, result) {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#sending?.keep(); // the memory of the input is the caller's own again
    if (this.#signal) forget(this.#signal, this.#onAbort);
    this.#submission.deadline.stop();
    if (error !== undefined) this.#owner.reject(error);
    else this.#owner.resolve(result);
  }

  /** Whether the job goes on for others if nobody waits for it here. */
  get #goesOn() {
    return this.#submission.isShared && !this.#isSpoilt;
  }

  #abort() {
    this.#giveUp(this.#signal?.reason);
  }

  #giveUp(reason) {
    this.#settle(reason);
    const connection = this.#connection;
    if (connection === undefined) return this.#owner.left(this);
    this.#stopWaiting = patiently(GIVE_UP_TIMEOUT, () => {
      connection.giveUp();
      this.#done();
    });
    if (this.#goesOn) this.#giveAway(connection);
    else if (this.job !== '') this.#cancel();
  }

  /** A job that was sent is ended by the supervisor. */
  #expire() {
    if (this.#connection !== undefined) return;
    this.#settle(this.#submission.tooLate());
    this.#owner.left(this);
  }

  #cancel() {
    const connection = /** @type {import('./connection.js').Connection} */ (this.#connection);
    const sending = cancel(connection, this.job);
    if (sending !== undefined) connection.whenOut(sending, () => this.#done());
  }

  /** The job is that of others, who have the same key. @param {import('./connection.js').Connection} connection */
  #giveAway(connection) {
    if (this.#sending === undefined) this.#done();
    else connection.whenOut(this.#sending, () => this.#done());
    this.#free();
  }
}

/** Everything but the output. @param {Record<string, any>} report */
function resultOf({ job, attempts, media_type: contentType, receipt }) {
  return { contentType, job, attempts, receipt };
}
