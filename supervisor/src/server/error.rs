//! Why a server did not start.

use crate::front::BindError;
use crate::service::ServiceStartError;
use offload_event_loop::LoopError;
use std::fmt;

/// Why a server did not start. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[non_exhaustive]
pub enum ServerStartError {
    /// The service did not start.
    Service(ServiceStartError),
    /// The local socket cannot be created.
    Bind(BindError),
    /// The event loop refused to watch the socket or the signals.
    Loop(LoopError),
}

impl fmt::Display for ServerStartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerStartError::Service(error) => write!(formatter, "{error}"),
            ServerStartError::Bind(error) => write!(formatter, "{error}"),
            ServerStartError::Loop(error) => write!(formatter, "{error}"),
        }
    }
}

impl fmt::Debug for ServerStartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for ServerStartError {}

impl From<ServiceStartError> for ServerStartError {
    fn from(error: ServiceStartError) -> ServerStartError {
        ServerStartError::Service(error)
    }
}

impl From<BindError> for ServerStartError {
    fn from(error: BindError) -> ServerStartError {
        ServerStartError::Bind(error)
    }
}

impl From<LoopError> for ServerStartError {
    fn from(error: LoopError) -> ServerStartError {
        ServerStartError::Loop(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_main_returns_is_printed_as_its_sentence() {
        let error = ServiceStartError::Descriptors("ulimit -n 100".to_owned());
        assert_eq!(format!("{error:?}"), "ulimit -n 100");
        assert_eq!(format!("{:?}", ServerStartError::from(error)), "ulimit -n 100");
    }
}
