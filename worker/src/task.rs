//! What the author of a task sees: the task itself, its input, its output and its errors.

use crate::batch::{self, Batched, Member};
use crate::context::TaskContext;
use crate::limits::PROMISE_MIN;
use crate::stepped::{InSteps, Keeping, Stepped, Steps};
pub use crate::task_error::TaskError;
use crate::{json, panics};
use bytes::Bytes;
use offload_protocol::nouns::{Batching, DescribedTask, FailureKind, Lane, MediaType, TaskOffer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

type Run = dyn FnMut(Given, &mut TaskContext<'_>) -> Result<Ran, TaskError>;

/// The input of a job, and the checkpoint of an earlier attempt.
pub(crate) struct Given {
    pub(crate) input: Input,
    pub(crate) checkpoint: Option<Bytes>,
    /// Whether the job may be done from the start although it was begun before.
    pub(crate) may_start_anew: bool,
}

/// The state of a task after its function was called: it is done, or its steps begin.
pub(crate) enum Ran {
    Output(Output),
    Steps(Box<dyn Steps>),
}

/// How a task works that takes one job at a time, as stated in its offer.
#[derive(Clone, Copy)]
enum Manner {
    AtOnce,
    Stepped { checkpoints: bool },
}

/// What a task does with its jobs.
enum Body {
    One(Manner, Box<Run>),
    Batch(Batching, Box<Batched<'static>>),
}

/// A function that jobs ask for by its name, with what it promises.
///
/// By default a task is not idempotent: a job whose worker ended while it ran is reported as failed and not run again.
pub struct Task {
    name: String,
    idempotent: bool,
    lane: Lane,
    body: Body,
    /// 0 if nothing is promised.
    progress_ms: u32,
    described: DescribedTask,
}

impl Task {
    /// A task that gets the bytes of the input as they are and returns bytes of its own.
    pub fn raw<F>(name: impl Into<String>, mut run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        let run =
            move |given: Given, context: &mut TaskContext<'_>| run(given.input, context).map(Ran::Output);
        Task::new(name.into(), Body::One(Manner::AtOnce, Box::new(run)))
    }

    fn new(name: String, body: Body) -> Task {
        Task {
            name,
            idempotent: false,
            lane: Lane::Cpu,
            body,
            progress_ms: 0,
            described: DescribedTask::default(),
        }
    }

    /// A task from one JSON document to another. The input is read as JSON whatever its media type says. If it does not
    /// fit `I`, the job fails with an error that names the line and column, and `run` is not called.
    ///
    /// An error of `run` that is a text or a [`TaskError`] is for whoever called the task. What another type says is told only to callers
    /// that have shown a token.
    ///
    /// A function that cannot fail has [`Infallible`](std::convert::Infallible) as its error:
    ///
    /// ```
    /// use offload_worker::Task;
    /// use std::convert::Infallible;
    ///
    /// let task = Task::json("double", |n: u32, _| Ok::<_, Infallible>(u64::from(n) * 2));
    /// ```
    pub fn json<I, O, E, F>(name: impl Into<String>, mut run: F) -> Task
    where
        I: DeserializeOwned,
        O: Serialize,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<O, E> + 'static,
    {
        Task::raw(name, move |input, context| {
            let value = input.json()?;
            // The text is not needed any more, and it may be large.
            drop(input);
            Output::json(&run(value, context).map_err(TaskError::returned)?)
        })
        .accepts([MediaType::JSON])
        .produces(MediaType::JSON)
    }

    /// A task that is done in steps. `start` makes a state from the input, which is a JSON document as for [`Task::json`].
    /// Then [`Stepped::step`] is called until it returns `Break` with the result.
    ///
    /// About every millisecond, but not more often than after each step, the worker looks at its socket. It reports the
    /// progress. If another job has arrived, that job is run before the next step, so a short job need not wait for a long
    /// one. If the job was cancelled, no further step is taken.
    pub fn stepped<I, S, E, F>(name: impl Into<String>, start: F) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + 'static,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        Task::in_steps(name.into(), start, None)
    }

    /// A [`Task::stepped`] whose state is sent to the supervisor as JSON every 500 ms of run time. If the worker ends, or is
    /// needed for another job, another attempt goes on from that state instead of calling `start`.
    ///
    /// A state of more than [`offload_protocol::limits::CHECKPOINT_MAX`] bytes, or one that JSON cannot represent, is not
    /// saved: the job goes on, and a line on standard error says why. A state that does not fit `S`, because it comes from
    /// another version of the program, is dropped, and the job starts from its input. If a new version gives a field
    /// another meaning, rename the field, so that old states do not fit. Parts of the state that can be computed again need
    /// not be saved, see `#[serde(try_from)]`.
    pub fn checkpointed<I, S, E, F>(name: impl Into<String>, start: F) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + Serialize + DeserializeOwned + 'static,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        Task::in_steps(name.into(), start, Some(Keeping::JSON))
    }

    fn in_steps<I, S, E, F>(name: String, mut start: F, keeping: Option<Keeping<S>>) -> Task
    where
        I: DeserializeOwned,
        S: Stepped + 'static,
        E: fmt::Display + 'static,
        F: FnMut(I, &mut TaskContext<'_>) -> Result<S, E> + 'static,
    {
        let run = move |given: Given, context: &mut TaskContext<'_>| {
            let kept = keeping.map_or(Ok(None), |keeping| kept_state(keeping, &given, context.job()))?;
            let state = match kept {
                Some(state) => state,
                None => start(given.input.json()?, context).map_err(TaskError::returned)?,
            };
            Ok(Ran::Steps(Box::new(InSteps::new(state, keeping)) as Box<dyn Steps>))
        };
        let manner = Manner::Stepped { checkpoints: keeping.is_some() };
        Task::new(name, Body::One(manner, Box::new(run))).accepts([MediaType::JSON]).produces(MediaType::JSON)
    }

    /// A task that takes several jobs at once, up to `max` (2 to [`BATCH_JOBS_MAX`]), because together they cost less than one after
    /// another. The first job of a batch waits for others for at most `wait` (up to [`BATCH_WAIT_MAX`]) while a worker is idle; the
    /// configuration of the supervisor may lower both. `run` gets 1 to `max` jobs and returns as many results in their order. A job
    /// that fails by its own `Err` fails alone.
    ///
    /// The task is [`Task::idempotent`], because that is what finding the guilty one of several jobs takes: if `run` panics or
    /// returns another number of results, it is called again for each half of the jobs, and so on, until the job is found that
    /// fails alone. If it ends the process, the supervisor does the same with workers. All jobs of a batch have the same timeout,
    /// which counts for all of them together.
    ///
    /// # Panics
    /// If `max` or `wait` is out of its bounds.
    ///
    /// [`BATCH_JOBS_MAX`]: offload_protocol::limits::BATCH_JOBS_MAX
    /// [`BATCH_WAIT_MAX`]: offload_protocol::limits::BATCH_WAIT_MAX
    pub fn batch<F>(name: impl Into<String>, max: u32, wait: Duration, run: F) -> Task
    where
        F: FnMut(&[Member]) -> Vec<Result<Output, TaskError>> + 'static,
    {
        let name = name.into();
        let batching = Batching { max, wait_us: u32::try_from(wait.as_micros()).unwrap_or(u32::MAX) };
        if let Err(why) = batching.check() {
            panic!("task {name:?}: {why}");
        }
        Task::new(name, Body::Batch(batching, Box::new(run))).idempotent()
    }

    /// A [`Task::batch`] from JSON documents to JSON documents. A job whose input does not fit `I` fails with an error that names
    /// the line and column, and `run` does not get it.
    ///
    /// # Panics
    /// As [`Task::batch`].
    pub fn json_batch<I, O, E, F>(name: impl Into<String>, max: u32, wait: Duration, run: F) -> Task
    where
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: fmt::Display + 'static,
        F: FnMut(Vec<I>) -> Vec<Result<O, E>> + 'static,
    {
        Task::batch(name, max, wait, crate::batch::with_json(run))
            .accepts([MediaType::JSON])
            .produces(MediaType::JSON)
    }

    /// Promises to report progress at least once in this time, in whole milliseconds. If a job does not, the supervisor takes
    /// its worker for hanging and kills it. A stepped task keeps the promise as long as no step takes longer; any other
    /// task has to call [`TaskContext::progress`].
    ///
    /// # Panics
    /// If `every` is less than 10 ms.
    #[must_use]
    pub fn progress_every(mut self, every: Duration) -> Task {
        let name = &self.name;
        assert!(every >= PROMISE_MIN, "task {name:?} promises progress every {every:?}, 10 ms is the least");
        // Longer times are cut to what 32 bits hold: seven weeks.
        self.progress_ms = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Promises that running it twice has the same effect as running it once: a job whose worker ended is tried again.
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

    /// Sets the lane that it belongs to; by default [`Lane::Cpu`].
    #[must_use]
    pub fn lane(mut self, lane: Lane) -> Task {
        self.lane = lane;
        self
    }

    /// Says what it does, in one line of at most [`DESCRIPTION_MAX`](offload_protocol::limits::DESCRIPTION_MAX) bytes. It is
    /// shown by `offload tasks`, as are the example, the schema, the media types and the needs.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Task {
        self.described.about.description = description.into();
        self
    }

    /// Says which media types it takes, at most 8; `image/*` stands for several. A task that takes JSON says so by itself.
    #[must_use]
    pub fn accepts(mut self, media_types: impl IntoIterator<Item = MediaType>) -> Task {
        self.described.about.accepts = media_types.into_iter().collect();
        self
    }

    /// Says what it returns. A task that returns JSON says so by itself.
    #[must_use]
    pub fn produces(mut self, media_type: MediaType) -> Task {
        self.described.about.produces = media_type;
        self
    }

    /// Gives an input that it can be tried with. Example and schema together have at most 64 KiB.
    #[must_use]
    pub fn example(mut self, input: impl Into<Vec<u8>>) -> Task {
        self.described.example = input.into().into();
        self
    }

    /// Gives a JSON Schema of its input.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Task {
        self.described.schema = schema.into().into();
        self
    }

    /// Says that it sends its output in parts ([`TaskContext::send_part`]), so that people know that it is worth asking for a
    /// stream.
    #[must_use]
    pub fn streams(mut self) -> Task {
        self.described.about.streams = true;
        self
    }

    /// Says how much memory one job needs, in bytes.
    #[must_use]
    pub fn needs_memory(mut self, bytes: u64) -> Task {
        self.described.about.memory_bytes = bytes;
        self
    }

    /// Says that a job of it should have its machine to itself.
    #[must_use]
    pub fn exclusive(mut self) -> Task {
        self.described.about.exclusive = true;
        self
    }

    /// What it says of itself.
    pub fn described(&self) -> &DescribedTask {
        &self.described
    }

    /// The name that jobs ask for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it promises.
    pub fn offer(&self) -> TaskOffer<'_> {
        let (stepped, checkpoints, batching) = match self.body {
            Body::One(Manner::AtOnce, _) => (false, false, None),
            Body::One(Manner::Stepped { checkpoints }, _) => (true, checkpoints, None),
            Body::Batch(batching, _) => (false, false, Some(batching)),
        };
        let name = self.name.as_str().into();
        let Task { idempotent, lane, progress_ms, .. } = *self;
        TaskOffer { name, idempotent, lane, stepped, checkpoints, progress_ms, batching }
    }

    /// Whether it takes several jobs at once.
    pub(crate) fn takes_batches(&self) -> bool {
        matches!(self.body, Body::Batch(..))
    }

    /// What [`Task::progress_every`] promised.
    pub(crate) fn promise(&self) -> Option<Duration> {
        (self.progress_ms > 0).then(|| Duration::from_millis(self.progress_ms.into()))
    }

    /// Runs one job, which for a task in batches is a batch of one. A panic is an error, too.
    pub(crate) fn run(&mut self, given: Given, context: &mut TaskContext<'_>) -> Result<Ran, TaskError> {
        let given = Given { may_start_anew: self.idempotent, ..given };
        match &mut self.body {
            Body::One(_, run) => panics::caught(|| run(given, context))
                .unwrap_or_else(|message| Err(TaskError::of_kind(FailureKind::Panic, message))),
            Body::Batch(_, run) => {
                let (job, attempt, metadata) = (context.job(), context.attempt(), context.metadata().clone());
                let member = Member { job, attempt, input: given.input, metadata };
                batch::alone(run, member).map(Ran::Output)
            }
        }
    }

    /// Runs jobs together. One result for each; none if it does not take several at once.
    pub(crate) fn run_together(&mut self, jobs: &[Member]) -> Vec<Result<Output, TaskError>> {
        match &mut self.body {
            Body::Batch(_, run) if !jobs.is_empty() => batch::results(run, jobs),
            _ => Vec::new(),
        }
    }
}

/// If a checkpoint cannot be used, the job starts from its input. If that must not be done twice, the job fails instead.
fn kept_state<S>(keeping: Keeping<S>, given: &Given, job: u64) -> Result<Option<S>, TaskError> {
    let Some(checkpoint) = &given.checkpoint else { return Ok(None) };
    match (keeping.decode)(checkpoint) {
        Ok(state) => Ok(Some(state)),
        Err(error) if given.may_start_anew => {
            complain(format_args!("job {job} starts anew, its checkpoint is not of this program: {error}"));
            Ok(None)
        }
        Err(error) => Err(TaskError::met(format_args!(
            "the checkpoint is not of this program ({error}), and the task must not be begun again"
        ))),
    }
}

/// Prints a line on standard error. If that fails, because the supervisor is gone, there is nobody else to tell.
pub(crate) fn complain(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "offload worker: {what}");
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.offer().fmt(formatter)
    }
}

/// The input of a job. The task owns it and may keep it. A large one may be in memory that is shared with the supervisor: it
/// stays there for as long as a clone or a part of it is held, and is copied if it is to be changed (`Vec::from(input.bytes)`). An
/// output that is a part of the input costs no copy (`Output::bytes(input.bytes.slice(..))`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The payload, as the client sent it.
    pub bytes: Bytes,
    /// What the bytes are, according to the client.
    pub media_type: MediaType,
}

/// What is said to whoever gives no input to a task that takes JSON.
pub(crate) const NO_INPUT: &str = "no input was given, and JSON is expected";

impl Input {
    /// The bytes as text.
    ///
    /// # Errors
    /// If they are not UTF-8. The message says where.
    pub fn text(&self) -> Result<&str, TaskError> {
        std::str::from_utf8(&self.bytes)
            .map_err(|error| TaskError::new(format_args!("the input is not UTF-8 text: {error}")))
    }

    /// The bytes as a JSON document, whatever [`Input::media_type`] says.
    ///
    /// # Errors
    /// If they are not JSON or do not fit `T`. The message says what is wrong, and at which line and column.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, TaskError> {
        serde_json::from_slice(&self.bytes).map_err(|error| match self.bytes.is_empty() {
            true => TaskError::new(NO_INPUT),
            false => TaskError::new(format_args!("the input is not what this task takes: {error}")),
        })
    }
}

/// The output of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The payload.
    pub bytes: Bytes,
    /// What it is.
    pub media_type: MediaType,
}

impl Output {
    /// Bytes of no stated kind. Nothing is copied from a `Vec<u8>` or a [`Bytes`].
    pub fn bytes(bytes: impl Into<Bytes>) -> Output {
        Output { bytes: bytes.into(), media_type: MediaType::OCTET_STREAM }
    }

    /// Text.
    pub fn text(text: impl Into<String>) -> Output {
        Output { bytes: text.into().into(), media_type: MediaType::TEXT }
    }

    /// `value` as a JSON document.
    ///
    /// # Errors
    /// If JSON cannot represent it, for example a map whose keys are not strings, or a NaN or an infinity. (A
    /// [`serde_json::Value`] has neither: `json!` has made `null` of it already.)
    pub fn json(value: &impl Serialize) -> Result<Output, TaskError> {
        match json::to_vec(value) {
            Ok(bytes) => Ok(Output { bytes: bytes.into(), media_type: MediaType::JSON }),
            Err(error) => Err(TaskError::met(format_args!("the result is not JSON: {error}"))),
        }
    }
}
