/**
 * A queue of what waits for its turn.
 */

/**
 * Calls, or streams, in their order. To take the first one, or to remove any, costs the same however many there are.
 * @template {{ place: number }} T
 */
export class Waiting {
  /** By their place. @type {Map<number, T>} */
  #entries = new Map();
  /** None has a place before this one. */
  #first = 0;
  #next = 0;

  get length() {
    return this.#entries.size;
  }

  [Symbol.iterator]() {
    return this.#entries.values();
  }

  /** @param {T} entry */
  push(entry) {
    entry.place = this.#next++;
    this.#entries.set(entry.place, entry);
  }

  /** One that was taken. @param {T} entry */
  putBack(entry) {
    this.#entries.set(entry.place, entry);
    this.#first = Math.min(this.#first, entry.place);
  }

  /** @param {T} entry */
  remove(entry) {
    this.#entries.delete(entry.place);
  }

  /** The first one, which waits no more. */
  shift() {
    if (this.#entries.size === 0) return undefined;
    while (!this.#entries.has(this.#first)) this.#first++;
    const entry = /** @type {T} */ (this.#entries.get(this.#first));
    this.remove(entry);
    return entry;
  }
}
