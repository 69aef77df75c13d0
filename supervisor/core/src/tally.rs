//! Counters of jobs and of worker starts. The jobs that were accepted must be those that wait, run, or have ended.

use offload_protocol::nouns::OutcomeCode;

/// Counts since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    accepted: u64,
    rejected: u64,
    /// One for each outcome, in the order of [`OutcomeCode::ALL`].
    ended: Vec<u64>,
    starts: u64,
    restarts: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { accepted: 0, rejected: 0, ended: vec![0; OutcomeCode::ALL.len()], starts: 0, restarts: 0 }
    }
}

impl Tally {
    pub(super) fn accept(&mut self) {
        self.accepted += 1;
    }

    pub(super) fn reject(&mut self) {
        self.rejected += 1;
    }

    pub(super) fn end(&mut self, outcome: OutcomeCode) {
        self.ended[outcome as usize] += 1;
    }

    pub(super) fn start(&mut self, replaces_another: bool) {
        self.starts += 1;
        self.restarts += u64::from(replaces_another);
    }

    /// Jobs that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Requests that were refused.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Jobs that ended so.
    pub fn ended(&self, outcome: OutcomeCode) -> u64 {
        self.ended[outcome as usize]
    }

    /// Jobs that ended.
    pub fn ended_in_all(&self) -> u64 {
        self.ended.iter().sum()
    }

    /// Processes that were started.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Processes that were started to replace another.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}
