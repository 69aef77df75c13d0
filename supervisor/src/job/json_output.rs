//! The output of a job as a part of a JSON document: the same for the command line and over HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::nouns::MediaType;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// An output in a JSON document: a JSON value or a text as `output`, other bytes as base64 in `output_base64`. The media type is
/// only a claim of the worker: bytes that do not match it become base64.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JsonOutput {
    /// JSON as it is, on one line; a text as a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// Other bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_base64: Option<String>,
}

impl JsonOutput {
    /// The output of this media type. All of it is read and copied.
    pub fn of(media_type: &MediaType, output: &[u8]) -> JsonOutput {
        let value = std::str::from_utf8(output).ok().and_then(|text| {
            if media_type.is_json() {
                on_one_line(text)
            } else if media_type.is_text() {
                serde_json::value::to_raw_value(text).ok()
            } else {
                None
            }
        });
        let output_base64 = value.is_none().then(|| STANDARD.encode(output));
        JsonOutput { output: value, output_base64 }
    }
}

/// The same JSON value without line ends, which can occur between its parts but never inside a string. It is not printed again, so
/// numbers of any length stay unchanged. But it is read, with the verdict that the built-in task `json` gives: half of a surrogate
/// pair, a number beyond all bounds or very deep nesting would make the whole document useless for many readers.
fn on_one_line(text: &str) -> Option<Box<RawValue>> {
    serde_json::from_str::<Looked>(text).ok()?;
    RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).ok()
}

/// All of a JSON value was looked at, and nothing of it is kept. (serde's `IgnoredAny` does not look into strings and numbers.)
struct Looked;

impl<'de> Deserialize<'de> for Looked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Looked, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Looked;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_unit<E>(self) -> Result<Looked, E> {
        Ok(Looked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Looked, A::Error> {
        while let Some(Looked) = elements.next_element()? {}
        Ok(Looked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Looked, A::Error> {
        while let Some((Looked, Looked)) = entries.next_entry()? {}
        Ok(Looked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_readers_refuse_does_not_become_a_part_of_a_document() {
        let is_part = |text: &str| {
            let shown = JsonOutput::of(&"application/json".parse().unwrap(), text.as_bytes());
            assert_ne!(shown.output.is_some(), shown.output_base64.is_some());
            shown.output.is_some()
        };
        for text in [
            "1",
            " {\"a\":\n[1]} ",
            "123456789012345678901234567890.10",
            "\"\\ud83d\\ude00\"",
            "1e300",
            "[null, true, -1, {\"a\": {}}]",
        ] {
            assert!(is_part(text), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in [
            "",
            "1 2",
            "NaN",
            "1e400",
            "\"\\ud800\"",
            "{\"\\ud800\": 1}",
            "[1e400]",
            "\u{feff}1",
            "{\"a\":",
            &deep,
        ] {
            assert!(!is_part(text), "{text}");
        }
    }
}
