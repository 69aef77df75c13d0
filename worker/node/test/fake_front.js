/** A supervisor that says what a test wants it to say, to real clients. */

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '../index.js';
import { FrameDecoder } from '../src/frame.js';
import { CLIENT_MAGIC, TO_CLIENT, TO_SUPERVISOR } from '../src/messages.js';
import { withEnd } from './testing.js';
import { within } from './within.js';

const USAGE = { cpu_user_us: 0, cpu_system_us: 0, peak_rss_bytes: 0 };
const RECEIPT = { queued_us: 0, run_us: 0, returned_us: 0, worker_pid: 1, slot: 0, incarnation: 0, input_bytes: 0, output_bytes: 0, usage: USAGE };
const REPORT = { job: 'its ID', task: 'any', outcome: 'ok', error: null, attempts: 1, receipt: RECEIPT, media_type: 'text/plain; charset=utf-8', labels: [] };

/** One client that is connected. */
export class Guest {
  constructor(front, socket) {
    this.socket = socket;
    /** Resolved when the client is gone. */
    this.closed = new Promise((resolve) => socket.on('close', () => resolve(undefined)));
    const decoder = new FrameDecoder(1 << 30, (bytes, start, end, payload) => {
      const message = { ...TO_SUPERVISOR.decode(bytes, start, end), payload, guest: this };
      if (message.type === 'Hello') front.onHello(this);
      else front.onRequest(message);
    });
    socket.on('data', (bytes) => decoder.push(bytes)).on('error', () => {});
  }

  send(name, fields, payload) {
    this.socket.write(Buffer.concat(TO_CLIENT.encode(name, fields, payload)));
  }

  welcome(fields) {
    this.send('Welcome', { magic: CLIENT_MAGIC, major: 3, minor: 0, capabilities: 1, payload_max: 1 << 30, ...fields });
  }

  accept(ticket, job = 'its ID') {
    this.send('Accepted', { ticket, job });
  }

  finish(ticket, output) {
    this.send('Finished', { ticket, report: REPORT }, Buffer.from(output));
  }

  goodbye(code, reason) {
    this.send('Goodbye', { reason }, Buffer.from(code));
  }
}

export class FakeFront {
  /** All that have connected. @type {Guest[]} */
  guests = [];
  /** Requests that the test has not heard. */
  #heard = [];
  #tell = () => {};
  onHello = (guest) => guest.welcome();
  onRequest = (message) => {
    this.#heard.push(message);
    this.#tell();
  };

  /** The next request of any client. */
  async hear() {
    while (this.#heard.length === 0) await within('a request', new Promise((resolve) => (this.#tell = () => resolve(undefined))));
    return this.#heard.shift();
  }
}

/** Runs `body` with such a supervisor and a client of it. @param {object} options of the client @param {(client: Client, front: FakeFront) => Promise<void>} body */
export async function withFront(options, body) {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const front = new FakeFront();
  const server = net.createServer((socket) => front.guests.push(new Guest(front, socket)));
  server.listen(join(folder, 'socket'));
  await once(server, 'listening');
  const client = new Client({ socket: join(folder, 'socket'), ...options });
  const end = () => {
    client.close();
    server.close();
    for (const { socket } of front.guests) socket.destroy();
    rmSync(folder, { recursive: true });
  };
  await withEnd(end, () => body(client, front));
}
