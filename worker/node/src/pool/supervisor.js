/**
 * A supervisor of our own: `offload serve` on a socket in a folder that only this user can enter. It ends with this program,
 * however that ends, because a shell stands between the two:
 *
 *   this program === pipe ===> shell: `read` returns when the program is gone ---> SIGTERM ---> offload serve ---> workers
 *
 * The shell also removes the folder. No job is waited for then, because nobody is left who wants its output.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fstatSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { ConnectionError } from '../client/errors.js';
import { checkPath } from '../client/socket.js';
import { patiently } from '../patience.js';

const SOCKET = 'offload.sock';

/**
 * Its arguments are the folder, and the command line of the supervisor. Descriptor 3 is the pipe. A signal to the shell ends its wait. Whether the
 * supervisor is still there is not asked: its number may be that of another process by then.
 */
export const GUARD = `
folder=$1; shift
"$@" 3<&- &
supervisor=$!
trap 'is_told=yes; kill -TERM "$supervisor"' HUP INT TERM
{ read -r line <&3; kill -TERM "$supervisor"; } 2>/dev/null >&2 &
guard=$!
is_told=yes
while [ "$is_told" ]; do is_told=; wait "$supervisor"; code=$?; done
kill "$guard" 2>/dev/null
rm -rf "$folder"
exit "$code"
`;

/** For how long the first worker may take until it can take jobs, in milliseconds, before the pool gives up. */
const READY_TIMEOUT = 60_000;
/** For how long it may take to end before it is killed, in milliseconds. It needs less than a second. */
const END_TIMEOUT = 10_000;

export class PrivateSupervisor {
  #child;
  #folder;
  #ready;
  /** Why it cannot be used any more. @type {ConnectionError | undefined} */
  #lost;
  /** Somebody here has ended it. */
  #isEnded = false;
  #isReady = false;
  #isGone = false;
  /** How many need it. While one does and it is not ready, it keeps this program from ending. */
  #needs = 0;
  #doesKeepAlive = true;

  /**
   * @param {object} options
   * @param {string} options.program the path or the name of offload
   * @param {string[]} options.flags of `offload serve`
   * @param {'inherit' | 'ignore' | number} options.log where its log goes
   */
  constructor({ program, flags, log }) {
    if (typeof program !== 'string' || program === '') throw new TypeError('`program` is a path or a name');
    if (log !== 'inherit' && log !== 'ignore' && !isDescriptor(log)) throw new TypeError("`log` is 'inherit', 'ignore' or the descriptor of an open file");
    const parent = resolve(tmpdir()); // this program may go to another folder
    checkPath(join(parent, 'offload-......', SOCKET)); // before anything is made
    this.#folder = mkdtempSync(join(parent, 'offload-'));
    this.socket = join(this.#folder, SOCKET);
    const words = [program, '--socket', this.socket, '--json', 'serve', '--fail-fast', '--drain-timeout', '0s', ...flags];
    this.#child = this.#spawn(words, log);
    const exit = once(this.#child, 'exit').catch((error) => [error.message, null]);
    this.exit = exit.then(([code, signal]) => this.#onEnd(code, signal));
    this.#ready = this.#begin(program);
    this.#ready.catch(() => {});
    this.#keepAlive();
  }

  #spawn(words, log) {
    try {
      // A session of its own: a Ctrl-C reaches this program only, which may want to finish its calls.
      return spawn('/bin/sh', ['-c', GUARD, 'offload', this.#folder, ...words], {
        stdio: ['ignore', 'pipe', log, 'pipe'], env: environment(), detached: true,
      });
    } catch (error) {
      this.#removeFolder();
      throw error;
    }
  }

  /** The pipe whose end ends it. There is none if the program had no descriptors left to start it. */
  get #life() {
    return /** @type {import('node:stream').Writable | undefined} */ (this.#child.stdio?.[3]);
  }

  /** Resolved when its first worker can take jobs. Rejected with a `ConnectionError` if there is no supervisor, or not any more. */
  async ready() {
    if (this.#lost !== undefined) throw this.#lost;
    await this.#ready;
  }

  /** Somebody needs it, or does so no more. @param {boolean} isNeeded */
  need(isNeeded) {
    this.#needs += isNeeded ? 1 : -1;
    this.#keepAlive();
  }

  /** Ends it, with its jobs and its workers. Resolved when it is gone. */
  async end() {
    this.#lost ??= new ConnectionError('closed', 'this pool was closed');
    this.#isEnded = true;
    this.#keepAlive();
    this.#letGo();
    await this.exit;
  }

  /** Its shell ends it. One that does not end, as when it is stopped, is killed. */
  #letGo() {
    this.#life?.destroy();
    const stopWaiting = patiently(END_TIMEOUT, () => this.#kill());
    this.exit.then(stopWaiting);
  }

  #kill() {
    try {
      process.kill(-/** @type {number} */ (this.#child.pid), 'SIGKILL'); // the shell and the supervisor, with which its workers end
    } catch {
      // it has ended, or is another user's
    }
  }

  async #begin(program) {
    const stopWaiting = patiently(READY_TIMEOUT, () => this.#letGo());
    try {
      const said = await this.#firstLine();
      if (said?.ready) return this.#begun();
      this.#letGo();
      const how = await this.exit;
      throw this.#isEnded ? this.#lost : notStarted(program, said?.error?.message, how);
    } finally {
      stopWaiting();
    }
  }

  #begun() {
    this.#isReady = true;
    this.#keepAlive();
  }

  /**
   * What it prints first: that it is ready, or why it will not be. Later lines are not wanted. What it has started may hold the other end for longer than
   * it lives.
   * @returns {Promise<any>}
   */
  async #firstLine() {
    const { stdout } = this.#child;
    if (!stdout) return undefined;
    const lines = createInterface({ input: stdout });
    const ends = [once(lines, 'close'), this.exit.then(polled)].map((end) => end.then(() => undefined));
    const line = await Promise.race([once(lines, 'line').then(([text]) => text), ...ends]);
    lines.close();
    stdout.resume();
    this.exit.then(() => stdout.destroy());
    return line === undefined ? undefined : documentOf(line);
  }

  /** @param {number | string | null} code @param {string | null} signal */
  #onEnd(code, signal) {
    this.#isGone = true;
    const how = signal ?? (typeof code === 'string' ? code : `exit code ${code}`);
    this.#lost ??= new ConnectionError('no_supervisor', `the supervisor of this pool has ended (${how})`);
    this.#removeFolder();
    return how;
  }

  #removeFolder() {
    try {
      rmSync(this.#folder, { recursive: true, force: true });
    } catch {
      // it stays: that is no reason to end this program
    }
  }

  /** It keeps this program from ending while somebody waits for its start, or for its end. */
  #keepAlive() {
    const doesKeep = this.#isEnded || (this.#needs > 0 && !this.#isReady);
    if (this.#isGone || doesKeep === this.#doesKeepAlive) return;
    this.#doesKeepAlive = doesKeep;
    for (const handle of [this.#child, this.#child.stdout, this.#life]) {
      if (doesKeep) /** @type {any} */ (handle)?.ref();
      else /** @type {any} */ (handle)?.unref();
    }
  }
}

/** Resolved when the event loop has polled: the second immediate is behind that. */
const polled = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

/** @param {unknown} log */
function isDescriptor(log) {
  try {
    return Number.isInteger(log) && fstatSync(/** @type {number} */ (log)) !== undefined;
  } catch {
    return false;
  }
}

/** Another program may print anything. @param {string} line */
function documentOf(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { error: { message: `it is another program: it printed ${JSON.stringify(line.slice(0, 80))}` } };
  }
}

function notStarted(program, reason, how) {
  const isMissing = how === 'exit code 127';
  const advice = `${program} cannot be found: install it, or name it by OFFLOAD_BIN or the option \`program\``;
  return new ConnectionError('no_supervisor', isMissing ? advice : `the supervisor of this pool did not start: ${reason ?? how}`);
}

/** The settings of another supervisor do not hold for this one, nor does the configuration file of the user or the machine. */
function environment() {
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith('OFFLOAD_'));
  return { ...Object.fromEntries(others), OFFLOAD_CONFIG: '/dev/null' };
}
