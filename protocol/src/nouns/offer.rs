//! What a worker says of a task: what it promises, which decides how jobs are treated, and what it is, which people and
//! programs read before they submit one.

use super::{Lane, MediaType};
use crate::limits::{ACCEPTED_TYPES_MAX, DESCRIPTION_MAX, OFFER_TEXTS_MAX};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a worker promises of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOffer<'a> {
    /// The name that jobs ask for: 1 to [`crate::limits::TASK_NAME_MAX`] bytes, see [`is_task_name`].
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Running it twice has the same effect as running it once, so a job whose worker ended may be tried again.
    pub idempotent: bool,
    /// Where it runs.
    pub lane: Lane,
    /// It works in steps, and its worker may run another job between two of them.
    pub stepped: bool,
    /// It gives checkpoints, and can go on from one.
    pub checkpoints: bool,
    /// The longest time between two reports of its progress, in milliseconds: if it is exceeded, the task hangs. 0 if it
    /// promises nothing.
    pub progress_ms: u32,
}

impl<'a> TaskOffer<'a> {
    /// An offer that promises nothing.
    pub fn new(name: impl Into<Cow<'a, str>>) -> TaskOffer<'a> {
        let lane = Lane::default();
        let name = name.into();
        TaskOffer { name, idempotent: false, lane, stepped: false, checkpoints: false, progress_ms: 0 }
    }
}

impl TaskOffer<'_> {
    /// The same offer, independent of the buffer that it was decoded from.
    pub fn into_owned(self) -> TaskOffer<'static> {
        TaskOffer { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

/// What a task takes, gives and needs. The supervisor passes it on and decides nothing by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDescription {
    /// What it does, in one line of at most [`DESCRIPTION_MAX`] bytes; may be empty.
    pub description: String,
    /// The media types that it takes, at most [`ACCEPTED_TYPES_MAX`]; `*/*` and `image/*` stand for several. Empty if it
    /// does not say.
    pub accepts: Vec<MediaType>,
    /// The media type of its output; [`MediaType::ANY`] if that depends on the job, or if it does not say.
    pub produces: MediaType,
    /// It can send its output in parts. Nobody asks it to unless both ends have that capability.
    pub streams: bool,
    /// The memory that one job needs, in bytes; 0 if it does not say.
    pub memory_bytes: u64,
    /// A job of it should have its machine to itself.
    pub exclusive: bool,
}

impl Default for TaskDescription {
    /// A task that says nothing of itself.
    fn default() -> TaskDescription {
        TaskDescription {
            description: String::new(),
            accepts: Vec::new(),
            produces: MediaType::ANY,
            streams: false,
            memory_bytes: 0,
            exclusive: false,
        }
    }
}

/// A description with the texts that travel in the payload of an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedTask {
    /// What it takes, gives and needs.
    pub about: TaskDescription,
    /// An input that it can be tried with; may be empty.
    pub example: Box<[u8]>,
    /// A JSON Schema of its input; may be empty.
    pub schema: Box<str>,
}

impl DescribedTask {
    /// The description in an offer whose payload begins with `example_length` bytes of example and goes on with
    /// `schema_length` bytes of schema.
    ///
    /// # Errors
    /// A sentence that says which bound the offer exceeds, or what its payload is not.
    pub fn new(
        about: TaskDescription,
        payload: &[u8],
        example_length: u32,
        schema_length: u32,
    ) -> Result<DescribedTask, String> {
        let stated = u64::from(example_length) + u64::from(schema_length);
        if stated != payload.len() as u64 {
            return Err(format!("it states {stated} bytes of example and schema, {} came", payload.len()));
        }
        let (example, schema) = payload.split_at(example_length as usize);
        let Ok(schema) = std::str::from_utf8(schema) else {
            return Err("its schema is not UTF-8".to_owned());
        };
        let described = DescribedTask { about, example: example.into(), schema: schema.into() };
        described.check().map(|()| described)
    }

    /// Whether it keeps the bounds of an offer.
    ///
    /// # Errors
    /// A sentence that says which bound it exceeds.
    pub fn check(&self) -> Result<(), String> {
        let (described, accepted) = (self.about.description.len(), self.about.accepts.len());
        let texts = self.example.len() + self.schema.len();
        if described > DESCRIPTION_MAX {
            Err(format!("its description has {described} bytes, {DESCRIPTION_MAX} are allowed"))
        } else if accepted > ACCEPTED_TYPES_MAX {
            Err(format!("it accepts {accepted} media types, {ACCEPTED_TYPES_MAX} are allowed"))
        } else if texts > OFFER_TEXTS_MAX {
            Err(format!("its example and schema have {texts} bytes, {OFFER_TEXTS_MAX} are allowed"))
        } else {
            Ok(())
        }
    }
}

/// Whether `name` can name a task: 1 to 64 ASCII letters, digits, `.`, `_` or `-`, the first a letter.
///
/// Names appear in tables, logs and paths of URLs, so no character is allowed that would need escaping.
pub fn is_task_name(name: &str) -> bool {
    name.len() <= crate::limits::TASK_NAME_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_name_needs_no_escaping_anywhere() {
        for good in ["primes", "fs.read", "my-task_2", "A"] {
            assert!(is_task_name(good), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", "2fast", "a b", "a/b", "ä", "a\n", ".x", long.as_str()] {
            assert!(!is_task_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_texts_of_an_offer_are_cut_where_it_says_and_bounded() {
        let about = TaskDescription::default;
        let cut = DescribedTask::new(about(), b"12{}", 2, 2).unwrap();
        assert_eq!((&*cut.example, &*cut.schema), (&b"12"[..], "{}"));
        for (example, schema) in [(2, 1), (u32::MAX, u32::MAX), (0, 0)] {
            assert!(DescribedTask::new(about(), b"12{}", example, schema).is_err());
        }
        assert!(
            DescribedTask::new(about(), b"\xff", 0, 1).is_err()
                && DescribedTask::new(about(), b"\xff", 1, 0).is_ok()
        );
        let long = vec![b'x'; OFFER_TEXTS_MAX + 1];
        assert!(DescribedTask::new(about(), &long[1..], 0, OFFER_TEXTS_MAX as u32).is_ok());
        assert!(DescribedTask::new(about(), &long, 0, OFFER_TEXTS_MAX as u32 + 1).is_err());
        let wordy = TaskDescription { description: "x".repeat(DESCRIPTION_MAX + 1), ..about() };
        let greedy = TaskDescription { accepts: vec![MediaType::PNG; ACCEPTED_TYPES_MAX + 1], ..about() };
        assert!(
            DescribedTask::new(wordy, b"", 0, 0).is_err() && DescribedTask::new(greedy, b"", 0, 0).is_err()
        );
    }
}
