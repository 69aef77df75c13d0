/**
 * Runs files of tests, each in a process of its own, as `node --test` does; but that waits for ever for a process that does not end, and for
 * whoever holds its output. Here a file has so much time. One that takes longer is ended with all that it has started, and named.
 *
 * Usage: node test/run.js [--longest SECONDS] [FILE...]; without files all of them
 */

import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** How long a file may take, in seconds: many times what it takes on a busy machine. */
const FILE_LONGEST = 600;
/** How long one that took too long may take to say what it waits for, in milliseconds. */
const LAST_WORDS = 2000;

const { values, positionals } = parseArgs({ options: { longest: { type: 'string' } }, allowPositionals: true });
const seconds = Number(values.longest ?? FILE_LONGEST);
const folder = mkdtempSync(join(os.tmpdir(), 'offload-'));
/** The processes of files that run. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();

function allFiles() {
  const here = fileURLToPath(new URL('.', import.meta.url));
  return readdirSync(here).filter((name) => name.endsWith('.test.js')).sort().map((name) => join(here, name));
}

/** A process leads a group of its own. What it has started may have outlived it. @param {import('node:child_process').ChildProcess} child */
function endGroup(child) {
  try {
    process.kill(-/** @type {number} */ (child.pid), 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** What is wrong with a file, if something is. @param {string} file @param {string} output where its output goes */
async function failureOf(file, output) {
  const fd = openSync(output, 'a');
  const child = spawn(process.execPath, [...readably(), file], { stdio: ['ignore', fd, fd], detached: true });
  closeSync(fd);
  running.add(child);
  let isLate = false;
  const late = setTimeout(() => {
    isLate = true;
    child.kill('SIGUSR2'); // see testing.js
    setTimeout(() => endGroup(child), LAST_WORDS).unref();
  }, seconds * 1000);
  const how = await new Promise((resolve, reject) => child.on('error', reject).on('exit', (code, signal) => resolve(signal ?? code)));
  clearTimeout(late);
  endGroup(child);
  running.delete(child);
  if (isLate) return `it did not end in ${seconds} s. What its tests said until then is above`;
  return how === 0 ? undefined : `it failed: ${typeof how === 'number' ? `exit code ${how}` : how}`;
}

/** Before 18.15 Node has one form of reports. */
const readably = () => (process.allowedNodeEnvironmentFlags.has('--test-reporter') ? ['--test-reporter=spec'] : []);

/** Runs files until none is left. @param {string[]} files @param {string[]} failures */
async function work(files, failures) {
  for (let file = files.shift(); file !== undefined; file = files.shift()) {
    const output = join(folder, basename(file));
    const failure = await failureOf(file, output);
    const said = `${basename(file)}: ${failure ?? 'passed'}`;
    process.stdout.write(`${readFileSync(output, 'utf8')}${said}\n\n`);
    if (failure !== undefined) failures.push(said);
  }
}

for (const [signal, number] of Object.entries({ SIGHUP: 1, SIGINT: 2, SIGTERM: 15 })) {
  process.on(signal, () => {
    for (const child of running) endGroup(child);
    process.exit(128 + number);
  });
}
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

const files = positionals.length > 0 ? positionals : allFiles();
/** @type {string[]} */
const failures = [];
// As many at once as `node --test` runs.
await Promise.all(Array.from({ length: Math.max(1, os.cpus().length - 1) }, () => work(files, failures)));
process.stdout.write(failures.length === 0 ? 'all files passed\n' : `failed:\n${failures.join('\n')}\n`);
process.exitCode = failures.length === 0 ? 0 : 1;
