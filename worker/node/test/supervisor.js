/** A real supervisor, of the program that `OFFLOAD_BIN` names, with a worker program of the tests. */

import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Client } from '../index.js';
import { spawn } from './programs.js';
import { atEnd, withEnd } from './testing.js';
import { within } from './within.js';

export const PROGRAM = process.env.OFFLOAD_BIN ?? 'offload';

/** The command line of a worker program in `workers/`. @param {string} name */
export const workerCommand = (name) => `'${process.execPath}' '${fileURLToPath(new URL(`workers/${name}`, import.meta.url))}'`;

export class Supervisor {
  /** @param {{ worker?: string, workers?: number, flags?: string[], log?: 'keep' | 'pipe' }} [options] */
  static async start({ worker = 'tasks.mjs', workers = 2, flags = [], log = 'keep' } = {}) {
    const supervisor = new Supervisor(['--worker', workerCommand(worker), '--workers', String(workers), ...flags], log);
    await within('the line `ready`', supervisor.#ready());
    return supervisor;
  }

  constructor(flags, log) {
    this.folder = mkdtempSync(join(tmpdir(), 'offload-'));
    this.socket = join(this.folder, 'socket');
    this.log = join(this.folder, 'log');
    const kept = openSync(this.log, 'a');
    const stdio = ['ignore', 'pipe', log === 'keep' ? kept : log];
    this.process = spawn(PROGRAM, ['--socket', this.socket, '--json', 'serve', ...flags], { stdio });
    closeSync(kept);
    this.exit = once(this.process, 'exit');
    /** @type {Client[]} */
    this.clients = [];
    atEnd(() => this.stop());
  }

  async #ready() {
    for await (const line of createInterface({ input: this.process.stdout })) if (JSON.parse(line).ready) return;
    throw new Error(`${PROGRAM} ended before it was ready: ${await this.exit}`);
  }

  /** @param {import('../src/client/client.js').ClientOptions} [options] */
  client(options) {
    const client = new Client({ socket: this.socket, ...options });
    this.clients.push(client);
    return client;
  }

  /** Its end by SIGKILL. */
  async kill() {
    this.process.kill('SIGKILL');
    await within('the end of the supervisor', this.exit);
  }

  /** The end of its log, unless the test has ended, and it has been removed. */
  showLog() {
    if (existsSync(this.log)) console.error(`the end of the supervisor's log:\n${readFileSync(this.log, 'utf8').slice(-4000)}`);
  }

  async stop() {
    for (const client of this.clients) client.close();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Runs `body` with a supervisor, and ends that. @param {any} options @param {(supervisor: Supervisor) => Promise<void>} body */
export async function withSupervisor(options, body) {
  const supervisor = await Supervisor.start(options);
  await withEnd(() => supervisor.stop(), () => body(supervisor).catch((error) => {
    supervisor.showLog();
    throw error;
  }));
}
