/**
 * What JavaScript values are as payloads. Bytes stay bytes, a string is text, and everything else is a JSON document. The media
 * type that travels with a payload says which of them it is.
 */

import buffer from 'node:buffer';
import { decodeAs, isAscii } from './charsets.js';
import { nameOf, toJson } from './json.js';
import { BYTES_TYPE, checkMediaType, isJson, isText, JSON_LINES_TYPE, JSON_TYPE, TEXT_TYPE } from './nouns.js';
import { isWellFormed } from './wire.js';

/** Bytes with a media type of their own, such as a picture: an input of a call, or an output of a task. */
export class Payload {
  /**
   * Throws a TypeError if they are no bytes and no text, or if the type is none.
   * @param {Uint8Array | ArrayBuffer | string} bytes a string is encoded as UTF-8 @param {string} contentType
   */
  constructor(bytes, contentType) {
    this.contentType = checkMediaType(contentType);
    this.bytes = bytesOf(bytes, contentType);
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
 * The bytes of what is bytes or text already. Throws a TypeError for anything else.
 * @param {unknown} value @param {string} [contentType] what a string is to be
 * @returns {Uint8Array}
 */
export function bytesOf(value, contentType = TEXT_TYPE) {
  if (typeof value === 'string') return encodeText(value, contentType);
  const bytes = asBytes(value);
  if (bytes === undefined) throw new TypeError(`${nameOf(value)} is neither bytes nor a string`);
  return bytes;
}

/** The media type of a `Payload`, of bytes or of a string. @param {unknown} value @param {string} [contentType] what bytes and strings are */
export function typeOf(value, contentType) {
  if (value instanceof Payload) return value.contentType;
  return contentType ?? (typeof value === 'string' ? TEXT_TYPE : BYTES_TYPE);
}

/**
 * A value as it is sent. `contentType`, if it is given, says what bytes and strings are; if it is a JSON type, anything but bytes
 * becomes a JSON document. Throws a TypeError if the value cannot be written as JSON.
 * @param {unknown} value @param {string} [contentType]
 * @returns {{ bytes: Uint8Array, contentType: string }}
 */
export function encodePayload(value, contentType) {
  if (value instanceof Payload) return { bytes: bytesOf(value.bytes), contentType: value.contentType };
  const bytes = asBytes(value);
  if (bytes !== undefined) return { bytes, contentType: contentType ?? BYTES_TYPE };
  if (typeof value === 'string' && !(contentType !== undefined && isJson(contentType))) {
    return { bytes: encodeText(value, contentType ?? TEXT_TYPE), contentType: contentType ?? TEXT_TYPE };
  }
  const isNamed = contentType !== undefined && (isJson(contentType) || isText(contentType));
  const type = isNamed ? contentType : JSON_TYPE;
  return { bytes: encodeText(toJson(value), type), contentType: type };
}

/**
 * An input as it is sent. A media type that is given beside it is that of the input, or a TypeError: it is never ignored.
 * @param {unknown} value @param {string} [contentType]
 */
export function encodeInput(value, contentType) {
  if (contentType !== undefined) checkMediaType(contentType);
  const input = encodePayload(value, contentType);
  checkMediaType(input.contentType); // that of a Payload may have been changed
  if (contentType === undefined || input.contentType === contentType) return input;
  if (value instanceof Payload) throw new TypeError(`this Payload is ${JSON.stringify(input.contentType)}, and not ${JSON.stringify(contentType)}`);
  throw new TypeError(`${nameOf(value)} is sent as JSON, which is not ${JSON.stringify(contentType)}`);
}

/**
 * One of several values that make an output together: bytes and strings as they are, everything else as a line of JSON.
 * @param {unknown} value @param {string} [contentType] what all of them are
 * @returns {{ bytes: Uint8Array, contentType: string }}
 */
export function encodePart(value, contentType) {
  if (value instanceof Payload) return encodePayload(value);
  if (typeof value === 'string') return { bytes: encodeText(value, contentType ?? TEXT_TYPE), contentType: contentType ?? TEXT_TYPE };
  const bytes = asBytes(value);
  if (bytes !== undefined) return { bytes, contentType: contentType ?? BYTES_TYPE };
  return { bytes: Buffer.from(`${toJson(value)}\n`), contentType: contentType ?? JSON_LINES_TYPE };
}

/**
 * A payload as a value: a JSON document is parsed, text becomes a string, everything else stays bytes.
 * Throws a SyntaxError or a TypeError if the bytes are not what the media type says: nothing is replaced by other characters.
 * @param {Buffer} bytes @param {string} contentType
 */
export function decodePayload(bytes, contentType) {
  if (isJson(contentType)) return JSON.parse(decodeUtf8(bytes));
  return isText(contentType) ? decodeText(bytes, contentType) : bytes;
}

/**
 * A string in UTF-8. Throws a TypeError if it would be read as another one: it has half of a surrogate pair, or its media type
 * states another charset, also if these bytes happen to be the same there; only in ASCII they are for sure.
 * @param {string} text @param {string} contentType
 * @returns {Buffer}
 */
function encodeText(text, contentType) {
  if (!isWellFormed(text)) throw new TypeError('a text with half of a surrogate pair cannot be sent');
  const bytes = Buffer.from(text);
  const charset = charsetOf(contentType);
  const isSame = charset === UTF_8 || (isAscii(charset) && bytes.length === text.length);
  if (!isSame) {
    throw new TypeError(`a string is sent as UTF-8, its media type says ${charset}: encode it, and send the bytes`);
  }
  return bytes;
}

/** @param {Buffer} bytes @param {string} contentType */
function decodeText(bytes, contentType) {
  const charset = charsetOf(contentType);
  return charset === UTF_8 ? decodeUtf8(bytes) : decodeAs(bytes, charset);
}

/** @param {Buffer} bytes */
function decodeUtf8(bytes) {
  if (!isUtf8(bytes)) throw new TypeError('it is not UTF-8');
  return bytes.toString();
}

const isUtf8 = buffer.isUtf8 ?? isUtf8Slowly; // Node 18.14

/** @param {Buffer} bytes */
function isUtf8Slowly(bytes) {
  try {
    return new TextDecoder(UTF_8, { fatal: true }).decode(bytes) !== undefined;
  } catch {
    return false;
  }
}

const UTF_8 = 'utf-8';

/** In which charset a text is: UTF-8 unless its media type names another one. JSON is always UTF-8. @param {string} contentType */
function charsetOf(contentType) {
  if (contentType === TEXT_TYPE || !isText(contentType)) return UTF_8;
  const parameters = contentType.matchAll(/;[ \t]*([^=;\s]+)=("(?:[^"\\]|\\.)*"|[^;\s]*)/g);
  const stated = [...parameters].find(([, name]) => name.toLowerCase() === 'charset')?.[2] ?? UTF_8;
  const charset = stated.replace(/^"(.*)"$/, '$1').toLowerCase();
  return charset === 'utf8' ? UTF_8 : charset;
}
