/**
 * A list that is read from its front. Each entry costs the same however long the list is; `shift` of a long array moves all that are behind.
 */

/** So many places that are read already are kept at most, unless the rest is as long. */
const READ_MAX = 1024;

/** @template T */
export class Queue {
  /** @type {(T | undefined)[]} */
  #entries = [];
  /** All before this one are read. */
  #head = 0;

  get length() {
    return this.#entries.length - this.#head;
  }

  /** @returns {T | undefined} */
  get first() {
    return this.#entries[this.#head];
  }

  /** @param {T} entry */
  push(entry) {
    this.#entries.push(entry);
  }

  /** The first one, which is taken out. @returns {T | undefined} */
  shift() {
    if (this.length === 0) return undefined;
    const entry = this.#entries[this.#head];
    this.#entries[this.#head++] = undefined;
    if (this.length === 0) this.clear();
    else if (this.#head > READ_MAX && this.#head > this.length) {
      this.#entries.splice(0, this.#head);
      this.#head = 0;
    }
    return entry;
  }

  clear() {
    this.#entries = [];
    this.#head = 0;
  }
}
