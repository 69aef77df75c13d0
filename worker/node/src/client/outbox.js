/**
 * What a client sends, in its order, and how much of it got out.
 *
 *   waiting --- the socket has taken all before it ---> with the socket --- the kernel takes its last byte ---> out
 *      '--- dropped                                            '--- refused
 *
 * What was dropped or refused did not get out as a whole, so it had no effect.
 *
 * A long payload is memory of its caller. It is copied piece by piece, each when its turn comes, so the socket never reads it; and whoever wants it
 * back has the rest copied (`keep`). The short frames of one turn of the event loop take two writes, however many there are.
 */

import net from 'node:net';
import { Queue } from '../queue.js';

/** Most bytes that are copied at a time. */
const PIECE_MAX = 256 << 10;

/** A socket whose one end may refuse to write while the other one goes on reading: what has arrived is not lost. */
export class Channel extends net.Socket {
  /** How many bytes are with the kernel. */
  written = 0;
  /** How many may be: the rest is that of a write of which nobody knows until it has ended. */
  taken = 0;
  /** Why nothing gets out any more. @type {Error | undefined} */
  refusal;
  /** A write has ended that did not end at once. */
  onWritten = () => {};

  /** @param {any} chunk @param {BufferEncoding} encoding @param {(error?: Error | null) => void} callback */
  _write(chunk, encoding, callback) {
    this.#pass(chunk.length, callback, (done) => super._write(chunk, encoding, done));
  }

  /** @param {{ chunk: any, encoding: BufferEncoding }[]} chunks @param {(error?: Error | null) => void} callback */
  _writev(chunks, callback) {
    const length = chunks.reduce((sum, { chunk }) => sum + chunk.length, 0);
    this.#pass(length, callback, (done) => /** @type {any} */ (super._writev)(chunks, done));
  }

  /** The stream is told of no error: it would close the socket, and throw away what has arrived. */
  #pass(length, callback, write) {
    if (this.refusal !== undefined) return callback();
    let isNow = true;
    this.taken += length;
    write((error) => {
      if (error) this.refusal = error;
      // Of what is refused at once nothing got out; otherwise perhaps all but the last byte.
      if (error) this.taken = isNow ? this.written : this.taken - 1;
      else this.written = this.taken;
      callback();
      if (!isNow) this.onWritten();
    });
    isNow = false;
  }
}

/** A frame on its way. */
export class Sending {
  /** @param {Uint8Array} head @param {Uint8Array | undefined} payload memory of the caller @param {number} end how many bytes were sent with it */
  constructor(head, payload, end) {
    /** What is not with the socket yet. @type {Uint8Array | undefined} */
    this.head = head;
    /** What is not with the socket yet. */
    this.payload = payload;
    /** How many bytes of it that is. */
    this.left = payload?.length ?? 0;
    this.end = end;
    /** Called if it was sent with zeros, because its memory was not there any more. Not from inside `send`. */
    this.onGone = () => {};
    this.isGone = false;
  }

  gone() {
    if (!this.isGone) process.nextTick(() => this.onGone());
    this.isGone = true;
  }

  /** The memory of the caller is not read any more. */
  keep() {
    if (this.payload !== undefined) this.payload = Buffer.from(this.payload);
  }
}

export class Outbox {
  /** @type {Queue<Sending>} */
  #waiting = new Queue();
  /** How many bytes that is. */
  #bytes = 0;
  /** Bytes that were sent since the beginning. */
  #end = 0;
  /** Who wants to know that something is out. @type {Queue<{ end: number, told: () => void }>} */
  #watched = new Queue();
  /** Memory for pieces, from the first long payload on. @type {Buffer | undefined} */
  #pieces;
  #isCorked = false;
  #uncork = () => {
    this.#isCorked = false;
    this.#channel.uncork();
    this.#goOn();
  };
  #channel;
  #onTurn;

  /** @param {Channel} channel @param {() => void} onTurn called when something has been written, or refused, and not from inside `send` */
  constructor(channel, onTurn) {
    this.#channel = channel;
    this.#onTurn = onTurn;
    channel.onWritten = () => this.#goOn();
  }

  /** How many bytes wait to be written. */
  get unsent() {
    return this.#bytes + this.#channel.writableLength;
  }

  /** Whether the other end may have got it as a whole. @param {Sending} sending */
  isOut(sending) {
    return sending.end <= this.#channel.taken;
  }

  /**
   * Tells when it is with the kernel, and what was asked for before, too; never if nothing gets out any more.
   * @param {Sending} sending @param {() => void} told
   */
  whenOut({ end }, told) {
    this.#watched.push({ end, told });
    this.#tellWatched();
  }

  /** The first frame of a turn is written at once, and all others together at its end. @param {Uint8Array[]} frame its head, and a long payload */
  send([head, payload]) {
    const length = head.length + (payload?.length ?? 0);
    this.#end += length;
    const sending = new Sending(head, payload, this.#end);
    if (payload === undefined && this.#waiting.length === 0) {
      this.#channel.write(head);
    } else {
      this.#waiting.push(sending);
      this.#bytes += length;
      this.#pump();
    }
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#channel.cork();
      process.nextTick(this.#uncork);
    }
    return sending;
  }

  /** What is not with the socket yet is not sent. */
  drop() {
    this.#waiting.clear();
    this.#bytes = 0;
  }

  #goOn() {
    this.#pump();
    this.#tellWatched();
    this.#onTurn();
  }

  #tellWatched() {
    for (let next = this.#watched.first; next !== undefined && next.end <= this.#channel.written; next = this.#watched.first) {
      this.#watched.shift();
      next.told();
    }
  }

  /** Gives the socket more, as long as it takes all of it at once. */
  #pump() {
    while (this.#waiting.length > 0 && this.#channel.writableLength === 0 && this.#channel.refusal === undefined) {
      this.#channel.cork();
      this.#fill();
      this.#channel.uncork();
    }
  }

  /** The pieces that the socket had before are written, so their memory can be used again. */
  #fill() {
    this.#pieces ??= Buffer.allocUnsafeSlow(PIECE_MAX);
    let at = 0;
    for (let sending = this.#waiting.first; sending !== undefined && at < PIECE_MAX; sending = this.#waiting.first) {
      if (sending.head !== undefined) this.#write(sending.head);
      sending.head = undefined;
      if (sending.payload !== undefined) at += this.#writePiece(sending, this.#pieces.subarray(at));
      if (sending.payload === undefined) this.#waiting.shift();
    }
  }

  /** @param {Sending} sending @param {Buffer} room */
  #writePiece(sending, room) {
    const payload = /** @type {Uint8Array} */ (sending.payload);
    const piece = room.subarray(0, sending.left);
    // Memory that its caller has transferred has no bytes any more. Those of a frame are as many as it says, or all that is sent behind it would be lost.
    const isThere = payload.length >= piece.length;
    if (isThere) piece.set(payload.subarray(0, piece.length));
    else {
      piece.fill(0);
      sending.gone();
    }
    this.#write(piece);
    sending.left -= piece.length;
    if (sending.left === 0) sending.payload = undefined;
    else if (isThere) sending.payload = payload.subarray(piece.length);
    return piece.length;
  }

  #write(bytes) {
    this.#bytes -= bytes.length;
    this.#channel.write(bytes);
  }
}
