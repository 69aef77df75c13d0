/**
 * The streams of a client. Each has a connection of its own, and a supervisor has so many: there are at most `max` at a time.
 *
 *   begin ---> waiting (bounded) --- fewer than `max` connections ---> greeting ---> open ---> over
 *      |          |                                                       |
 *      |          '--- not wanted any more, no connection to be had ------'--------------------> over
 *      '--- too many wait: an error
 *
 * A stream that is over is forgotten at once, and its connection counts until that is closed.
 */

import { tooManyWait } from './errors.js';
import { OutputStream } from './stream.js';
import { Waiting } from './waiting.js';

export class Streams {
  /** @type {Waiting<OutputStream>} */
  #waiting = new Waiting();
  /** Those whose connection is being opened. @type {Map<OutputStream, import('./connection.js').Connection>} */
  #greeting = new Map();
  /** @type {Set<OutputStream>} */
  #open = new Set();
  /** How many are not closed yet. */
  #connections = 0;
  #isConnecting = false;
  #max;
  #maxWaiting;
  #owner;

  /**
   * @param {number} max @param {number} maxWaiting
   * @param {object} owner
   * @param {() => Promise<unknown>} owner.before what has to be done before a connection
   * @param {() => import('./connection.js').Connection} owner.connect
   * @param {(connection: import('./connection.js').Connection) => Promise<void>} owner.greet
   * @param {() => void} owner.begun there is another stream
   * @param {() => void} owner.ended one is over
   */
  constructor(max, maxWaiting, owner) {
    this.#max = max;
    this.#maxWaiting = maxWaiting;
    this.#owner = owner;
  }

  /** Throws if too many wait, or if its signal is aborted. @param {import('./submission.js').Submission} submission */
  begin(submission) {
    // Who waits only until the connection of a stream that is over is closed does not wait for others.
    const isFull = this.#waiting.length + this.#greeting.size + this.#open.size >= this.#max + this.#maxWaiting;
    if (isFull) throw tooManyWait(this.#maxWaiting, 'streams');
    const stream = new OutputStream(submission, () => this.#ended(stream));
    this.#owner.begun();
    this.#waiting.push(stream);
    this.#connectWaiting();
    return stream;
  }

  /** All of them end. @param {Error} error of those that were not submitted */
  close(error) {
    for (const stream of [...this.#waiting, ...this.#greeting.keys(), ...this.#open]) stream.close(error);
  }

  /** Opens connections for those that wait, as far as there is room. What keeps one from having it keeps all of them. */
  async #connectWaiting() {
    if (this.#isConnecting) return;
    this.#isConnecting = true;
    try {
      // Nothing is opened before the next microtask: of streams that are aborted together, none gets the place of another.
      await this.#owner.before();
      while (this.#waiting.length > 0 && this.#connections < this.#max) this.#connect();
      this.#isConnecting = false;
    } catch (error) {
      this.#isConnecting = false;
      this.#failWaiting(error);
    }
  }

  #connect() {
    const connection = this.#owner.connect();
    this.#connections++;
    this.#use(connection, /** @type {OutputStream} */ (this.#waiting.shift()));
  }

  /** @param {import('./connection.js').Connection} connection @param {OutputStream} stream */
  async #use(connection, stream) {
    await this.#greet(connection, stream);
    await connection.closed;
    this.#connections--;
    this.#connectWaiting();
  }

  /** @param {import('./connection.js').Connection} connection @param {OutputStream} stream */
  async #greet(connection, stream) {
    this.#greeting.set(stream, connection);
    try {
      await this.#owner.greet(connection);
    } catch (error) {
      if (!this.#greeting.has(stream)) return; // it is over, and has closed the connection
      stream.fail(error);
      return this.#failWaiting(error);
    }
    if (!this.#greeting.delete(stream)) return; // so it is here
    this.#open.add(stream);
    stream.begin(connection);
  }

  /** @param {Error} error */
  #failWaiting(error) {
    for (const stream of [...this.#waiting]) stream.fail(error);
  }

  /** @param {OutputStream} stream */
  #ended(stream) {
    this.#waiting.remove(stream);
    this.#open.delete(stream);
    this.#greeting.get(stream)?.close();
    this.#greeting.delete(stream);
    this.#owner.ended();
  }
}
