/**
 * Where the supervisor's socket is, if nobody says: the same places as for the command line.
 */

import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';

/** @returns {string} */
export function defaultSocket() {
  const { OFFLOAD_SOCKET, XDG_RUNTIME_DIR, HOME = os.homedir() } = process.env;
  if (OFFLOAD_SOCKET) return OFFLOAD_SOCKET;
  if (XDG_RUNTIME_DIR) return join(XDG_RUNTIME_DIR, 'offload', 'offload.sock');
  const runtime = `/run/user/${process.getuid?.()}`;
  if (fs.existsSync(runtime)) return join(runtime, 'offload', 'offload.sock');
  return join(HOME, '.offload', 'offload.sock');
}
