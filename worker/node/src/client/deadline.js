/**
 * The time until nobody wants the output of a call, from the moment of the call. The supervisor is told what is left of it when the job is
 * submitted, and ends the job. Until then this ends the call.
 */

/** The longest time of a timer of Node, in milliseconds. */
const TIMER_MAX = 2 ** 31 - 1;

export class Deadline {
  #at;
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /** @param {number | null} milliseconds from now; null if there is no deadline */
  constructor(milliseconds) {
    this.#at = milliseconds === null ? Infinity : performance.now() + milliseconds;
  }

  /** Milliseconds that are left; none if it has passed, and `Infinity` if there is no deadline. */
  get left() {
    return this.#at === Infinity ? Infinity : Math.max(0, this.#at - performance.now());
  }

  /**
   * Calls `onPassed` when it has passed, and not before this returns. That does not keep the program from ending: what the call waits
   * for does.
   * @param {() => void} onPassed
   */
  watch(onPassed) {
    const { left } = this;
    if (left === Infinity) return;
    const look = () => (this.left === 0 ? onPassed() : this.watch(onPassed)); // a timer may be early
    this.#timer = setTimeout(look, Math.min(left, TIMER_MAX)).unref();
  }

  /** Nobody waits for it any more. */
  stop() {
    clearTimeout(this.#timer);
  }
}
