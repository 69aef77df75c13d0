//! The name and the limits of a pool.

use crate::limits::{POOL_DEADLINE, POOL_QUEUE_MAX, POOL_THREADS, POOL_THREADS_MAX, READ_PART};
use std::time::Duration;

/// The name and the limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct IoPoolConfig {
    /// What the pool is called in its errors and figures, and its threads: `NAME-0`, `NAME-1`... The system shows
    /// the first 15 bytes of a thread's name.
    pub name: &'static str,
    /// How many threads run tasks. 0 counts as 1.
    pub threads: usize,
    /// How many threads there may be, including those that are stuck in a task.
    pub threads_max: usize,
    /// How many tasks of each lane may wait for a thread. Each lane has its own bound, so that many slow tasks do
    /// not keep fast ones out.
    pub queue_max: usize,
    /// How long after its submission a task must be done, unless it was given another time with
    /// [`within`](super::IoHandle::within). At its deadline it is answered in any case.
    pub deadline: Duration,
    /// How many bytes one part of [`fs_read`](super::IoHandle::fs_read) reads at most. 0 counts as 1.
    pub part_bytes: usize,
}

impl Default for IoPoolConfig {
    /// The name `offload-io`, 4 threads (16 including stuck ones), 10,000 waiting tasks in each lane, a deadline of 30
    /// seconds, parts of 512 KiB.
    fn default() -> IoPoolConfig {
        IoPoolConfig {
            name: "offload-io",
            threads: POOL_THREADS,
            threads_max: POOL_THREADS_MAX,
            queue_max: POOL_QUEUE_MAX,
            deadline: POOL_DEADLINE,
            part_bytes: READ_PART,
        }
    }
}

impl IoPoolConfig {
    /// The same, with 0 replaced where a pool needs at least 1.
    pub(super) fn usable(self) -> IoPoolConfig {
        IoPoolConfig { threads: self.threads.max(1), part_bytes: self.part_bytes.max(1), ..self }
    }
}

/// The two queues of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Tasks that keep a thread for a short time, such as those on local files.
    #[default]
    Fast,
    /// Tasks that may wait for something far away, such as name look-ups. They have at most half of the serving
    /// threads (rounded up) at a time.
    Slow,
}
