/** Web servers whose requests crash their workers: the one of `example/`, and one whose workers are killed besides. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Killer } from './killer.js';
import { spawn } from './programs.js';
import { atEnd, Pool, test } from './testing.js';
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

test('100 clients of a web server get their answers, while 1 of 25 requests crashes a worker', async () => {
  const example = fileURLToPath(new URL('../example/http.mjs', import.meta.url));
  const server = spawn(process.execPath, [example], { env: { ...process.env, PORT: '0' }, stdio: ['ignore', 'pipe', 'ignore'] });
  const exit = once(server, 'exit');
  const agent = new http.Agent({ keepAlive: true });
  try {
    const [url] = await within('the address of the server', once(createInterface({ input: server.stdout }), 'line'));
    const client = async (index) => {
      for (let i = 0; i < 10; i++) {
        const isGuilty = (index + i) % 25 === 0;
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

/** A web server: `/double` gives twice the number of the body, `/abort` crashes. */
async function serverOf(pool) {
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const options = request.url === '/double' ? { attempts: 100 } : {};
    const [status, answer] = await pool.call(request.url.slice(1), JSON.parse(body), options).then(
      (output) => [200, String(output)],
      (error) => [502, error.outcome],
    );
    response.writeHead(status).end(answer);
  });
  server.listen(0, '127.0.0.1');
  atEnd(() => server.close());
  await once(server, 'listening');
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

test('1 of 50 requests crashes a worker, others are killed again and again, and no answer is wrong or lost', async () => {
  const worker = new URL('./workers/tasks.mjs', import.meta.url);
  const pool = new Pool({ worker, workers: 3, flags: ['--max-restarts=1000', '--backoff-min=1ms', '--backoff-max=10ms'], log: 'ignore' });
  const { server, url } = await serverOf(pool);
  const agent = new http.Agent({ keepAlive: true });
  const killer = new Killer(pool);
  const client = async (index) => {
    for (let i = index; killer.count < 10 || i < index + 10; i++) {
      const [path, expected] = i % 50 === 0 ? ['/abort', [502, 'worker_crashed']] : ['/double', [200, String(2 * i)]];
      assert.deepEqual(await post(url + path, String(i), agent), expected);
    }
  };
  try {
    await within('all answers', Promise.all(Array.from({ length: 100 }, (_, index) => client(index * 7))));
    assert.ok(killer.count >= 10);
  } finally {
    agent.destroy();
    server.close();
    await killer.stop();
    await within('the end of the pool', pool.end());
  }
});
