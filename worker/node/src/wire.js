/**
 * The types that the fields of a header have on the wire. Each can read a value from a `Reader` and write one into a `Writer`.
 * The PROTOCOL section of `protocol/src/lib.rs` describes them byte by byte.
 */

import { HEADER_MAX } from './limits.js';

/** No bytes, for what is sent. It is never given away: who transferred it would take it from everybody. */
export const NOTHING = Buffer.alloc(0);

/** The bytes that arrived are no message. Their sender broke the protocol. */
export class Malformed extends Error {
  /** @param {string} what @param {string} [code] the word of the golden vectors */
  constructor(what, code = 'malformed') {
    super(what);
    this.name = 'Malformed';
    this.code = code;
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads a header from `bytes[at]` up to `bytes[end]`. */
export class Reader {
  /** @param {Buffer} bytes @param {number} at @param {number} end */
  constructor(bytes, at, end) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
    /** Where values that are not understood are named, instead of refusing the message. @type {string[] | undefined} */
    this.complaints = undefined;
  }

  /** The place of the next `count` bytes, which are skipped. @param {number} count */
  skip(count) {
    const at = this.at;
    if (count > this.end - at) throw new Malformed('malformed header: it ends too early');
    this.at = at + count;
    return at;
  }
}

/** Writes fields into a buffer of its own, which is used again and again. */
export class Writer {
  /** @param {number} max where fields have to end, in bytes @param {number} more bytes behind that */
  constructor(max, more) {
    this.bytes = Buffer.allocUnsafeSlow(max + more);
    this.max = max;
    this.at = 0;
  }

  /** The place for the next `count` bytes. @param {number} count */
  skip(count) {
    const at = this.at;
    if (count > this.max - at) throw new RangeError(`header over ${HEADER_MAX} bytes`);
    this.at = at + count;
    return at;
  }
}

/**
 * @template T
 * @typedef {{ read(reader: Reader): T, write(writer: Writer, value: T): void }} Type
 */

/** @type {Type<number>} */
export const u16 = {
  read: (reader) => reader.bytes.readUInt16LE(reader.skip(2)),
  write: (writer, value) => void writer.bytes.writeUInt16LE(value, writer.skip(2)),
};

/** @type {Type<number>} */
export const u32 = {
  read: (reader) => reader.bytes.readUInt32LE(reader.skip(4)),
  write: (writer, value) => void writer.bytes.writeUInt32LE(value, writer.skip(4)),
};

/** @type {Type<number>} */
export const i8 = {
  read: (reader) => reader.bytes.readInt8(reader.skip(1)),
  write: (writer, value) => void writer.bytes.writeInt8(value, writer.skip(1)),
};

/** @type {Type<number>} */
export const i32 = {
  read: (reader) => reader.bytes.readInt32LE(reader.skip(4)),
  write: (writer, value) => void writer.bytes.writeInt32LE(value, writer.skip(4)),
};

const TWO_32 = 2 ** 32;

/**
 * A number up to 2^53 - 1, a BigInt above: the same value always has the same form, so it can be the key of a map.
 * @type {Type<number | bigint>}
 */
export const u64 = {
  read(reader) {
    const at = reader.skip(8);
    const high = reader.bytes.readUInt32LE(at + 4);
    if (high >= 0x200000) return reader.bytes.readBigUInt64LE(at);
    return high * TWO_32 + reader.bytes.readUInt32LE(at);
  },
  write(writer, value) {
    const at = writer.skip(8);
    if (typeof value === 'bigint') {
      writer.bytes.writeBigUInt64LE(value, at);
    } else {
      writer.bytes.writeUInt32LE(value % TWO_32, at);
      writer.bytes.writeUInt32LE(Math.floor(value / TWO_32), at + 4);
    }
  },
};

/** @type {Type<bigint>} */
export const u128 = {
  read(reader) {
    const at = reader.skip(16);
    return (reader.bytes.readBigUInt64LE(at + 8) << 64n) | reader.bytes.readBigUInt64LE(at);
  },
  write(writer, value) {
    const at = writer.skip(16);
    writer.bytes.writeBigUInt64LE(value & 0xffff_ffff_ffff_ffffn, at);
    writer.bytes.writeBigUInt64LE(value >> 64n, at + 8);
  },
};

/** @type {Type<boolean>} */
export const bool = {
  read(reader) {
    const byte = reader.bytes[reader.skip(1)];
    if (byte > 1) throw new Malformed('malformed header: a bool that is neither 0 nor 1');
    return byte === 1;
  },
  write: (writer, value) => void (writer.bytes[writer.skip(1)] = value ? 1 : 0),
};

/** How many bytes or elements follow. @param {Reader} reader @param {number} each most bytes of a header for one */
function length(reader, each) {
  const count = Number(u64.read(reader));
  if (count * each > reader.end - reader.at) throw new Malformed('malformed header: it ends too early');
  return count;
}

/** Whether a string has no half of a surrogate pair, which UTF-8 cannot express. @type {(text: string) => boolean} */
export const isWellFormed =
  'isWellFormed' in String.prototype ? (text) => /** @type {any} */ (text).isWellFormed() : (text) => !/\p{Surrogate}/u.test(text);

/** @type {Type<string>} */
export const text = {
  read(reader) {
    const count = length(reader, 1);
    const start = reader.skip(count);
    const bytes = reader.bytes;
    for (let at = start; at < start + count; at++) {
      if (bytes[at] >= 0x80) return unicode(bytes.subarray(start, start + count));
    }
    return bytes.toString('latin1', start, start + count);
  },
  write(writer, value) {
    const count = Buffer.byteLength(value);
    if (!isWellFormed(value)) throw new TypeError(`${JSON.stringify(value)} has half of a surrogate pair, and cannot be sent`);
    u64.write(writer, count);
    writer.bytes.write(value, writer.skip(count), 'utf8');
  },
};

/** @param {Buffer} bytes */
function unicode(bytes) {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Malformed('malformed header: a text is not UTF-8');
  }
}

/** A text of exactly eight ASCII characters, without a length. @type {Type<string>} */
export const magic = {
  read(reader) {
    const at = reader.skip(8);
    return reader.bytes.toString('latin1', at, at + 8);
  },
  write: (writer, value) => void writer.bytes.write(value, writer.skip(8), 'latin1'),
};

/**
 * One of these words, as its position.
 * @param {readonly string[]} words
 * @returns {Type<string>}
 */
export function enumeration(words) {
  return {
    read(reader) {
      const word = words[u32.read(reader)];
      if (word === undefined) throw new Malformed('malformed header: an unknown value');
      return word;
    },
    write(writer, value) {
      const position = words.indexOf(value);
      if (position < 0) throw new TypeError(`${value} is none of ${words.join(', ')}`);
      u32.write(writer, position);
    },
  };
}

/**
 * One of several words, some with a number: the word itself, or `{ [word]: { [name]: number } }`.
 * @param {Record<string, Record<string, Type<any>> | null>} forms
 * @returns {Type<string | Record<string, any>>}
 */
export function variants(forms) {
  const words = Object.keys(forms);
  const word = enumeration(words);
  const numbers = Object.fromEntries(Object.entries(forms).map(([name, fields]) => [name, fields && struct(fields)]));
  return {
    read(reader) {
      const name = word.read(reader);
      return numbers[name] ? { [name]: numbers[name].read(reader) } : name;
    },
    write(writer, value) {
      const [name, fields] = typeof value === 'string' ? [value, undefined] : Object.entries(value)[0];
      word.write(writer, name);
      if (fields) numbers[name]?.write(writer, fields);
    },
  };
}

/**
 * A value, or nothing, which is `null`.
 * @template T
 * @param {Type<T>} type
 * @returns {Type<T | null>}
 */
export function option(type) {
  return {
    read: (reader) => (bool.read(reader) ? type.read(reader) : null),
    write(writer, value) {
      const isThere = value !== null && value !== undefined;
      bool.write(writer, isThere);
      if (isThere) type.write(writer, value);
    },
  };
}

/**
 * Any number of elements. Each has a length or an integer of at least eight bytes.
 * @template T
 * @param {Type<T>} type
 * @returns {Type<T[]>}
 */
export function list(type) {
  return {
    read(reader) {
      const count = length(reader, 8);
      const values = [];
      for (let i = 0; i < count; i++) values.push(type.read(reader));
      return values;
    },
    write(writer, values) {
      u64.write(writer, values.length);
      for (const value of values) type.write(writer, value);
    },
  };
}

/**
 * Fields by name, one after another.
 * @param {Record<string, Type<any>>} fields
 * @returns {Type<Record<string, any>>}
 */
export function struct(fields) {
  const entries = Object.entries(fields);
  return {
    read(reader) {
      const value = {};
      for (const [name, type] of entries) value[name] = type.read(reader);
      return value;
    },
    write(writer, value) {
      for (const [name, type] of entries) type.write(writer, value[name]);
    },
  };
}

/**
 * A type whose values are checked, where they are read and where they are written. A reader with complaints gives a value that may
 * not come as it came.
 * @template T, U
 * @param {Type<T>} type
 * @param {(value: U) => T} toWire throws a TypeError for a value that cannot be sent
 * @param {(value: T) => U} fromWire throws a TypeError for a value that may not come
 * @returns {Type<U>}
 */
export function checked(type, toWire, fromWire) {
  return {
    read(reader) {
      const value = type.read(reader);
      try {
        return fromWire(value);
      } catch (error) {
        if (reader.complaints === undefined) throw new Malformed(`malformed header: ${error.message}`);
        reader.complaints.push(error.message);
        return /** @type {any} */ (value);
      }
    },
    write: (writer, value) => type.write(writer, toWire(value)),
  };
}
