/** A supervisor that says what a test wants it to say, at the other end of a real worker's socket. */

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FrameDecoder } from '../src/frame.js';
import { FROM_WORKER, PARTS, TO_WORKER } from '../src/messages.js';
import { spawn } from './programs.js';
import { atEnd } from './testing.js';
import { within } from './within.js';

export const PAYLOAD_MAX = 64 << 20;

export class FakeSupervisor {
  /** Messages that the worker sent and the test has not heard. */
  #heard = [];
  #listeners = [];
  stderr = '';

  /** Starts `workers/NAME` as a worker. @param {string} name @param {Record<string, any>} [welcome] other fields of Welcome */
  static async start(name, welcome = {}) {
    const folder = mkdtempSync(join(tmpdir(), 'offload-'));
    const server = net.createServer().listen(join(folder, 'socket'));
    const theirs = net.connect(join(folder, 'socket'));
    const [[socket]] = await Promise.all([once(server, 'connection'), once(theirs, 'connect')]);
    const program = fileURLToPath(new URL(`workers/${name}`, import.meta.url));
    const child = spawn(process.execPath, [program], { stdio: [theirs, 'ignore', 'pipe'] });
    theirs.destroy();
    server.close();
    rmSync(folder, { recursive: true });
    const supervisor = new FakeSupervisor(socket, child);
    supervisor.send('Welcome', { major: 3, minor: 0, capabilities: PARTS, payload_max: PAYLOAD_MAX, ...welcome });
    return supervisor;
  }

  constructor(socket, child) {
    this.socket = socket;
    atEnd(() => socket.destroy());
    this.child = child;
    this.exit = once(child, 'close').then(([code, signal]) => code ?? signal);
    child.stderr.setEncoding('utf8').on('data', (text) => (this.stderr += text));
    const decoder = new FrameDecoder(PAYLOAD_MAX, (bytes, start, end, payload) => {
      this.#tell({ ...FROM_WORKER.decode(bytes, start, end), payload });
    });
    // A worker that exits before it has read all that it was sent resets the connection.
    socket.on('data', (bytes) => decoder.push(bytes)).on('error', () => {});
    socket.on('close', () => this.#tell({ type: 'nothing' }));
  }

  #tell(message) {
    this.#heard.push(message);
    this.#listeners.splice(0).forEach((listener) => listener());
  }

  send(name, fields = {}, payload = Buffer.alloc(0)) {
    this.socket.write(Buffer.concat(TO_WORKER.encode(name, fields, payload)));
  }

  run(job, task, input, fields = {}) {
    const [payload, type] = Buffer.isBuffer(input) ? [input, 'application/octet-stream'] : [Buffer.from(JSON.stringify(input)), 'application/json'];
    const run = { job, attempt: 1, task, media_type: type, timeout_ms: 0, deadline_ms: 0, metadata: {}, ...fields };
    this.send('Run', run, payload);
  }

  /** Runs a job after this text was put in place of the other one, which is as long, in what is said of the job. */
  runWith(job, task, fields, text, replacement) {
    const run = { job, attempt: 1, task, media_type: 'text/plain', timeout_ms: 0, deadline_ms: 0, metadata: {}, ...fields };
    const frame = Buffer.concat(TO_WORKER.encode('Run', run, Buffer.alloc(0)));
    frame.write(replacement, frame.indexOf(text), 'latin1');
    this.socket.write(frame);
  }

  /** The next message of the worker. */
  async hear() {
    while (this.#heard.length === 0) {
      await within('a message of the worker', new Promise((resolve) => this.#listeners.push(resolve)));
    }
    return this.#heard.shift();
  }

  /** The next message, which has to be of this type. */
  async expect(type) {
    const message = await this.hear();
    if (message.type !== type) throw new Error(`expected ${type}, got ${JSON.stringify(message)} ${this.stderr}`);
    return message;
  }

  /** All messages up to and with Ready. */
  async introduced() {
    const messages = [];
    do messages.push(await this.hear());
    while (messages.at(-1).type !== 'Ready');
    return messages;
  }

  /** The exit code of the worker, or its signal. */
  ended() {
    return within('the end of the worker', this.exit);
  }

  /** The supervisor is gone. */
  async leave() {
    this.socket.destroy();
    return this.ended();
  }
}
