/**
 * The worker's end of its socket, which is descriptor 0: messages come in through the event loop and go out at once.
 *
 * A message is written by a system call of its own, so it is with the kernel when `send` returns, unless the supervisor is slow
 * to read. That is what a worker owes before it starts a task: if the process ends after that, everybody knows whose job it was.
 */

import fs from 'node:fs';
import net from 'node:net';
import { PAYLOAD_MAX_CEILING, READ_CHUNK } from '../limits.js';
import { FROM_WORKER, isInline, scratch, TO_WORKER } from '../messages.js';
import { FrameDecoder } from '../frame.js';
import { NOTHING } from '../wire.js';

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
  /** @type {net.Socket} */
  #socket;

  /**
   * @param {object} owner
   * @param {(message: import('../messages.js').Message, payload: Buffer, wrong?: string) => void} owner.onMessage with what is not
   *   understood of what it describes, if there is something
   * @param {() => void} owner.onRead all messages of one read have been told
   * @param {(error?: Error) => void} owner.onEnd there is nothing more to read, because of this error if there is one
   */
  constructor({ onMessage, onRead, onEnd }) {
    const decoder = new FrameDecoder(PAYLOAD_MAX_CEILING, (bytes, start, end, payload) => {
      const complaints = [];
      onMessage(TO_WORKER.decode(bytes, start, end, complaints), payload, complaints[0]);
    });
    const callback = (length, buffer) => {
      try {
        decoder.push(buffer, length);
      } catch (error) {
        if (error.name !== 'Malformed') throw error;
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

  /**
   * Writes a message. Returns whether all of it is with the kernel; otherwise `flushed` tells when it is.
   * @param {string} name @param {Record<string, any>} [fields] @param {Uint8Array} [payload]
   * @param {boolean} [isLent] the payload may be changed when this returns; otherwise not before it is with the kernel
   */
  send(name, fields = {}, payload = NOTHING, isLent = false) {
    this.#write(scratch, FROM_WORKER.write(name, fields, payload), true);
    if (!isInline(payload)) this.#write(payload, payload.length, isLent);
    return this.#socket.writableLength === 0;
  }

  /** @param {Uint8Array} bytes @param {number} length @param {boolean} isLent what cannot be written now has to be copied */
  #write(bytes, length, isLent) {
    const written = this.#socket.writableLength > 0 ? 0 : writeNow(bytes, length);
    if (written === length) return;
    const rest = bytes.subarray(written, length);
    this.#socket.write(isLent ? Buffer.from(rest) : rest);
  }

  /** When everything that was written so far is with the kernel. @returns {Promise<void>} */
  flushed() {
    if (this.#socket.writableLength === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#socket.write('', () => resolve());
    });
  }
}

/** Writes as many of the first `length` bytes as the socket takes now. Returns how many that was. @param {Uint8Array} bytes @param {number} length */
function writeNow(bytes, length) {
  let written = 0;
  try {
    while (written < length) written += fs.writeSync(CHANNEL, bytes, written, length - written);
  } catch (error) {
    if (error.code === 'EPIPE' || error.code === 'ECONNRESET') process.exit(0); // the supervisor is gone
    if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
  }
  return written;
}
