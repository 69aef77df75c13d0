//! What a program that embeds this library hands in and gets back.

use bytes::Bytes;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::{ContentType, Lane, Report};
use std::time::Duration;

/// One request to run a task on an input.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub(crate) task: String,
    pub(crate) input: Bytes,
    pub(crate) content: ContentType,
    pub(crate) options: SubmitOptions,
    pub(crate) client: String,
}

impl Job {
    /// A job for the task of this name, with an empty input.
    pub fn new(task: impl Into<String>) -> Job {
        Job { task: task.into(), ..Job::default() }
    }

    /// The input: bytes that only the task looks at. They are shared, not copied, while the job lives.
    pub fn input(self, input: impl Into<Bytes>) -> Job {
        Job { input: input.into(), ..self }
    }

    /// What the input is; bytes unless said otherwise.
    pub fn content(self, content: ContentType) -> Job {
        Job { content, ..self }
    }

    /// All options at once, as they come from a client.
    pub fn options(self, options: SubmitOptions) -> Job {
        Job { options, ..self }
    }

    /// Longest run of one attempt, to the millisecond; the pool's default if not said.
    pub fn timeout(mut self, timeout: Duration) -> Job {
        self.options.timeout_ms = Some(millis(timeout));
        self
    }

    /// Longest time from submission to the result, waiting included, to the millisecond; none if not said.
    pub fn deadline(mut self, deadline: Duration) -> Job {
        self.options.deadline_ms = Some(millis(deadline));
        self
    }

    /// Most attempts, 1 to 100. Whoever asks for more than one says that running it twice is as good as once; the
    /// default is one attempt, or the pool's number for tasks that are idempotent.
    pub fn attempts(mut self, attempts: u32) -> Job {
        self.options.attempts = Some(attempts);
        self
    }

    /// The lane that the task must be in.
    pub fn lane(mut self, lane: Lane) -> Job {
        self.options.lane = Some(lane);
        self
    }

    /// Who asks, for tables: at most 64 bytes count.
    pub fn client(self, client: impl Into<String>) -> Job {
        Job { client: client.into(), ..self }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How a job ended. A job that was refused ends too: its outcome says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Everything but the output.
    pub report: Report,
    /// What the task returned; empty unless the outcome is `ok`.
    pub output: Bytes,
}

impl Finished {
    /// The output, if the outcome is `ok`, or else one line that says what went wrong.
    ///
    /// # Errors
    /// Such as `worker_crashed: signal 11 (SIGSEGV) in attempt 1 of 1`.
    pub fn into_output(self) -> Result<Bytes, String> {
        match self.report.error {
            None => Ok(self.output),
            Some(error) => Err(format!("{}: {}", error.code, error.message)),
        }
    }
}
