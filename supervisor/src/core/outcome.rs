//! The sentences in which the core says how a job ended.

use super::ids::Place;
use crate::exit::Exit;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::time::Duration;

/// An error that has nothing to do with how a process ended.
pub fn error(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(code, message)
}

/// What became of an attempt whose worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// `worker_crashed` or `worker_protocol`.
    pub code: OutcomeCode,
    /// What happened, for people.
    pub what: String,
    /// How the process ended.
    pub exit: Exit,
    /// Where that was.
    pub place: Option<Place>,
}

impl Loss {
    /// The error of a job that is given up after this loss.
    pub fn error(&self, attempts: u32, allowed: u32) -> ErrorDetail {
        let (signal, exit_code) = match self.exit {
            Exit::Signal(signal) => (Some(signal), None),
            Exit::Code(code) => (None, Some(code)),
            Exit::Unknown => (None, None),
        };
        let message = format!("{} in attempt {attempts} of {allowed}", self.what);
        ErrorDetail { signal, exit_code, ..ErrorDetail::new(self.code, message) }
    }
}

/// A duration as people write it.
pub fn human(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        _ if millis.is_multiple_of(1000) => format!("{} s", millis / 1000),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}
