//! Workers and outputs as the test of a pool sees them.

use offload_core::action::Kill;
use offload_core::ids::{JobId, ProgramIndex};
use std::collections::VecDeque;

/// A living worker as the test sees it.
#[derive(Clone, Debug, Default)]
pub struct FakeWorker {
    /// What it runs.
    pub program: ProgramIndex,
    /// Jobs that it was given and has not ended, with the attempt that each will be.
    pub given: VecDeque<(JobId, u32)>,
    /// Jobs that it was given with a checkpoint.
    pub resumed: Vec<JobId>,
    /// The job that lies in its tray, with the attempt that it will be.
    pub tray: Option<(JobId, u32)>,
    /// Which version of its program it is.
    pub version: u64,
    /// Signals that it got.
    pub signals: Vec<Kill>,
}

/// What the core had done with the parts of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeParts {
    /// Parts that were collected.
    pub collected: u32,
    /// Parts that were passed on to the reader.
    pub passed_on: u32,
    /// How often all of them were dropped.
    pub dropped: u32,
    /// Bytes of credit that the worker was given.
    pub credit: u64,
}
