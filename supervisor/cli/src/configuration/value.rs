//! Values of settings, as every source says them and every field takes them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What a source says of one key. Which of these it is follows from the key's [`Kind`](super::key::Kind).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A count, or bytes.
    Number(u64),
    /// A length of time.
    Time(Duration),
    /// Yes or no.
    Switch(bool),
    /// A path, of any bytes.
    Path(PathBuf),
    /// Commands, each as its words.
    Commands(Vec<Vec<String>>),
    /// Shares of worker time by the name of the client.
    Weights(BTreeMap<String, u32>),
}

impl Value {
    /// What two say together, of those keys of which several may say something: numbers add up, up to the largest that there
    /// is, and so do commands and shares.
    pub(super) fn and(self, more: Value) -> Value {
        match (self, more) {
            (Value::Number(one), Value::Number(other)) => Value::Number(one.saturating_add(other)),
            (Value::Commands(mut all), Value::Commands(more)) => {
                all.extend(more);
                Value::Commands(all)
            }
            (Value::Weights(mut all), Value::Weights(more)) => {
                all.extend(more);
                Value::Weights(all)
            }
            (_, last) => last,
        }
    }
}

/// A field that a setting is kept in. The table pairs each with a kind of values that it takes, and a test sees to that.
pub(crate) trait Field {
    /// What is in it; `None` where nothing is.
    fn read(&self) -> Option<Value>;

    /// Puts a value into it.
    ///
    /// # Panics
    /// If the value is not of the field's kind.
    fn write(&mut self, value: Value);
}

macro_rules! field_of {
    ($type:ty, $value:ident) => {
        impl Field for $type {
            fn read(&self) -> Option<Value> {
                Some(Value::$value(self.clone()))
            }

            fn write(&mut self, value: Value) {
                match value {
                    Value::$value(value) => *self = value,
                    other => panic!("{other:?} is written to a field of another kind"),
                }
            }
        }
    };
}

field_of!(u64, Number);
field_of!(Duration, Time);
field_of!(bool, Switch);
field_of!(PathBuf, Path);
field_of!(Vec<Vec<String>>, Commands);
field_of!(BTreeMap<String, u32>, Weights);

/// Bounds keep values out that the narrower type has no room for.
macro_rules! narrower_number {
    ($type:ty) => {
        impl Field for $type {
            fn read(&self) -> Option<Value> {
                Some(Value::Number(u64::try_from(*self).unwrap_or(u64::MAX)))
            }

            fn write(&mut self, value: Value) {
                let mut number = 0_u64;
                Field::write(&mut number, value);
                *self = <$type>::try_from(number).unwrap_or(<$type>::MAX);
            }
        }
    };
}

narrower_number!(u32);
narrower_number!(usize);

impl<T: Field + Default> Field for Option<T> {
    fn read(&self) -> Option<Value> {
        self.as_ref().and_then(Field::read)
    }

    fn write(&mut self, value: Value) {
        self.get_or_insert_default().write(value);
    }
}
