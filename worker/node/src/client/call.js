/**
 * One job of a client, from the call to its promise.
 *
 *   waiting --- there is room, and a connection ---> sent --- Accepted ---> accepted --- Finished ---> settled
 *    ^ |                                              | '--- Rejected, the connection is lost ----------^
 *    | |--- the signal is aborted: it leaves ---> settled
 *    | '--- its deadline has passed: it leaves ---> settled
 *    '--- once: it is known that it did not get out --'
 *
 *   The signal of a job that was sent is aborted: settled at once; Cancel is sent once its ID is known (not with a key), and its place
 *   stays taken until the supervisor has answered.
 */

import { decodePayload } from '../payload.js';
import { JobError, OutputError, Rejected } from './errors.js';
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
  #signal;
  #onAbort = () => this.#abort();
  #isSettled = false;
  /** It was sent over a connection that turned out to be lost, and is sent again. */
  #isAgain = false;
  #owner;

  /**
   * Throws a TypeError if the input or an option cannot be sent, and the reason of the signal if that is aborted.
   * @param {string} task @param {unknown} input @param {import('./options.js').CallOptions} options
   * @param {object} owner
   * @param {(value: any) => void} owner.resolve
   * @param {(error: Error) => void} owner.reject
   * @param {(call: Call) => void} owner.left it was not sent, and waits no more
   * @param {(call: Call) => void} owner.unsent it did not get out, and waits again
   * @param {(call: Call) => void} owner.ended it was sent, and its place is free again
   */
  constructor(task, input, options, owner) {
    this.#submission = new Submission(task, input, options, false);
    this.#owner = owner;
    this.#signal = this.#submission.signal;
    this.#signal?.throwIfAborted();
    if (this.#signal) listen(this.#signal, this.#onAbort);
    this.#submission.deadline.watch(() => this.#expire());
  }

  /** Submits the job. Its place is taken until `ended` is called. @param {import('./connection.js').Connection} connection */
  send(connection) {
    this.#connection = connection;
    try {
      this.#submission.send(connection, this);
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
        if (this.#isSettled) this.#cancel();
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
    this.#connection = undefined;
    this.#owner.unsent(this);
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
    this.#owner.ended(this);
  }

  #settle(error, result) {
    if (this.#isSettled) return;
    this.#isSettled = true;
    if (this.#signal) forget(this.#signal, this.#onAbort);
    this.#submission.deadline.stop();
    if (error !== undefined) this.#owner.reject(error);
    else this.#owner.resolve(result);
  }

  #abort() {
    this.#settle(this.#signal?.reason);
    if (this.#connection === undefined) this.#owner.left(this);
    else if (this.job !== '') this.#cancel();
  }

  /** A job that was sent is ended by the supervisor. */
  #expire() {
    if (this.#connection !== undefined) return;
    this.#settle(this.#submission.tooLate());
    this.#owner.left(this);
  }

  #cancel() {
    if (!this.#submission.isShared) cancel(/** @type {import('./connection.js').Connection} */ (this.#connection), this.job);
  }
}

/** Everything but the output. @param {Record<string, any>} report */
function resultOf({ job, attempts, media_type: contentType, receipt }) {
  return { contentType, job, attempts, receipt };
}
