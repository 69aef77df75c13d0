//! `average`: the average of the numbers 1 to n, by adding up all of them. It is the classic example of work that can
//! be cut into steps of constant cost, so the steps are public: whoever partitions the work and whoever does it in
//! one go run the same code.

use crate::task::{Task, TaskError};
use std::hint::black_box;
use std::ops::ControlFlow;

/// The largest n.
pub const N_MAX: u64 = 10_000_000_000;

pub(super) fn task() -> Task {
    Task::json("average", |n, _| Average::new(n).map(Average::finish))
}

/// An average in the making.
#[derive(Clone, Debug)]
pub struct Average {
    n: u64,
    added: u64,
    sum: u128,
}

impl Average {
    /// Begins the average of 1 to `n`.
    ///
    /// # Errors
    /// If `n` is not between 1 and [`N_MAX`].
    pub fn new(n: u64) -> Result<Average, TaskError> {
        if !(1..=N_MAX).contains(&n) {
            return Err(TaskError::new(format_args!("n is {n}, it must be 1 to {N_MAX}")));
        }
        Ok(Average { n, added: 0, sum: 0 })
    }

    /// Adds one number: constant cost. Breaks with the average once all are added, also when asked again.
    pub fn step(&mut self) -> ControlFlow<f64> {
        if self.added < self.n {
            self.added += 1;
            // A compiler that knows the formula for this sum would leave nothing to compute.
            self.sum += u128::from(black_box(self.added));
        }
        if self.added < self.n { ControlFlow::Continue(()) } else { ControlFlow::Break(self.average()) }
    }

    /// Does all steps that are left.
    pub fn finish(mut self) -> f64 {
        loop {
            if let ControlFlow::Break(average) = self.step() {
                return average;
            }
        }
    }

    /// The sum may have more digits than a float, the whole part of the average and the rest have not.
    fn average(&self) -> f64 {
        let n = u128::from(self.n);
        (self.sum / n) as f64 + (self.sum % n) as f64 / n as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use serde_json::json;

    #[test]
    fn the_average_is_exact_for_even_and_odd_counts() {
        for (n, average) in [(1, 1.0), (2, 1.5), (3, 2.0), (1_000_000, 500_000.5)] {
            assert_eq!(Average::new(n).unwrap().finish(), average);
        }
    }

    #[test]
    fn n_steps_are_taken_and_further_ones_change_nothing() {
        let mut average = Average::new(3).unwrap();
        assert_eq!(average.step(), ControlFlow::Continue(()));
        assert_eq!(average.step(), ControlFlow::Continue(()));
        assert_eq!(average.step(), ControlFlow::Break(2.0));
        assert_eq!(average.step(), ControlFlow::Break(2.0));
    }

    #[test]
    fn the_largest_sum_still_has_an_exact_average() {
        let n = N_MAX;
        let almost = Average { n, added: n - 1, sum: u128::from(n) * u128::from(n - 1) / 2 };
        assert_eq!(almost.finish(), 5_000_000_000.5);
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_with_the_bound() {
        assert_eq!(answer("average", "0"), Err("n is 0, it must be 1 to 10000000000".into()));
        assert_eq!(
            answer("average", "10000000001"),
            Err("n is 10000000001, it must be 1 to 10000000000".into())
        );
        assert_eq!(answer("average", "1000000"), Ok(json!(500000.5)));
    }
}
