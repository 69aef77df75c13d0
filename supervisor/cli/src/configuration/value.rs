//! The values of settings, as sources deliver them and fields store them.

use super::programs::{self, TaskProgram};
use super::{batches, weights};
use offload_core::batches::BatchLimits;
use offload_http::Route;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The value of one key in a source. The key's [`ValueKind`](super::key::ValueKind) decides which variant it is.
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
    /// One of a few words.
    Word(String),
    /// Texts, in their order.
    Texts(Vec<String>),
    /// Commands, each as its words.
    Commands(Vec<Vec<String>>),
    /// Shares of worker time by the name of the client.
    Weights(BTreeMap<String, u32>),
    /// Routes over HTTP, in their order.
    Routes(Vec<Route>),
    /// Limits of batches by the name of the task.
    Batches(BTreeMap<String, BatchLimits>),
    /// Tasks that are programs, by their names.
    Programs(BTreeMap<String, TaskProgram>),
}

impl Value {
    /// Merges two values of a key that may be set several times: numbers add up (saturating), commands and shares are
    /// joined.
    ///
    /// # Errors
    /// A sentence for the person who wrote them: a client is given two shares.
    pub(super) fn and(self, more: Value) -> Result<Value, String> {
        Ok(match (self, more) {
            (Value::Number(one), Value::Number(other)) => Value::Number(one.saturating_add(other)),
            (Value::Commands(mut all), Value::Commands(more)) => {
                all.extend(more);
                Value::Commands(all)
            }
            (Value::Texts(mut all), Value::Texts(more)) => {
                all.extend(more);
                Value::Texts(all)
            }
            (Value::Routes(mut all), Value::Routes(more)) => {
                all.extend(more);
                Value::Routes(all)
            }
            (Value::Weights(mut all), Value::Weights(more)) => {
                for (name, weight) in more {
                    weights::add(&mut all, name, weight)?;
                }
                Value::Weights(all)
            }
            (Value::Batches(mut all), Value::Batches(more)) => {
                for (name, limits) in more {
                    batches::add(&mut all, name, limits)?;
                }
                Value::Batches(all)
            }
            (Value::Programs(mut all), Value::Programs(more)) => {
                for (name, program) in more {
                    programs::add(&mut all, name, program)?;
                }
                Value::Programs(all)
            }
            (_, last) => last,
        })
    }
}

/// A field that holds a setting. The table pairs each field with a kind of value that it accepts; a test checks that.
pub(crate) trait Field {
    /// The value of the field; `None` if it is empty.
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
field_of!(String, Word);
field_of!(Vec<String>, Texts);
field_of!(Vec<Vec<String>>, Commands);
field_of!(BTreeMap<String, u32>, Weights);
field_of!(Vec<Route>, Routes);
field_of!(BTreeMap<String, BatchLimits>, Batches);
field_of!(BTreeMap<String, TaskProgram>, Programs);

/// Converts to a narrower type. The bounds of the key guarantee that the value fits.
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
