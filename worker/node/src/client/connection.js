/**
 * One connection to a supervisor: requests with tickets go out, and answers come back to whoever has the ticket.
 *
 *   opening --- Welcome ---> open --- close, the end of the socket, bytes that are no message ---> over
 *      |                      |  '--- leave ---> leaving --- the other end is closed, too ---------^
 *      |                      '--- a write fails ---> reading out --- the end of the socket -------^
 *      '--- nobody there, no Welcome in 5 s, another version ---> rejected, over
 *
 * A write that fails says only that nothing more gets out. What has arrived by then is read to its end: answers, or a Goodbye that says why.
 */

import fs from 'node:fs';
import { NAME_MAX, PAYLOAD_MAX_CEILING, READ_CHUNK } from '../limits.js';
import { CLIENT_MAGIC, PARTS, TO_CLIENT, TO_SUPERVISOR, VERSION_MAJOR, VERSION_MINOR, versionOf } from '../messages.js';
import { FrameDecoder } from '../frame.js';
import { cut, OUTCOMES } from '../nouns.js';
import { patiently } from '../patience.js';
import { ConnectionError } from './errors.js';
import { Channel, Outbox } from './outbox.js';

/** How long a supervisor may take to greet, in milliseconds. */
const GREETING_TIMEOUT = 5000;
/** How long what has arrived may take to be read when nothing gets out any more, in milliseconds. */
const READ_OUT_TIMEOUT = 5000;
/** How long the other end may take to close a connection that is ended here, in milliseconds. */
const LEAVE_TIMEOUT = 2000;
/** How long somebody waits until a job can be cancelled that nobody wants any more, in milliseconds. */
export const GIVE_UP_TIMEOUT = 5000;

/**
 * Whoever waits for the answers to a request. It stays in the connection's table until `onMessage` returns true.
 * @typedef {object} Asker
 * @property {(message: import('../messages.js').Message, payload: Buffer) => boolean} onMessage returns whether that was all
 * @property {(error: ConnectionError, isUnsent: boolean) => void} onLost no answer will come; the request may be known to be unsent:
 *   the supervisor did not get it as a whole, so it had no effect
 * @property {() => void} [onInputGone] the memory of its input was not there any more when it was to be sent: zeros were sent
 */

export class Connection {
  /** The longest payload that the supervisor takes, in bytes. */
  payloadMax = 0;
  /** Why nothing can be asked any more. Answers may still come. @type {ConnectionError | undefined} */
  lost;
  /** No answers come any more. */
  #isOver = false;
  /** Those who asked, by their tickets, and what they sent. @type {Map<number | bigint, { asker: Asker, sending: import('./outbox.js').Sending }>} */
  #askers = new Map();
  #tickets = 0;
  #isGivenUp = false;
  #channel;
  #outbox;
  /** @type {ConnectionError | undefined} */
  #goodbye;
  /** What becomes of the greeting. @type {{ resolve: (connection: Connection) => void, reject: (error: Error) => void } | undefined} */
  #greeting;
  /** Waits no longer for the supervisor. */
  #stopWaiting = () => {};

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
    this.#channel = new Channel({ onread });
    this.#outbox = new Outbox(this.#channel, () => {
      this.#checkWritten();
      if (this.unsent === 0) onDrain();
    });
    this.#channel.on('error', (error) => this.#lose(this.#goodbye ?? connectionError(path, error)));
    /** Resolved when the socket is closed. @type {Promise<void>} */
    this.closed = new Promise((resolve) => {
      this.#channel.on('close', () => {
        this.#lose(this.#goodbye ?? goneAway());
        this.#stopWaiting();
        resolve();
      });
    });
    this.#channel.connect({ path });
  }

  /** Introduces the client as `name`. Rejected with a `ConnectionError`. @param {string} name */
  async greet(name) {
    // What keeps the program from ending is the socket, if somebody waits. The supervisor hears of the client once that is connected.
    this.#channel.once('connect', () => {
      if (!this.#isOver) this.#wait(GREETING_TIMEOUT, () => busy(this.path, 'it does not answer'));
    });
    try {
      await this.#greeted(name);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** How many bytes wait to be written. */
  get unsent() {
    return this.#outbox.unsent;
  }

  /**
   * Sends a request. Throws a RangeError or a TypeError if a field cannot be sent, and why there is no connection
   * any more if there is none; then nothing is sent. If the connection turns out to be lost now, `onLost` is called.
   * @param {string} name @param {Record<string, any>} fields without the ticket @param {Asker} asker
   * @param {Uint8Array} [payload] read until it is sent, or until `keep` of what this returns is called
   */
  request(name, fields, asker, payload) {
    if (this.lost !== undefined) throw this.lost;
    const ticket = this.#tickets + 1;
    const frame = TO_SUPERVISOR.encode(name, { ticket, ...fields }, payload);
    this.#tickets = ticket;
    const sending = this.#outbox.send(frame);
    sending.onGone = () => asker.onInputGone?.();
    this.#askers.set(ticket, { asker, sending });
    this.#checkWritten();
    return sending;
  }

  /** Whether the supervisor may have got a request as a whole. @param {import('./outbox.js').Sending} sending */
  isOut(sending) {
    return this.#outbox.isOut(sending);
  }

  /**
   * Tells when a request is with the kernel, unless the connection is lost before.
   * @param {import('./outbox.js').Sending} sending @param {() => void} told
   */
  whenOut(sending, told) {
    this.#outbox.whenOut(sending, told);
  }

  /** While it is held back, nothing is read, so whoever sends has to wait. @param {boolean} isHeld */
  hold(isHeld) {
    if (isHeld) this.#channel.pause();
    else this.#channel.resume();
  }

  /** Whether this connection keeps the program from ending. @param {boolean} doesKeep */
  keepAlive(doesKeep) {
    if (this.#isOver) return;
    if (doesKeep) this.#channel.ref();
    else if (this.#isGivenUp && this.unsent > 0) this.close(); // a write that does not end would keep it from ending
    else this.#channel.unref();
  }

  /** The supervisor had its time for what nobody waits for any more. */
  giveUp() {
    this.#isGivenUp = true;
  }

  /** Ends the connection. Requests without an answer are told. */
  close() {
    this.#lose(closedHere());
  }

  /**
   * Ends the connection when all that is with the socket is written; what is not there yet is not sent. Nobody is told. `closed` is resolved when the
   * other end is closed, too, or has taken its time. The program is kept from ending until it is written.
   */
  leave() {
    if (this.#isOver) return;
    this.#isOver = true;
    this.lost ??= closedHere();
    this.#greeting?.reject(this.lost);
    this.#askers.clear();
    this.#outbox.drop();
    this.#channel.resume();
    this.#channel.end(() => this.#channel.unref());
    this.#stopWaiting();
    this.#stopWaiting = patiently(LEAVE_TIMEOUT, () => this.#channel.destroy());
  }

  /** @returns {Promise<Connection>} */
  #greeted(name) {
    return new Promise((resolve, reject) => {
      this.#greeting = { resolve, reject };
      const [magic, major, minor] = [CLIENT_MAGIC, VERSION_MAJOR, VERSION_MINOR];
      this.#outbox.send(TO_SUPERVISOR.encode('Hello', { magic, major, minor, capabilities: PARTS, client: cut(name, NAME_MAX) }));
    });
  }

  /** The connection is lost unless the supervisor does something in time. @param {number} milliseconds @param {() => ConnectionError} why */
  #wait(milliseconds, why) {
    this.#stopWaiting();
    this.#stopWaiting = patiently(milliseconds, () => this.#lose(why()));
  }

  /**
   * Looks whether the kernel took what was written, or refused it because the other end is gone: a program that did not return to its event
   * loop for long learns that only now.
   */
  #checkWritten() {
    const { errored, destroyed, refusal } = this.#channel;
    if (errored) this.#lose(this.#goodbye ?? connectionError(this.path, errored));
    else if (destroyed) this.#lose(this.#goodbye ?? goneAway());
    else if (refusal) this.#readOut(connectionError(this.path, refusal));
  }

  /**
   * Nothing gets out any more. Requests that did not get out are told at once, and others when all that has arrived is read.
   * @param {ConnectionError} error
   */
  #readOut(error) {
    if (this.lost !== undefined) return;
    this.lost = this.#goodbye ?? error;
    this.#wait(READ_OUT_TIMEOUT, () => this.#goodbye ?? error);
    this.#outbox.drop();
    const unsent = [...this.#askers].filter(([, { sending }]) => !this.#outbox.isOut(sending));
    for (const [ticket] of unsent) this.#askers.delete(ticket);
    for (const [, { asker }] of unsent) asker.onLost(this.lost, true);
  }

  #onRead(decoder, length, buffer) {
    if (this.#isOver) return true; // the rest is read to see the end
    try {
      decoder.push(buffer, length);
    } catch (error) {
      if (error.name !== 'Malformed') throw error;
      this.#lose(new ConnectionError('protocol', `the supervisor broke the protocol: ${error.message}`));
    }
    return true;
  }

  #onFrame(bytes, start, end, payload) {
    if (this.#isOver) return;
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
        const asked = this.#askers.get(message.ticket);
        if (asked?.asker.onMessage(message, payload)) this.#askers.delete(message.ticket);
      }
    }
  }

  #onWelcome({ magic, payload_max: payloadMax }) {
    if (magic !== CLIENT_MAGIC) return this.#lose(new ConnectionError('unsupported', `at ${this.path} is no supervisor`));
    this.payloadMax = Number(payloadMax);
    if (this.lost === undefined) this.#stopWaiting();
    this.#greeting?.resolve(this);
    this.#greeting = undefined;
  }

  /** @param {ConnectionError} error */
  #lose(error) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.lost ??= error;
    this.#stopWaiting();
    this.#outbox.drop();
    this.#channel.destroy();
    this.#greeting?.reject(error);
    const askers = [...this.#askers.values()];
    this.#askers.clear();
    for (const { asker, sending } of askers) asker.onLost(error, !this.#outbox.isOut(sending));
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
