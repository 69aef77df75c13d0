/**
 * The streams of a client. Each has a connection of its own, and a supervisor has so many: more wait until others have ended.
 *
 *   begin ---> waiting (bounded) --- fewer than `max` are open ---> open ---> over
 */

import { tooManyWait } from './errors.js';
import { OutputStream } from './stream.js';
import { Waiting } from './waiting.js';

export class Streams {
  /** @type {Waiting<OutputStream>} */
  #waiting = new Waiting();
  /** Those that have a connection, or are given one. @type {Set<OutputStream>} */
  #open = new Set();
  #max;
  #maxWaiting;
  #owner;

  /**
   * @param {number} max @param {number} maxWaiting
   * @param {object} owner
   * @param {() => Promise<import('./connection.js').Connection>} owner.open opens a connection
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
    const isFull = this.#waiting.length >= this.#maxWaiting + this.#max - this.#open.size;
    if (isFull) throw tooManyWait(this.#maxWaiting, 'streams');
    const stream = new OutputStream(submission, () => this.#ended(stream));
    this.#owner.begun();
    this.#waiting.push(stream);
    this.#openWaiting();
    return stream;
  }

  /** All of them end. @param {Error} error of those that were not submitted */
  close(error) {
    for (const stream of [...this.#waiting, ...this.#open]) stream.close(error);
  }

  #openWaiting() {
    while (this.#open.size < this.#max) {
      const stream = this.#waiting.shift();
      if (stream === undefined) return;
      this.#open.add(stream);
      this.#owner.open().then((connection) => stream.begin(connection), (error) => stream.fail(error));
    }
  }

  /** @param {OutputStream} stream */
  #ended(stream) {
    if (this.#open.delete(stream)) this.#openWaiting();
    else this.#waiting.remove(stream);
    this.#owner.ended();
  }
}
