/**
 * Cuts a stream of bytes into frames: two lengths, a header, a payload. Both lengths are checked before anything is allocated.
 *
 *   collecting --- prefix and header are complete ---> filling --- the payload is complete ---> onFrame, collecting
 *        '--- all of the frame is in the bytes that were pushed: nothing is kept ---------------^
 */

import { HEADER_MAX, PREFIX_BYTES } from './limits.js';
import { Malformed } from './wire.js';

/**
 * What is called with each frame: its header is `bytes[start]` up to `bytes[end]` and is lent until the call returns; the payload
 * is the receiver's own, also if it is empty: it may be transferred to another thread.
 * @typedef {(bytes: Buffer, start: number, end: number, payload: Buffer) => void} OnFrame
 */

export class FrameDecoder {
  /** The start of a frame whose header is not complete. */
  #head = Buffer.allocUnsafeSlow(PREFIX_BYTES + HEADER_MAX);
  #collected = 0;
  /** @type {Buffer | null} */
  #payload = null;
  #filled = 0;

  /** @param {number} payloadMax longest payload, in bytes @param {OnFrame} onFrame */
  constructor(payloadMax, onFrame) {
    this.payloadMax = payloadMax;
    this.onFrame = onFrame;
  }

  /** Whether a part of a frame has arrived, and the rest has not. */
  get isMidFrame() {
    return this.#collected > 0;
  }

  /**
   * Takes the first `length` bytes of `chunk`, which is lent. Throws `Malformed` if they are no valid frames; then nothing more
   * can be read from the stream. What `onFrame` throws is passed on.
   * @param {Buffer} chunk @param {number} [length]
   */
  push(chunk, length = chunk.length) {
    let at = 0;
    while (at < length) {
      if (this.#payload !== null) at = this.#fill(chunk, at, length);
      else if (this.#collected > 0) at = this.#collect(chunk, at, length);
      else at = this.#take(chunk, at, length);
    }
  }

  /** A frame that begins at `chunk[at]`. */
  #take(chunk, at, length) {
    const there = length - at;
    if (there < PREFIX_BYTES) return this.#collect(chunk, at, length);
    const { header, payload } = this.#lengths(chunk, at);
    const start = at + PREFIX_BYTES;
    const end = start + header;
    if (end + payload > length) return this.#collect(chunk, at, length);
    const own = Buffer.allocUnsafe(payload);
    chunk.copy(own, 0, end, end + payload);
    this.onFrame(chunk, start, end, own);
    return end + payload;
  }

  /** Copies what is missing of the prefix and the header. */
  #collect(chunk, at, length) {
    at = this.#copyHead(chunk, at, length, PREFIX_BYTES);
    if (this.#collected < PREFIX_BYTES) return at;
    const { header, payload } = this.#lengths(this.#head, 0);
    at = this.#copyHead(chunk, at, length, PREFIX_BYTES + header);
    if (this.#collected === PREFIX_BYTES + header) {
      this.#payload = Buffer.allocUnsafeSlow(payload);
      this.#filled = 0;
      if (payload === 0) this.#complete();
    }
    return at;
  }

  #copyHead(chunk, at, length, wanted) {
    const end = Math.min(length, at + Math.max(0, wanted - this.#collected));
    chunk.copy(this.#head, this.#collected, at, end);
    this.#collected += end - at;
    return end;
  }

  /** Copies what is missing of the payload. */
  #fill(chunk, at, length) {
    const payload = /** @type {Buffer} */ (this.#payload);
    const end = Math.min(length, at + payload.length - this.#filled);
    chunk.copy(payload, this.#filled, at, end);
    this.#filled += end - at;
    if (this.#filled === payload.length) this.#complete();
    return end;
  }

  #complete() {
    const payload = /** @type {Buffer} */ (this.#payload);
    const end = this.#collected;
    this.#payload = null;
    this.#collected = 0;
    this.onFrame(this.#head, PREFIX_BYTES, end, payload);
  }

  #lengths(bytes, at) {
    const header = bytes.readUInt32LE(at);
    const payload = bytes.readUInt32LE(at + 4);
    if (header === 0 || header > HEADER_MAX) {
      throw new Malformed(`header of ${header} bytes, 1 to ${HEADER_MAX} are allowed`, 'header_length');
    }
    if (payload > this.payloadMax) {
      throw new Malformed(`payload of ${payload} bytes, ${this.payloadMax} are allowed`, 'payload_length');
    }
    return { header, payload };
  }
}
