/** Files of tests that fail, and files that never end: the run ends, and says which. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ended, spawn } from './programs.js';
import { test, withEnd } from './testing.js';
import { within } from './within.js';

const here = (name) => JSON.stringify(new URL(name, import.meta.url));
const imports = `
  import assert from 'node:assert/strict';
  import { spawn } from 'node:child_process';
  import { FakeSupervisor } from ${here('fake_supervisor.js')};
  import { withFront } from ${here('fake_front.js')};
  import { spawn as spawnForTest } from ${here('programs.js')};
  import { Pool, test } from ${here('testing.js')};
  import { until } from ${here('within.js')};
  const worker = new URL(${here('workers/tasks.mjs')});
`;

/** Runs files that consist of this, and gives the exit code of the run and what it printed. */
async function run(seconds, files) {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  return withEnd(() => rmSync(folder, { recursive: true }), async () => {
    const paths = Object.entries(files).map(([name, body]) => {
      const path = join(folder, `${name}.mjs`);
      writeFileSync(path, imports + body);
      return path;
    });
    const program = fileURLToPath(new URL('run.js', import.meta.url));
    // A file is run as this one is, and reports for whoever reads the output of that, unless told otherwise.
    const { NODE_TEST_CONTEXT, ...env } = process.env;
    const child = spawn(process.execPath, [program, '--longest', String(seconds), ...paths], { stdio: ['ignore', 'pipe', 'inherit'], env });
    const exit = once(child, 'exit');
    const lines = await within('the end of the run', child.stdout.setEncoding('utf8').toArray());
    const [code] = await exit;
    return { code, output: lines.join('') };
  });
}

test('a file that does not end is ended with what it has started, and named', async () => {
  const { code, output } = await run(10, {
    child: "test('it passes', () => console.log('its child is', spawn('sleep', ['1000'], { stdio: 'inherit' }).pid, '.'));",
    loop: "test('it computes', () => { for (;;); });",
    good: "test('it passes', () => {});",
  });
  assert.equal(code, 1, output);
  const failed = output.slice(output.indexOf('\nfailed:'));
  for (const name of ['child', 'loop']) assert.match(failed, new RegExp(`^${name}.mjs: it did not end in 10 s`, 'm'), output);
  assert.match(output, /^good.mjs: passed$/m);
  assert.match(output, /keeps it from ending: .*ProcessWrap/);
  await ended([Number(/its child is (\d+)/.exec(output)[1])]);
});

test('what holds the output of a file that has ended holds nothing up', async () => {
  const { code, output } = await run(60, {
    holds: "test('it passes', () => { const child = spawn('sleep', ['1000'], { stdio: 'inherit' }); console.log('its child is', child.pid, '.'); child.unref(); });",
  });
  assert.equal(code, 0, output);
  await ended([Number(/its child is (\d+)/.exec(output)[1])]);
});

test('a file whose tests fail ends, whatever they have started', async () => {
  const { code, output } = await run(60, {
    worker: "test('it fails', async () => { await FakeSupervisor.start('tasks.mjs'); assert.fail('on purpose'); });",
    child: "test('it fails', () => { spawnForTest('sleep', ['1000'], { stdio: 'pipe' }); assert.fail('on purpose'); });",
    pool: "test('it fails', async () => { const pool = new Pool({ worker, workers: 1, log: 'ignore' }); void pool.call('forever').catch(() => {}); await pool.ready(); assert.fail('on purpose'); });",
    wait: "test('it fails', () => until('what never comes', () => false, 50));",
    question: "test('it fails', () => withFront({}, (client) => client.status()), 50);",
  });
  assert.equal(code, 1, output);
  for (const name of ['worker', 'child', 'pool', 'wait', 'question']) assert.match(output, new RegExp(`^${name}.mjs: it failed: exit code 1$`, 'm'), output);
  assert.match(output, /what never comes did not come in 0.05 s/);
  assert.match(output, /the end of the test did not come in 0.05 s/);
  assert.match(output, /on purpose/);
});
