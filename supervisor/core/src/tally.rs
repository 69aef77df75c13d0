//! Counts jobs and starts of workers. The number of accepted jobs must equal those that wait, run, or have ended.

use offload_protocol::nouns::OutcomeCode;

/// Counts since the supervisor started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    accepted: u64,
    /// One count for each code, in the same order as `ended`.
    rejected: Vec<u64>,
    /// One count for each outcome, in the order of [`OutcomeCode::ALL`].
    ended: Vec<u64>,
    starts: u64,
    restarts: u64,
    prefetched: u64,
    taken_back: u64,
    batches: u64,
    in_batches: u64,
    halved: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        let none = vec![0; OutcomeCode::ALL.len()];
        let (rejected, ended) = (none.clone(), none);
        Tally {
            accepted: 0,
            rejected,
            ended,
            starts: 0,
            restarts: 0,
            prefetched: 0,
            taken_back: 0,
            batches: 0,
            in_batches: 0,
            halved: 0,
        }
    }
}

impl Tally {
    pub(super) fn accept(&mut self) {
        self.accepted += 1;
    }

    pub(super) fn reject(&mut self, code: OutcomeCode) {
        self.rejected[code as usize] += 1;
    }

    pub(super) fn end(&mut self, outcome: OutcomeCode) {
        self.ended[outcome as usize] += 1;
    }

    pub(super) fn start(&mut self, replaces_another: bool) {
        self.starts += 1;
        self.restarts += u64::from(replaces_another);
    }

    pub(super) fn prefetch(&mut self) {
        self.prefetched += 1;
    }

    pub(super) fn take_back(&mut self) {
        self.taken_back += 1;
    }

    pub(super) fn batch(&mut self, jobs: u64) {
        self.batches += 1;
        self.in_batches += jobs;
    }

    pub(super) fn halve(&mut self) {
        self.halved += 1;
    }

    /// How often several jobs were given to a worker together, and how many these were in all.
    pub fn batches(&self) -> (u64, u64) {
        (self.batches, self.in_batches)
    }

    /// How many batches were lost, so that their jobs run again in halves.
    pub fn halved(&self) -> u64 {
        self.halved
    }

    /// How often a job was put into the tray of a busy worker.
    pub fn prefetched(&self) -> u64 {
        self.prefetched
    }

    /// How often a job was taken back out of a tray.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// How many jobs were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// How many jobs were refused.
    pub fn rejected(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// How many of them for this reason.
    pub fn rejected_as(&self, code: OutcomeCode) -> u64 {
        self.rejected[code as usize]
    }

    /// How many jobs ended with this outcome.
    pub fn ended(&self, outcome: OutcomeCode) -> u64 {
        self.ended[outcome as usize]
    }

    /// How many jobs ended.
    pub fn ended_in_all(&self) -> u64 {
        self.ended.iter().sum()
    }

    /// How many processes were started.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// How many processes were started in a place that had one before.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}
