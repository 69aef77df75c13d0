//! Why a server did not start.

use crate::front::BindError;
use crate::service::ServiceStartError;
use offload_event_loop::LoopError;
use std::error::Error;
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

impl Error for ServerStartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The sentence of each is that of this one.
            ServerStartError::Service(error) => error.source(),
            ServerStartError::Bind(error) => error.source(),
            ServerStartError::Loop(error) => error.source(),
        }
    }
}

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
    use crate::front::client::{ClientError, ConnectError};
    use crate::front::{AcceptError, ConnectionError};
    use offload_event_loop::io_pool::IoError;
    use std::io;

    #[test]
    fn an_error_that_main_returns_is_printed_as_its_sentence() {
        let error = ServiceStartError::Descriptors("ulimit -n 100".to_owned());
        assert_eq!(format!("{error:?}"), "ulimit -n 100");
        assert_eq!(format!("{:?}", ServerStartError::from(error)), "ulimit -n 100");
    }

    /// However many layers have passed it on, its sentence is there once, and the error of the system can be asked for.
    #[test]
    fn the_source_of_an_error_is_the_one_that_it_adds_words_to() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let connect = ConnectError::Io { socket: "/x".into(), error: denied() };
        let all: [&dyn Error; 6] = [
            &ServerStartError::from(BindError::Io { doing: "lock", path: "/x".into(), error: denied() }),
            &ServerStartError::from(LoopError::Io(denied())),
            &AcceptError::Io(denied()),
            &ConnectionError::Io(denied()),
            &connect,
            &ClientError::Io(denied()),
        ];
        for error in all {
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.map(io::Error::kind), Some(denied().kind()), "{error}");
        }
        let threads = ServerStartError::from(ServiceStartError::Threads(IoError::Cancelled));
        assert!(threads.source().is_some_and(|source| source.is::<IoError>()));
        assert!(ServerStartError::from(LoopError::NestedRun).source().is_none());
    }
}
