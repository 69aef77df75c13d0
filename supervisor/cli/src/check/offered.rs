//! A task that the worker offers.

use bytes::Bytes;
use offload_protocol::nouns::{DescribedTask, MediaType, TaskOffer};

/// What a task is, as it was offered.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) task: TaskOffer<'static>,
    pub(super) described: DescribedTask,
}

impl Offered {
    /// The type of the input, if the task takes one type only.
    pub(super) fn media_type(&self) -> MediaType {
        let stated = self.described.about.accepts.iter().find(|one| !one.as_str().contains('*'));
        stated.cloned().unwrap_or(MediaType::OCTET_STREAM)
    }

    /// What its jobs get. A task of JSON without an example gets `null`: an adapter would answer an empty input by itself, and the program
    /// would see no job.
    pub(super) fn example(&self) -> Bytes {
        let DescribedTask { about, example, .. } = &self.described;
        match example.is_empty() && about.accepts.iter().any(MediaType::is_json) {
            true => Bytes::from_static(b"null"),
            false => Bytes::copy_from_slice(example),
        }
    }
}
