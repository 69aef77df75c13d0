//! The names by which the core and its shell refer to jobs, workers and places, and the only notion of time that the
//! core has.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, in nanoseconds since the shell started. The core has no clock: it is told the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The moment `nanos` nanoseconds after the shell started.
    pub fn from_nanos(nanos: u64) -> Mono {
        Mono(nanos)
    }

    /// Nanoseconds since the shell started.
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    /// Saturates: a time limit of centuries is never reached.
    fn add(self, duration: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Mono {
    type Output = Duration;

    /// Zero if `earlier` is the later one.
    fn sub(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A job, numbered from 1 in the order of acceptance: a smaller number is an older job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "job {}", self.0)
    }
}

/// One worker process, numbered from 1 in the order of starts. No number is used twice, so an event about a worker
/// that was replaced is never mistaken for one about its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "worker {}", self.0)
    }
}

/// The version of a program's command. It goes up with every reload.
pub type Version = u64;

/// Index of a slot.
pub type SlotIndex = usize;

/// Index of a program in the order of the configuration.
pub type ProgramIndex = usize;

/// Index of a task in the registry.
pub type TaskIndex = u32;

/// Where a worker is, or was when something happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerInSlot {
    /// The process.
    pub worker: WorkerId,
    /// Its slot at the time.
    pub slot: SlotIndex,
    /// Which process of that slot this is, counted from 1.
    pub incarnation: u64,
}
