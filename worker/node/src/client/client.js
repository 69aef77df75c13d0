/**
 * A client of a supervisor. It connects when it is first needed, and again after the connection was lost or has rested long.
 *
 *   call ---> waiting (bounded) --- fewer than `maxInFlight` are in flight ---> in flight ---> settled
 *
 * A client with nothing in flight does not keep the program from ending.
 */

import { Call } from './call.js';
import { Connection } from './connection.js';
import { ConnectionError, Rejected } from './errors.js';
import { defaultSocket } from './socket.js';
import { readStream } from './stream.js';

/** The supervisor disconnects a client that asked for nothing for 60 s. After so many milliseconds another connection is opened. */
const REST_MAX = 30_000;
/** No further job is written while so many bytes wait for the socket. */
const UNSENT_MAX = 1 << 20;

/**
 * @typedef {object} ClientOptions
 * @property {string} [socket] the supervisor's socket; by default as for the command line
 * @property {string} [name] the client's name, for tables and fair shares; without it the process is a client of its own
 * @property {number} [maxInFlight] jobs that the supervisor has at a time (256)
 * @property {number} [maxWaiting] calls that wait until others have ended (100,000); any more are rejected as `overloaded`
 */

export class Client {
  #socket;
  #name;
  #maxInFlight;
  #maxWaiting;
  #before;
  /** @type {Connection | undefined} */
  #connection;
  /** @type {Promise<Connection> | undefined} */
  #opening;
  #waiting = new Waiting();
  /** Requests that were sent and are not answered. */
  #inFlight = 0;
  #restsSince = 0;
  /** Who wants to know that nothing is left. @type {((value?: any) => void)[]} */
  #onIdle = [];
  #isSending = false;
  /** @type {Set<Connection>} */
  #streams = new Set();
  #isClosed = false;

  /** @param {ClientOptions} [options] @param {() => Promise<unknown>} [before] what has to be done before each connection */
  constructor({ socket, name = '', maxInFlight = 256, maxWaiting = 100_000 } = {}, before = async () => {}) {
    this.#socket = socket ?? defaultSocket();
    this.#name = name;
    this.#maxInFlight = atLeast(1, 'maxInFlight', maxInFlight);
    this.#maxWaiting = atLeast(0, 'maxWaiting', maxWaiting);
    this.#before = before;
  }

  /** The path of the supervisor's socket. */
  get socket() {
    return this.#socket;
  }

  /**
   * Runs a task and gives its output.
   * @param {string} task @param {unknown} [input] @param {import('./options.js').CallOptions} [options]
   * @returns {Promise<any>} rejected with `JobError`, `Rejected`, `ConnectionError`, the reason of the signal, or a TypeError
   */
  async call(task, input, options) {
    return (await this.run(task, input, options)).output;
  }

  /**
   * As `call`, and tells more than the output.
   * @param {string} task @param {unknown} [input] @param {import('./options.js').CallOptions} [options]
   * @returns {Promise<any>} `{ output, bytes, contentType, job, attempts, receipt }`
   */
  run(task, input, options = {}) {
    return new Promise((resolve, reject) => {
      options.signal?.throwIfAborted();
      this.#add(new Call(task, input, options, { resolve, reject, ended: () => this.#ended() }));
    });
  }

  /**
   * Runs a task and gives the parts of its output as they come. To stop reading is to cancel the job.
   * @param {string} task @param {unknown} [input] @param {import('./options.js').CallOptions} [options]
   * @returns {AsyncGenerator<Buffer, void, void>}
   */
  async *stream(task, input, options = {}) {
    options.signal?.throwIfAborted();
    const connection = await this.#open();
    this.#streams.add(connection);
    try {
      yield* readStream(connection, task, input, options);
    } finally {
      this.#streams.delete(connection);
      this.#tellIdle();
    }
  }

  /** Cancels a job by its ID. @param {string} job @returns {Promise<any>} what became of it */
  cancel(job) {
    return this.#ask('Cancel', { job });
  }

  /** The supervisor as a whole, as `offload status --json` shows it. @returns {Promise<any>} */
  status() {
    return this.#ask('Show', { view: 'status' });
  }

  /** The tasks that can be called, as `offload tasks --json` shows them. @returns {Promise<any>} */
  tasks() {
    return this.#ask('Show', { view: 'tasks' });
  }

  /** The workers, as `offload workers --json` shows them. @returns {Promise<any>} */
  workers() {
    return this.#ask('Show', { view: 'workers' });
  }

  /** Lets the supervisor accept no more jobs, finish those that it has, and end. Resolved when they are done. @returns {Promise<any>} */
  drain() {
    return this.#ask('Drain', {});
  }

  /** Resolved when no call and no stream is left. */
  async idle() {
    while (this.#inFlight + this.#waiting.length + this.#streams.size > 0) {
      await new Promise((resolve) => this.#onIdle.push(resolve));
    }
  }

  /** Ends the connection. Jobs in flight are `indeterminate` for their callers; calls that were not sent are rejected. */
  close() {
    this.#isClosed = true;
    this.#failWaiting(closed());
    this.#connection?.close();
    for (const connection of this.#streams) connection.close();
  }

  /** @param {Call} call */
  #add(call) {
    if (this.#isClosed) return call.fail(closed());
    const isFull = this.#waiting.length >= this.#maxWaiting && this.#inFlight >= this.#maxInFlight;
    if (isFull) return call.fail(new Rejected('overloaded', `${this.#maxWaiting} calls wait in this client already`));
    this.#waiting.push(call);
    this.#sendWaiting();
  }

  /** Sends the calls that wait, as far as there is room. */
  #sendWaiting() {
    if (this.#isSending || this.#waiting.length === 0) return;
    const connection = this.#usable();
    if (connection === undefined) return void this.#ready().catch(() => {}); // it tells the calls that wait
    this.#isSending = true;
    while (this.#inFlight < this.#maxInFlight && connection.unsent < UNSENT_MAX) {
      const call = this.#waiting.shift();
      if (call === undefined) break;
      if (!call.isSettled) this.#begin(connection, () => call.send(connection));
    }
    this.#isSending = false;
  }

  /** @param {Connection} connection @param {() => void} send */
  #begin(connection, send) {
    if (this.#inFlight === 0) connection.keepAlive(true);
    this.#inFlight++;
    send();
  }

  #ended() {
    this.#inFlight--;
    if (this.#inFlight === 0) {
      this.#restsSince = performance.now();
      this.#connection?.keepAlive(false);
      this.#tellIdle();
    }
    this.#sendWaiting();
  }

  #tellIdle() {
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** @param {ConnectionError} error */
  #failWaiting(error) {
    for (let call = this.#waiting.shift(); call !== undefined; call = this.#waiting.shift()) call.fail(error);
    this.#tellIdle();
  }

  /** A question, which is answered by a document. */
  async #ask(name, fields) {
    const connection = this.#usable() ?? (await this.#ready());
    return new Promise((resolve, reject) => {
      const asker = new Question(resolve, reject, () => this.#ended());
      this.#begin(connection, () => connection.request(name, fields, asker));
    });
  }

  /** The connection, if it can be used. */
  #usable() {
    const connection = this.#connection;
    if (connection === undefined || connection.lost !== undefined) return undefined;
    const isFresh = this.#inFlight > 0 || performance.now() - this.#restsSince < REST_MAX;
    if (!isFresh) connection.close();
    return isFresh ? connection : undefined;
  }

  /** A new connection, for all that wait. */
  #ready() {
    this.#opening ??= this.#connect().finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  async #connect() {
    try {
      const connection = await this.#open();
      if (connection.lost !== undefined) throw connection.lost;
      this.#connection = connection;
      this.#restsSince = performance.now();
      connection.keepAlive(this.#inFlight > 0);
      this.#sendWaiting();
      return connection;
    } catch (error) {
      this.#failWaiting(error);
      throw error;
    }
  }

  async #open() {
    if (this.#isClosed) throw closed();
    await this.#before();
    const connection = await Connection.open(this.#socket, this.#name);
    if (!this.#isClosed) return connection;
    connection.close();
    throw closed();
  }
}

/** Waits for one answer. */
class Question {
  #resolve;
  #reject;
  #ended;

  constructor(resolve, reject, ended) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#ended = ended;
  }

  onMessage(message, payload) {
    if (message.type === 'Rejected') this.#reject(new Rejected(message.code, message.message, message.retry_after_ms));
    else this.#resolve(JSON.parse(payload.toString()));
    this.#ended();
    return true;
  }

  onLost(error) {
    this.#reject(error);
    this.#ended();
  }
}

/** Calls in their order. To take the first one costs the same however many there are. */
class Waiting {
  /** @type {(Call | undefined)[]} */
  #calls = [];
  #taken = 0;

  get length() {
    return this.#calls.length - this.#taken;
  }

  /** @param {Call} call */
  push(call) {
    this.#calls.push(call);
  }

  shift() {
    if (this.length === 0) return undefined;
    const call = this.#calls[this.#taken];
    this.#calls[this.#taken++] = undefined;
    if (this.#taken * 2 > this.#calls.length) {
      this.#calls = this.#calls.slice(this.#taken);
      this.#taken = 0;
    }
    return call;
  }
}

const closed = () => new ConnectionError('closed', 'this client was closed');

function atLeast(min, name, value) {
  if (Number.isInteger(value) && value >= min) return value;
  throw new TypeError(`\`${name}\` is a whole number from ${min} on`);
}
