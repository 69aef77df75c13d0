/**
 * What a job is submitted as: its input, and its options. All of it is checked and copied at the call, but for the bytes of the input.
 */

import { checkAsked } from '../nouns.js';
import { encodeInput } from '../payload.js';
import { NOTHING } from '../wire.js';
import { Deadline } from './deadline.js';
import { inputGone, JobError, tooLarge } from './errors.js';
import { checkSignal, submitOptions } from './options.js';

/** What a job that was accepted still holds here of its input. */
const NO_INPUT = { bytes: NOTHING, contentType: '' };

export class Submission {
  #input;
  #length;
  #options;

  /**
   * Throws a TypeError if the input or an option cannot be sent.
   * @param {string} task @param {unknown} input @param {import('./options.js').CallOptions} options @param {boolean} stream
   */
  constructor(task, input, options, stream) {
    this.task = checkAsked('the name of a task', task);
    this.signal = checkSignal(options.signal);
    this.#input = encodeInput(input, options.contentType);
    this.#length = this.#input.bytes.length;
    this.#options = submitOptions(options, this.#input, stream);
    this.deadline = new Deadline(this.#options.deadline_ms);
  }

  /** Whether the job may be that of others, too, because it has a key. Then it is not cancelled. */
  get isShared() {
    return this.#options.idempotency !== null;
  }

  /** Its deadline has passed, and it was not submitted. */
  tooLate() {
    return JobError.tooLate(this.task);
  }

  /**
   * Submits the job. Throws if it cannot be sent; then nothing is. It can be submitted again until it is accepted. The input is the caller's memory, and
   * read until it is sent, or until `keep` of what this returns is called.
   * @param {import('./connection.js').Connection} connection @param {import('./connection.js').Asker} asker
   */
  send(connection, asker) {
    const { bytes, contentType } = this.#input;
    const { left } = this.deadline;
    if (left === 0) throw this.tooLate();
    if (bytes.length !== this.#length) throw inputGone();
    if (bytes.length > connection.payloadMax) throw tooLarge(bytes.length, connection.payloadMax);
    const options = left === Infinity ? this.#options : { ...this.#options, deadline_ms: Math.ceil(left) };
    const fields = { task: this.task, media_type: contentType, detach: false, options };
    return connection.request('Submit', fields, asker, bytes);
  }

  /** The supervisor has the job. */
  accepted() {
    this.#input = NO_INPUT;
    this.#length = 0;
  }
}

/**
 * Asks the supervisor to cancel a job. What becomes of it, the job's own answer says. Returns what is sent, if there is a connection.
 * @param {import('./connection.js').Connection} connection @param {string} job
 */
export function cancel(connection, job) {
  if (connection.lost === undefined) return connection.request('Cancel', { job }, { onMessage: () => true, onLost: () => {} });
}
