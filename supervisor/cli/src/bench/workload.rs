//! The computations. A workload can be computed at once, in steps, or by a worker, always with the same answer.
//!
//! A workload is a trait and not an enum, so that a step which is a single addition costs no more than that: the
//! workload is chosen once, outside of the measured loops.

use super::super::failure::Failure;
use super::array::{ArraySteps, document};
use crate::limits::BENCH_ELEMENTS_MAX;
use bytes::Bytes;
use offload_worker::TaskError;
use offload_worker::builtin::average::Average;
use offload_worker::builtin::json::{Measures, measure};
use serde::Serialize;
use std::ops::ControlFlow;

/// See the module's documentation.
pub(super) trait Workload: Send + Sync + 'static {
    /// The answer.
    type Answer: PartialEq + Serialize + Send + 'static;
    /// The state of a computation in steps.
    type Steps: 'static;
    /// The built-in task that computes the same.
    const TASK: &'static str;

    /// The size of the computation.
    fn size(&self) -> u64;

    /// Computes everything at once.
    fn in_one_go(&self) -> Result<Self::Answer, TaskError>;

    /// The state before the first [`Workload::step`].
    fn in_steps(&self) -> Self::Steps;

    /// Does one step of constant cost. After the last one, breaks with the answer, or with why there is none.
    fn step(steps: &mut Self::Steps) -> ControlFlow<Result<Self::Answer, TaskError>>;

    /// The input of [`Workload::TASK`] that computes the same; shared, not copied.
    fn input(&self) -> Bytes;
}

/// The average of the numbers 1 to n.
pub(super) struct Numbers {
    n: u64,
    average: Average,
    input: Bytes,
}

impl Numbers {
    /// # Errors
    /// A usage error if the task does not take this n.
    pub(super) fn new(n: u64) -> Result<Numbers, Failure> {
        let average = Average::new(n).map_err(|error| Failure::Usage(format!("--size: {error}")))?;
        Ok(Numbers { n, average, input: n.to_string().into() })
    }
}

impl Workload for Numbers {
    type Answer = f64;
    type Steps = Average;
    const TASK: &'static str = "average";

    fn size(&self) -> u64 {
        self.n
    }

    fn in_one_go(&self) -> Result<f64, TaskError> {
        Ok(self.average.clone().finish())
    }

    fn in_steps(&self) -> Average {
        self.average.clone()
    }

    fn step(average: &mut Average) -> ControlFlow<Result<f64, TaskError>> {
        average.step().map_break(Ok)
    }

    fn input(&self) -> Bytes {
        self.input.clone()
    }
}

/// The measures of a JSON document, which is an array.
pub(super) struct Documents {
    elements: u64,
    document: Bytes,
}

impl Documents {
    /// # Errors
    /// A usage error unless there are 1 to [`BENCH_ELEMENTS_MAX`] elements.
    pub(super) fn new(elements: u64) -> Result<Documents, Failure> {
        if !(1..=BENCH_ELEMENTS_MAX).contains(&elements) {
            let message =
                format!("--size: an array of {elements} elements; it must be 1 to {BENCH_ELEMENTS_MAX}");
            return Err(Failure::Usage(message));
        }
        Ok(Documents { elements, document: document(elements) })
    }
}

impl Workload for Documents {
    type Answer = Measures;
    type Steps = ArraySteps;
    const TASK: &'static str = "json";

    fn size(&self) -> u64 {
        self.elements
    }

    fn in_one_go(&self) -> Result<Measures, TaskError> {
        measure(&self.document)
    }

    fn in_steps(&self) -> ArraySteps {
        ArraySteps::new(self.document.clone())
    }

    fn step(steps: &mut ArraySteps) -> ControlFlow<Result<Measures, TaskError>> {
        steps.step()
    }

    fn input(&self) -> Bytes {
        self.document.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::limits::PAYLOAD_MAX_DEFAULT;

    fn all_steps<W: Workload>(workload: &W) -> Result<W::Answer, TaskError> {
        let mut steps = workload.in_steps();
        loop {
            if let ControlFlow::Break(answer) = W::step(&mut steps) {
                return answer;
            }
        }
    }

    #[test]
    fn steps_come_to_the_same_answer_as_one_go() {
        let numbers = Numbers::new(1000).unwrap();
        assert_eq!(all_steps(&numbers), Ok(500.5));
        assert_eq!(numbers.in_one_go(), Ok(500.5));
        let documents = Documents::new(100).unwrap();
        assert_eq!(all_steps(&documents), documents.in_one_go());
    }

    #[test]
    fn a_size_out_of_bounds_is_a_usage_error_that_names_the_bound() {
        for refused in [Numbers::new(0).err(), Numbers::new(u64::MAX).err()] {
            assert!(refused.unwrap().message().unwrap().contains("must be 1 to"));
        }
        for refused in [Documents::new(0).err(), Documents::new(BENCH_ELEMENTS_MAX + 1).err()] {
            let refused = refused.unwrap();
            assert!(refused.message().unwrap().contains("must be 1 to") && refused.exit_code() == 2);
        }
    }

    #[test]
    fn the_largest_document_is_no_longer_than_a_pool_takes() {
        assert!(Documents::new(BENCH_ELEMENTS_MAX).unwrap().input().len() <= PAYLOAD_MAX_DEFAULT);
    }
}
