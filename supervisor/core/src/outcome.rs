//! Builds the error that a job ends with, and writes durations for people.

use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::time::Duration;

/// An error without an exit code or signal.
pub fn error(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(code, message)
}

/// The same with a message that is made of nothing but numbers and what the client sent, so anybody may read it.
pub fn for_anybody(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::for_anybody(code, message)
}

/// A duration as people write it: "250 ms", "2 s", "1.5 s", "12 min".
pub fn human(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        600_000.. => format!("{} min", millis.div_ceil(60_000)),
        _ if millis.is_multiple_of(1000) => format!("{} s", millis / 1000),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}
