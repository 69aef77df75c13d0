//! Why a server did not start.

use crate::front::BindError;
use crate::service::ServiceStartError;
use offload_event_loop::LoopError;
use std::fmt;

/// Why a server did not start.
#[derive(Debug)]
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
