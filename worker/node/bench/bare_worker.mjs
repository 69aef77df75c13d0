/** The least that a worker can do: it answers every job with its input, and knows no more of the protocol than that takes. */

import fs from 'node:fs';
import net from 'node:net';

const BYTES = 'application/octet-stream';
const text = (string) => Buffer.concat([u64(string.length), Buffer.from(string)]);
const u64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const frame = (number, fields, payload = Buffer.alloc(0)) => {
  const head = Buffer.alloc(12);
  head.writeUInt32LE(4 + fields.length, 0);
  head.writeUInt32LE(payload.length, 4);
  head.writeUInt32LE(number, 8);
  return Buffer.concat([head, fields, payload]);
};

const offer = Buffer.concat([
  text('echo'), Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), text(''), u64(0), text('*/*'), Buffer.alloc(18),
]);
fs.writeSync(0, frame(0, Buffer.concat([Buffer.from('OFFLOADW\x03\0\0\0'), u64(0), text('bare')])));
fs.writeSync(0, frame(1, offer));
fs.writeSync(0, frame(2, Buffer.alloc(0)));

const socket = new net.Socket({ fd: 0, readable: true, writable: true });
socket.on('end', () => process.exit(0));
// Each message of the supervisor comes in one piece, because there is only one at a time and it is short.
socket.on('data', (bytes) => {
  const [header, payload, number] = [bytes.readUInt32LE(0), bytes.readUInt32LE(4), bytes.readUInt32LE(8)];
  if (number !== 1) return;
  const named = bytes.subarray(12, 24);
  const answer = Buffer.concat([named, u64(0), text(BYTES), Buffer.alloc(24)]);
  fs.writeSync(0, frame(3, named));
  fs.writeSync(0, frame(4, answer, bytes.subarray(8 + header, 8 + header + payload)));
});
