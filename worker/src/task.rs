//! What the author of a task sees: the task itself, what goes in, what comes out, and how it says no.

use crate::context::TaskContext;
use crate::limits::PROMISE_MIN;
use crate::stepped::{InSteps, Keeping, Stepped, Steps};
use bytes::Bytes;
use offload_protocol::nouns::{ContentType, Lane, TaskOffer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

type Run = dyn FnMut(Given, &mut TaskContext<'_>) -> Result<Ran, TaskError>;

/// What a job brings along, and where an earlier attempt at it got to.
pub(crate) struct Given {
    pub(crate) input: Input,
    pub(crate) checkpoint: Option<Bytes>,
    /// Whether the job may be done from the start although it was begun before.
    pub(crate) may_start_anew: bool,
}

/// What became of a task that was run: it is done, or it has only begun.
pub(crate) enum Ran {
    Output(Output),
    Steps(Box<dyn Steps>),
}

/// How a task works, as its offer says.
#[derive(Clone, Copy)]
enum Manner {
    AtOnce,
    Stepped { checkpoints: bool },
}

/// A function that jobs can ask for by its name, with what it promises.
///
/// Unless told otherwise a task is not idempotent, so a job whose worker died in the middle of it is reported as
/// failed and never run again in silence.
pub struct Task {
    name: String,
    idempotent: bool,
    lane: Lane,
    manner: Manner,
    /// 0 if nothing is promised.
    progress_ms: u32,
    run: Box<Run>,
}

impl Task {
    /// A task that gets the bytes of the input as they are and returns bytes of its own.
    pub fn raw<F>(name: impl Into<String>, mut run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        let run =
            move |given: Given, context: &mut TaskContext<'_>| run(given.input, context).map(Ran::Output);
        Task::new(name.into(), Manner::AtOnce, Box::new(run))
    }

    fn new(name: String, manner: Manner, run: Box<Run>) -> Task {
        Task { name, idempotent: false, lane: Lane::Cpu, manner, progress_ms: 0, run }
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

    /// A task that is done in steps: `start` makes a state from the input, a JSON document as for [`Task::json`], and
    /// the state is stepped until it breaks with the result.
    ///
    /// About every millisecond, and never more often than once a step, the worker looks around. It tells how far the
    /// job is. If another job was given to it, that one is run to its end before the next step, so a short job need not
    /// wait for a long one. A job that was cancelled takes no further step.
    pub fn stepped<I, S, E, F>(name: impl Into<String>, start: F) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + 'static,
        E: fmt::Display,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        Task::in_steps(name.into(), start, None)
    }

    /// A [`Task::stepped`] whose state is kept at the supervisor every 500 ms of run time, as JSON. If the worker dies
    /// or is needed for something else, another attempt goes on from there instead of calling `start`.
    ///
    /// A state of more than [`offload_protocol::limits::CHECKPOINT_MAX`] bytes, or one that JSON cannot say, is not kept:
    /// the job runs on where it is, and a line on standard error says why. One that does not fit `S` any more, because it
    /// comes from another version of the program, is dropped, and the job starts from its input. A state that would fit
    /// and mean something else must be made not to fit: rename a field. What can be computed anew need not be kept, see
    /// `#[serde(try_from)]`.
    pub fn checkpointed<I, S, E, F>(name: impl Into<String>, start: F) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + Serialize + DeserializeOwned + 'static,
        E: fmt::Display,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        Task::in_steps(name.into(), start, Some(Keeping::JSON))
    }

    fn in_steps<I, S, E, F>(name: String, mut start: F, keeping: Option<Keeping<S>>) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + 'static,
        E: fmt::Display,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        let run = move |given: Given, context: &mut TaskContext<'_>| {
            let kept = keeping.map_or(Ok(None), |keeping| kept_state(keeping, &given, context.job()))?;
            let state = match kept {
                Some(state) => state,
                None => start(given.input.json()?, context).map_err(TaskError::new)?,
            };
            Ok(Ran::Steps(Box::new(InSteps::new(state, keeping)) as Box<dyn Steps>))
        };
        Task::new(name, Manner::Stepped { checkpoints: keeping.is_some() }, Box::new(run))
    }

    /// Promises to say how far it is at least so often, in whole milliseconds: the supervisor takes a job that breaks
    /// the promise for one that hangs. For a stepped task the promise is kept as long as no step takes longer; any
    /// other task has to call [`TaskContext::progress`].
    ///
    /// # Panics
    /// If `every` is less than 10 ms.
    #[must_use]
    pub fn progress_every(mut self, every: Duration) -> Task {
        let name = &self.name;
        assert!(every >= PROMISE_MIN, "task {name:?} promises progress every {every:?}, 10 ms is the least");
        // Seven weeks are as good as longer.
        self.progress_ms = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
        self
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
        let (stepped, checkpoints) = match self.manner {
            Manner::AtOnce => (false, false),
            Manner::Stepped { checkpoints } => (true, checkpoints),
        };
        let name = self.name.as_str().into();
        let Task { idempotent, lane, progress_ms, .. } = *self;
        TaskOffer { name, idempotent, lane, stepped, checkpoints, progress_ms }
    }

    /// What [`Task::progress_every`] promised.
    pub(crate) fn promise(&self) -> Option<Duration> {
        (self.progress_ms > 0).then(|| Duration::from_millis(self.progress_ms.into()))
    }

    pub(crate) fn run(&mut self, given: Given, context: &mut TaskContext<'_>) -> Result<Ran, TaskError> {
        (self.run)(Given { may_start_anew: self.idempotent, ..given }, context)
    }
}

/// A checkpoint that cannot be used costs the work since the start, not the job; but what must not be done twice is not
/// begun again.
fn kept_state<S>(keeping: Keeping<S>, given: &Given, job: u64) -> Result<Option<S>, TaskError> {
    let Some(checkpoint) = &given.checkpoint else { return Ok(None) };
    match (keeping.decode)(checkpoint) {
        Ok(state) => Ok(Some(state)),
        Err(error) if given.may_start_anew => {
            complain(format_args!("job {job} starts anew, its checkpoint is not of this program: {error}"));
            Ok(None)
        }
        Err(error) => Err(TaskError::new(format_args!(
            "the checkpoint is not of this program ({error}), and the task must not be begun again"
        ))),
    }
}

/// A line on standard error, which may be gone together with the supervisor; there is nobody else to tell.
pub(crate) fn complain(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "offload worker: {what}");
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
