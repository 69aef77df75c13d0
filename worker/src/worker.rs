//! The builder of a worker: tasks by name. Each task is checked when it is registered.

use crate::behind::Behind;
use crate::context::TaskContext;
use crate::process::{self, EXIT_BROKEN};
use crate::session;
use crate::session_error::SessionError;
use crate::stepped::Stepped;
use crate::task::{Input, Output, Task, TaskError};
use offload_protocol::limits::{PAYLOAD_MAX_DEFAULT, PAYLOAD_MAX_VARIABLE, TASKS_OFFERED_MAX};
use offload_protocol::nouns::{TASK_NAMES, is_task_name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The builder of a worker program: register the tasks, then call [`Worker::serve`].
#[derive(Debug, Default)]
pub struct Worker {
    tasks: Vec<Task>,
}

impl Worker {
    /// A worker without tasks.
    pub fn new() -> Worker {
        Worker::default()
    }

    /// Registers [`Task::raw`]. Use [`Worker::with`] to say more about a task than its name.
    ///
    /// # Panics
    /// As [`Worker::with`].
    #[must_use]
    pub fn raw<F>(self, name: &str, run: F) -> Worker
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        self.with(Task::raw(name, run))
    }

    /// Registers [`Task::json`]. Use [`Worker::with`] to say more about a task than its name.
    ///
    /// # Panics
    /// As [`Worker::with`].
    #[must_use]
    pub fn json<I, O, E, F>(self, name: &str, run: F) -> Worker
    where
        I: DeserializeOwned,
        O: Serialize,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<O, E> + 'static,
    {
        self.with(Task::json(name, run))
    }

    /// Registers [`Task::stepped`]. Use [`Worker::with`] to say more about a task than its name.
    ///
    /// # Panics
    /// As [`Worker::with`].
    #[must_use]
    pub fn stepped<I, S, E, F>(self, name: &str, start: F) -> Worker
    where
        I: DeserializeOwned,
        S: Stepped + 'static,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        self.with(Task::stepped(name, start))
    }

    /// Registers a task.
    ///
    /// # Panics
    /// If its name is invalid ([`is_task_name`]) or taken, if there are [`TASKS_OFFERED_MAX`] tasks already, or if what it says
    /// of itself is too long ([`DescribedTask::check`](offload_protocol::nouns::DescribedTask::check)) or speaks against its batches
    /// ([`TaskOffer::check_batching`](offload_protocol::nouns::TaskOffer::check_batching)). These are mistakes in
    /// the program, and its first start shows them.
    #[must_use]
    pub fn with(mut self, task: Task) -> Worker {
        let name = task.name();
        assert!(is_task_name(name), "{name:?} cannot name a task: {TASK_NAMES}");
        assert!(self.tasks.iter().all(|other| other.name() != name), "there are two tasks named {name:?}");
        assert!(
            self.tasks.len() < TASKS_OFFERED_MAX,
            "task {name:?} is one too many: a worker offers at most {TASKS_OFFERED_MAX}"
        );
        if let Err(error) = task.described().check().and_then(|()| task.offer().check_batching()) {
            panic!("task {name:?}: {error}");
        }
        self.tasks.push(task);
        self
    }

    /// Serves the supervisor that started this process until it sends Drain or is gone. Returns the exit code for `main`:
    /// 0 if all went well, 64 if this process was not started as a worker, 70 if the supervisor broke the protocol or a
    /// system call failed. The reason is printed on standard error.
    ///
    /// A job whose output is longer than the environment variable `OFFLOAD_PAYLOAD_MAX` allows ([`PAYLOAD_MAX_DEFAULT`]
    /// bytes if it is not set) fails with the outcome `app_error`.
    ///
    /// Descriptor 0 is used for the protocol: a task that reads standard input finds it empty. Descriptors above 2 that the
    /// process inherited, or that a library has opened without close-on-exec, are closed. The process is confined as
    /// [`crate::confine`] says. Call this before you start threads, because existing threads are not confined.
    pub fn serve(self) -> ExitCode {
        let stream = match process::enter() {
            Ok(stream) => stream,
            Err(error) => return complain(&error, error.exit_code()),
        };
        self.serve_while(stream, None)
    }

    /// As [`Worker::serve`], in a process that has prepared itself, and not longer than what it stands in front of lasts.
    pub(crate) fn serve_while(self, stream: UnixStream, behind: Option<Box<dyn Behind>>) -> ExitCode {
        match session::serve_while(self.tasks, stream, output_max(), behind) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&error, EXIT_BROKEN),
        }
    }

    /// Serves the supervisor at the other end of `stream`, for example a test in the same process. Nothing is done to the
    /// process.
    ///
    /// # Errors
    /// [`SessionError`] if the other end breaks the protocol or the stream fails. The end of the stream is no error.
    pub fn serve_on(self, stream: UnixStream) -> Result<(), SessionError> {
        session::serve(self.tasks, stream, PAYLOAD_MAX_DEFAULT)
    }
}

/// The longest output that is sent, in bytes. A supervisor kills a worker that sends a longer one, so the job fails here
/// instead.
pub(crate) fn output_max() -> usize {
    let told = std::env::var(PAYLOAD_MAX_VARIABLE).ok();
    told.and_then(|bytes| bytes.parse().ok()).unwrap_or(PAYLOAD_MAX_DEFAULT)
}

/// Says on standard error why this process ends.
pub(crate) fn complain(error: &dyn fmt::Display, exit_code: u8) -> ExitCode {
    // If this fails, because the supervisor is gone, there is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "{error}");
    ExitCode::from(exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn nothing(name: &str) -> Task {
        Task::json(name, |(): (), _| Ok::<_, TaskError>(()))
    }

    #[test]
    #[should_panic(expected = "\"2fast\" cannot name a task")]
    fn a_name_that_needs_escaping_is_refused() {
        let _ = Worker::new().with(nothing("2fast"));
    }

    #[test]
    #[should_panic(expected = "there are two tasks named \"twin\"")]
    fn a_name_is_given_once() {
        let _ = Worker::new().with(nothing("twin")).with(nothing("twin"));
    }

    #[test]
    #[should_panic(expected = "task \"t4096\" is one too many")]
    fn more_tasks_than_a_worker_may_offer_are_refused() {
        let _ =
            (0..=TASKS_OFFERED_MAX).fold(Worker::new(), |worker, i| worker.with(nothing(&format!("t{i}"))));
    }

    #[test]
    #[should_panic(expected = "task \"pay\": it takes several jobs at once and is not idempotent")]
    fn a_task_in_batches_has_to_be_idempotent() {
        let pay = Task::batch("pay", 2, Duration::ZERO, |jobs| vec![Ok(Output::text("")); jobs.len()]);
        let _ = Worker::new().with(pay.not_idempotent());
    }

    #[test]
    #[should_panic(expected = "task \"wordy\": its description has 257 bytes, 256 are allowed")]
    fn a_task_that_says_too_much_of_itself_is_refused() {
        let _ = Worker::new().with(nothing("wordy").description("x".repeat(257)));
    }
}
