/**
 * One connection to a supervisor: requests with tickets go out, and answers come back to whoever has the ticket.
 *
 *   opening --- Welcome ---> open --- close, Goodbye, the end of the socket, bytes that are no message ---> lost
 *      '--- nobody there, no Welcome in 5 s, another version ---> rejected
 *
 * The requests of one turn of the event loop take two writes, however many there are.
 */

import fs from 'node:fs';
import net from 'node:net';
import { NAME_MAX, PAYLOAD_MAX_CEILING, READ_CHUNK } from '../limits.js';
import { CLIENT_MAGIC, PARTS, TO_CLIENT, TO_SUPERVISOR, VERSION_MAJOR, VERSION_MINOR, versionOf } from '../messages.js';
import { FrameDecoder } from '../frame.js';
import { cut, OUTCOMES } from '../nouns.js';
import { ConnectionError } from './errors.js';

/** How long a supervisor may take to greet, in milliseconds. */
const GREETING_TIMEOUT = 5000;

/**
 * Whoever waits for the answers to a request. It stays in the connection's table until `onMessage` returns true.
 * @typedef {object} Asker
 * @property {(message: import('../messages.js').Message, payload: Buffer) => boolean} onMessage returns whether that was all
 * @property {(error: ConnectionError, isUnsent: boolean) => void} onLost no answer will come; the request may be known to be unsent:
 *   the supervisor did not get it as a whole, so it had no effect
 */

export class Connection {
  /** The longest payload that the supervisor takes, in bytes. */
  payloadMax = 0;
  /** Why there is no connection any more. @type {ConnectionError | undefined} */
  lost;
  /** @type {Map<number | bigint, Asker>} */
  #askers = new Map();
  #tickets = 0;
  #socket;
  #isCorked = false;
  #uncork = () => {
    this.#isCorked = false;
    this.#socket.uncork();
    this.#checkWritten();
  };
  /** The tickets of requests that were not given to the kernel yet. */
  #unwritten = new Set();
  /** @type {ConnectionError | undefined} */
  #goodbye;
  /** What becomes of the greeting. @type {{ resolve: (connection: Connection) => void, reject: (error: Error) => void } | undefined} */
  #greeting;

  /**
   * Connects to the socket at `path`, for `greet`. Throws a `ConnectionError` if there is none.
   * @param {string} path @param {() => void} [onDrain] told when nothing waits to be written any more
   */
  constructor(path, onDrain = () => {}) {
    checkOwner(path);
    this.path = path;
    const decoder = new FrameDecoder(PAYLOAD_MAX_CEILING, (bytes, start, end, payload) => this.#onFrame(bytes, start, end, payload));
    const onread = { buffer: Buffer.allocUnsafeSlow(READ_CHUNK), callback: (length, buffer) => this.#onRead(decoder, length, buffer) };
    // @ts-ignore: the types of Node want a Uint8Array of one kind
    this.#socket = net.connect({ path, onread });
    this.#socket.on('error', (error) => this.#lose(this.#goodbye ?? connectionError(path, error)));
    this.#socket.on('close', () => this.#lose(this.#goodbye ?? goneAway()));
    this.#socket.on('drain', onDrain);
    /** Resolved when the socket is closed. @type {Promise<void>} */
    this.closed = new Promise((resolve) => this.#socket.on('close', () => resolve()));
  }

  /** Introduces the client as `name`. Rejected with a `ConnectionError`. @param {string} name */
  async greet(name) {
    // What keeps the program from ending is the socket, if somebody waits.
    const timer = setTimeout(() => this.#lose(busy(this.path, 'it does not answer')), GREETING_TIMEOUT).unref();
    try {
      await this.#greeted(name);
    } catch (error) {
      this.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** How many bytes wait to be written. */
  get unsent() {
    return this.#socket.writableLength;
  }

  /**
   * Sends a request. Throws a RangeError or a TypeError if a field cannot be sent, and why there is no connection
   * any more if there is none; then nothing is sent. If the connection turns out to be lost now, `onLost` is called.
   * @param {string} name @param {Record<string, any>} fields without the ticket @param {Asker} asker @param {Uint8Array} [payload]
   */
  request(name, fields, asker, payload) {
    if (this.lost !== undefined) throw this.lost;
    const ticket = this.#tickets + 1;
    const frame = TO_SUPERVISOR.encode(name, { ticket, ...fields }, payload);
    this.#tickets = ticket;
    this.#askers.set(ticket, asker);
    this.#unwritten.add(ticket);
    this.#write(frame);
  }

  /** While it is held back, nothing is read, so whoever sends has to wait. @param {boolean} isHeld */
  hold(isHeld) {
    if (isHeld) this.#socket.pause();
    else this.#socket.resume();
  }

  /** Whether this connection keeps the program from ending. @param {boolean} doesKeep */
  keepAlive(doesKeep) {
    if (this.lost !== undefined) return;
    if (doesKeep) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Ends the connection. Requests without an answer are told. */
  close() {
    this.#lose(closedHere());
  }

  /** Ends the connection when all that was sent is written. Nobody is told. */
  closeWhenWritten() {
    this.lost ??= closedHere();
    this.#askers.clear();
    this.#socket.destroySoon();
  }

  /** @returns {Promise<Connection>} */
  #greeted(name) {
    return new Promise((resolve, reject) => {
      this.#greeting = { resolve, reject };
      const [magic, major, minor] = [CLIENT_MAGIC, VERSION_MAJOR, VERSION_MINOR];
      this.#write(TO_SUPERVISOR.encode('Hello', { magic, major, minor, capabilities: PARTS, client: cut(name, NAME_MAX) }));
    });
  }

  /** The first frame of a turn is written at once, and all others together at its end. @param {Uint8Array[]} frame */
  #write(frame) {
    for (const bytes of frame) this.#socket.write(bytes);
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#socket.cork();
    process.nextTick(this.#uncork);
    this.#checkWritten();
  }

  /**
   * Looks whether the kernel took what was written, or refused it because the other end is gone: a program that did not return to its event
   * loop for long learns that only now. Requests that were refused as a whole had no effect. One that waits behind other bytes may go out in
   * part, so it is not called unsent any more.
   */
  #checkWritten() {
    const { errored, destroyed } = this.#socket;
    if (errored) this.#lose(this.#goodbye ?? connectionError(this.path, errored));
    else if (destroyed) this.#lose(this.#goodbye ?? goneAway());
    this.#unwritten.clear();
  }

  #onRead(decoder, length, buffer) {
    try {
      decoder.push(buffer, length);
    } catch (error) {
      if (error.name !== 'Malformed') throw error;
      this.#lose(new ConnectionError('protocol', `the supervisor broke the protocol: ${error.message}`));
    }
    return this.lost === undefined;
  }

  #onFrame(bytes, start, end, payload) {
    if (this.lost !== undefined) return;
    if (this.#greeting !== undefined) {
      const version = versionOf(bytes, start, end, CLIENT_MAGIC.length);
      if (version !== null && version.major !== VERSION_MAJOR) return this.#lose(foreign(version));
    }
    // What is not understood of how an output is described is no reason to lose the other jobs: it is passed on as it came.
    this.#onMessage(TO_CLIENT.decode(bytes, start, end, []), payload);
  }

  #onMessage(message, payload) {
    switch (message.type) {
      case 'Welcome': return this.#onWelcome(message);
      case 'Goodbye': {
        const word = payload.toString();
        const code = OUTCOMES.includes(word) ? word : 'overloaded';
        this.#goodbye = new ConnectionError(code, `the supervisor closed the connection: ${message.reason}`);
        return;
      }
      default: {
        const asker = this.#askers.get(message.ticket);
        if (asker?.onMessage(message, payload)) this.#askers.delete(message.ticket);
      }
    }
  }

  #onWelcome({ magic, payload_max: payloadMax }) {
    if (magic !== CLIENT_MAGIC) return this.#lose(new ConnectionError('unsupported', `at ${this.path} is no supervisor`));
    this.payloadMax = Number(payloadMax);
    this.#greeting?.resolve(this);
    this.#greeting = undefined;
  }

  /** @param {ConnectionError} error */
  #lose(error) {
    if (this.lost !== undefined) return;
    this.lost = error;
    this.#socket.destroy();
    this.#greeting?.reject(error);
    const askers = [...this.#askers];
    this.#askers.clear();
    for (const [ticket, asker] of askers) asker.onLost(error, this.#unwritten.has(ticket));
  }
}

/** Nothing is sent to the supervisor of another user. @param {string} path */
function checkOwner(path) {
  let owner;
  try {
    owner = fs.statSync(path).uid;
  } catch (error) {
    throw connectionError(path, error);
  }
  if (owner !== process.getuid?.()) throw new ConnectionError('forbidden', `the socket ${path} belongs to another user (${owner})`);
}

/** @param {string} path @param {NodeJS.ErrnoException} error */
function connectionError(path, error) {
  switch (error.code) {
    case 'ENOENT':
    case 'ENOTDIR':
    case 'ECONNREFUSED':
      return new ConnectionError('no_supervisor', `no supervisor at ${path}; start one with: offload serve --socket ${path}`);
    case 'EAGAIN': return busy(path, 'it accepts nobody now');
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ERR_STREAM_WRITE_AFTER_END': return goneAway();
    case 'EACCES':
    case 'EPERM': return new ConnectionError('forbidden', `cannot connect to ${path}: ${error.message}`);
    default: return new ConnectionError('io_error', `cannot connect to ${path}: ${error.message}`);
  }
}

const closedHere = () => new ConnectionError('closed', 'the connection was closed here');

const goneAway = () => new ConnectionError('closed', 'the supervisor closed the connection');

const busy = (path, what) => new ConnectionError('overloaded', `the supervisor at ${path} is busy: ${what}`);

/** A supervisor of another version. @param {{ major: number, minor: number }} version */
function foreign({ major, minor }) {
  const advice = major < VERSION_MAJOR ? 'restart the supervisor with the newer offload' : "use the package of this supervisor's release";
  const [theirs, ours] = [`${major}.${minor}`, `${VERSION_MAJOR}.${VERSION_MINOR}`];
  return new ConnectionError('unsupported', `this supervisor speaks protocol ${theirs}, this client ${ours}: ${advice}`);
}
