//! Why a service did not start.

use crate::hub::StartError;
use offload_event_loop::io_pool::IoError;
use std::fmt;

/// Why a service did not start. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[non_exhaustive]
pub enum ServiceStartError {
    /// The workers did not start.
    Pool(StartError),
    /// The limit of open files leaves no room for a client. The sentence states the limit that is needed.
    Descriptors(String),
    /// The threads for blocking work could not be started.
    Threads(IoError),
}

impl fmt::Display for ServiceStartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceStartError::Pool(error) => write!(formatter, "{error}"),
            ServiceStartError::Descriptors(sentence) => formatter.write_str(sentence),
            ServiceStartError::Threads(error) => write!(formatter, "cannot start threads: {error}"),
        }
    }
}

impl fmt::Debug for ServiceStartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for ServiceStartError {}

impl From<StartError> for ServiceStartError {
    fn from(error: StartError) -> ServiceStartError {
        ServiceStartError::Pool(error)
    }
}
