//! A task whose crossover is known, to see whether `bench advise` finds it: each job takes the time that it says, by the clock.
//!
//! ```text
//!   on the loop   100 ns for each unit of its size
//!   offloaded      75 ns for each unit of the crossover, and 25 ns for each unit of its size: the same at the crossover
//! ```

use super::workload::{Cut, Workload};
use bytes::Bytes;
use offload_worker::TaskError;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub(super) struct Synthetic {
    size: u64,
    time: Duration,
}

impl Synthetic {
    /// A job of this size on the loop, and one that is offloaded, which wins from the size `from` on.
    pub(super) fn both(from: u64, size: u64) -> [Synthetic; 2] {
        let times = [size * 100, from * 75 + size * 25];
        times.map(|nanoseconds| Synthetic { size, time: Duration::from_nanos(nanoseconds) })
    }
}

impl Workload for Synthetic {
    type Answer = Bytes;
    type Steps = Infallible;
    const CUT: Cut = Cut::OnePiece;

    fn task(&self) -> &str {
        "synthetic"
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn in_one_go(&self) -> Result<Bytes, TaskError> {
        let begun = Instant::now();
        while begun.elapsed() < self.time {}
        Ok(Bytes::new())
    }

    fn in_steps(&self) -> Infallible {
        unreachable!("it has no steps")
    }

    fn step(steps: &mut Infallible) -> ControlFlow<Result<Bytes, TaskError>> {
        match *steps {}
    }

    fn input(&self, _number: usize) -> Bytes {
        Bytes::new()
    }

    fn output(answer: &Bytes) -> Bytes {
        answer.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_take_the_same_time_at_the_crossover_and_only_there() {
        let times = |size| Synthetic::both(1000, size).map(|job| job.time.as_nanos());
        assert_eq!(times(1000), [100_000, 100_000]);
        assert!(times(999)[0] < times(999)[1] && times(1001)[0] > times(1001)[1]);
    }
}
