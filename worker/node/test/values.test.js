/** Values as payloads, command lines of workers, and where the socket is. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Payload } from '../index.js';
import { defaultSocket } from '../src/client/socket.js';
import { checkMediaType, cut } from '../src/nouns.js';
import { decodePayload, encodePayload } from '../src/payload.js';
import { commandOf } from '../src/pool/command.js';

/** Runs `body` with this environment and nothing else of it. */
function withEnvironment(variables, body) {
  const before = process.env;
  process.env = variables;
  try {
    return body();
  } finally {
    process.env = before;
  }
}

test('a value is sent as what it is, unless a media type says otherwise', () => {
  const cases = [
    ['text', undefined, 'text', 'text/plain; charset=utf-8'],
    ['text', 'application/json', '"text"', 'application/json'],
    ['{}', 'text/html', '{}', 'text/html'],
    [5, undefined, '5', 'application/json'],
    [5, 'text/plain', '5', 'text/plain'],
    [5, 'image/png', '5', 'application/json'],
    [undefined, undefined, 'null', 'application/json'],
    [{ a: 1 }, 'application/ld+json', '{"a":1}', 'application/ld+json'],
    [new Payload('x', 'a/b'), 'image/png', 'x', 'a/b'],
    [new Uint8Array([65, 66]), undefined, 'AB', 'application/octet-stream'],
    [new Uint8Array([65, 66]).buffer, 'image/png', 'AB', 'image/png'],
    [new DataView(new Uint8Array([65, 66, 67]).buffer, 1), undefined, 'BC', 'application/octet-stream'],
  ];
  for (const [value, given, bytes, contentType] of cases) {
    const sent = encodePayload(value, given);
    assert.deepEqual([Buffer.from(sent.bytes).toString(), sent.contentType], [bytes, contentType]);
  }
  for (const value of [() => {}, Symbol('x'), 1n]) assert.throws(() => encodePayload(value), TypeError);
});

test('a payload is read as its media type says', () => {
  const read = (text, type) => decodePayload(Buffer.from(text), type);
  assert.deepEqual(read('{"a":1}', 'application/json; charset=utf-8'), { a: 1 });
  assert.deepEqual(read('[1]', 'Application/Problem+JSON'), [1]);
  assert.equal(read('ü', 'TEXT/HTML'), 'ü');
  assert.deepEqual(read('x', 'image/png'), Buffer.from('x'));
  assert.throws(() => read('{', 'application/json'), SyntaxError);
});

test('a media type has the form of HTTP', () => {
  for (const good of ['image/png', '*/*', 'text/plain;a=b', 'text/plain ; a="x; y\\"z" ; c=d', `a/${'b'.repeat(125)}`]) {
    assert.equal(checkMediaType(good), good);
  }
  for (const bad of ['', 'png', 'a/', '/b', 'a/b ', 'a/b;', 'a/b;c', 'a/b;c="d', 'a b/c', 'a/b\n', `a/${'b'.repeat(126)}`, undefined]) {
    assert.throws(() => checkMediaType(bad), TypeError, String(bad));
  }
});

test('a text is cut between two characters', () => {
  assert.deepEqual([cut('häuser', 2), cut('häuser', 3), cut('🦀', 3), cut('short', 99)], ['h', 'hä', '', 'short']);
});

test('the command of a worker is written so that the supervisor reads the same words', () => {
  assert.equal(commandOf('python3 w.py'), 'python3 w.py');
  assert.equal(commandOf(["it's", 'two words', '']), `'it'\\''s' 'two words' ''`);
  const module = pathToFileURL('/folder of mine/worker.mjs');
  assert.equal(commandOf(module), `'${process.execPath}' '/folder of mine/worker.mjs'`);
  for (const wrong of [[], undefined, 5]) assert.throws(() => commandOf(wrong), TypeError);
});

test('the socket is where the command line looks for it', () => {
  assert.equal(withEnvironment({ OFFLOAD_SOCKET: '/a', XDG_RUNTIME_DIR: '/b' }, defaultSocket), '/a');
  assert.equal(withEnvironment({ XDG_RUNTIME_DIR: '/b' }, defaultSocket), '/b/offload/offload.sock');
  assert.match(withEnvironment({ HOME: '/c' }, defaultSocket), /^(\/run\/user\/\d+\/offload|\/c\/\.offload)\/offload\.sock$/);
});
