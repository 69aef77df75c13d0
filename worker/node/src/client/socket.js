/**
 * Where the supervisor's socket is, if nobody says: the same places as for the command line.
 */

import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';

/** @returns {string} */
export function defaultSocket() {
  const { OFFLOAD_SOCKET, XDG_RUNTIME_DIR, HOME } = process.env;
  if (OFFLOAD_SOCKET) return OFFLOAD_SOCKET;
  if (XDG_RUNTIME_DIR) return join(XDG_RUNTIME_DIR, 'offload', 'offload.sock');
  const runtime = `/run/user/${process.getuid?.()}`;
  if (fs.existsSync(runtime)) return join(runtime, 'offload', 'offload.sock');
  // Only who comes here needs a home directory: for a user without an entry in the table of users, `homedir` throws.
  return join(HOME ?? os.homedir(), '.offload', 'offload.sock');
}
