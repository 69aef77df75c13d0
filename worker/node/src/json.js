/**
 * JavaScript values as JSON documents. What JSON cannot express is refused; `JSON.stringify` would leave it out or write something else.
 * Only `undefined` is as there: a field is left out, and in a list it is `null`.
 */

import { types } from 'node:util';
import { isWellFormed } from './wire.js';

/** A value as JSON. Throws a TypeError for what JSON cannot express, wherever it is. @param {unknown} value @returns {string} */
export function toJson(value) {
  try {
    const text = JSON.stringify(value === undefined ? null : value);
    if (text === undefined) throw cannot(value);
    // A `JSON.stringify` that asks about each value takes three times as long as a look at those of plain objects and arrays.
    return isPlain(value) ? text : JSON.stringify(value, checked);
  } catch (error) {
    if (error instanceof RangeError) throw new TypeError(`${nameOf(value)} cannot be written as JSON: ${error.message}`, { cause: error });
    throw error;
  }
}

/** Whether it is an error, also one of another realm, such as of `node:vm`. @param {unknown} value @returns {boolean} */
export function isError(value) {
  try {
    return value instanceof Error || types.isNativeError(value);
  } catch {
    return false; // a proxy may throw
  }
}

/** For people. @param {unknown} value */
export const nameOf = (value) => (typeof value === 'object' && value !== null ? `an object (${tagOf(value)})` : `a ${typeof value}`);

const tagOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** Whether JSON surely has all of it. What has a `toJSON`, or is neither an ordinary object nor an array, needs another look. */
function isPlain(value) {
  switch (typeof value) {
    case 'string':
      return isWellFormed(value);
    case 'boolean':
    case 'undefined':
      return true;
    case 'number':
      return Number.isFinite(value);
    case 'object':
      return value === null || (Array.isArray(value) ? isPlainArray(value) : isPlainObject(value));
    default:
      return false;
  }
}

function isPlainArray(array) {
  if (array.toJSON !== undefined) return false;
  for (let i = 0; i < array.length; i++) if (!isPlain(array[i])) return false;
  return true;
}

function isPlainObject(object) {
  if (types.isDate(object)) return object.toJSON === Date.prototype.toJSON && !isInvalid(object);
  const prototype = Object.getPrototypeOf(object);
  const isOrdinary = prototype === Object.prototype || prototype === null || (tagOf(object) === 'Object' && !isError(object));
  if (!isOrdinary || object.toJSON !== undefined) return false;
  for (const key in object) if (!isWellFormed(key) || !isPlain(object[key])) return false;
  return true;
}

/** Looks at each value that `JSON.stringify` writes, and changes none. Of what has a `toJSON`, it sees what that has returned. */
function checked(key, value) {
  if (!isWellFormed(key)) throw new TypeError(`${JSON.stringify(key)} has half of a surrogate pair, and cannot be sent`);
  if (isHalf(value)) throw new TypeError(`a text with half of a surrogate pair${at(key)} cannot be sent`);
  if (value === null && isInvalid(this[key])) throw cannot(this[key], key);
  if (isHidden(value) && key !== 'toJSON') throw cannot(value, key);
  return value;
}

/** Whether it is a text that UTF-8 cannot express. @param {unknown} value */
const isHalf = (value) => (typeof value === 'string' || types.isStringObject(value)) && !isWellFormed(String(value));

/** Whether it is a date of no time, which would become `null`. */
const isInvalid = (value) => types.isDate(value) && Number.isNaN(Date.prototype.getTime.call(value));

/** Whether JSON would have something else in its place, or nothing of it. @param {any} value */
function isHidden(value) {
  if (typeof value === 'function' || typeof value === 'symbol') return true;
  if (typeof value === 'number' || value instanceof Number) return !Number.isFinite(Number(value));
  if (typeof value !== 'object' || value === null || typeof value.toJSON === 'function') return false;
  return isError(value) || HOLDERS.some((isHolder) => isHolder(value)) || (tagOf(value) !== 'Object' && !isShown(value));
}

/** What holds more than its fields. */
const HOLDERS = [
  types.isMap, types.isSet, types.isWeakMap, types.isWeakSet, types.isPromise, types.isRegExp, types.isGeneratorObject, types.isSymbolObject,
  types.isAnyArrayBuffer, ArrayBuffer.isView,
];

/** Whether JSON has something in the place of an object that is no ordinary one. */
const isShown = (value) =>
  Array.isArray(value) || types.isStringObject(value) || types.isBooleanObject(value) || Object.keys(value).length > 0;

/** @param {unknown} value @param {string} [key] where it is */
function cannot(value, key = '') {
  const isNumber = typeof value === 'number' || value instanceof Number;
  const what = isNumber ? String(value) : isInvalid(value) ? 'an invalid date' : nameOf(value);
  return new TypeError(`${what}${at(key)} cannot be written as JSON`);
}

/** @param {string} key */
const at = (key) => (key === '' ? '' : ` (${JSON.stringify(key)})`);
