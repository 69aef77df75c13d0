//! The memory that the whole process takes at most, as the sum of its bounds.

use super::*;
use offload_core::limits::{DEAD_BYTES_MAX, KEPT_BYTES_MAX_DEFAULT, QUEUED_BYTES_MAX_DEFAULT};
use offload_protocol::limits::PAYLOAD_MAX_DEFAULT;

/// The quantities that bound the memory of the whole process. The bound is the sum of:
///
/// - `max_bytes`: inputs that are being received, queued or running, with metadata and labels, checkpoints, and outputs until they are written
///   ([`offload_core::ledger`]);
/// - half of `max_bytes`: shared memory for the large payloads of workers, and a quarter of it: memory that is kept for their
///   next outputs;
/// - `max_kept_bytes`: results and keys that are kept;
/// - `max_dead_bytes`: dead letters with their inputs;
/// - 4 x `workers` x `max_payload`: for each worker, one output that arrives when `max_bytes` has been reached, one output
///   that is kept beyond its client's share, one more that is kept when there are as many of those as may be, and one input of a job
///   that was cancelled on its way to the worker (`max_dead_bytes` is never exceeded);
/// - [`MEMORY_OF_A_WORKER`] for each worker, [`MEMORY_OF_A_CONNECTION`] for each connection, [`MEMORY_OF_A_JOB`] for
///   each job that is queued, in flight or a dead letter;
/// - [`MEMORY_OF_A_WAIT`] for each wait for a job of another client: [`WAITS_MAX`] of them, and [`WAITS_IN_ANY_CASE`]
///   for each connection;
/// - [`HISTORY_BYTES_MAX`]: reports of ended jobs; [`PRINTED_BYTES_MAX`]: lines that workers printed;
/// - [`MEMORY_OF_ITS_OWN`]: the process itself.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The configured value, in bytes.
    pub max_bytes: u64,
    /// The configured value, in bytes.
    pub max_payload: u64,
    /// The configured value, in bytes.
    pub max_kept_bytes: u64,
    /// The configured value, in bytes.
    pub max_dead_bytes: u64,
    /// Number of worker processes: slots and the spare.
    pub workers: u64,
    /// Number of connections, at most [`CONNECTIONS_MAX`].
    pub connections: u64,
    /// Number of jobs that are queued (at most `max_jobs`), that workers have, and that are dead letters (at most
    /// [`DEAD_LETTERS_MAX`](offload_core::limits::DEAD_LETTERS_MAX)).
    pub jobs: u64,
}

impl Memory {
    /// The quantities with the default limits.
    pub const fn of_defaults(workers: u64, connections: u64, jobs: u64) -> Memory {
        Memory {
            max_bytes: QUEUED_BYTES_MAX_DEFAULT,
            max_payload: PAYLOAD_MAX_DEFAULT as u64,
            max_kept_bytes: KEPT_BYTES_MAX_DEFAULT,
            max_dead_bytes: DEAD_BYTES_MAX,
            workers,
            connections,
            jobs,
        }
    }

    /// The memory that the process takes at most, in bytes.
    pub const fn most(self) -> u64 {
        self.max_bytes
            + self.max_bytes / SEGMENTS_SHARE
            + self.max_bytes / BUFFERS_SHARE
            + self.max_kept_bytes
            + self.max_dead_bytes
            + self.workers * (4 * self.max_payload + MEMORY_OF_A_WORKER)
            + self.connections * MEMORY_OF_A_CONNECTION
            + self.jobs * MEMORY_OF_A_JOB
            + (WAITS_MAX as u64 + self.connections * WAITS_IN_ANY_CASE as u64) * MEMORY_OF_A_WAIT
            + HISTORY_BYTES_MAX
            + PRINTED_BYTES_MAX as u64
            + MEMORY_OF_ITS_OWN
    }
}
