/**
 * A program becomes a worker: `serve({ tasks })`.
 */

import { checkKeys, isSet } from '../keys.js';
import { traceOf } from './failure.js';
import { hasChannel } from './link.js';
import { fail, POINTLESS, Session } from './session.js';
import { defineTasks } from './tasks.js';

/**
 * Serves the supervisor that started this program, until that sends Drain or is gone; then the process exits. See README.md.
 *
 * Ends the process with exit code 64, which tells the supervisor not to start it again, if an option or a task is wrong or if no
 * supervisor started it; with 1 if `setUp` fails.
 * @param {{ tasks: Record<string, any>, setUp?: (() => any) | null }} options
 */
export function serve(options) {
  let defined;
  try {
    checkKeys('`serve`', options, ['tasks', 'setUp']);
    if (isSet(options.setUp) && typeof options.setUp !== 'function') throw new TypeError('`setUp` is a function');
    defined = defineTasks(options.tasks);
  } catch (error) {
    fail(error.message, POINTLESS);
  }
  if (!hasChannel()) fail("no supervisor started this program: start it with `offload serve --worker 'node FILE'`", POINTLESS);
  new Session(defined).begin(options.setUp).catch((error) => fail(`setUp has failed: ${traceOf(error)}`, 1));
}
