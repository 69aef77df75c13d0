//! How one job ends: its outcome, what its client is charged, and where it ran. Any part of the core may decide that
//! a job ends; `Core::finish` ends it.

use super::ids::WorkerInSlot;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Usage};
use std::time::Duration;

/// How a job ends, as far as the part of the core knows that ends it.
pub(super) struct Ending {
    pub(super) outcome: OutcomeCode,
    pub(super) error: Option<ErrorDetail>,
    /// The run time by the worker's clock, if the worker reported it, and no longer than it can have been
    /// ([`Running::counted`](super::load::Running::counted)).
    pub(super) run: Option<Duration>,
    /// Where the job ran, if its worker is gone already.
    pub(super) place: Option<WorkerInSlot>,
    pub(super) usage: Usage,
    pub(super) output_bytes: u64,
    pub(super) charge: Charge,
}

/// What the client is charged for the last attempt of a job that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The time that the attempt ran.
    ForTheRun,
    /// Nothing: the attempt was lost with a worker that was ended because of another job.
    Nothing,
}

impl Ending {
    /// The time that is charged, if the last attempt ran for `ran` as far as it was heard of; at least so much for one that was
    /// answered.
    pub(super) fn charged(&self, ran: Duration, least: Duration) -> Duration {
        match self.charge {
            Charge::ForTheRun => self.run.map_or(ran, |run| run.max(least)),
            Charge::Nothing => Duration::ZERO,
        }
    }

    /// An ending with this error, whose code is the outcome.
    pub(super) fn of(error: ErrorDetail) -> Ending {
        let (outcome, usage) = (error.code, Usage::default());
        Ending {
            outcome,
            error: Some(error),
            run: None,
            place: None,
            usage,
            output_bytes: 0,
            charge: Charge::ForTheRun,
        }
    }
}
