/**
 * Outputs in parts, from the values of a generator.
 */

import { BYTES_TYPE, TEXT_TYPE } from '../nouns.js';
import { encodePart, Payload } from '../payload.js';

/**
 * Sends each value of an iterator, and what it returns at its end. Gives the rest of the output: no bytes, with the media type of
 * the whole, which is that of all parts, or `application/octet-stream` if they differ.
 * @param {import('./context.js').JobContext} context @param {any} values @param {string | undefined} produces
 */
export async function sendParts(context, values, produces) {
  const types = new Set();
  for await (const value of withReturned(values)) {
    const { bytes, contentType } = encodePart(value, produces);
    types.add(contentType);
    await context.write(bytes);
  }
  const [type = produces ?? TEXT_TYPE] = types;
  return new Payload(Buffer.alloc(0), types.size > 1 ? (produces ?? BYTES_TYPE) : type);
}

/** A loop over an iterator drops what it returns. */
async function* withReturned(values) {
  const returned = yield* values;
  if (returned !== undefined) yield returned;
}
