//! What a client attaches to a job: metadata for the task and for whoever traces the job, and labels by which jobs are
//! found. Both are bounded and checked where they are read. Neither changes how a job is treated.

use crate::limits::{LABEL_MAX, LABELS_MAX, METADATA_KEY_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_MAX};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Short texts by key, such as a trace context (`traceparent`): at most [`METADATA_PAIRS_MAX`], in the order in which they
/// were given. They reach the task, the log lines of its worker and the report. Cloning copies no text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Option<Arc<[Pair]>>);

/// Bytes that a text takes beside its letters: its place, and what the allocator adds.
const TEXT_BYTES: usize = 48;

/// Key and value.
type Pair = (Box<str>, Box<str>);

/// Words by which jobs are found, such as `nightly` or `batch=7`: at most [`LABELS_MAX`]. Cloning copies no text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<[Box<str>]>>);

/// Why a text cannot be metadata or a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTag {
    message: String,
}

impl fmt::Display for BadTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for BadTag {}

fn bad<T>(message: String) -> Result<T, BadTag> {
    Err(BadTag { message })
}

impl Metadata {
    /// These pairs of key and value.
    ///
    /// # Errors
    /// If there are too many, one is too long or has characters that it may not have, or two have the same key. The message
    /// says which.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> Result<Metadata, BadTag> {
        let count = pairs.len();
        if count > METADATA_PAIRS_MAX {
            return bad(format!("{count} pairs of metadata, at most {METADATA_PAIRS_MAX} are allowed"));
        }
        for (at, (key, value)) in pairs.iter().enumerate() {
            check_pair(key.as_ref(), value.as_ref())?;
            if pairs.iter().take(at).any(|(other, _)| other.as_ref() == key.as_ref()) {
                return bad(format!("two values for the metadata key {:?}", key.as_ref()));
            }
        }
        let boxed = |(key, value): &(K, V)| (Box::from(key.as_ref()), Box::from(value.as_ref()));
        Ok(Metadata((count > 0).then(|| pairs.iter().map(boxed).collect())))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(known, value)| (known == key).then_some(value))
    }

    /// All pairs of key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|pairs| pairs.iter()).map(|(key, value)| (&**key, &**value))
    }

    /// Bytes of memory that they take, about.
    pub fn held_bytes(&self) -> u64 {
        self.iter().map(|(key, value)| (2 * TEXT_BYTES + key.len() + value.len()) as u64).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

fn check_pair(key: &str, value: &str) -> Result<(), BadTag> {
    let is_key_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    if key.is_empty() || key.len() > METADATA_KEY_MAX || !key.bytes().all(is_key_byte) {
        let key = super::cut(key, METADATA_KEY_MAX);
        return bad(format!(
            "{key:?} is no key of metadata: 1 to {METADATA_KEY_MAX} of a-z, 0-9, '.', '_' and '-'"
        ));
    }
    if value.len() > METADATA_VALUE_MAX || value.chars().any(char::is_control) {
        return bad(format!(
            "the value of the metadata key {key:?} has more than {METADATA_VALUE_MAX} bytes, or control characters"
        ));
    }
    Ok(())
}

impl Labels {
    /// These labels; one that is given twice counts once.
    ///
    /// # Errors
    /// If there are too many, or one of them is no label. The message says which.
    pub fn new<L: AsRef<str>>(labels: &[L]) -> Result<Labels, BadTag> {
        let mut unique: Vec<Box<str>> = Vec::new();
        for label in labels.iter().map(AsRef::as_ref) {
            check_label(label)?;
            if unique.iter().any(|known| **known == *label) {
                continue;
            }
            // Thousands that somebody sends are not compared with each other.
            if unique.len() == LABELS_MAX {
                return bad(format!("more than {LABELS_MAX} labels"));
            }
            unique.push(label.into());
        }
        Ok(Labels((!unique.is_empty()).then(|| unique.into())))
    }

    /// Whether this is one of them.
    pub fn contains(&self, label: &str) -> bool {
        self.iter().any(|known| known == label)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|labels| labels.iter()).map(|label| &**label)
    }

    /// Bytes of memory that they take, about.
    pub fn held_bytes(&self) -> u64 {
        self.iter().map(|label| (TEXT_BYTES + label.len()) as u64).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Checks one label: a word, or `key=value`, of 1 to [`LABEL_MAX`] bytes without spaces.
///
/// # Errors
/// If it is none.
pub fn check_label(label: &str) -> Result<(), BadTag> {
    let is_part = |part: &str| !part.is_empty();
    let has_parts =
        label.split_once('=').map_or(is_part(label), |(key, value)| is_part(key) && is_part(value));
    let is_strange = |letter: char| letter.is_control() || letter.is_whitespace();
    if has_parts && label.len() <= LABEL_MAX && !label.chars().any(is_strange) {
        return Ok(());
    }
    let label = super::cut(label, LABEL_MAX);
    bad(format!("{label:?} is no label: a word, or KEY=VALUE, of 1 to {LABEL_MAX} bytes without spaces"))
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_map(self.iter()),
            false => self.0.as_deref().unwrap_or_default().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
        let pairs: Vec<(String, String)> = match deserializer.is_human_readable() {
            true => std::collections::BTreeMap::deserialize(deserializer)?.into_iter().collect(),
            false => Vec::deserialize(deserializer)?,
        };
        Metadata::new(&pairs).map_err(D::Error::custom)
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_deref().unwrap_or_default().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
        let labels = Vec::<String>::deserialize(deserializer)?;
        let count = labels.len();
        if count > LABELS_MAX {
            return Err(D::Error::custom(format!("{count} labels, at most {LABELS_MAX} are allowed")));
        }
        Labels::new(&labels).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_unique_keys_of_a_few_characters_and_bounded_values() {
        let good = Metadata::new(&[("traceparent", "00-ab-cd-01"), ("x.y_z-1", "")]).unwrap();
        assert_eq!((good.get("traceparent"), good.get("tenant")), (Some("00-ab-cd-01"), None));
        assert_eq!(good.iter().count(), 2);
        let long = |length| "x".repeat(length);
        assert!(Metadata::new(&[(long(METADATA_KEY_MAX), long(METADATA_VALUE_MAX))]).is_ok());
        for (key, value) in [
            (String::new(), String::new()),
            ("Upper".to_owned(), String::new()),
            ("a b".to_owned(), String::new()),
            (long(METADATA_KEY_MAX + 1), String::new()),
            ("key".to_owned(), long(METADATA_VALUE_MAX + 1)),
            ("key".to_owned(), "two\nlines".to_owned()),
        ] {
            assert!(Metadata::new(&[(&key, &value)]).is_err(), "{key:?}: {value:?}");
        }
        assert!(Metadata::new(&[("a", "1"), ("a", "2")]).is_err());
        let pairs: Vec<(String, &str)> = (0..=METADATA_PAIRS_MAX).map(|i| (format!("k{i}"), "")).collect();
        assert!(Metadata::new(&pairs[1..]).is_ok() && Metadata::new(&pairs).is_err());
    }

    #[test]
    fn a_label_is_a_word_or_a_pair_and_counts_once() {
        let labels = Labels::new(&["nightly", "batch=7", "nightly"]).unwrap();
        assert_eq!(labels.iter().collect::<Vec<_>>(), ["nightly", "batch=7"]);
        assert!(labels.contains("batch=7") && !labels.contains("batch"));
        let long = "x".repeat(LABEL_MAX + 1);
        for bad in ["", "=", "a=", "=b", "two words", "tab\t", long.as_str()] {
            assert!(Labels::new(&[bad]).is_err(), "{bad:?}");
        }
        let many: Vec<String> = (0..=LABELS_MAX).map(|i| i.to_string()).collect();
        assert!(Labels::new(&many[1..]).is_ok() && Labels::new(&many).is_err());
        let doubled = [&many[1..], &many[1..]].concat();
        assert_eq!(
            Labels::new(&doubled).unwrap().iter().count(),
            LABELS_MAX,
            "one that comes twice counts once"
        );
        let refused = Labels::new(&[&many[..], std::slice::from_ref(&long)].concat()).unwrap_err();
        assert!(
            refused.to_string().contains("more than"),
            "what comes behind too many is not looked at: {refused}"
        );
        assert!(Labels::new::<&str>(&[]).unwrap().is_empty() && Metadata::default().is_empty());
    }
}
