/**
 * Waits for something that another process has to do.
 */

/**
 * Calls `onLate` after so many milliseconds, unless what this returns is called before. Once they have passed, the event loop polls once more: what
 * has come while this program was busy, or stopped, is seen first, so nobody is blamed for a pause of this program. It does not keep the program from
 * ending; only that poll does, which does not wait.
 * @param {number} milliseconds @param {() => void} onLate
 */
export function patiently(milliseconds, onLate) {
  /** @type {NodeJS.Immediate | undefined} */
  let polled;
  const timer = setTimeout(() => (polled = setImmediate(onLate)), milliseconds).unref();
  return () => {
    clearTimeout(timer);
    clearImmediate(polled);
  };
}
