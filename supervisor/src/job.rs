//! A job as a program submits it, and the result that it gets back.

use crate::front::Peer;
use bytes::Bytes;
use offload_core::event::{JobRequest, Key};
use offload_core::kept::Owner;
use offload_protocol::limits::LABEL_MAX;
use offload_protocol::messages::{IdempotencyKey, SubmitOptions};
use offload_protocol::nouns::{ContentType, Lane, Report, cut};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// One request to run a task on an input.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub(crate) task: String,
    pub(crate) input: Bytes,
    pub(crate) content: ContentType,
    pub(crate) options: SubmitOptions,
    pub(crate) client: String,
    /// Who sent it. Clients without a name are told apart by it.
    pub(crate) peer: Option<Peer>,
    /// The input was counted as it came.
    pub(crate) has_room: bool,
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

    /// Who asks, for tables and for fairness: at most 64 bytes count. Those of one name share what one client may have.
    pub fn client(self, client: impl Into<String>) -> Job {
        Job { client: client.into(), ..self }
    }

    /// -10 to 10, 0 if not said; a larger one is sooner. Among the jobs of one client a level is worth a second of
    /// waiting, against other clients the tenth of a second of worker time, so nobody starves.
    pub fn priority(mut self, priority: i8) -> Job {
        self.options.priority = priority;
        self
    }

    /// A name of 1 to 64 bytes under which this client submits the job at most once: submitting it again, with the same
    /// task and input, gives the same job and the same result; with another task or input it is refused as a `conflict`.
    /// It is known while the job lives and for an hour after its end, unless configured otherwise; a job for whose key
    /// there is no room is refused. Keys belong to the client of that name; all clients without a name share theirs.
    /// Reads the whole input once, to make a digest: set it after the input.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Job {
        let digest = input_digest(self.content, &self.input);
        self.options.idempotency = Some(IdempotencyKey { key: key.into(), digest });
        self
    }

    /// The same for the core, which knows clients by one name.
    pub(crate) fn to_request(&self, keeps_output: bool) -> JobRequest {
        let millis = |millis: Option<u64>| millis.map(Duration::from_millis);
        let client = cut(&self.client, LABEL_MAX);
        let key = self.options.idempotency.as_ref();
        JobRequest {
            task: self.task.clone(),
            client: account_name(client, self.peer),
            priority: self.options.priority,
            owner: Owner::of(client),
            keeps_output,
            key: key.map(|named| Key { name: named.key.clone(), digest: named.digest }),
            input_bytes: self.input.len() as u64,
            has_room: self.has_room,
            timeout: millis(self.options.timeout_ms),
            deadline: millis(self.options.deadline_ms),
            attempts: self.options.attempts,
            lane: self.options.lane,
        }
    }
}

/// Who is charged: a client by its name, one without a name by its process, and nobody in particular where the program
/// itself submits.
pub(crate) fn account_name(client: &str, peer: Option<Peer>) -> String {
    match (cut(client, LABEL_MAX), peer) {
        ("", Some(peer)) => peer.to_string(),
        (client, _) => client.to_owned(),
    }
}

/// What tells one input from another, for an [`IdempotencyKey`]: the first 16 bytes of the SHA-256 of its kind and its
/// bytes. Reads the whole input.
pub fn input_digest(content: ContentType, input: &[u8]) -> u128 {
    let mut hasher = Sha256::new();
    hasher.update(content.media_type().as_bytes());
    hasher.update([0]);
    hasher.update(input);
    let bytes = hasher.finalize();
    bytes.iter().take(16).fold(0, |digest, byte| (digest << 8) | u128::from(*byte))
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
