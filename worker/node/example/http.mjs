/**
 * A web server in front of code that crashes: `node example/http.mjs`. The crash costs the request that caused it, and no other.
 *
 *   curl -d 'hello' localhost:8080/        HELLO
 *   curl -d 'crash' localhost:8080/        502
 */

import http from 'node:http';
import { JobError, Pool, Rejected } from '../index.js';

const pool = new Pool({ worker: new URL('./shout.mjs', import.meta.url) });
/** The longest body, in bytes. */
const BODY_MAX = 1 << 20;

const server = http.createServer(async (request, response) => {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    const output = await pool.call('shout', await bodyOf(request), { timeout: 2000, signal: gone.signal });
    response.end(output);
  } catch (error) {
    const { status, headers } = answerTo(error);
    response.writeHead(status, headers).end(`${error.message}\n`);
  }
});

/** @param {http.IncomingMessage} request */
async function bodyOf(request) {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) {
    body += chunk;
    if (body.length > BODY_MAX) throw new Rejected('too_large', `a body has at most ${BODY_MAX} bytes`);
  }
  return body;
}

/** @param {any} error */
function answerTo(error) {
  if (error instanceof Rejected) {
    const retryAfter = error.retryAfter === null ? {} : { 'retry-after': Math.ceil(error.retryAfter / 1000) };
    return { status: error.code === 'too_large' ? 413 : 503, headers: retryAfter };
  }
  const statuses = { app_error: 422, timeout: 504 };
  return { status: error instanceof JobError ? (statuses[error.outcome] ?? 502) : 500, headers: {} };
}

server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/`);
});

process.once('SIGTERM', async () => {
  server.close();
  server.closeIdleConnections?.();
  await pool.close();
});
