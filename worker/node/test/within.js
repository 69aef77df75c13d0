/** Waits of the tests. Each has an end, and what was done for one ends with it. */

/** How long a test waits for an event that has to come, in milliseconds. A busy machine must not make it fail. */
export const LONGEST = 120_000;

/** What the promise gives. @template T @param {string} what @param {Promise<T>} promise @returns {Promise<T>} */
export function within(what, promise, longest = LONGEST) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come in ${longest / 1000} s`)), longest);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until `isSo` says yes, and looks again and again. @param {string} what @param {() => boolean | Promise<boolean>} isSo */
export async function until(what, isSo, longest = LONGEST) {
  let isGivenUp = false;
  const look = async () => {
    while (!isGivenUp && !(await isSo())) await new Promise((resolve) => setImmediate(resolve));
  };
  try {
    await within(what, look(), longest);
  } finally {
    isGivenUp = true;
  }
}

/** The same, but nothing else happens in this program meanwhile. @param {string} what @param {() => boolean} isSo */
export function blockUntil(what, isSo, longest = LONGEST) {
  const end = performance.now() + longest;
  while (!isSo()) if (performance.now() > end) throw new Error(`${what} did not come in ${longest / 1000} s`);
}
