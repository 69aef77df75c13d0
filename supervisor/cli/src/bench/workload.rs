//! The computations. A workload can be computed at once, in steps, or by a worker, always with the same answer.
//!
//! A workload is a trait and not an enum, so that a step which is a single addition costs no more than that: the
//! workload is chosen once, outside of the measured loops.

use super::super::failure::Failure;
use super::array::{ArraySteps, document};
use crate::limits::{BENCH_ELEMENTS_MAX, BENCH_SIDE_MAX, BENCH_TEXT_MAX};
use bytes::Bytes;
use offload_protocol::nouns::MediaType;
use offload_worker::builtin::average::Average;
use offload_worker::builtin::in_one_piece;
use offload_worker::builtin::json::{Measures, measure};
use offload_worker::builtin::primes::{Count, Primes, primes_up_to};
use offload_worker::{Input, TaskError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::ops::ControlFlow;

/// See the module's documentation.
pub(super) trait Workload: Send + Sync + 'static {
    /// The answer.
    type Answer: PartialEq + Send + 'static;
    /// The state of a computation in steps.
    type Steps: 'static;
    /// How it can be cut. What it does not allow is never called.
    const CUT: Cut;

    /// The task of workers that computes the same.
    fn task(&self) -> &str;

    /// The size of the computation, if it has one.
    fn size(&self) -> Option<u64>;

    /// Its inputs, which the jobs take in turn.
    fn inputs(&self) -> Inputs {
        Inputs { count: 1, bytes: self.input(0).len() as u64 }
    }

    /// By which inputs of somebody's own are recognized; none if the size says it all.
    fn inputs_digest(&self) -> Option<String> {
        None
    }

    /// Computes everything at once.
    fn in_one_go(&self) -> Result<Self::Answer, TaskError>;

    /// The state before the first [`Workload::step`].
    fn in_steps(&self) -> Self::Steps;

    /// Does one step of constant cost. After the last one, breaks with the answer, or with why there is none.
    fn step(steps: &mut Self::Steps) -> ControlFlow<Result<Self::Answer, TaskError>>;

    /// An input of [`Workload::task`], which computes the same; shared, not copied.
    fn input(&self, number: usize) -> Bytes;

    /// What that input is.
    fn media_type(&self, _number: usize) -> MediaType {
        MediaType::JSON
    }

    /// The output that a worker gives for the answer.
    fn output(answer: &Self::Answer) -> Bytes;
}

/// How far a workload can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Into steps.
    Steps,
    /// Not at all, but this process can do it.
    OnePiece,
    /// Only workers can do it.
    WorkersOnly,
}

impl Cut {
    /// Why it allows no more than it does, of a task of this name.
    pub(super) fn why_not(self, task: &str) -> String {
        match self {
            Cut::Steps => format!("{task} can be done in all ways"),
            Cut::OnePiece => format!("{task} computes in one piece"),
            Cut::WorkersOnly => format!("{task} with inputs of your own is done by workers only"),
        }
    }
}

/// How many inputs there are, and their bytes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inputs {
    pub(super) count: usize,
    pub(super) bytes: u64,
}

/// For answers that a worker gives as JSON.
fn json_of(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).expect("numbers and names can always be written").into()
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
    const CUT: Cut = Cut::Steps;

    fn task(&self) -> &str {
        "average"
    }

    fn size(&self) -> Option<u64> {
        Some(self.n)
    }

    fn in_one_go(&self) -> Result<f64, TaskError> {
        Ok(self.average.clone().finish())
    }

    fn in_steps(&self) -> Average {
        self.average.clone()
    }

    // A call would cost more than the addition.
    #[inline]
    fn step(average: &mut Average) -> ControlFlow<Result<f64, TaskError>> {
        average.step().map_break(Ok)
    }

    fn input(&self, _number: usize) -> Bytes {
        self.input.clone()
    }

    fn output(answer: &Self::Answer) -> Bytes {
        json_of(answer)
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
    const CUT: Cut = Cut::Steps;

    fn task(&self) -> &str {
        "json"
    }

    fn size(&self) -> Option<u64> {
        Some(self.elements)
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

    fn input(&self, _number: usize) -> Bytes {
        self.document.clone()
    }

    fn output(answer: &Self::Answer) -> Bytes {
        json_of(answer)
    }
}

/// The primes up to n.
pub(super) struct PrimesUpTo {
    n: u64,
    input: Bytes,
}

impl PrimesUpTo {
    /// # Errors
    /// A usage error if the task does not take this n.
    pub(super) fn new(n: u64) -> Result<PrimesUpTo, Failure> {
        Count::new(n).map_err(|error| Failure::Usage(format!("--size: {error}")))?;
        Ok(PrimesUpTo { n, input: n.to_string().into() })
    }
}

impl Workload for PrimesUpTo {
    type Answer = Primes;
    type Steps = Result<Count, TaskError>;
    const CUT: Cut = Cut::Steps;

    fn task(&self) -> &str {
        "primes"
    }

    fn size(&self) -> Option<u64> {
        Some(self.n)
    }

    fn in_one_go(&self) -> Result<Primes, TaskError> {
        primes_up_to(self.n)
    }

    fn in_steps(&self) -> Result<Count, TaskError> {
        Count::new(self.n)
    }

    fn step(steps: &mut Result<Count, TaskError>) -> ControlFlow<Result<Primes, TaskError>> {
        match steps {
            Ok(count) => count.step().map_break(Ok),
            Err(error) => ControlFlow::Break(Err(error.clone())),
        }
    }

    fn input(&self, _number: usize) -> Bytes {
        self.input.clone()
    }

    fn output(answer: &Primes) -> Bytes {
        json_of(answer)
    }
}

/// A task that computes in one piece.
pub(super) struct OnePiece {
    task: &'static str,
    size: u64,
    input: Input,
}

impl OnePiece {
    /// `pbkdf2` with so many iterations.
    ///
    /// # Errors
    /// A usage error if the task does not take so many.
    pub(super) fn pbkdf2(iterations: u64) -> Result<OnePiece, Failure> {
        let request = json!({"password": "password", "salt": "salt", "iterations": iterations, "length": 32});
        OnePiece::new("pbkdf2", iterations, request.to_string().into(), MediaType::JSON)
    }

    /// `regex` looks for a pattern that is nowhere in a text of so many bytes, and backtracks a little at each of them.
    ///
    /// # Errors
    /// A usage error unless the text has 1 to [`BENCH_TEXT_MAX`] bytes.
    pub(super) fn regex(bytes: u64) -> Result<OnePiece, Failure> {
        if !(1..=BENCH_TEXT_MAX).contains(&bytes) {
            let message = format!("--size: a text of {bytes} bytes; it must be 1 to {BENCH_TEXT_MAX}");
            return Err(Failure::Usage(message));
        }
        let text: String = ('a'..='z').cycle().take(usize::try_from(bytes).unwrap_or(usize::MAX)).collect();
        let request = json!({"pattern": "(a[a-y]*)+0", "text": text});
        OnePiece::new("regex", bytes, request.to_string().into(), MediaType::JSON)
    }

    /// `thumbnail` of a square picture with sides of so many pixels.
    ///
    /// # Errors
    /// A usage error unless there are 1 to [`BENCH_SIDE_MAX`].
    pub(super) fn thumbnail(side: u64) -> Result<OnePiece, Failure> {
        if !(1..=BENCH_SIDE_MAX).contains(&side) {
            let message = format!("--size: a side of {side} pixels; it must be 1 to {BENCH_SIDE_MAX}");
            return Err(Failure::Usage(message));
        }
        OnePiece::new("thumbnail", side, picture(side as u32)?, MediaType::PNG)
    }

    fn new(task: &'static str, size: u64, bytes: Bytes, media_type: MediaType) -> Result<OnePiece, Failure> {
        let workload = OnePiece { task, size, input: Input { bytes, media_type } };
        match workload.in_one_go() {
            Ok(_) => Ok(workload),
            Err(error) => Err(Failure::Usage(format!("--size: {error}"))),
        }
    }
}

/// Stripes in all colours, as a PNG file.
fn picture(side: u32) -> Result<Bytes, Failure> {
    let broken = |error| Failure::internal("cannot write a picture", error);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Rgb);
    let pixels: Vec<u8> = (0..side * side * 3).map(|at| (at ^ (at / side)) as u8).collect();
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels)).map_err(broken)?;
    Ok(file.into())
}

impl Workload for OnePiece {
    type Answer = Bytes;
    type Steps = Infallible;
    const CUT: Cut = Cut::OnePiece;

    fn task(&self) -> &str {
        self.task
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn in_one_go(&self) -> Result<Bytes, TaskError> {
        let unknown = || Err(TaskError::new("this is no task in one piece"));
        in_one_piece(self.task, &self.input).unwrap_or_else(unknown).map(|output| output.bytes)
    }

    fn in_steps(&self) -> Infallible {
        unreachable!("it has no steps")
    }

    fn step(steps: &mut Infallible) -> ControlFlow<Result<Bytes, TaskError>> {
        match *steps {}
    }

    fn input(&self, _number: usize) -> Bytes {
        self.input.bytes.clone()
    }

    fn media_type(&self, _number: usize) -> MediaType {
        self.input.media_type.clone()
    }

    fn output(answer: &Bytes) -> Bytes {
        answer.clone()
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
        let primes = PrimesUpTo::new(1_000_000).unwrap();
        assert_eq!(all_steps(&primes), primes.in_one_go());
    }

    #[test]
    fn what_has_no_steps_has_an_answer() {
        for workload in [OnePiece::pbkdf2(10), OnePiece::regex(1000), OnePiece::thumbnail(300)] {
            let workload = workload.unwrap();
            assert!(!workload.in_one_go().unwrap().is_empty(), "{}", workload.task());
        }
    }

    #[test]
    fn a_size_out_of_bounds_is_a_usage_error_that_names_the_bound() {
        for refused in [Numbers::new(0).err(), Numbers::new(u64::MAX).err()] {
            assert!(refused.unwrap().message().unwrap().contains("must be 1 to"));
        }
        let others =
            [OnePiece::pbkdf2(0), OnePiece::regex(0), OnePiece::thumbnail(0), OnePiece::thumbnail(1 << 40)];
        for refused in others {
            assert!(refused.err().unwrap().message().unwrap().contains("must be 1 to"));
        }
        for refused in [Documents::new(0).err(), Documents::new(BENCH_ELEMENTS_MAX + 1).err()] {
            let refused = refused.unwrap();
            assert!(refused.message().unwrap().contains("must be 1 to") && refused.exit_code() == 2);
        }
    }

    #[test]
    fn the_largest_document_is_no_longer_than_a_pool_takes() {
        assert!(Documents::new(BENCH_ELEMENTS_MAX).unwrap().input(0).len() <= PAYLOAD_MAX_DEFAULT);
    }
}
