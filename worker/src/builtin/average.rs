//! `average`: the average of the numbers 1 to n, by adding up all of them. It is the classic example of work that can
//! be cut into steps of constant cost, so the steps are public: whoever partitions the work and whoever does it in
//! one go run the same code.

use super::whole::Whole;
use crate::limits::AVERAGE_N_MAX;
use crate::stepped::Stepped;
use crate::task::{Task, TaskError};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::ops::ControlFlow;

/// Numbers that one step of the task adds: still constant cost, about a microsecond, and a loop as tight as it gets.
const NUMBERS_AT_ONCE: u64 = 1000;

pub(super) fn task() -> Task {
    Task::checkpointed("average", |Whole(n), _| Average::new(n))
}

/// An average in the making.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Kept")]
pub struct Average {
    n: u64,
    added: u64,
    sum: u128,
}

impl Average {
    /// Begins the average of 1 to `n`.
    ///
    /// # Errors
    /// If `n` is not between 1 and [`AVERAGE_N_MAX`].
    pub fn new(n: u64) -> Result<Average, TaskError> {
        if !(1..=AVERAGE_N_MAX).contains(&n) {
            return Err(TaskError::new(format_args!("n is {n}, it must be 1 to {AVERAGE_N_MAX}")));
        }
        Ok(Average { n, added: 0, sum: 0 })
    }

    /// Adds one number: constant cost. Breaks with the average once all are added, also when asked again.
    // Whoever partitions it is in another crate, and a call costs more than the addition.
    #[inline]
    pub fn step(&mut self) -> ControlFlow<f64> {
        if self.added < self.n {
            self.added += 1;
            // A compiler that knows the formula for this sum would leave nothing to compute.
            // `AVERAGE_N_MAX` keeps the sum far below the largest `u128`, and a check would cost as much as the addition.
            self.sum = self.sum.wrapping_add(u128::from(black_box(self.added)));
        }
        if self.added < self.n {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(average(self.sum, self.n))
        }
    }

    /// Does all steps that are left, in a loop as tight as it gets.
    pub fn finish(mut self) -> f64 {
        self.add_up_to(self.n);
        average(self.sum, self.n)
    }

    fn add_up_to(&mut self, end: u64) {
        let mut sum = self.sum;
        for number in self.added + 1..end + 1 {
            // As in `step`.
            sum = sum.wrapping_add(u128::from(black_box(number)));
        }
        (self.added, self.sum) = (end, sum);
    }
}

/// The sum may have more digits than a float, the whole part of the average and the rest have not.
// It is called once, with copies: so the steps are small enough to be inlined, and what they count with can stay in registers.
#[cold]
#[inline(never)]
fn average(sum: u128, n: u64) -> f64 {
    let n = u128::from(n);
    (sum / n) as f64 + (sum % n) as f64 / n as f64
}

impl Stepped for Average {
    type Output = f64;

    fn step(&mut self) -> ControlFlow<Result<f64, TaskError>> {
        let end = self.n.min(self.added + NUMBERS_AT_ONCE);
        self.add_up_to(end);
        if end < self.n {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(Ok(average(self.sum, self.n)))
        }
    }

    fn progress(&self) -> (u64, u64) {
        (self.added, self.n)
    }
}

/// An average as a checkpoint has it, before it is believed.
#[derive(Deserialize)]
struct Kept {
    n: u64,
    added: u64,
    sum: u128,
}

impl TryFrom<Kept> for Average {
    type Error = &'static str;

    /// The formula for the sum tells whether these were the first numbers and no others.
    fn try_from(Kept { n, added, sum }: Kept) -> Result<Average, &'static str> {
        let expected = u128::from(added) * (u128::from(added) + 1) / 2;
        if !(1..=AVERAGE_N_MAX).contains(&n) || added > n || sum != expected {
            return Err("this is no average in the making");
        }
        Ok(Average { n, added, sum })
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
        let n = AVERAGE_N_MAX;
        let almost = Average { n, added: n - 1, sum: u128::from(n) * u128::from(n - 1) / 2 };
        assert_eq!(almost.finish(), 5_000_000_000.5);
    }

    #[test]
    fn the_steps_of_the_task_come_to_the_same() {
        for n in [1, 999, 1000, 1001, 2500] {
            let mut average = Average::new(n).unwrap();
            let in_steps = loop {
                if let ControlFlow::Break(result) = Stepped::step(&mut average) {
                    break result;
                }
            };
            assert_eq!(in_steps, Ok((n + 1) as f64 / 2.0));
            assert_eq!(average.progress(), (n, n));
        }
    }

    #[test]
    fn an_average_goes_on_from_what_was_kept_of_it() {
        let mut average = Average::new(1000).unwrap();
        for _ in 0..400 {
            assert!(average.step().is_continue());
        }
        let kept = serde_json::to_string(&average).unwrap();
        assert_eq!(kept, r#"{"n":1000,"added":400,"sum":80200}"#);
        let average: Average = serde_json::from_str(&kept).unwrap();
        assert_eq!(average.progress(), (400, 1000));
        assert_eq!(average.finish(), 500.5);
    }

    #[test]
    fn average_refuses_a_checkpoint_that_it_cannot_have_made() {
        for kept in [
            r#"{"n":0,"added":0,"sum":0}"#,
            r#"{"n":10000000001,"added":0,"sum":0}"#,
            r#"{"n":3,"added":4,"sum":10}"#,
            r#"{"n":1000,"added":400,"sum":80201}"#,
            r#"{"n":1000,"added":400}"#,
        ] {
            assert!(serde_json::from_str::<Average>(kept).is_err(), "{kept}");
        }
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
