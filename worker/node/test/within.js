/** How long a test waits for an event that has to come, in milliseconds. A busy machine must not make it fail. */
const LONGEST = 120_000;

/** What the promise gives. @template T @param {string} what @param {Promise<T>} promise @returns {Promise<T>} */
export function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come in ${LONGEST / 1000} s`)), LONGEST);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
