//! The sentences in which the core says how a job ended.

use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::time::Duration;

/// An error that has nothing to do with how a process ended.
pub fn error(code: OutcomeCode, message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(code, message)
}

/// A duration as people write it.
pub fn human(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        600_000.. => format!("{} min", millis.div_ceil(60_000)),
        _ if millis.is_multiple_of(1000) => format!("{} s", millis / 1000),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}
