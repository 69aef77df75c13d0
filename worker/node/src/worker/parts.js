/**
 * Outputs in parts: those of a generator, and what parts are as a whole.
 */

import { BYTES_TYPE, TEXT_TYPE } from '../nouns.js';
import { encodePart, encodePayload, Payload } from '../payload.js';
import { NOTHING } from '../wire.js';

/**
 * Sends each value of an iterator, and what it returns at its end.
 * @param {import('./context.js').JobContext} context @param {any} values @param {string | undefined} produces
 */
export async function sendParts(context, values, produces) {
  for await (const value of withReturned(values)) {
    const { bytes, contentType } = encodePart(value, produces);
    await context.write(new Payload(bytes, contentType));
  }
  return context._partTypes.size === 0 ? new Payload(NOTHING, produces ?? TEXT_TYPE) : undefined;
}

/** A loop over an iterator drops what it returns. */
async function* withReturned(values) {
  const returned = yield* values;
  if (returned !== undefined) yield returned;
}

/**
 * What the answer adds to the parts that were sent, with the media type of the whole: that of all of them, or
 * `application/octet-stream` if they differ, unless the task says what it produces or returns a `Payload`.
 * @param {unknown} returned @param {Set<string>} partTypes of the parts that were sent @param {string | undefined} produces
 * @returns {{ bytes: Uint8Array, contentType: string }}
 */
export function lastPart(returned, partTypes, produces) {
  if (returned instanceof Payload || partTypes.size === 0) return encodePayload(returned, produces);
  if (returned === undefined) return { bytes: NOTHING, contentType: typeOfAll(partTypes, produces) };
  const { bytes, contentType } = encodePart(returned, produces);
  return { bytes, contentType: typeOfAll(new Set([...partTypes, contentType]), produces) };
}

/** @param {Set<string>} types @param {string | undefined} produces @returns {string} */
function typeOfAll(types, produces) {
  const [type] = types;
  return types.size === 1 ? type : (produces ?? BYTES_TYPE);
}
