//! What a worker says of a task: what it promises, which decides how jobs are treated, and what it is, which people and
//! programs read before they submit one.

use super::{Lane, MediaType};
use crate::limits::{ACCEPTED_TYPES_MAX, BATCH_JOBS_MAX, BATCH_WAIT_MAX, DESCRIPTION_MAX, OFFER_TEXTS_MAX};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

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
    /// It takes several jobs at once. On the wire, that is a message of its own
    /// ([`OfferBatch`](crate::messages::FromWorker::OfferBatch)).
    #[serde(skip)]
    pub batching: Option<Batching>,
}

/// How a task takes several jobs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    /// Most jobs in one batch: 2 to [`BATCH_JOBS_MAX`].
    pub max: u32,
    /// How long the first job of a batch waits for others, in microseconds: at most [`BATCH_WAIT_MAX`].
    pub wait_us: u32,
}

impl Batching {
    /// How long the first job of a batch waits for others.
    pub fn wait(self) -> Duration {
        Duration::from_micros(self.wait_us.into())
    }

    /// Whether it keeps its bounds.
    ///
    /// # Errors
    /// A sentence that says which bound it exceeds.
    pub fn check(self) -> Result<(), String> {
        let Batching { max, wait_us } = self;
        if !(2..=BATCH_JOBS_MAX).contains(&max) {
            Err(format!("a batch of at most {max} jobs; 2 to {BATCH_JOBS_MAX} are allowed"))
        } else if self.wait() > BATCH_WAIT_MAX {
            Err(format!(
                "its jobs would wait {wait_us} us for others; {} are allowed",
                BATCH_WAIT_MAX.as_micros()
            ))
        } else {
            Ok(())
        }
    }
}

impl<'a> TaskOffer<'a> {
    /// An offer that promises nothing.
    pub fn new(name: impl Into<Cow<'a, str>>) -> TaskOffer<'a> {
        let lane = Lane::default();
        let name = name.into();
        TaskOffer {
            name,
            idempotent: false,
            lane,
            stepped: false,
            checkpoints: false,
            progress_ms: 0,
            batching: None,
        }
    }

    /// Whether its jobs can be run together as it says.
    ///
    /// # Errors
    /// A sentence that says what speaks against it.
    pub fn check_batching(&self) -> Result<(), String> {
        let Some(batching) = self.batching else { return Ok(()) };
        if !self.idempotent {
            Err("it takes several jobs at once and is not idempotent: after a crash nobody could be told"
                .to_owned())
        } else if self.stepped || self.progress_ms > 0 {
            Err("it takes several jobs at once, so it can neither work in steps nor promise progress"
                .to_owned())
        } else {
            batching.check()
        }
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

/// What can name a task, for messages: see [`is_task_name`].
pub const TASK_NAMES: &str = "1 to 64 ASCII letters, digits, '.', '_' or '-', the first a letter";

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
    fn only_what_may_run_twice_and_at_once_is_offered_in_batches() {
        let good = TaskOffer {
            idempotent: true,
            batching: Some(Batching { max: 2, wait_us: 1_000_000 }),
            ..TaskOffer::new("sum")
        };
        assert_eq!(good.check_batching(), Ok(()));
        let with = |max, wait_us| TaskOffer { batching: Some(Batching { max, wait_us }), ..good.clone() };
        let bad = [
            TaskOffer { idempotent: false, ..good.clone() },
            TaskOffer { stepped: true, ..good.clone() },
            TaskOffer { progress_ms: 10, ..good.clone() },
            with(1, 0),
            with(BATCH_JOBS_MAX + 1, 0),
            with(2, 1_000_001),
        ];
        assert!(bad.iter().all(|offer| offer.check_batching().is_err()));
        assert_eq!(with(BATCH_JOBS_MAX, 0).check_batching(), Ok(()));
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
