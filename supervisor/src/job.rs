//! A job as a program submits it, and the result that it gets back.

mod json_output;

use crate::input_file::InputFile;
use crate::peer::Peer;
use bytes::Bytes;
pub use json_output::JsonOutput;
use offload_core::event::{JobRequest, Key};
use offload_core::kept::Owner;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::{IdempotencyKey, SubmitOptions};
use offload_protocol::nouns::{Labels, Lane, MediaType, Metadata, Report, cut};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// One request to run a task on an input.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub(crate) task: String,
    pub(crate) input: Input,
    pub(crate) media_type: MediaType,
    pub(crate) options: SubmitOptions,
    /// Becomes the key of the options, with a digest, when the input is known for certain.
    pub(crate) key: Option<String>,
    pub(crate) client: Arc<str>,
    /// The process that submitted the job. Clients without a name are told apart by it.
    pub(crate) peer: Option<Peer>,
    /// The input was counted in memory as it arrived.
    pub(crate) has_room: bool,
    pub(crate) recognized: Recognized,
    /// It belongs to a request that was let in before a drain.
    pub(crate) of_request: bool,
}

/// The input of a job.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Bytes(Bytes),
    /// It is passed on to the worker, which reads it.
    File(Arc<InputFile>),
}

impl Input {
    /// Its length, in bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Input::Bytes(bytes) => bytes.len() as u64,
            Input::File(file) => file.bytes(),
        }
    }

    /// The bytes that are in memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Input::Bytes(bytes) => bytes,
            Input::File(_) => &[],
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Input::File(_))
    }
}

impl Default for Input {
    fn default() -> Input {
        Input::Bytes(Bytes::new())
    }
}

/// By what a client is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recognized {
    /// By its name, its process or its connection.
    #[default]
    ByName,
    /// By a token. It has stated no name, and is charged under the address that it came from. It may come from another one the next
    /// time, so its keys are those of all who have shown a token and no name.
    ByToken,
    /// Not at all: it has shown nothing but its address.
    NotAtAll,
}

impl Job {
    /// A job for the task of this name, with an empty input.
    pub fn new(task: impl Into<String>) -> Job {
        Job { task: task.into(), ..Job::default() }
    }

    /// Sets the input: bytes that only the task interprets, at most
    /// [`CoreConfig::max_payload`](offload_core::config::CoreConfig::max_payload) of them; with more, the job is refused as
    /// `too_large`. They are shared, not copied, while the job lives. The owner of [`Bytes::from_owner`] may be dropped on any
    /// thread, also in the middle of the pool's own work: its `Drop` may use a [`PoolHandle`](crate::PoolHandle), and must not call a
    /// [`ComputePool`](crate::ComputePool).
    pub fn input(self, input: impl Into<Bytes>) -> Job {
        Job { input: Input::Bytes(input.into()), ..self }
    }

    /// Sets a file as the input: a regular file that is open for reading. Only the worker reads it, when it has started the job:
    /// all of it, from its start, whatever is in it then. A file that no longer has the length that it has now is an error of
    /// the job. It stays open until the job has ended, and takes no memory here.
    ///
    /// If not all workers of the task take files, or too many are open, the job ends as
    /// [`unsupported`](offload_protocol::nouns::OutcomeCode::Unsupported): submit it again with its
    /// bytes. The same holds for a job with an idempotency key.
    ///
    /// # Errors
    /// It is not a regular file that can be read.
    pub fn file(self, file: File) -> io::Result<Job> {
        Ok(self.input_file(Arc::new(InputFile::new(file)?)))
    }

    pub(crate) fn has_file(&self) -> bool {
        self.input.is_file()
    }

    pub(crate) fn input_file(self, file: Arc<InputFile>) -> Job {
        Job { input: Input::File(file), ..self }
    }

    /// Whether it has an idempotency key.
    pub fn has_key(&self) -> bool {
        self.key.is_some() || self.options.idempotency.is_some()
    }

    /// The name of its task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Sets the media type of the input. The default is [`MediaType::OCTET_STREAM`].
    pub fn media_type(self, media_type: MediaType) -> Job {
        Job { media_type, ..self }
    }

    /// Sets all options at once, as a client sent them.
    pub fn options(self, options: SubmitOptions) -> Job {
        Job { options, key: None, ..self }
    }

    /// Sets the time limit for one attempt, rounded up to a millisecond. The default is the pool's,
    /// [`CoreConfig::run_timeout`](offload_core::config::CoreConfig::run_timeout). A job that takes longer ends as `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Job {
        self.options.timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets the time limit from submission to the result, waiting included, rounded up to a millisecond. A job that takes longer ends as
    /// `timeout`, whether it has run or not. By default there is none.
    pub fn deadline(mut self, deadline: Duration) -> Job {
        self.options.deadline_ms = Some(millis(deadline));
        self
    }

    /// Sets the maximum number of attempts, 1 to 100. More than one states that the job is idempotent. The default is
    /// one attempt, or [`CoreConfig::max_attempts`](offload_core::config::CoreConfig::max_attempts) if the task is
    /// idempotent.
    pub fn attempts(mut self, attempts: u32) -> Job {
        self.options.attempts = Some(attempts);
        self
    }

    /// Requires that the task is in this lane.
    pub fn lane(mut self, lane: Lane) -> Job {
        self.options.lane = Some(lane);
        self
    }

    /// Sets the name of the client, for tables and for fairness. At most 64 bytes are used. All jobs under one name
    /// share the limits of one client.
    pub fn client(self, client: impl Into<Arc<str>>) -> Job {
        Job { client: client.into(), ..self }
    }

    /// Sets the priority, from -10 to 10; the default is 0. Jobs with a larger number run sooner. Among the jobs of
    /// one client a level is worth one second of waiting; against other clients it is worth a tenth of a second of
    /// worker time, so nobody starves.
    pub fn priority(mut self, priority: i8) -> Job {
        self.options.priority = priority;
        self
    }

    /// Sets what goes with the job to its task, into log lines and into the report.
    pub fn metadata(mut self, metadata: Metadata) -> Job {
        self.options.metadata = metadata;
        self
    }

    /// Sets the words by which the job can be found.
    pub fn labels(mut self, labels: Labels) -> Job {
        self.options.labels = labels;
        self
    }

    /// Sets that the output is taken in parts as they come, by a front. [`ComputePool::stream`](crate::ComputePool::stream) needs
    /// no such sign, and methods that return a whole output ignore it. Such a job can neither be detached nor have an idempotency key.
    pub fn stream(mut self) -> Job {
        self.options.stream = true;
        self
    }

    /// Sets a key of 1 to 64 bytes under which this client submits the job at most once. Submitting the job again,
    /// with the same task and input, returns the same job and the same result. With another task or input it is
    /// refused as a `conflict`. The key is known while the job lives and for an hour after its end, unless configured
    /// otherwise. If there is no room for the key, the job is refused. Keys belong to the client of that name; all
    /// clients without a name share theirs. Who gives the job up leaves only: the job goes on, whoever else waits for it.
    /// Whoever submits the job reads the whole input once, to compute a digest.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Job {
        self.options.idempotency = None;
        Job { key: Some(key.into()), ..self }
    }

    /// Computes the digest of the input if there is a key without one. That takes its time for a large input, so it is done on the
    /// thread of whoever submits the job.
    pub(crate) fn digest_input(&mut self) {
        if let Some(key) = self.key.take() {
            let digest = input_digest(&self.media_type, self.input.bytes());
            self.options.idempotency = Some(IdempotencyKey { key, digest });
        }
    }

    /// The job as the core sees it: the core knows each client by one name. The name of the task is taken out.
    pub(crate) fn take_request(&mut self, keeps_output: bool) -> JobRequest {
        self.digest_input();
        let millis = |millis: Option<u64>| millis.map(Duration::from_millis);
        let client = &self.client;
        let key = self.options.idempotency.as_ref();
        JobRequest {
            task: std::mem::take(&mut self.task),
            client: account_name(client, self.peer),
            priority: self.options.priority,
            owner: match (key, self.recognized) {
                (None, _) => Owner::Nameless,
                (Some(_), Recognized::ByToken) => Owner::Token,
                (Some(_), _) => Owner::of(cut(client, NAME_MAX)),
            },
            is_of_stranger: self.recognized == Recognized::NotAtAll,
            stream: self.options.stream,
            keeps_output,
            key: key.map(|named| Key { name: named.key.clone(), digest: named.digest }),
            input_bytes: self.input.length(),
            tag_bytes: self.options.metadata.held_bytes() + self.options.labels.held_bytes(),
            has_file: self.input.is_file(),
            has_room: self.has_room,
            of_request: self.of_request,
            timeout: millis(self.options.timeout_ms),
            deadline: millis(self.options.deadline_ms),
            attempts: self.options.attempts,
            lane: self.options.lane,
        }
    }
}

/// The name that a job is charged to: the client's name, or the process of a client without a name. Empty if this
/// program submits the job and gives no name.
pub(crate) fn account_name(client: &Arc<str>, peer: Option<Peer>) -> Arc<str> {
    match (cut(client, NAME_MAX), peer) {
        ("", Some(peer)) => peer.to_string().into(),
        (name, _) if name.len() == client.len() => Arc::clone(client),
        (name, _) => name.into(),
    }
}

/// The digest by which an [`IdempotencyKey`] tells inputs apart: the first 16 bytes of the SHA-256 of the media type
/// and the bytes. Reads the whole input.
pub fn input_digest(media_type: &MediaType, input: &[u8]) -> u128 {
    let mut hasher = Sha256::new();
    hasher.update(media_type.as_str().as_bytes());
    hasher.update([0]);
    hasher.update(input);
    let bytes = hasher.finalize();
    bytes.iter().take(16).fold(0, |digest, byte| (digest << 8) | u128::from(*byte))
}

/// Rounded up: a time that is short is not none.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// How a job ended. A job that was refused has ended too; its outcome says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Everything except the output.
    pub report: Report,
    /// What the task returned; empty unless the outcome is `ok`.
    pub output: Bytes,
}

impl Finished {
    /// Returns the output if the outcome is `ok`.
    ///
    /// # Errors
    /// Otherwise one line that says what went wrong, such as `worker_crashed: signal 11 (SIGSEGV) in attempt 1 of 1`.
    pub fn into_output(self) -> Result<Bytes, String> {
        match self.report.error {
            None => Ok(self.output),
            Some(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_limit_is_a_millisecond_and_none_at_all_stays_none() {
        let limits = |time: Duration| {
            let options = Job::new("any").timeout(time).deadline(time).options;
            (options.timeout_ms, options.deadline_ms)
        };
        for (nanos, expected) in [(0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(limits(Duration::from_nanos(nanos)), (Some(expected), Some(expected)), "{nanos} ns");
        }
        assert_eq!(limits(Duration::MAX), (Some(u64::MAX), Some(u64::MAX)));
    }

    #[test]
    fn a_key_tells_inputs_apart_in_whatever_order_a_job_is_made_and_one_with_a_digest_keeps_it() {
        let digest = |mut job: Job| job.take_request(false).key.expect("it has a key").digest;
        let json = input_digest(&MediaType::JSON, b"input");
        assert_eq!(
            digest(Job::new("t").idempotency_key("k").input("input").media_type(MediaType::JSON)),
            json
        );
        assert_eq!(
            digest(Job::new("t").input("input").idempotency_key("k").media_type(MediaType::JSON)),
            json
        );
        assert_eq!(
            digest(Job::new("t").media_type(MediaType::JSON).input("input").idempotency_key("k")),
            json
        );
        let options = || SubmitOptions {
            idempotency: Some(IdempotencyKey { key: "k".into(), digest: 7 }),
            ..Default::default()
        };
        assert_eq!(digest(Job::new("t").options(options()).input("input")), 7);
        assert_eq!(digest(Job::new("t").idempotency_key("other").options(options()).input("input")), 7);
        let mut renamed = Job::new("t").options(options()).idempotency_key("other");
        assert_eq!(renamed.take_request(false).key.map(|key| key.name).as_deref(), Some("other"));
    }
}
