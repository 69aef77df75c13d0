//! Values as JSON. A NaN or an infinity is an error: `serde_json` alone would write `null`, which looks like an answer, and from which no
//! state with a number can be read again.

use serde::ser::{
    Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};
use std::fmt::Display;
use std::io;

/// Writes `value` as a JSON document.
///
/// # Errors
/// If JSON cannot represent it, or it cannot be written.
pub(crate) fn to_writer(writer: impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(Finite(&mut serde_json::Serializer::new(writer)))
}

/// `value` as a JSON document.
///
/// # Errors
/// If JSON cannot represent it.
pub(crate) fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(128);
    to_writer(&mut bytes, value)?;
    Ok(bytes)
}

const NOT_FINITE: &str = "JSON cannot represent NaN or an infinity";

/// A serializer, or a part of one, that is given no number that is not finite.
struct Finite<S>(S);

/// A value within another one.
struct Inner<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Inner<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Finite(serializer))
    }
}

/// Values that can be no float, and contain none.
macro_rules! passed_on {
    ($($name:ident: $type:ty,)*) => {
        $(fn $name(self, value: $type) -> Result<S::Ok, S::Error> {
            self.0.$name(value)
        })*
    };
}

impl<S: Serializer> Serializer for Finite<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Finite<S::SerializeSeq>;
    type SerializeTuple = Finite<S::SerializeTuple>;
    type SerializeTupleStruct = Finite<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Finite<S::SerializeTupleVariant>;
    type SerializeMap = Finite<S::SerializeMap>;
    type SerializeStruct = Finite<S::SerializeStruct>;
    type SerializeStructVariant = Finite<S::SerializeStructVariant>;

    passed_on! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
        serialize_char: char,
        serialize_str: &str,
        serialize_bytes: &[u8],
        serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.0.serialize_f32(value) } else { Err(S::Error::custom(NOT_FINITE)) }
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.0.serialize_f64(value) } else { Err(S::Error::custom(NOT_FINITE)) }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Inner(value))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Inner(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Inner(value))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(length).map(Finite)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(length).map(Finite)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0.serialize_tuple_struct(name, length).map(Finite)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0.serialize_tuple_variant(name, index, variant, length).map(Finite)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(length).map(Finite)
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, length).map(Finite)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0.serialize_struct_variant(name, index, variant, length).map(Finite)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// What has elements one after another.
macro_rules! elements {
    ($($part:ident: $element:ident,)*) => {
        $(impl<S: $part> $part for Finite<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$element(&Inner(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

elements! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

/// What has fields with names.
macro_rules! fields {
    ($($part:ident,)*) => {
        $(impl<S: $part> $part for Finite<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                self.0.serialize_field(key, &Inner(value))
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
                self.0.skip_field(key)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

fields! {
    SerializeStruct,
    SerializeStructVariant,
}

impl<S: SerializeMap> SerializeMap for Finite<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(&Inner(key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Inner(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    struct Nothing;

    #[derive(Serialize)]
    struct Wrapped(f32);

    #[derive(Serialize)]
    struct Pair(f64, char);

    #[derive(Serialize)]
    enum Shape {
        Point,
        Circle(f64),
        Line(f64, f64),
        Oval { width: f64, height: f32 },
    }

    #[derive(Serialize)]
    struct All {
        nothing: (Nothing, (), Option<u8>),
        wrapped: Wrapped,
        pair: Pair,
        list: Vec<f64>,
        map: BTreeMap<u32, Option<f64>>,
        shapes: [Shape; 4],
        value: serde_json::Value,
        large: (u64, i128, bool, &'static str),
        #[serde(skip_serializing_if = "Option::is_none")]
        skipped: Option<f64>,
    }

    /// With a float in each place where there can be one.
    fn all([a, b, c, d, e, f, g, h, i]: [f64; 9]) -> All {
        All {
            nothing: (Nothing, (), None),
            wrapped: Wrapped(a as f32),
            pair: Pair(b, 'x'),
            list: vec![1.0, c],
            map: BTreeMap::from([(7, Some(d)), (8, None)]),
            shapes: [
                Shape::Point,
                Shape::Circle(e),
                Shape::Line(f, g),
                Shape::Oval { width: h, height: i as f32 },
            ],
            value: serde_json::json!({ "a": [1, 2.5, null, "\u{1}"] }),
            large: (u64::MAX, i128::MIN, true, "\"ä"),
            skipped: None,
        }
    }

    #[test]
    fn what_is_finite_is_written_as_by_serde_json() {
        let value = all([0.1, -0.0, 1e300, f64::MIN_POSITIVE, 2.0, -3.5, 1e21, 1e-7, 5.0]);
        assert_eq!(to_vec(&value).unwrap(), serde_json::to_vec(&value).unwrap());
    }

    #[test]
    fn a_nan_or_an_infinity_is_an_error_wherever_it_is() {
        for place in 0..9 {
            for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut floats = [0.5; 9];
                floats[place] = wrong;
                let error = to_vec(&all(floats)).unwrap_err();
                assert_eq!(error.to_string(), NOT_FINITE, "{wrong} in place {place}");
            }
        }
    }
}
