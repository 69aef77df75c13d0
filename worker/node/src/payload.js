/**
 * What JavaScript values are as payloads. Bytes stay bytes, a string is text, and everything else is a JSON document. The media
 * type that travels with a payload says which of them it is.
 */

import { BYTES_TYPE, checkMediaType, isJson, isText, JSON_TYPE, TEXT_TYPE } from './nouns.js';

/** Bytes with a media type of their own, such as a picture: an input of a call, or an output of a task. */
export class Payload {
  /** @param {Uint8Array | ArrayBuffer | string} bytes a string is encoded as UTF-8 @param {string} contentType */
  constructor(bytes, contentType) {
    this.bytes = asBytes(bytes) ?? Buffer.from(String(bytes));
    this.contentType = checkMediaType(contentType);
  }
}

/** The same memory as a `Uint8Array`; undefined if it has no bytes. */
function asBytes(value) {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value);
  return undefined;
}

/**
 * A value as it is sent. `contentType`, if it is given, says what bytes and strings are; if it is a JSON type, anything but bytes
 * becomes a JSON document. Throws a TypeError if the value cannot be written as JSON.
 * @param {unknown} value @param {string} [contentType]
 * @returns {{ bytes: Uint8Array, contentType: string }}
 */
export function encodePayload(value, contentType) {
  if (value instanceof Payload) return value;
  const bytes = asBytes(value);
  if (bytes !== undefined) return { bytes, contentType: contentType ?? BYTES_TYPE };
  if (typeof value === 'string' && !(contentType !== undefined && isJson(contentType))) {
    return { bytes: Buffer.from(value), contentType: contentType ?? TEXT_TYPE };
  }
  const isNamed = contentType !== undefined && (isJson(contentType) || isText(contentType));
  const text = JSON.stringify(value === undefined ? null : value);
  if (text === undefined) throw new TypeError(`a ${typeof value} cannot be written as JSON`);
  return { bytes: Buffer.from(text), contentType: isNamed ? contentType : JSON_TYPE };
}

/**
 * A payload as a value: a JSON document is parsed, text becomes a string, everything else stays bytes.
 * Throws a SyntaxError if a payload that is said to be JSON is none.
 * @param {Buffer} bytes @param {string} contentType
 */
export function decodePayload(bytes, contentType) {
  if (isJson(contentType)) return JSON.parse(bytes.toString());
  return isText(contentType) ? bytes.toString() : bytes;
}
