/**
 * A question to the supervisor, which is answered by a document.
 */

import { ConnectionError, Rejected } from './errors.js';

/** Waits for one answer. */
export class Question {
  #resolve;
  #reject;
  #unsent;
  #ended;

  constructor(resolve, reject, unsent, ended) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#unsent = unsent;
    this.#ended = ended;
  }

  /** @param {import('./connection.js').Connection} connection @param {string} name @param {Record<string, any>} fields */
  send(connection, name, fields) {
    try {
      connection.request(name, fields, this);
    } catch (error) {
      this.onLost(error, error instanceof ConnectionError);
    }
  }

  onMessage(message, payload) {
    if (message.type === 'Rejected') this.#reject(Rejected.by(message));
    else this.#answer(payload);
    this.#ended();
    return true;
  }

  #answer(payload) {
    try {
      this.#resolve(JSON.parse(payload.toString()));
    } catch (error) {
      this.#reject(new ConnectionError('protocol', `the supervisor broke the protocol: ${error.message}`));
    }
  }

  onLost(error, isUnsent) {
    if (isUnsent) this.#unsent(error);
    else this.#reject(error);
    this.#ended();
  }
}
