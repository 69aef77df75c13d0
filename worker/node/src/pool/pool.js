/**
 * A client with a supervisor of its own, which ends with the program.
 */

import { checkOptions, Client } from '../client/client.js';
import { checkKeys } from '../keys.js';
import { commandOf } from './command.js';
import { PrivateSupervisor } from './supervisor.js';

/**
 * @typedef {object} PoolOptions
 * @property {URL | string | string[]} [worker] a module, which this same Node runs; a command line; or its words. By default the
 *   built-in tasks
 * @property {number} [workers] worker processes; by default as many as there are cores
 * @property {string} [program] the path of offload; by default `OFFLOAD_BIN`, or `offload` in PATH
 * @property {string[]} [flags] further flags of `offload serve`
 * @property {'inherit' | 'ignore' | number} [log] where its log goes: to standard error, nowhere, or to a descriptor
 */

const KEYS = ['worker', 'workers', 'program', 'flags', 'log', 'name', 'maxInFlight', 'maxStreams', 'maxWaiting'];

export class Pool extends Client {
  #supervisor;

  /** Starts the supervisor. @param {PoolOptions & Omit<import('../client/client.js').ClientOptions, 'socket'>} [options] */
  constructor(options = {}) {
    checkKeys('a pool', options, KEYS);
    const { worker = 'builtin', workers, program, flags = [], log = 'inherit', ...client } = options;
    checkOptions(client); // before anything is started
    if (!Array.isArray(flags)) throw new TypeError('`flags` is a list');
    const count = workers === undefined ? [] : [`--workers=${workers}`];
    const supervisor = new PrivateSupervisor({
      program: program ?? process.env.OFFLOAD_BIN ?? 'offload',
      flags: [`--worker=${commandOf(worker)}`, ...count, ...flags.map(String)],
      log,
    });
    super({ ...client, socket: supervisor.socket }, () => supervisor.ready(), (isNeeded) => supervisor.need(isNeeded));
    this.#supervisor = supervisor;
  }

  /** Resolved when the first worker can take jobs. Need not be called; errors come with the first call, too. */
  async ready() {
    this.#supervisor.need(true);
    try {
      await this.#supervisor.ready();
    } finally {
      this.#supervisor.need(false);
    }
  }

  /** Waits until the calls that were made have ended, and ends the supervisor. Later calls are rejected. */
  async close() {
    this._stopTaking();
    await this.idle();
    await this.end();
  }

  /** Ends the supervisor at once. Calls that have not ended are rejected: jobs in flight are `indeterminate`. */
  async end() {
    super.close();
    await this.#supervisor.end();
  }
}
