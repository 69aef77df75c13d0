//! Whether a document is JSON that parsers agree about: those of the programs are of many kinds, and what one of them reads another
//! one dies of. Numbers have to fit into what most of them have (64 bits), texts have to be Unicode, and objects and arrays are nested
//! at most 127 deep. It is the verdict of the built-in task `json`.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Looks at every value of the document, and keeps none.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn check(document: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Value>(document).map(|_| ())
}

struct Value;

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(Value)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Value, E> {
        Ok(Value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        while elements.next_element::<Value>()?.is_some() {}
        Ok(Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        while entries.next_entry::<Value, Value>()?.is_some() {}
        Ok(Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parsers_disagree_about_is_no_json() {
        for sound in [r#"{"a":[1,-2.5e300,"\ud83d\ude00",null,true]}"#, "\"text\"", "7"] {
            check(sound.as_bytes()).unwrap();
        }
        let deep = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        check(&deep(127)).unwrap();
        let digits = vec![b'7'; 5000];
        let broken: [&[u8]; 6] = [&deep(128), &deep(100_000), &digits, b"1e400", br#""\ud800""#, b"\"\xff\""];
        for document in broken {
            assert!(
                check(document).is_err(),
                "{}",
                String::from_utf8_lossy(&document[..document.len().min(20)])
            );
        }
    }
}
