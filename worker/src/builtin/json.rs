//! `json`: a document is parsed and written again, and measured on the way. Both happen value by value without a tree
//! in between, so 50 MB of JSON take 50 MB of memory and not twenty times that.

use crate::task::{Output, Task, TaskError};
use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io;

/// What there is to say about a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Length as it came.
    pub bytes: usize,
    /// Values of all kinds, objects and arrays included, keys not.
    pub values: u64,
    /// How deep objects and arrays are nested: 0 for a lone number or string, at most 127.
    pub depth: u32,
    /// Length when written again without any space.
    pub minified_bytes: u64,
    /// Elements in the largest array.
    pub largest_array: u64,
}

pub(super) fn task() -> Task {
    Task::raw("json", |input, _| Output::json(&measure(&input.bytes)?))
}

/// Measures `document`.
///
/// # Errors
/// If it is not JSON or nested more than 127 deep; the message says at which line and column.
pub fn measure(document: &[u8]) -> Result<Measures, TaskError> {
    let mut measures = Measures { bytes: document.len(), ..Measures::default() };
    let mut parser = serde_json::Deserializer::from_slice(document);
    Value { measures: &mut measures, depth: 0 }
        .deserialize(&mut parser)
        .and_then(|()| parser.end())
        .map_err(|error| TaskError::new(format_args!("the input is not JSON: {error}")))?;
    Ok(measures)
}

impl Measures {
    /// Writes a number, a string, a boolean or null, to nowhere: only its length is kept.
    fn write<E: Error>(&mut self, value: &impl Serialize) -> Result<(), E> {
        serde_json::to_writer(Counter(&mut self.minified_bytes), value).map_err(E::custom)
    }
}

struct Counter<'a>(&'a mut u64);

impl io::Write for Counter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The place of a value: inside of `depth` objects and arrays.
struct Value<'a> {
    measures: &'a mut Measures,
    depth: u32,
}

impl Value<'_> {
    fn inner(&mut self) -> Value<'_> {
        Value { measures: self.measures, depth: self.depth + 1 }
    }

    /// Brackets and the commas between `count` members.
    fn close(&mut self, count: u64) {
        self.measures.values += 1;
        self.measures.depth = self.measures.depth.max(self.depth + 1);
        self.measures.minified_bytes += 2 + count.saturating_sub(1);
    }

    fn scalar<E: Error>(self, value: &impl Serialize) -> Result<(), E> {
        self.measures.values += 1;
        self.measures.write(value)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(&())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let mut count = 0;
        while elements.next_element_seed(self.inner())?.is_some() {
            count += 1;
        }
        self.measures.largest_array = self.measures.largest_array.max(count);
        self.close(count);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let mut count = 0;
        while entries.next_key_seed(Key(self.measures))?.is_some() {
            entries.next_value_seed(self.inner())?;
            count += 1;
        }
        self.close(count);
        Ok(())
    }
}

struct Key<'a>(&'a mut Measures);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    /// The key itself and the colon after it.
    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.0.minified_bytes += 1;
        self.0.write(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_document_is_measured_in_all_its_dimensions() {
        let document = r#" {"a": [1, 2, [3.5, null]], "b\u0041": {"c": "\n"}, "d": [] , "e": true } "#;
        let minified = r#"{"a":[1,2,[3.5,null]],"bA":{"c":"\n"},"d":[],"e":true}"#;
        let expected = Measures {
            bytes: document.len(),
            values: 11,
            depth: 3,
            minified_bytes: minified.len() as u64,
            largest_array: 3,
        };
        assert_eq!(measure(document.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_lone_value_has_no_depth_and_an_empty_array_has_one() {
        assert_eq!(measure(b"7").unwrap().depth, 0);
        assert_eq!(measure(b"[]").unwrap().depth, 1);
        assert_eq!(
            answer("json", "[[1]]"),
            Ok(json!({"bytes": 5, "values": 3, "depth": 2, "minified_bytes": 5, "largest_array": 1}))
        );
    }

    #[test]
    fn an_error_says_where() {
        let error = answer("json", "{\"a\": 1,\n \"b\": nul}").unwrap_err();
        assert_eq!(error, "the input is not JSON: expected ident at line 2 column 10");
        assert!(answer("json", "1 2").unwrap_err().contains("trailing characters at line 1 column 3"));
        assert!(answer("json", "").unwrap_err().contains("line 1 column 0"));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(measure(nested(127).as_bytes()).unwrap().depth, 127);
        assert!(measure(nested(128).as_bytes()).unwrap_err().to_string().contains("recursion limit"));
        assert!(measure(nested(1_000_000).as_bytes()).is_err());
    }

    fn documents() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|value| json!(value)),
            any::<i64>().prop_map(|value| json!(value)),
            any::<u64>().prop_map(|value| json!(value)),
            "\\PC{0,8}|[\"\\\\\n\u{1}]{0,3}".prop_map(|value| json!(value)),
        ];
        leaf.prop_recursive(5, 100, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::hash_map("\\PC{0,4}", inner, 0..6)
                    .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_again_is_as_long_as_the_tree_written_by_the_library(document in documents()) {
            let spacious = serde_json::to_vec_pretty(&document).unwrap();
            let minified = serde_json::to_vec(&document).unwrap();
            prop_assert_eq!(measure(&spacious).unwrap().minified_bytes, minified.len() as u64);
        }
    }
}
