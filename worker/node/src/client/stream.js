/**
 * The output of a job as its task sends it. Each stream has a connection of its own, which is read only as fast as the program
 * takes the parts: whoever reads slowly makes the task wait, and nobody else.
 */

import { encodePayload } from '../payload.js';
import { cancel } from './call.js';
import { JobError, Rejected, tooLarge } from './errors.js';
import { submitOptions } from './options.js';

/** Nothing more is read while so many bytes of parts wait here. */
const HELD_MAX = 256 << 10;

/** The supervisor disconnects who reads nothing for so long while something is ready, in milliseconds. */
const PATIENCE_OF_SUPERVISOR = 10_000;

/** The parts that have arrived, and how it goes on. */
class Parts {
  /** @type {Buffer[]} */
  #parts = [];
  #held = 0;
  #isHolding = false;
  /** When that began, and how long it has lasted at most, in milliseconds. */
  #holdingSince = 0;
  #longestHold = 0;
  #isOver = false;
  #isAbandoned = false;
  /** @type {Error | undefined} */
  #error;
  #onChange = () => {};
  #job = '';
  #connection;
  #task;

  /** @param {import('./connection.js').Connection} connection @param {string} task */
  constructor(connection, task) {
    this.#connection = connection;
    this.#task = task;
  }

  onMessage(message, payload) {
    if (message.type === 'Accepted') this.#accepted(message.job);
    if (payload.length > 0) this.#add(payload);
    if (message.type === 'Finished') return this.#end(message.report.outcome === 'ok' ? undefined : new JobError(message.report));
    if (message.type === 'Rejected') return this.#end(new Rejected(message.code, message.message, message.retry_after_ms));
    return false;
  }

  onLost(error) {
    this.#hold(false);
    const seconds = Math.round(this.#longestHold / 1000);
    const why = this.#longestHold < PATIENCE_OF_SUPERVISOR ? '' : `: no part was taken for ${seconds} s, and 10 s are allowed`;
    this.#end(JobError.indeterminate(this.#task, this.#job, error.message + why));
  }

  #accepted(job) {
    this.#job = job;
    if (this.#isAbandoned) this.abandon();
  }

  #add(part) {
    this.#parts.push(part);
    this.#held += part.length;
    this.#hold(this.#held >= HELD_MAX);
    this.#onChange();
  }

  #hold(isHolding) {
    if (isHolding === this.#isHolding) return;
    this.#isHolding = isHolding;
    if (isHolding) this.#holdingSince = performance.now();
    else this.#longestHold = Math.max(this.#longestHold, performance.now() - this.#holdingSince);
    this.#connection.hold(isHolding);
  }

  /** @param {Error | undefined} error */
  #end(error) {
    if (!this.#isOver) this.#error = error;
    this.#isOver = true;
    this.#onChange();
    return true;
  }

  /** Nobody wants the parts any more, not even those that have arrived. @param {Error} reason */
  abort(reason) {
    this.#parts = [];
    this.#isOver = false;
    this.#end(reason);
  }

  /** The next part, or nothing behind the last one. Rejected if the job ended badly. @returns {Promise<Buffer | undefined>} */
  async next() {
    while (this.#parts.length === 0) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#isOver) return undefined;
      await new Promise((resolve) => (this.#onChange = () => resolve(undefined)));
    }
    const part = /** @type {Buffer} */ (this.#parts.shift());
    this.#held -= part.length;
    this.#hold(this.#held >= HELD_MAX);
    return part;
  }

  /** Cancels the job, as soon as its ID is known, and ends the connection. */
  abandon() {
    this.#isAbandoned = true;
    this.#hold(false);
    if (this.#job === '' && this.#connection.lost === undefined) return;
    cancel(this.#connection, this.#job);
    this.#connection.closeWhenWritten();
  }
}

/**
 * Submits a job on a connection, which it closes at the end, and gives the parts of its output. If the program stops reading, the
 * job is cancelled.
 * @param {import('./connection.js').Connection} connection
 * @param {string} task @param {unknown} input @param {import('./options.js').CallOptions} options
 * @returns {AsyncGenerator<Buffer, void, void>}
 */
export async function* readStream(connection, task, input, options) {
  const { signal } = options;
  const parts = new Parts(connection, task);
  const onAbort = () => parts.abort(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    submit(connection, parts, task, input, options);
    for (let part = await parts.next(); part !== undefined; part = await parts.next()) yield part;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    if (connection.waiting > 0) parts.abandon();
    else connection.closeWhenWritten();
  }
}

function submit(connection, parts, task, input, options) {
  const { bytes, contentType } = encodePayload(input, options.contentType);
  if (bytes.length > connection.payloadMax) throw tooLarge(bytes.length, connection.payloadMax);
  const fields = { task, media_type: contentType, detach: false, options: submitOptions(options, { bytes, contentType }, true) };
  connection.request('Submit', fields, parts, bytes);
}
