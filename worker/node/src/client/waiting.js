/**
 * A queue of what waits for its turn.
 */

/**
 * Calls, or streams, in their order. To take the first one, or to remove any, costs the same however many there are.
 * @template {{ place: number }} T
 */
export class Waiting {
  /** By their place. @type {Map<number, T>} */
  #calls = new Map();
  /** None has a place before this one. */
  #first = 0;
  #next = 0;

  get length() {
    return this.#calls.size;
  }

  [Symbol.iterator]() {
    return this.#calls.values();
  }

  /** @param {T} call */
  push(call) {
    call.place = this.#next++;
    this.#calls.set(call.place, call);
  }

  /** One that was taken. @param {T} call */
  putBack(call) {
    this.#calls.set(call.place, call);
    this.#first = Math.min(this.#first, call.place);
  }

  /** @param {T} call */
  remove(call) {
    this.#calls.delete(call.place);
  }

  /** The first one, which waits no more. */
  shift() {
    if (this.#calls.size === 0) return undefined;
    while (!this.#calls.has(this.#first)) this.#first++;
    const call = /** @type {T} */ (this.#calls.get(this.#first));
    this.remove(call);
    return call;
  }
}
