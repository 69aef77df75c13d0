//! Batches of the task `member`, as a worker with the argument `batches` takes them. The acts of a member hit all of its batch:
//!
//! ```text
//!   recv ---> Started of the first ---> run ---> an answer each, in their order ---> after
//!                                                 a member has its `reply` instead of its own answer
//! ```

use crate::fault::{Fault, Phase};
use crate::wire::{self, Job, Told};
use crate::{Worker, framed, ordinary_answer};
use offload_protocol::nouns::Batching;

/// The task that can be done in batches.
pub(crate) const MEMBER: &str = "member";

/// The first one waits longer for the others than a test needs to submit them.
pub(crate) const OFFER: Batching = Batching { max: 8, wait_us: 1_000_000 };

impl Worker {
    /// Runs the next so many jobs together.
    pub(crate) fn run_batch(&mut self, count: u32) {
        let next = |_| match self.wire.next(|_| ()) {
            Told::Run(job) => Some(job),
            _ => None,
        };
        let jobs: Vec<Job> = (0..count).map_while(next).collect();
        let members: Vec<(Job, Option<Fault>)> =
            jobs.into_iter().map(|job| (job.clone(), self.fault_of(&job))).collect();
        let Some((first, _)) = members.first() else { return };
        let started = wire::started(first.id, first.attempt);
        self.commit_all(&members, Phase::Recv, &started);
        wire::send(&started);
        self.commit_all(&members, Phase::Run, b"");
        for (job, fault) in &members {
            let whole = framed(job, &ordinary_answer(job));
            self.reply(job, &whole, fault.as_ref().filter(|fault| fault.phase == Phase::Reply));
        }
        self.commit_all(&members, Phase::After, b"");
    }

    /// What the members have ordered for this phase.
    fn commit_all(&mut self, members: &[(Job, Option<Fault>)], phase: Phase, whole: &[u8]) {
        for (job, fault) in members {
            if let Some(fault) = fault.as_ref().filter(|fault| fault.phase == phase) {
                let _ = self.commit(fault, job, whole);
            }
        }
    }
}
