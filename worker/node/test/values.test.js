/** Values as payloads, command lines of workers, and where the socket is. */

import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { runInNewContext } from 'node:vm';
import { Payload } from '../index.js';
import { defaultSocket } from '../src/client/socket.js';
import { checkMediaType, cut } from '../src/nouns.js';
import { decodePayload, encodePayload } from '../src/payload.js';
import { commandOf } from '../src/pool/command.js';
import { test } from './testing.js';

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
    [new SharedArrayBuffer(2), undefined, '\0\0', 'application/octet-stream'],
    [new DataView(new Uint8Array([65, 66, 67]).buffer, 1), undefined, 'BC', 'application/octet-stream'],
  ];
  for (const [value, given, bytes, contentType] of cases) {
    const sent = encodePayload(value, given);
    assert.deepEqual([Buffer.from(sent.bytes).toString(), sent.contentType], [bytes, contentType]);
  }
  for (const value of [() => {}, Symbol('x'), 1n]) assert.throws(() => encodePayload(value), TypeError);
});

test('a value that would be sent as another one is refused', () => {
  const lossy = [
    [NaN, undefined, /^NaN cannot be written as JSON/],
    [-Infinity, 'text/plain', /^-Infinity cannot be written as JSON/],
    [{ a: [1, { b: Infinity }] }, undefined, /^Infinity \("b"\) cannot/],
    [[Object(NaN)], 'application/ld+json', /^NaN \("0"\) cannot/],
    [{ toJSON: () => NaN }, undefined, /^NaN cannot/],
    [new Map([[1, 2]]), undefined, /^an object \(Map\) cannot/],
    [new Set([1]), undefined, /\(Set\)/],
    [Promise.resolve(5), undefined, /\(Promise\)/],
    [new Error('x'), undefined, /\(Error\)/],
    ['a \ud800 b', undefined, /half of a surrogate pair/],
    ['\udc00', 'image/svg+xml', /half of a surrogate pair/],
    ['\ud800', 'application/json', /^a text with half of a surrogate pair cannot be sent$/],
    [['\ud800'], undefined, /^a text with half of a surrogate pair \("0"\) cannot be sent$/],
    [{ a: { b: 'x\udfff' } }, undefined, /^a text with half of a surrogate pair \("b"\) cannot/],
    [[Object('\ud800')], undefined, /half of a surrogate pair \("0"\)/],
    [{ toJSON: () => '\ud800' }, undefined, /half of a surrogate pair/],
    [[new Date(0), { '\ud800': 1 }], undefined, /^"\\ud800" has half of a surrogate pair, and cannot be sent$/],
    ['grüße', 'text/plain; charset=iso-8859-1', /sent as UTF-8, its media type says iso-8859-1/],
    ['ascii', 'text/plain; charset="ISO-8859-1"', /says iso-8859-1/],
    ['grüße', 'text/plain; charset=us-ascii', /says us-ascii/],
    ['a', 'text/plain; charset=utf-16', /says utf-16/],
    ['a', 'text/plain; charset=klingon', /says klingon/],
  ];
  for (const [value, given, message] of lossy) assert.throws(() => encodePayload(value, given), { name: 'TypeError', message });
  const kept = [
    [{ a: null, b: undefined, c: 'NaN null' }, undefined, '{"a":null,"c":"NaN null"}'],
    [[undefined], undefined, '[null]'],
    [{}, undefined, '{}'],
    [Object.create(null), undefined, '{}'],
    [new (class Empty {})(), undefined, '{}'],
    [['\ud83e\udd80', '\\ud800'], undefined, '["🦀","\\\\ud800"]'],
    ['ascii', 'text/plain; charset="US-ASCII"', 'ascii'],
    ['ü', 'text/plain;charset=UTF8', 'ü'],
  ];
  for (const [value, given, text] of kept) assert.equal(Buffer.from(encodePayload(value, given).bytes).toString(), text);
  for (const bytes of [5, {}, undefined, null, [1], '\ud800']) assert.throws(() => new Payload(bytes, 'a/b'), TypeError);
  assert.throws(() => new Payload('x', 'png'), TypeError);
});

test('what cannot be sent alone cannot be sent inside of a document either, whatever fields it has', () => {
  const withField = (object) => Object.assign(object, { code: 'ENOENT' });
  const alone = [
    [new Map([[1, 2]]), '(Map)'], [new Set([1]), '(Set)'], [new WeakMap(), '(WeakMap)'], [Promise.resolve(1), '(Promise)'],
    [new Error('x'), '(Error)'], [new TypeError('x'), '(Error)'], [runInNewContext("new Error('x')"), '(Error)'], [/x/, '(RegExp)'],
    [Object.create(Error.prototype), '(Object)'],
    [function* () {}(), '(Generator)'], [new URLSearchParams('a=1'), '(URLSearchParams)'], [Object(Symbol('x')), '(Symbol)'],
    [() => {}, 'a function'], [Symbol('x'), 'a symbol'], [NaN, 'NaN'], [-Infinity, '-Infinity'], [new Date(NaN), 'an invalid date'],
  ];
  const refusal = (value) => {
    try {
      return assert.fail(`it became ${Buffer.from(encodePayload(value).bytes)}`);
    } catch (error) {
      assert.equal(error.name, 'TypeError', error.message);
      return error.message;
    }
  };
  for (const [value, name] of alone) {
    const isObject = typeof value === 'object';
    const end = 'cannot be written as JSON';
    for (const [whole, key] of [[value, ''], [[value], ' ("0")'], [{ a: [1, { b: value }] }, ' ("b")'], [{ toJSON: () => [value] }, ' ("0")']]) {
      const message = refusal(whole);
      assert.ok(message.includes(name) && message.endsWith(key === '' ? end : `${key} ${end}`), message);
    }
    // Of what is not known, nothing can be said but that JSON shows something of it.
    if (isObject && !(value instanceof URLSearchParams)) assert.ok(refusal([withField(value)]).includes(name));
  }
  // Alone they are bytes, and inside they would be objects with a field for each number.
  for (const bytes of [new Float64Array([1]), new Uint8Array(0), new ArrayBuffer(1), new DataView(new ArrayBuffer(1))]) {
    assert.match(refusal({ bytes }), /^an object \(\w+\) \("bytes"\) cannot be written as JSON$/);
  }
  const said = Object.assign(new Error('x'), { toJSON: () => ({ error: 'x' }) });
  class Row { a = 1; get b() { return 2; } method() {} }
  const kept = [
    [[said, new Date(0), { at: new Date(0) }], '[{"error":"x"},"1970-01-01T00:00:00.000Z",{"at":"1970-01-01T00:00:00.000Z"}]'],
    [[new Row(), [{}], new URL('a:b'), { toJSON() { return this; }, c: 1 }], '[{"a":1},[{}],"a:b",{"c":1}]'],
    [[-0, undefined, Object('x'), Object(true), Object(1)], '[0,null,"x",true,1]'],
    [{ a: { toJSON: () => null }, b: 'null {}' }, '{"a":null,"b":"null {}"}'],
  ];
  for (const [value, text] of kept) assert.equal(Buffer.from(encodePayload(value).bytes).toString(), text);
});

test('a document that is nested too deeply is a TypeError like others that cannot be sent', () => {
  let deep = [];
  for (let i = 0; i < 100_000; i++) deep = [deep];
  assert.throws(() => encodePayload(deep), { name: 'TypeError', message: /^an object \(Array\) cannot be written as JSON: Maximum call stack/ });
  const loop = { a: [] };
  loop.a.push(loop, loop);
  assert.throws(() => encodePayload(loop), { name: 'TypeError', message: /circular/ });
});

test('a payload is read as its media type says', () => {
  const read = (text, type) => decodePayload(Buffer.from(text), type);
  assert.deepEqual(read('{"a":1}', 'application/json; charset=utf-8'), { a: 1 });
  assert.deepEqual(read('[1]', 'Application/Problem+JSON'), [1]);
  assert.equal(read('ü', 'TEXT/HTML'), 'ü');
  assert.deepEqual(read('x', 'image/png'), Buffer.from('x'));
  assert.throws(() => read('{', 'application/json'), SyntaxError);
});

test('text is read in the charset that its media type names as that is registered, and not as on the web', () => {
  const readAs = (bytes, charset) => decodePayload(Buffer.from(bytes), `text/plain; charset=${charset}`);
  const high = [0x80, 0x9f, 0xa4, 0xd0, 0xfc];
  const texts = {
    'iso-8859-1': '\x80\x9f¤Ðü', 'LATIN1': '\x80\x9f¤Ðü', 'Latin-1': '\x80\x9f¤Ðü', 'cp819': '\x80\x9f¤Ðü', 'windows-1252': '€Ÿ¤Ðü', 'iso-8859-15': '\x80\x9f€Ðü',
    'iso-8859-9': '\x80\x9f¤Ğü', 'latin5': '\x80\x9f¤Ğü', 'windows-1254': '€Ÿ¤Ğü', 'iso-8859-5': '\x80\x9fЄаќ', 'koi8-r': '─÷╓пЭ', 'windows-1251': 'Ђџ¤Рь',
  };
  for (const [charset, text] of Object.entries(texts)) assert.equal(readAs(high, charset), text, charset);
  assert.equal(readAs(Buffer.from('ascii'), 'us-ascii'), 'ascii');
  const units = {
    'utf-16': [[[0xfe, 0xff, 0, 0x41], 'A'], [[0xff, 0xfe, 0x41, 0], 'A'], [[0xfe, 0xff, 0xfe, 0xff, 0, 0x41], '\ufeffA']],
    'utf-16le': [[[0x41, 0], 'A'], [[0xff, 0xfe, 0x41, 0], '\ufeffA']],
    'UTF-16BE': [[[0, 0x41], 'A'], [[0xfe, 0xff, 0, 0x41], '\ufeffA']],
  };
  for (const [charset, cases] of Object.entries(units)) for (const [bytes, text] of cases) assert.equal(readAs(bytes, charset), text, charset);
  assert.equal(readAs([], 'utf-16'), '');
  const wrong = [[high, 'us-ascii'], [[0x41, 0], 'utf-16'], [[0xfe, 0xff, 0], 'utf-16'], [[0xfe, 0xff, 0xd8, 0], 'utf-16'], [[0x81], 'windows-1252'], [[0x98], 'windows-1251'],
    [[0xaa], 'windows-1253']];
  for (const [bytes, charset] of wrong) assert.throws(() => readAs(bytes, charset), { name: 'TypeError', message: `it is no text in ${charset}` });
  for (const charset of ['unicode', 'ucs-2', 'tis-620', 'koi8-u', 'gb2312', 'gbk', 'ks_c_5601-1987', 'big5', 'shift_jis', 'klingon', 'unicode-1-1-utf-8']) {
    assert.throws(() => readAs([0x41, 0x41], charset), { name: 'TypeError', message: `it is in the charset ${charset}, which is not read here` });
  }
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
