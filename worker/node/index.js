/** Tasks for offload's worker processes, and calls of them. See README.md. */

export { Client } from './src/client/client.js';
export { ConnectionError, JobError, OutputError, Rejected } from './src/client/errors.js';
export { Payload } from './src/payload.js';
export { Pool } from './src/pool/pool.js';
export { serve } from './src/worker/serve.js';
export { TaskError } from './src/worker/task_error.js';
