/**
 * What is said of something that was thrown. Anything may be thrown, also what throws again when it is looked at, so nothing here
 * throws: whatever a task does, its job gets an answer.
 */

import { constants } from 'node:os';
import { inspect } from 'node:util';
import { isError } from '../json.js';
import { MESSAGE_MAX } from '../limits.js';
import { cut } from '../nouns.js';
import { isWellFormed } from '../wire.js';
import { TaskError } from './task_error.js';

/**
 * Why a job has failed, as it is sent.
 * @param {unknown} error
 * @returns {{ kind: string | Record<string, any>, message: string }}
 */
export function failureOf(error) {
  return {
    kind: attempt(() => kindOf(error), 'app_error'),
    message: attempt(() => sendable(messageOf(error)), 'an error that cannot be shown'),
  };
}

/** For the log. @param {any} error @returns {string} */
export const traceOf = (error) => attempt(() => String(error?.stack ?? inspect(error)), 'an error that cannot be shown');

function attempt(look, otherwise) {
  try {
    return look();
  } catch {
    return otherwise;
  }
}

/**
 * How a program ended that the task has run, if that is what the error says; and whether the task wrote it for its callers. Those of `node:child_process` have an exit code in
 * `status`, or in `code` beside `cmd`; others may say `exitCode`. A signal is a name.
 * @param {any} error
 */
function kindOf(error) {
  if (!isError(error)) return 'app_error';
  const { signal, exitCode, status, code, cmd } = error;
  const number = typeof signal === 'string' ? constants.signals[signal] : undefined;
  if (Number.isInteger(number)) return { signalled: { signal: number } };
  const exit = [exitCode, signal === null ? status : undefined, cmd === undefined ? undefined : code].find(Number.isInteger);
  if (exit >= 0 && exit <= 255) return { exited: { code: exit } };
  return error instanceof TaskError ? 'deliberate' : 'app_error';
}

/** The reason for people: with the name of the error, unless that is `Error` or `TaskError`. @param {any} error @returns {string} */
function messageOf(error) {
  if (!isError(error)) return textOf(error);
  const { name } = error;
  const message = textOf(error.message);
  return typeof name !== 'string' || name === 'Error' || name === 'TaskError' || name === '' ? message : `${name}: ${message}`;
}

const textOf = (value) => (typeof value === 'string' ? value : inspect(value));

/** As much as fits, with halves of surrogate pairs as escapes. @param {string} message */
function sendable(message) {
  // A character has at least a byte, so what is left out here would be cut below.
  const start = message.slice(0, MESSAGE_MAX + 1);
  const text = isWellFormed(start) ? start : start.replace(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
  return cut(text, MESSAGE_MAX);
}
