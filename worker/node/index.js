/** Tasks for offload's worker processes, and calls of them. See README.md. */

export { Payload } from './src/payload.js';
export { serve } from './src/worker/serve.js';
