/**
 * Options of all kinds: one that is misspelt is told, and not ignored.
 */

/**
 * Throws a TypeError if an object of options has another one than these.
 * @param {string} what whose options they are, such as `a call` @param {object} options @param {readonly string[]} keys
 */
export function checkKeys(what, options, keys) {
  if (typeof options !== 'object' || options === null) throw new TypeError(`the options of ${what} are an object`);
  const unknown = Object.keys(options).find((key) => !keys.includes(key));
  if (unknown !== undefined) throw new TypeError(`${what} has no option ${JSON.stringify(unknown)}; there are ${keys.join(', ')}`);
}

/** Whether an option is set: `null` counts as nothing. @param {unknown} value */
export const isSet = (value) => value !== undefined && value !== null;
