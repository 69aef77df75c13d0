/** The error that a task throws on purpose. */

/**
 * For tasks to throw: the job ends as `app_error` with exactly this message, and everybody who called the task is told it. What any other
 * error says is told only to callers that may use the supervisor's socket or have shown a token: it may name a path.
 */
export class TaskError extends Error {
  name = 'TaskError';
}
