/** The questions that `offload worker check` puts to workers in any language. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { PROGRAM, workerCommand } from './supervisor.js';

for (const name of ['tasks.mjs', 'checked.mjs', 'batches.mjs']) {
  test(`the worker ${name} keeps the protocol`, () => {
    // It throws with what was wrong if the exit code is another than 0.
    const answers = execFileSync(PROGRAM, ['worker', 'check', workerCommand(name)], { encoding: 'utf8', stdio: 'pipe' });
    assert.match(answers, /^it keeps the protocol/m);
  });
}
