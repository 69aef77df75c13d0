/**
 * A client of a supervisor. It connects when it is first needed, and again after the connection was lost or has rested long.
 *
 *   call ---> waiting (bounded) --- fewer than `maxInFlight` are in flight ---> in flight ---> settled
 *
 * Its connections keep the program from ending while a call, a stream or a question is under way, and not otherwise.
 */

import { checkKeys, isSet } from '../keys.js';
import { checkAsked } from '../nouns.js';
import { isWellFormed } from '../wire.js';
import { Call } from './call.js';
import { Connection } from './connection.js';
import { ConnectionError, tooManyWait } from './errors.js';
import { Question } from './question.js';
import { checkPath, defaultSocket } from './socket.js';
import { Streams } from './streams.js';
import { Submission } from './submission.js';
import { Waiting } from './waiting.js';

/** The supervisor disconnects a client that asked for nothing for 60 s. After so many milliseconds another connection is opened. */
const REST_MAX = 30_000;
/** No further job is written while so many bytes wait for the socket. */
const UNSENT_MAX = 1 << 20;

/**
 * @typedef {object} ClientOptions
 * @property {string | null} [socket] the supervisor's socket; by default as for the command line
 * @property {string} [name] the client's name, for tables and fair shares; without it the process is a client of its own
 * @property {number} [maxInFlight] calls that the supervisor has at a time (256)
 * @property {number} [maxStreams] streams that are open at a time (256)
 * @property {number} [maxWaiting] calls that wait until others have ended (100,000), and as many streams; any more are rejected as
 *   `overloaded`
 */

export class Client {
  #socket;
  #name;
  #maxInFlight;
  #maxWaiting;
  #before;
  #onNeed;
  /** @type {Connection | undefined} */
  #connection;
  /** This one, and others over which answers may still come. @type {Set<Connection>} */
  #connections = new Set();
  /** Connections without a greeting yet. @type {Set<Connection>} */
  #greeting = new Set();
  /** @type {Promise<Connection> | undefined} */
  #opening;
  /** @type {Waiting<Call>} */
  #waiting = new Waiting();
  /** Requests that were sent and are not answered. */
  #inFlight = 0;
  #restsSince = 0;
  /** Everything that was asked for and has not ended: calls that wait or are in flight, streams, questions. */
  #underWay = 0;
  /** Who wants to know that nothing is left. @type {((value?: any) => void)[]} */
  #onIdle = [];
  #isSending = false;
  #streams;
  /** No more jobs are taken. */
  #isClosing = false;
  #isClosed = false;

  /**
   * @param {ClientOptions} [options] @param {() => Promise<unknown>} [before] what has to be done before each connection
   * @param {(isNeeded: boolean) => void} [onNeed] told when something is asked for, and when all of it has ended
   */
  constructor(options = {}, before = async () => {}, onNeed = () => {}) {
    const { socket, name, maxInFlight, maxStreams, maxWaiting } = checkOptions(options);
    this.#socket = socket ?? checkPath(defaultSocket());
    this.#name = name;
    this.#maxInFlight = maxInFlight;
    this.#maxWaiting = maxWaiting;
    this.#streams = new Streams(maxStreams, maxWaiting, {
      before: () => this.#before(),
      connect: () => new Connection(this.#socket),
      greet: (connection) => this.#greet(connection),
      begun: () => this.#begun(),
      ended: () => this.#done(),
    });
    this.#before = before;
    this.#onNeed = onNeed;
  }

  /** The path of the supervisor's socket. */
  get socket() {
    return this.#socket;
  }

  /**
   * Runs a task and gives its output.
   * @param {string} task @param {unknown} [input] @param {import('./options.js').CallOptions} [options]
   * @returns {Promise<any>} rejected with `JobError`, `Rejected`, `ConnectionError`, `OutputError`, the reason of the signal, or a TypeError
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
      const left = (call) => this.#left(call);
      const unsent = (call) => this.#unsent(call);
      const freed = () => this.#ended();
      const done = () => this.#done();
      this.#add(new Call(task, input, options, { resolve, reject, left, unsent, freed, done }));
    });
  }

  /**
   * Runs a task and gives the parts of its output as they come. To stop reading is to cancel the job.
   * @param {string} task @param {unknown} [input] @param {Omit<import('./options.js').CallOptions, 'idempotencyKey'>} [options]
   * @returns {AsyncGenerator<Buffer, void, void>}
   */
  stream(task, input, options = {}) {
    /** @type {import('./stream.js').OutputStream | undefined} */
    let stream;
    const submission = this.#prepare(task, input, options);
    const begin = () => {
      const wanted = submission();
      if (this.#isClosing) throw closed();
      return (stream = this.#streams.begin(wanted));
    };
    const parts = (async function* () {
      yield* begin().read();
    })();
    // A generator that waits for a part would look at this only once that has come.
    for (const name of /** @type {('return' | 'throw')[]} */ (['return', 'throw'])) {
      const leave = parts[name].bind(parts);
      parts[name] = (value) => {
        stream?.leave();
        return leave(value);
      };
    }
    return parts;
  }

  /** What is wrong with a stream is thrown to who reads it, like everything else that becomes of it. */
  #prepare(task, input, options) {
    try {
      const submission = new Submission(task, input, options, true);
      return () => submission;
    } catch (error) {
      return () => {
        throw error;
      };
    }
  }

  /** Cancels a job by its ID. @param {string} job @returns {Promise<any>} what became of it */
  async cancel(job) {
    return this.#ask('Cancel', { job: checkAsked('the ID of a job', job) });
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
    while (this.#underWay > 0) await new Promise((resolve) => this.#onIdle.push(resolve));
  }

  /** Ends the connection. Jobs in flight are `indeterminate` for their callers; calls that were not sent are rejected. */
  close() {
    this._stopTaking();
    this.#isClosed = true;
    for (const connection of [...this.#connections, ...this.#greeting]) connection.close();
    this.#failWaiting(closed());
    this.#streams.close(closed());
  }

  /** Internal: no more jobs are taken. Those that were taken go on. */
  _stopTaking() {
    this.#isClosing = true;
  }

  /** @param {Call} call */
  #add(call) {
    if (this.#isClosing) return call.fail(closed());
    // Those for which there is room do not wait for others, also while there is no connection yet.
    const isFull = this.#waiting.length >= this.#maxWaiting + Math.max(0, this.#maxInFlight - this.#inFlight);
    if (isFull) return call.fail(tooManyWait(this.#maxWaiting, 'calls'));
    this.#begun();
    this.#waiting.push(call);
    this.#sendWaiting();
  }

  /** Sends the calls that wait, as far as there is room. */
  #sendWaiting() {
    if (this.#isSending || this.#waiting.length === 0) return;
    const connection = this.#usable();
    if (connection === undefined) return void this.#ready().catch(() => {}); // it tells the calls that wait
    this.#isSending = true;
    while (connection.lost === undefined && this.#inFlight < this.#maxInFlight && connection.unsent < UNSENT_MAX) {
      const call = this.#waiting.shift();
      if (call === undefined) break;
      this.#begin(connection, () => call.send(connection));
    }
    this.#isSending = false;
    if (connection.lost !== undefined) this.#sendWaiting(); // by another one
  }

  /** @param {Connection} connection @param {() => void} send */
  #begin(connection, send) {
    this.#inFlight++;
    send();
  }

  /** A request is answered. */
  #ended() {
    this.#inFlight--;
    if (this.#inFlight === 0) this.#restsSince = performance.now();
    this.#sendWaiting();
  }

  /** A call did not get out. It takes the place that it had among those that wait. @param {Call} call */
  #unsent(call) {
    this.#waiting.putBack(call);
    this.#ended();
  }

  /** A call that waits was aborted. @param {Call} call */
  #left(call) {
    this.#waiting.remove(call);
    this.#done();
  }

  /** Something is under way. It is counted here, and in `#done`. */
  #begun() {
    if (this.#underWay++ === 0) this.#keepAlive();
  }

  /** Something that was under way has ended. */
  #done() {
    if (--this.#underWay > 0) return;
    this.#keepAlive();
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** The program may end unless something is under way. The connection of a stream is gone when that is over. */
  #keepAlive() {
    const isNeeded = this.#underWay > 0;
    for (const connection of [...this.#connections, ...this.#greeting]) connection.keepAlive(isNeeded);
    this.#onNeed(isNeeded);
  }

  /** @param {ConnectionError} error */
  #failWaiting(error) {
    for (let call = this.#waiting.shift(); call !== undefined; call = this.#waiting.shift()) {
      call.fail(error);
      this.#done();
    }
  }

  /** A question, which is answered by a document. */
  async #ask(name, fields) {
    this.#begun();
    try {
      return await this.#question(name, fields, false);
    } finally {
      this.#done();
    }
  }

  /** One that did not get out over a connection that was lost is asked again, once. @returns {Promise<any>} */
  async #question(name, fields, isAgain) {
    const connection = this.#usable() ?? (await this.#ready());
    return new Promise((resolve, reject) => {
      const unsent = (error) => (isAgain ? reject(error) : resolve(this.#question(name, fields, true)));
      const question = new Question(resolve, reject, unsent, () => this.#ended());
      this.#begin(connection, () => question.send(connection, name, fields));
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
    this.#opening ??= this.#connect();
    return this.#opening;
  }

  async #connect() {
    let connection;
    try {
      connection = await this.#open();
      if (connection.lost !== undefined) throw connection.lost;
    } catch (error) {
      this.#opening = undefined; // before anybody is told: who is told may ask again at once
      this.#failWaiting(error);
      throw error;
    }
    this.#opening = undefined;
    this.#connection = connection;
    this.#connections.add(connection);
    connection.closed.then(() => this.#connections.delete(connection));
    this.#restsSince = performance.now();
    connection.keepAlive(this.#underWay > 0);
    this.#sendWaiting();
    return connection;
  }

  async #open() {
    if (this.#isClosed) throw closed();
    try {
      await this.#before();
      const connection = new Connection(this.#socket, () => this.#sendWaiting());
      await this.#greet(connection);
      if (!this.#isClosed) return connection;
      connection.close();
    } catch (error) {
      if (!this.#isClosed) throw error;
    }
    throw closed();
  }

  /** @param {Connection} connection */
  async #greet(connection) {
    this.#greeting.add(connection);
    connection.keepAlive(this.#underWay > 0);
    try {
      await connection.greet(this.#name);
    } finally {
      this.#greeting.delete(connection);
    }
  }
}

/**
 * The options with what they are unless set, but for the socket: where that is, only who connects has to find out. Throws a TypeError for an
 * option that there is not, or a value that it cannot have.
 * @param {ClientOptions} options
 */
export function checkOptions(options) {
  checkKeys('a client', options, ['socket', 'name', 'maxInFlight', 'maxStreams', 'maxWaiting']);
  const { socket, name = '', maxInFlight = 256, maxStreams = 256, maxWaiting = 100_000 } = options;
  if (isSet(socket)) checkPath(socket);
  if (typeof name !== 'string' || !isWellFormed(name)) throw new TypeError('`name` is a text');
  return {
    socket,
    name,
    maxInFlight: atLeast(1, 'maxInFlight', maxInFlight),
    maxStreams: atLeast(1, 'maxStreams', maxStreams),
    maxWaiting: atLeast(0, 'maxWaiting', maxWaiting),
  };
}

const closed = () => new ConnectionError('closed', 'this client was closed');

function atLeast(min, name, value) {
  if (Number.isInteger(value) && value >= min) return value;
  throw new TypeError(`\`${name}\` is a whole number from ${min} on`);
}
