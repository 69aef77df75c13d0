//! Whole numbers as JSON Schema means them: `382.0` and `1e3` are integers too.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// The first number that has no place in 64 bits.
const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;

/// A whole number of at least 0.
#[derive(Clone, Copy)]
pub(super) struct Whole(pub(super) u64);

/// A field of any unsigned type, for `#[serde(deserialize_with = "whole")]`.
pub(super) fn whole<'de, D: Deserializer<'de>, N: TryFrom<u64>>(deserializer: D) -> Result<N, D::Error> {
    let Whole(value) = Whole::deserialize(deserializer)?;
    N::try_from(value).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(value), &"a smaller number"))
}

/// The same for a field that may be null.
pub(super) fn whole_or_null<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<N>, D::Error> {
    let value: Option<Whole> = Option::deserialize(deserializer)?;
    let too_large = |value| D::Error::invalid_value(Unexpected::Unsigned(value), &"a smaller number");
    value.map(|Whole(value)| N::try_from(value).map_err(|_| too_large(value))).transpose()
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number, 0 or more")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Whole, E> {
        Ok(Whole(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Whole, E> {
        u64::try_from(value).map(Whole).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Whole, E> {
        if value.fract() != 0.0 || !(0.0..TOO_LARGE).contains(&value) {
            return Err(E::invalid_value(Unexpected::Float(value), &self));
        }
        Ok(Whole(value as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<u64, String> {
        serde_json::from_str(text).map(|Whole(value)| value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point_or_an_exponent() {
        for (text, value) in [("382", 382), ("382.0", 382), ("1e3", 1000), ("0.0", 0), ("-0.0", 0), ("-0", 0)]
        {
            assert_eq!(read(text), Ok(value), "{text}");
        }
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn no_other_number_is_rounded_to_a_whole_one() {
        for text in ["382.5", "-1", "-1.0", "1e300", "18446744073709551616", "\"1\"", "null", "true"] {
            assert!(read(text).unwrap_err().contains("a whole number, 0 or more"), "{text}");
        }
    }
}
