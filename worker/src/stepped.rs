//! Tasks that are done in steps: a state that knows how to take the next step. Between two steps a worker can run other
//! jobs, report progress, and save a checkpoint from which another attempt can go on.

use crate::task::{Output, TaskError};
use crate::{json, panics};
use bytes::Bytes;
use offload_protocol::limits::CHECKPOINT_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Work in small steps. [`Task::stepped`](crate::Task::stepped) makes a task of it.
/// [`Task::checkpointed`](crate::Task::checkpointed) makes a task that can go on after its worker ended.
///
/// ```
/// use offload_worker::{Stepped, Task, TaskError, Worker};
/// use serde::{Deserialize, Serialize};
/// use std::ops::ControlFlow::{self, Break, Continue};
///
/// #[derive(Serialize, Deserialize)]
/// struct SumOfSquares {
///     n: u64,
///     added: u64,
///     sum: u64,
/// }
///
/// impl Stepped for SumOfSquares {
///     type Output = u64;
///
///     fn step(&mut self) -> ControlFlow<Result<u64, TaskError>> {
///         if self.added == self.n {
///             return Break(Ok(self.sum));
///         }
///         self.added += 1;
///         match self.sum.checked_add(self.added * self.added) {
///             Some(sum) => self.sum = sum,
///             None => return Break(Err(TaskError::new("too big"))),
///         }
///         Continue(())
///     }
///
///     fn progress(&self) -> (u64, u64) {
///         (self.added, self.n)
///     }
/// }
///
/// fn start(n: u64) -> Result<SumOfSquares, TaskError> {
///     Ok(SumOfSquares { n, added: 0, sum: 0 })
/// }
///
/// let task = Task::checkpointed("sum-of-squares", |n, _context| start(n)).idempotent();
/// let worker = Worker::new().with(task); // and then, in `main`: worker.serve()
///
/// // It is a plain value: a test can step it by itself.
/// let mut state = start(3).unwrap();
/// let sum = loop {
///     if let Break(sum) = state.step() {
///         break sum;
///     }
/// };
/// assert_eq!(sum, Ok(14));
/// ```
pub trait Stepped {
    /// The result. It is sent as JSON.
    type Output: Serialize;

    /// Does one step. Returns `Break` with the result if it was the last step; it is not called again after that.
    ///
    /// A step should take at most a millisecond, because its worker does nothing else meanwhile. It may be very small:
    /// thousands of steps are taken between two readings of the clock. Their number is chosen by how long the steps before
    /// took, so it is best if all steps take about the same time.
    fn step(&mut self) -> ControlFlow<Result<Self::Output, TaskError>>;

    /// The progress: units of work done, and units in all (0 if not known). It is called about ten times a second, see
    /// [`Task::progress_every`](crate::Task::progress_every).
    fn progress(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// What a session sees of a [`Stepped`], whatever its type.
pub(crate) trait Steps {
    /// Takes `count` steps, or fewer if one of them is the last one.
    fn take(&mut self, count: u32) -> ControlFlow<Result<Output, TaskError>>;

    fn progress(&self) -> (u64, u64);

    /// A state from which another attempt can go on, at most [`CHECKPOINT_MAX`] bytes; `None` if the task does not give
    /// checkpoints.
    fn checkpoint(&self) -> Option<Result<Bytes, TaskError>>;
}

/// How a state is encoded into bytes and decoded.
pub(crate) struct Keeping<S> {
    pub(crate) encode: fn(&S) -> Result<Bytes, TaskError>,
    pub(crate) decode: fn(&[u8]) -> Result<S, TaskError>,
}

impl<S> Clone for Keeping<S> {
    fn clone(&self) -> Keeping<S> {
        *self
    }
}

impl<S> Copy for Keeping<S> {}

impl<S: Serialize + DeserializeOwned> Keeping<S> {
    /// As JSON, which the next version of a program can still read if a field was added (`#[serde(default)]`).
    pub(crate) const JSON: Keeping<S> = Keeping { encode: to_json, decode: from_json };
}

fn to_json<S: Serialize>(state: &S) -> Result<Bytes, TaskError> {
    let mut bounded = Bounded(Vec::new());
    json::to_writer(&mut bounded, state)?;
    Ok(bounded.0.into())
}

/// Bytes that another version of the program wrote may be anything, and the author's decoding may panic.
fn from_json<S: DeserializeOwned>(bytes: &[u8]) -> Result<S, TaskError> {
    panics::caught(|| serde_json::from_slice(bytes)).map_err(TaskError::new)?.map_err(TaskError::new)
}

/// Accepts [`CHECKPOINT_MAX`] bytes and then fails, so that encoding a state of a gigabyte ends early.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > CHECKPOINT_MAX {
            return Err(io::Error::other(format!("the state has more than {CHECKPOINT_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A state of at most this many bytes may fit into the processor's registers.
const SMALL: usize = 64;

/// A state, and how it is saved, if it can be.
pub(crate) struct InSteps<S> {
    /// `None` after a step has panicked.
    state: Option<S>,
    keeping: Option<Keeping<S>>,
}

impl<S: Stepped> InSteps<S> {
    pub(crate) fn new(state: S, keeping: Option<Keeping<S>>) -> InSteps<S> {
        InSteps { state: Some(state), keeping }
    }

    /// The compiler may keep a local variable in registers from one step to the next. That matters if a step takes a
    /// nanosecond.
    fn take_in_registers(&mut self, count: u32) -> Option<ControlFlow<Result<S::Output, TaskError>>> {
        let mut state = self.state.take()?;
        let flow = take(&mut state, count);
        self.state = Some(state);
        Some(flow)
    }
}

#[inline(always)]
fn take<S: Stepped>(state: &mut S, count: u32) -> ControlFlow<Result<S::Output, TaskError>> {
    for _ in 0..count {
        state.step()?;
    }
    ControlFlow::Continue(())
}

impl<S: Stepped> Steps for InSteps<S> {
    fn take(&mut self, count: u32) -> ControlFlow<Result<Output, TaskError>> {
        let flow = if size_of::<S>() <= SMALL {
            self.take_in_registers(count)
        } else {
            self.state.as_mut().map(|state| take(state, count))
        };
        let flow = flow.expect("a job whose step has panicked has ended");
        flow.map_break(|result| result.and_then(|value| Output::json(&value)))
    }

    fn progress(&self) -> (u64, u64) {
        self.state.as_ref().map_or((0, 0), S::progress)
    }

    fn checkpoint(&self) -> Option<Result<Bytes, TaskError>> {
        let (state, keeping) = (self.state.as_ref()?, self.keeping?);
        Some((keeping.encode)(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_up_to_the_limit_is_kept_and_comes_back() {
        let text = "x".repeat(CHECKPOINT_MAX - 2);
        let kept = (Keeping::JSON.encode)(&text).unwrap();
        assert_eq!(kept.len(), CHECKPOINT_MAX);
        assert_eq!((Keeping::JSON.decode)(&kept), Ok(text));
    }

    #[test]
    fn a_state_with_a_number_that_json_does_not_have_is_refused() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = (Keeping::JSON.encode)(&(1, [0.5, wrong])).unwrap_err();
            assert_eq!(error.to_string(), "JSON cannot represent NaN or an infinity");
        }
        let kept = (Keeping::JSON.encode)(&f64::MAX).unwrap();
        assert_eq!((Keeping::<f64>::JSON.decode)(&kept), Ok(f64::MAX));
    }

    #[test]
    fn a_state_over_the_limit_is_refused_with_the_limit() {
        let error = (Keeping::JSON.encode)(&"x".repeat(CHECKPOINT_MAX - 1)).unwrap_err();
        assert_eq!(error.to_string(), "the state has more than 65536 bytes");
    }
}
