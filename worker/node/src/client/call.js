/**
 * One job of a client, from the call to its promise.
 *
 *   waiting --- there is room, and a connection ---> sent --- Accepted ---> accepted --- Finished ---> settled
 *      |                                              '--- Rejected, the connection is lost ------------^
 *      '--- the signal is aborted ---> settled        the signal is aborted: settled at once; Cancel is sent once its ID is known
 *                                                     (not with a key), and its place stays taken until the supervisor has answered
 */

import { decodePayload, encodePayload } from '../payload.js';
import { JobError, OutputError, Rejected, tooLarge } from './errors.js';
import { submitOptions } from './options.js';

/** What a job that was sent still holds here of its input. */
const NOTHING = { bytes: Buffer.alloc(0), contentType: '' };

export class Call {
  /** The job's ID, once it is accepted. */
  job = '';
  /** @type {import('./connection.js').Connection | undefined} */
  #connection;
  #task;
  #input;
  #options;
  #deadline;
  #signal;
  #onAbort = () => this.#abort();
  #isSettled = false;
  #resolve;
  #reject;
  #ended;

  /**
   * Throws a TypeError if the input or an option cannot be sent.
   * @param {string} task @param {unknown} input @param {import('./options.js').CallOptions} options
   * @param {object} owner
   * @param {(value: any) => void} owner.resolve
   * @param {(error: Error) => void} owner.reject
   * @param {(call: Call) => void} owner.ended its place is free again
   */
  constructor(task, input, options, { resolve, reject, ended }) {
    this.#task = task;
    this.#input = encodePayload(input, options.contentType);
    this.#options = submitOptions(options, this.#input, false);
    this.#deadline = this.#options.deadline_ms === null ? Infinity : performance.now() + this.#options.deadline_ms;
    this.#signal = options.signal;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#ended = ended;
    this.#signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** Whether nobody waits for it any more. */
  get isSettled() {
    return this.#isSettled;
  }

  /** Submits the job. Its place is taken until `ended` is called. @param {import('./connection.js').Connection} connection */
  send(connection) {
    this.#connection = connection;
    const { bytes, contentType } = this.#input;
    if (bytes.length > connection.payloadMax) return this.#end(tooLarge(bytes.length, connection.payloadMax));
    const fields = { task: this.#task, media_type: contentType, detach: false, options: this.#remainingOptions() };
    this.#input = NOTHING;
    try {
      connection.request('Submit', fields, this, bytes);
    } catch (error) {
      this.#end(error);
    }
  }

  /** The time that the job has waited here counts for its deadline. */
  #remainingOptions() {
    if (this.#deadline === Infinity) return this.#options;
    return { ...this.#options, deadline_ms: Math.max(1, Math.ceil(this.#deadline - performance.now())) };
  }

  /** @param {import('../messages.js').Message} message @param {Buffer} payload */
  onMessage(message, payload) {
    switch (message.type) {
      case 'Accepted':
        this.job = message.job;
        if (this.#isSettled) this.#cancel();
        return false;
      case 'Finished':
        this.#finish(message.report, payload);
        return true;
      case 'Rejected':
        this.#end(new Rejected(message.code, message.message, message.retry_after_ms));
        return true;
      default:
        return false;
    }
  }

  /** @param {import('./errors.js').ConnectionError} error */
  onLost(error) {
    this.#end(JobError.indeterminate(this.#task, this.job, error.message));
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
    this.#ended(this);
  }

  #settle(error, result) {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#signal?.removeEventListener('abort', this.#onAbort);
    if (error !== undefined) this.#reject(error);
    else this.#resolve(result);
  }

  #abort() {
    this.#settle(this.#signal?.reason);
    if (this.job !== '') this.#cancel();
  }

  /** A job with a key may be that of others, too, so it goes on. */
  #cancel() {
    if (this.#options.idempotency === null) cancel(/** @type {import('./connection.js').Connection} */ (this.#connection), this.job);
  }
}

/** Everything but the output. @param {Record<string, any>} report */
function resultOf({ job, attempts, media_type: contentType, receipt }) {
  return { contentType, job, attempts, receipt };
}

/** Asks the supervisor to cancel a job. What becomes of it, the job's own answer says. @param {import('./connection.js').Connection} connection @param {string} job */
export function cancel(connection, job) {
  if (connection.lost === undefined) connection.request('Cancel', { job }, { onMessage: () => true, onLost: () => {} });
}
