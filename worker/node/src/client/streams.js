/**
 * The streams of a client. Each has a connection of its own, and a supervisor has so many: there are at most `max` at a time.
 *
 *   begin ---> waiting (bounded) --- fewer than `max` connections ---> greeting ---> open ---> over
 *      |        |  ^                                                    |   |         |
 *      |        |  '--- no room there, and others of this client have --'---+---------'
 *      |        '--- not wanted any more, nobody there ---------------------'-----------------> over
 *      '--- too many wait: an error
 *
 * A stream that is over is forgotten at once, and its connection counts until it is closed at the other end.
 *
 * If the supervisor has no room for another connection, only so many are opened as there are, and one more whenever one of them was closed.
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
  /** How many connections are not closed yet, and how many of them were greeted. */
  #connections = 0;
  #greeted = 0;
  /** For how many the supervisor is believed to have room. */
  #room = Infinity;
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
    const stream = new OutputStream(submission, () => this.#ended(stream), () => this.#waitsAgain(stream));
    this.#owner.begun();
    this.#waiting.push(stream);
    this.#connectWaiting();
    return stream;
  }

  /** All of them end. @param {Error} error of those that were not submitted */
  close(error) {
    for (const stream of [...this.#waiting, ...this.#greeting.keys(), ...this.#open]) stream.close(error);
  }

  /** Opens connections for those that wait, as far as there is room. */
  async #connectWaiting() {
    if (this.#isConnecting) return;
    this.#isConnecting = true;
    try {
      // Nothing is opened before the next microtask: of streams that are aborted together, none gets the place of another.
      await this.#owner.before();
      while (this.#waiting.length > 0 && this.#connections < Math.min(this.#max, this.#room)) this.#connect();
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
    const isGreeted = await this.#greet(connection, stream);
    await connection.closed;
    this.#connections--;
    if (isGreeted) this.#greeted--;
    this.#connectWaiting();
  }

  /** Whether the supervisor has greeted. @param {import('./connection.js').Connection} connection @param {OutputStream} stream */
  async #greet(connection, stream) {
    this.#greeting.set(stream, connection);
    try {
      await this.#owner.greet(connection);
    } catch (error) {
      if (this.#greeting.delete(stream)) this.#refused(stream, error); // otherwise it is over
      return false;
    }
    this.#greeted++;
    if (!this.#greeting.delete(stream)) return true; // so it is here
    this.#open.add(stream);
    stream.begin(connection);
    if (this.#room > this.#greeted || this.#waiting.length === 0) return true;
    this.#room = this.#greeted + 1; // as long as it goes well, another one is tried
    this.#connectWaiting();
    return true;
  }

  /**
   * There is no connection for a stream. Only that nobody is there is true of all.
   * @param {OutputStream} stream @param {import('./errors.js').ConnectionError} error
   */
  #refused(stream, error) {
    if (error.code === 'overloaded' && this.#greeted > 0) return this.#putBack(stream, this.#greeted);
    stream.fail(error);
    if (error.code === 'no_supervisor') this.#failWaiting(error);
  }

  /** The supervisor has no room for a job. Whether its stream waits until another one has ended. @param {OutputStream} stream */
  #waitsAgain(stream) {
    if (!this.#open.has(stream) || this.#greeted < 2) return false;
    this.#open.delete(stream);
    this.#putBack(stream, this.#greeted - 1);
    return true;
  }

  #putBack(stream, room) {
    this.#room = room;
    this.#waiting.putBack(stream);
  }

  /** @param {Error} error */
  #failWaiting(error) {
    for (const stream of [...this.#waiting]) stream.fail(error);
  }

  /** @param {OutputStream} stream */
  #ended(stream) {
    this.#waiting.remove(stream);
    this.#open.delete(stream);
    this.#greeting.get(stream)?.leave();
    this.#greeting.delete(stream);
    this.#owner.ended();
  }
}
