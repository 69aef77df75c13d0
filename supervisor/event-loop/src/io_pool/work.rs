//! A task on its way through the pool. It is one allocation, which goes to a thread with the work and comes back with the
//! result.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::{IoError, TaskId};
use crate::callback::Site;
use crate::panic_message;

/// A task, as the threads see it.
pub(super) struct QueuedTask {
    pub(super) task: TaskId,
    pub(super) site: Site,
    /// It may stop between two of its parts.
    pub(super) has_parts: bool,
    pub(super) submitted: Instant,
    pub(super) work: Box<dyn Work>,
}

/// What a thread does with a task. Afterwards it is the answer to the task's request.
pub(super) trait Work: Any + Send {
    /// Runs one part, and never panics. `Break` says that this was the last one.
    fn run_part(&mut self) -> ControlFlow<()>;
}

/// A task of which `Part` has to be called until it has the result.
pub(super) enum PoolTask<Part, T> {
    Unfinished(Part),
    Finished(Result<T, IoError>),
}

impl<Part, T> Work for PoolTask<Part, T>
where
    Part: FnMut() -> ControlFlow<T> + Send + 'static,
    T: Send + 'static,
{
    fn run_part(&mut self) -> ControlFlow<()> {
        let PoolTask::Unfinished(part) = self else { return ControlFlow::Break(()) };
        let result = match catch_unwind(AssertUnwindSafe(part)) {
            Ok(ControlFlow::Continue(())) => return ControlFlow::Continue(()),
            Ok(ControlFlow::Break(value)) => Ok(value),
            Err(panic) => {
                let message = panic_message(&*panic).to_owned();
                drop_quietly(panic);
                Err(IoError::Panicked(message))
            }
        };
        drop_quietly(std::mem::replace(self, PoolTask::Finished(result)));
        ControlFlow::Break(())
    }
}

impl<Part: 'static, T: 'static> PoolTask<Part, T> {
    /// The result of a task. `answer` is the task itself, or the [`IoError`] that it was answered with instead.
    pub(super) fn result_of(answer: Box<dyn Any + Send>) -> Result<T, IoError> {
        let answer = match answer.downcast::<PoolTask<Part, T>>() {
            Ok(task) => match *task {
                PoolTask::Finished(result) => return result,
                // Only a task that has ended on a thread comes back, so this does not happen.
                PoolTask::Unfinished(_) => return Err(IoError::Cancelled),
            },
            Err(answer) => answer,
        };
        Err(answer.downcast::<IoError>().map_or(IoError::Cancelled, |error| *error))
    }
}

/// Drops what a task owns. If that panics, the pool must lose neither a thread nor an answer.
pub(super) fn drop_quietly<T>(value: T) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) else { return };
    // The payload of a panic may panic too when it is dropped. The payload of that second panic is leaked.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(panic);
    }
}
