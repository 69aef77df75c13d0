//! The end of one job: its outcome, what it is charged, and who ran it. Any part of the core may decide that a job ends;
//! `Core::finish` ends it.

use super::ids::Place;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Usage};
use std::time::Duration;

/// How a job ends, as the part of the core that ends it knows.
pub(super) struct Ending {
    pub(super) outcome: OutcomeCode,
    pub(super) error: Option<ErrorDetail>,
    /// By the worker's clock, if it said.
    pub(super) run: Option<Duration>,
    /// Where it ran, if its worker is gone already.
    pub(super) place: Option<Place>,
    pub(super) usage: Usage,
    pub(super) output_bytes: u64,
    pub(super) charge: Charge,
}

/// What the client of a job that ends is charged for its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The time that it ran.
    ForTheRun,
    /// Nothing: it was lost with a worker that was ended because of another job.
    Nothing,
}

impl Ending {
    /// With the error's own code as the outcome.
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
