/** The web server of `example/`, whose requests crash its workers. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { within } from './within.js';

/** Posts a body. @returns {Promise<[number, string]>} status and answer */
async function post(url, body, agent) {
  const request = http.request(url, { method: 'POST', agent });
  request.end(body);
  const [response] = await once(request, 'response');
  let answer = '';
  for await (const chunk of response.setEncoding('utf8')) answer += chunk;
  return [response.statusCode, answer];
}

test('100 clients of a web server get their answers, while 1 of 10 requests crashes a worker', async () => {
  const example = fileURLToPath(new URL('../example/http.mjs', import.meta.url));
  const server = spawn(process.execPath, [example], { env: { ...process.env, PORT: '0' }, stdio: ['ignore', 'pipe', 'ignore'] });
  const exit = once(server, 'exit');
  const agent = new http.Agent({ keepAlive: true });
  try {
    const [url] = await within('the address of the server', once(createInterface({ input: server.stdout }), 'line'));
    const client = async (index) => {
      for (let i = 0; i < 10; i++) {
        const isGuilty = (index + i) % 10 === 0;
        const [status, answer] = await post(url, isGuilty ? 'crash' : `request ${index}.${i}`, agent);
        if (isGuilty) assert.deepEqual([status, answer.trim()], [502, 'worker_crashed: signal 6 (SIGABRT) in attempt 1 of 1']);
        else assert.deepEqual([status, answer], [200, `REQUEST ${index}.${i}`]);
      }
    };
    await within('all answers', Promise.all(Array.from({ length: 100 }, (_, index) => client(index))));
    assert.equal((await within('an answer', post(url, '', agent)))[0], 422);
    assert.equal((await within('an answer', post(url, 'hang', agent)))[0], 504);
    agent.destroy();
    server.kill('SIGTERM');
    assert.deepEqual(await within('the end of the server', exit), [0, null]);
  } finally {
    agent.destroy();
    server.kill('SIGKILL');
  }
});
