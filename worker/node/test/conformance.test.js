/** The questions that `offload worker check` puts to workers in any language. */

import assert from 'node:assert/strict';
import { outputOf } from './programs.js';
import { PROGRAM, workerCommand } from './supervisor.js';
import { test } from './testing.js';

for (const name of ['tasks.mjs', 'checked.mjs', 'batches.mjs']) {
  test(`the worker ${name} keeps the protocol`, () => {
    // It throws with what was wrong if the exit code is another than 0.
    const answers = outputOf(PROGRAM, ['worker', 'check', workerCommand(name)]);
    assert.match(answers, /^it keeps the protocol/m);
  });
}
