/**
 * Where the supervisor's socket is, if nobody says: the same places as for the command line. And what can be the path of a socket at all.
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

/** Longest path of a socket, in bytes. Node would take the beginning of a longer one. */
const PATH_MAX = 107;

/** Returns what can be the path of a socket, and throws a TypeError otherwise. @param {string} path */
export function checkPath(path) {
  if (typeof path !== 'string' || path === '' || path.includes('\0')) throw new TypeError('`socket` is a path');
  const length = Buffer.byteLength(path);
  if (length > PATH_MAX) throw new TypeError(`the path of a socket has at most ${PATH_MAX} bytes, and this one ${length}: ${path}`);
  return path;
}
