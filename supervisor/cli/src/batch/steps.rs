//! What a batch says is to be done next, and the limits within which it stays.

use super::notes::{Kept, Notes, NumberedResult};
use super::retries::Retries;
use crate::input::{Input, Payload};
use crate::limits::JOBS_FOR_A_WORKER;
use std::time::Duration;

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Maximum inputs that were read from the source and whose results are not written yet.
    pub(crate) jobs: u64,
    /// Maximum jobs that the workers have been given and that have not ended. Those that wait there cannot be had back, so this
    /// bounds what still begins after a halt, and how many outputs can be longer than expected.
    pub(crate) at_once: u64,
    /// The same before the length of any output is known. Each output allows one more.
    pub(crate) at_first: u64,
    /// Maximum bytes held for running jobs and results.
    pub(crate) bytes: u64,
    /// Longest input of one job, in bytes.
    pub(crate) payload: u64,
    /// The setting that says so.
    pub(crate) payload_setting: &'static str,
    /// The batch ends after this many failed results have been written.
    pub(crate) failures: Option<u64>,
    /// What is kept on disk of each result before it is written.
    pub(crate) kept: Kept,
    /// How often a job is tried again.
    pub(crate) retries: Retries,
    /// After how many failed jobs no more are begun.
    pub(crate) halt: Option<Halt>,
}

/// When to end early because too many jobs have failed, in whatever order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    /// After so many.
    pub(crate) failures: u64,
    /// Jobs that are running are cancelled.
    pub(crate) is_now: bool,
}

/// How many jobs to give at once to so many workers. If a failed job is to be the last, no worker gets a job while it has one.
pub(crate) fn jobs_at_once(halt: Option<Halt>, workers: usize) -> u64 {
    match halt {
        Some(Halt { is_now: false, .. }) => workers as u64,
        _ => (workers as u64).saturating_mul(JOBS_FOR_A_WORKER),
    }
}

/// What to do next. The method in brackets reports that it is done.
#[derive(Debug)]
pub(crate) enum BatchStep {
    /// Take up to `most` inputs from the source ([`super::Batch::on_read`]).
    Read {
        /// Maximum number of inputs.
        most: u64,
    },
    /// Load an input ([`super::Batch::on_loaded`]).
    Load {
        /// Its number.
        index: u64,
        /// Where it is.
        input: Input,
        /// What is known of it.
        notes: Notes,
    },
    /// Give a job to the workers ([`super::Batch::on_finished`]).
    Submit {
        /// Its number.
        index: u64,
        /// Its input.
        payload: Payload,
    },
    /// Wait before this job is tried again ([`super::Batch::on_rested`]).
    Rest {
        /// Its number.
        index: u64,
        /// How long.
        pause: Duration,
    },
    /// Too many jobs have failed: end the batch early ([`super::Batch::end_early`]), and if so cancel what is running.
    Halt {
        /// Whether running jobs are cancelled.
        is_now: bool,
    },
    /// Keep on disk what is to be kept of these results, in any order ([`super::Batch::on_kept`]).
    Keep(Vec<NumberedResult>),
    /// Write results, in this order ([`super::Batch::on_written`]).
    Write(Vec<NumberedResult>),
    /// Wait before more is submitted ([`super::Batch::on_resumed`]), unless a result comes first.
    Pause {
        /// Shortest length of the pause. The caller should add a random part, so that clients do not all retry
        /// together.
        at_least: Duration,
        /// The number of this pause, to be reported when it is over.
        number: u64,
        /// Why the supervisor rejected the job.
        why: String,
    },
}
