//! What the author of a task sees: the task itself, what goes in, what comes out, and how it says no.

use crate::context::TaskContext;
use bytes::Bytes;
use offload_protocol::nouns::{ContentType, Lane, TaskOffer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

type Run = dyn FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError>;

/// A function that jobs can ask for by its name, with what it promises.
///
/// Unless told otherwise a task is not idempotent, so a job whose worker died in the middle of it is reported as
/// failed and never run again in silence.
pub struct Task {
    name: String,
    idempotent: bool,
    lane: Lane,
    run: Box<Run>,
}

impl Task {
    /// A task that gets the bytes of the input as they are and returns bytes of its own.
    pub fn raw<F>(name: impl Into<String>, run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        Task { name: name.into(), idempotent: false, lane: Lane::Cpu, run: Box::new(run) }
    }

    /// A task from one JSON document to another. The input is read as JSON whatever its content type says; one that
    /// does not fit `I` fails the job with the line and column of the misfit, and `run` is not called.
    pub fn json<I, O, E, F>(name: impl Into<String>, mut run: F) -> Task
    where
        I: DeserializeOwned,
        O: Serialize,
        E: fmt::Display,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<O, E> + 'static,
    {
        Task::raw(name, move |input, context| {
            let value = input.json()?;
            // The text is not needed any more, and it may be large.
            drop(input);
            Output::json(&run(value, context).map_err(TaskError::new)?)
        })
    }

    /// Promises that running it twice is as good as running it once: a job whose worker died is tried again.
    #[must_use]
    pub fn idempotent(mut self) -> Task {
        self.idempotent = true;
        self
    }

    /// The opposite of [`Task::idempotent`], which is also the default.
    #[must_use]
    pub fn not_idempotent(mut self) -> Task {
        self.idempotent = false;
        self
    }

    /// The class of jobs that it belongs to; [`Lane::Cpu`] unless said.
    #[must_use]
    pub fn lane(mut self, lane: Lane) -> Task {
        self.lane = lane;
        self
    }

    /// The name that jobs ask for.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn offer(&self) -> TaskOffer<'_> {
        TaskOffer { idempotent: self.idempotent, lane: self.lane, ..TaskOffer::new(self.name.as_str()) }
    }

    pub(crate) fn run(&mut self, input: Input, context: &mut TaskContext<'_>) -> Result<Output, TaskError> {
        (self.run)(input, context)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.offer().fmt(formatter)
    }
}

/// What a job brings along. It is handed over, not lent: large bytes can be kept or changed without a copy
/// (`Vec::from(input.bytes)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The payload, as the client sent it.
    pub bytes: Bytes,
    /// What the client says that it is.
    pub content: ContentType,
}

impl Input {
    /// The bytes as text.
    ///
    /// # Errors
    /// If they are not UTF-8; the message says where.
    pub fn text(&self) -> Result<&str, TaskError> {
        std::str::from_utf8(&self.bytes)
            .map_err(|error| TaskError::new(format_args!("the input is not UTF-8 text: {error}")))
    }

    /// The bytes as a JSON document, whatever [`Input::content`] says.
    ///
    /// # Errors
    /// If they are not JSON or do not fit `T`; the message says what and at which line and column.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, TaskError> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| TaskError::new(format_args!("the input is not what this task takes: {error}")))
    }
}

/// What a task answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The payload.
    pub bytes: Bytes,
    /// What it is.
    pub content: ContentType,
}

impl Output {
    /// Bytes of no stated kind. Nothing is copied from a `Vec<u8>` or a [`Bytes`].
    pub fn bytes(bytes: impl Into<Bytes>) -> Output {
        Output { bytes: bytes.into(), content: ContentType::Bytes }
    }

    /// Text.
    pub fn text(text: impl Into<String>) -> Output {
        Output { bytes: text.into().into(), content: ContentType::Text }
    }

    /// `value` as a JSON document.
    ///
    /// # Errors
    /// If JSON cannot say it, for example a map whose keys are not strings.
    pub fn json(value: &impl Serialize) -> Result<Output, TaskError> {
        match serde_json::to_vec(value) {
            Ok(bytes) => Ok(Output { bytes: bytes.into(), content: ContentType::Json }),
            Err(error) => Err(TaskError::new(format_args!("the result is not JSON: {error}"))),
        }
    }
}

/// Why a task could not do what it was asked; the job ends with the outcome `app_error` and this message.
///
/// Every [`std::error::Error`] turns into one, so `?` works; anything that can be printed does by [`TaskError::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    message: String,
}

impl TaskError {
    /// An error that says `message`. What is over [`offload_protocol::limits::MESSAGE_MAX`] bytes is cut off when it
    /// is sent.
    pub fn new(message: impl fmt::Display) -> TaskError {
        TaskError { message: message.to_string() }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

// `TaskError` itself is no `std::error::Error`: that is what makes this conversion possible.
impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> TaskError {
        TaskError::new(error)
    }
}
