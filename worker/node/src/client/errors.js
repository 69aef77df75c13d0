/**
 * What a caller can get in place of an output. Each error has a `code`, a word of the outcomes that the README of the project
 * lists, and a `message` for people.
 */

/** The job did not end well, or nobody knows how it ended (`indeterminate`), or it was not submitted before its deadline (`timeout`). */
export class JobError extends Error {
  /** @param {import('../messages.js').Message} report */
  constructor(report) {
    const error = report.error ?? { code: report.outcome, message: '', signal: null, exit_code: null };
    super(error.message === '' ? report.outcome : `${report.outcome}: ${error.message}`);
    this.name = 'JobError';
    /** How the job ended, such as `worker_crashed`. @type {string} */
    this.outcome = report.outcome;
    /** The cause. For `poison` it is what ended the last attempt. @type {string} */
    this.code = error.code;
    /** The number of the signal that ended the worker. @type {number | null} */
    this.signal = error.signal;
    /** @type {number | null} */
    this.exitCode = error.exit_code;
    /** How many attempts were started. @type {number} */
    this.attempts = report.attempts;
    /** The job's ID; empty if it is not known. @type {string} */
    this.job = report.job;
  }

  /** Nobody will know how the job ends. @param {string} task @param {string} job @param {string} why */
  static indeterminate(task, job, why) {
    return JobError.#of('indeterminate', task, job, `${why}; the job may or may not have run`);
  }

  /** The job was not submitted before its deadline, and is not any more. @param {string} task */
  static tooLate(task) {
    return JobError.#of('timeout', task, '', 'the deadline passed before it was sent');
  }

  /** What no report says. */
  static #of(outcome, task, job, message) {
    const error = { code: outcome, message, signal: null, exit_code: null };
    return new JobError({ type: '', outcome, error, attempts: 0, job, task });
  }
}

/** The request had no effect: the supervisor is full, or the request cannot be granted. */
export class Rejected extends Error {
  /** @param {string} code @param {string} message @param {number | null} [retryAfter] */
  constructor(code, message, retryAfter = null) {
    super(`${code}: ${message}`);
    this.name = 'Rejected';
    /** Why, such as `overloaded` or `unknown_task`. */
    this.code = code;
    /** Milliseconds after which it may be worth trying again; null if the supervisor says none. */
    this.retryAfter = retryAfter;
  }

  /** What the supervisor says. @param {import('../messages.js').Message} message */
  static by({ code, message, retry_after_ms: retryAfter }) {
    return new Rejected(code, message, retryAfter);
  }
}

/** The job ended well, but its output is not what its media type says. Nothing of it is lost: the error has it. */
export class OutputError extends SyntaxError {
  /** @param {Error} cause @param {{ bytes: Buffer, contentType: string, job: string, attempts: number, receipt: object }} result */
  constructor(cause, result) {
    super(`the output is not what its media type says (${result.contentType}): ${cause.message}`, { cause });
    this.name = 'OutputError';
    this.bytes = result.bytes;
    this.contentType = result.contentType;
    this.job = result.job;
    this.attempts = result.attempts;
    this.receipt = result.receipt;
  }
}

/** There is no connection to a supervisor, so no job was submitted. A `cancel` or `drain` may have been read before it was lost. */
export class ConnectionError extends Error {
  /** @param {string} code `no_supervisor`, `overloaded`, `unsupported`, `forbidden`, `io_error`, `protocol`, `closed` or the word of a Goodbye @param {string} message */
  constructor(code, message) {
    super(message);
    this.name = 'ConnectionError';
    this.code = code;
  }
}

/** One more than may wait in a client. @param {number} max @param {string} what */
export const tooManyWait = (max, what) => new Rejected('overloaded', `${max} ${what} wait in this client already`);

/** The caller has transferred, or shortened, the memory of an input. */
export const inputGone = () => new TypeError('the memory of the input was transferred before all of it was sent');

/** A payload that the supervisor would not take. @param {number} length @param {number} max */
export const tooLarge = (length, max) => new Rejected('too_large', `payload of ${length} bytes, the supervisor takes ${max} (its max_payload)`);
