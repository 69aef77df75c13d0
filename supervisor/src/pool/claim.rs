//! What a caller gives up when it leaves before its job has ended: by the rules for clients that leave, as over HTTP.
//!
//! ```text
//!   no idempotency key ---> the job is nobody else's: it is cancelled, queued or running
//!   a key              ---> the caller alone leaves; the job goes on, for others that wait and for whoever submits it again
//! ```

use super::ComputePool;
use offload_core::ids::JobId;
use std::cell::Cell;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    job: JobId,
    /// The number of the caller, if the job has a key.
    caller: Option<u64>,
}

impl Claim {
    pub(super) fn new(job: JobId, caller: Option<u64>) -> Claim {
        Claim { job, caller }
    }
}

/// Numbers for callers. No other subscriber of the same hub has one: a hub serves a pool, or a service with connections.
#[derive(Default)]
pub(super) struct Callers(Cell<u64>);

impl Callers {
    pub(super) fn next(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }
}

impl ComputePool {
    /// The caller leaves. Nothing happens if the job has ended.
    pub(super) fn give_up(&self, claim: Claim) {
        match claim.caller {
            None => self.hub.borrow_mut().client_is_gone(claim.job),
            Some(caller) => {
                let left = self.hub.borrow_mut().leave(claim.job, caller);
                drop(left);
            }
        }
    }
}
