//! The errors of the loop itself. Each kind of misuse has one of its own.

use std::fmt;
use std::io;

/// Why the loop refused or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoopError {
    /// `run` was called from a callback of the same loop.
    NestedRun,
    /// The handle was closed before.
    AlreadyClosed,
    /// The handle has no descriptor whose interest could be set.
    NotAWatcher,
    /// A source or a future that waits cannot be paused by its name. Stop what it does: for example
    /// [`Stream::read_stop`](super::Stream::read_stop).
    NotPausable,
    /// What this future waited for was [closed](super::LoopHandle::close).
    Cancelled,
    /// The descriptor is watched already; one watcher can ask for both directions.
    AlreadyWatched,
    /// The kernel cannot tell when this descriptor is ready. Regular files are like that: read them on a thread.
    NotWatchable,
    /// The process or the system has no more file descriptors, or no more room for watches.
    OutOfDescriptors,
    /// The signal cannot be caught, or does not exist.
    UnusableSignal {
        /// The number that was asked for.
        signal: i32,
    },
    /// The loop was dropped. Nothing can be watched with it any more.
    Gone,
    /// Anything else that the system reports.
    Io(io::Error),
}

impl fmt::Display for LoopError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopError::NestedRun => {
                write!(formatter, "the loop is running already: a callback cannot run it again")
            }
            LoopError::AlreadyClosed => write!(formatter, "the handle was closed before"),
            LoopError::NotAWatcher => {
                write!(formatter, "the handle watches no descriptor, so it has no interest to set")
            }
            LoopError::NotPausable => {
                write!(formatter, "a source or a waiting future cannot be paused: stop what it does")
            }
            LoopError::Cancelled => write!(formatter, "it was closed while this future waited for it"),
            LoopError::AlreadyWatched => write!(formatter, "the descriptor is watched already"),
            LoopError::NotWatchable => {
                write!(formatter, "the descriptor cannot be watched (a regular file?): read it on a thread")
            }
            LoopError::OutOfDescriptors => {
                write!(formatter, "out of file descriptors or of room for watches")
            }
            LoopError::UnusableSignal { signal } => write!(formatter, "signal {signal} cannot be caught"),
            LoopError::Gone => LoopGone.fmt(formatter),
            LoopError::Io(error) => write!(formatter, "the event loop's poller failed: {error}"),
        }
    }
}

impl std::error::Error for LoopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoopError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustix::io::Errno> for LoopError {
    fn from(errno: rustix::io::Errno) -> LoopError {
        use rustix::io::Errno;
        match errno {
            Errno::EXIST => LoopError::AlreadyWatched,
            Errno::PERM => LoopError::NotWatchable,
            Errno::MFILE | Errno::NFILE | Errno::NOSPC => LoopError::OutOfDescriptors,
            other => LoopError::Io(other.into()),
        }
    }
}

impl From<io::Error> for LoopError {
    fn from(error: io::Error) -> LoopError {
        match rustix::io::Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => LoopError::Io(error),
        }
    }
}

/// The loop no longer exists; what was sent to it was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopGone;

impl fmt::Display for LoopGone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the event loop no longer exists")
    }
}

impl std::error::Error for LoopGone {}
