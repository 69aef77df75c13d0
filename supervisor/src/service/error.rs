//! Why a service did not start.

use crate::hub::StartError;
use offload_event_loop::io_pool::IoError;
use std::error::Error;
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

impl Error for ServiceStartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its sentence is that of this one.
            ServiceStartError::Pool(error) => error.source(),
            ServiceStartError::Descriptors(_) => None,
            ServiceStartError::Threads(error) => Some(error),
        }
    }
}

impl From<StartError> for ServiceStartError {
    fn from(error: StartError) -> ServiceStartError {
        ServiceStartError::Pool(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::LoopError;
    use std::io;

    #[test]
    fn the_source_of_an_error_is_the_one_that_it_adds_words_to() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        for error in [StartError::Launcher(denied()), StartError::Loop(LoopError::Io(denied()))] {
            let error = ServiceStartError::from(error);
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.map(io::Error::kind), Some(denied().kind()), "{error}");
        }
        assert!(ServiceStartError::Descriptors("ulimit -n 100".to_owned()).source().is_none());
    }
}
