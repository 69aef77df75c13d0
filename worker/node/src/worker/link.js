/**
 * The worker's end of its socket, which is descriptor 0: messages come in through the event loop and go out at once.
 *
 * A message is written by a system call of its own, so it is with the kernel when `flush` returns, unless the supervisor is slow
 * to read. That is what a worker owes before it starts a task: if the process ends after that, everybody knows whose job it was.
 */

import fs from 'node:fs';
import net from 'node:net';
import { INLINE_PAYLOAD_MAX, PAYLOAD_MAX_CEILING, READ_CHUNK } from '../limits.js';
import { FROM_WORKER, TO_WORKER } from '../messages.js';
import { FrameDecoder } from '../frame.js';

const CHANNEL = 0;

/** Whether this process was started by a supervisor. */
export function hasChannel() {
  try {
    return fs.fstatSync(CHANNEL).isSocket();
  } catch {
    return false;
  }
}

export class Link {
  /** Frames that wait to be written. @type {Uint8Array[]} */
  #unsent = [];
  /** @type {net.Socket} */
  #socket;

  /**
   * @param {object} owner
   * @param {(message: import('../messages.js').Message, payload: Buffer) => void} owner.onMessage
   * @param {() => void} owner.onRead all messages of one read have been told
   * @param {(error?: Error) => void} owner.onEnd there is nothing more to read, because of this error if there is one
   */
  constructor({ onMessage, onRead, onEnd }) {
    const decoder = new FrameDecoder(PAYLOAD_MAX_CEILING, (bytes, start, end, payload) => {
      onMessage(TO_WORKER.decode(bytes, start, end), payload);
    });
    const callback = (length, buffer) => {
      try {
        decoder.push(buffer, length);
      } catch (error) {
        onEnd(error);
        return false;
      }
      onRead();
      return true;
    };
    const onread = { buffer: Buffer.allocUnsafeSlow(READ_CHUNK), callback };
    this.#socket = new net.Socket({ fd: CHANNEL, readable: true, writable: true, onread });
    this.#socket.on('end', () => onEnd()).on('error', () => onEnd());
  }

  /** Adds a message to those that are sent next. @param {string} name @param {Record<string, any>} [fields] @param {Uint8Array} [payload] */
  push(name, fields, payload) {
    this.#unsent.push(...FROM_WORKER.encode(name, fields, payload));
  }

  /** Writes everything. Returns whether all of it is with the kernel; otherwise `flushed` tells when it is. */
  flush() {
    for (const bytes of this.#pieces()) {
      const written = this.#socket.writableLength > 0 ? 0 : writeNow(bytes);
      if (written < bytes.length) this.#socket.write(bytes.subarray(written));
    }
    return this.#socket.writableLength === 0;
  }

  /** What waits to be written, the short frames together. */
  #pieces() {
    const unsent = this.#unsent;
    this.#unsent = [];
    const isShort = unsent.every((bytes) => bytes.length <= 2 * INLINE_PAYLOAD_MAX);
    return unsent.length > 1 && isShort ? [Buffer.concat(unsent)] : unsent;
  }

  /** When everything that was written so far is with the kernel. @returns {Promise<void>} */
  flushed() {
    if (this.#socket.writableLength === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#socket.write('', () => resolve());
    });
  }
}

/** Writes what the socket takes now. Returns how many bytes that was. @param {Uint8Array} bytes */
function writeNow(bytes) {
  let written = 0;
  try {
    while (written < bytes.length) written += fs.writeSync(CHANNEL, bytes, written);
  } catch (error) {
    if (error.code === 'EPIPE' || error.code === 'ECONNRESET') process.exit(0); // the supervisor is gone
    if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
  }
  return written;
}
