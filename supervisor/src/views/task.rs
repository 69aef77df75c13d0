//! A task that workers offer, as lists show it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::nouns::{Batching, DescribedTask, Lane, MediaType, TaskOffer};
use serde::{Deserialize, Serialize};

/// A task that workers offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// The name of the task.
    pub task: String,
    /// The same, under the name that all listings of offers use.
    pub name: String,
    /// What the task does, in one line; may be empty.
    pub description: String,
    /// The media types that it takes; empty if it does not say.
    pub accepts: Vec<MediaType>,
    /// The media type of its output; `*/*` if that depends on the job, or if it does not say.
    pub produces: MediaType,
    /// An input that it can be tried with; null if there is none, or if it is no text.
    pub example: Option<String>,
    /// The same in base64, if it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example_base64: Option<String>,
    /// A JSON Schema of the input; null if there is none, or if it is not JSON.
    pub schema: Option<serde_json::Value>,
    /// The lane of the task.
    pub lane: String,
    /// Whether a job of the task is tried again when its worker has died.
    pub idempotent: bool,
    /// Whether the task is done in steps, between which its worker can run other jobs.
    pub steps: bool,
    /// Whether another attempt can go on from where one was.
    pub checkpoints: bool,
    /// Whether its output may come in parts.
    #[serde(default)]
    pub streams: bool,
    /// How several of its jobs run together, within what is configured; null if they do not.
    #[serde(default)]
    pub batch: Option<BatchView>,
    /// The memory that one job needs, in bytes; 0 if the task does not say.
    pub memory_bytes: u64,
    /// Whether a job of it should have its machine to itself.
    pub exclusive: bool,
    /// The program that offers the task.
    pub program: String,
}

/// All tasks that workers offer, in two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TasksSummary {
    /// How many there are.
    pub count: usize,
    /// It is another number after each change of what workers offer, or of what they say of it.
    pub version: u64,
}

/// Part of [`TaskView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchView {
    /// Most jobs in one batch.
    pub max: u32,
    /// How long the first job of a batch waits for others at most, in microseconds.
    pub wait_us: u32,
}

impl TaskView {
    /// The view of an offer of this program.
    pub fn new(offer: &TaskOffer<'_>, described: &DescribedTask, program: &str) -> TaskView {
        let DescribedTask { about, example, schema } = described;
        let lane = match offer.lane {
            Lane::Cpu => "cpu",
            Lane::Io => "io",
        };
        let (text, base64) = example_views(example);
        TaskView {
            task: offer.name.to_string(),
            name: offer.name.to_string(),
            description: about.description.clone(),
            accepts: about.accepts.clone(),
            produces: about.produces.clone(),
            example: text,
            example_base64: base64,
            schema: serde_json::from_str(schema).ok(),
            lane: lane.to_owned(),
            idempotent: offer.idempotent,
            steps: offer.stepped,
            checkpoints: offer.checkpoints,
            streams: about.streams,
            batch: offer.batching.map(|Batching { max, wait_us }| BatchView { max, wait_us }),
            memory_bytes: about.memory_bytes,
            exclusive: about.exclusive,
            program: program.to_owned(),
        }
    }
}

/// An example as text, or in base64 if it has characters that text for people has not.
fn example_views(example: &[u8]) -> (Option<String>, Option<String>) {
    let is_strange = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    match std::str::from_utf8(example) {
        _ if example.is_empty() => (None, None),
        Ok(text) if !text.contains(is_strange) => (Some(text.to_owned()), None),
        _ => (None, Some(STANDARD.encode(example))),
    }
}
