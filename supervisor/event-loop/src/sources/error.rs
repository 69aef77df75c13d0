//! The errors of sources. Each kind of misuse has one of its own.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::{LoopError, SEND_QUEUE_BYTES_MAX, SEND_QUEUE_LEN_MAX};

/// Why a source refused or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// It was closed before, by its handle or with its loop. It cannot be made either if the loop was dropped.
    Closed,
    /// It was closed while this was under way, or the connection that it waited for has failed.
    Cancelled,
    /// It is not connected: not yet, or because connecting failed.
    NotConnected,
    /// A callback or future reads, accepts or receives from it already, or an exit callback waits already.
    AlreadyReading,
    /// Its writing side was shut down before.
    AlreadyShutDown,
    /// The bytes do not fit into the write queue now. None of them was taken.
    QueueFull {
        /// How many bytes wait in the queue, and 64 more for each write that is not answered yet.
        queued: usize,
        /// How many it takes at most.
        limit: usize,
    },
    /// The send queue of a UDP socket is full: it takes at most [`SEND_QUEUE_LEN_MAX`] datagrams
    /// and [`SEND_QUEUE_BYTES_MAX`]. The datagram was not taken.
    SendQueueFull {
        /// How many datagrams wait to be sent or for their answer.
        datagrams: usize,
        /// How many bytes wait to be sent.
        bytes: usize,
    },
    /// There is no room at once, and the call was one that does not wait.
    WouldBlock,
    /// The process or the system has no more file descriptors, or no more room for watches.
    OutOfDescriptors,
    /// The kernel cannot tell when this descriptor is ready. Regular files are like that: read them on a thread.
    NotWatchable,
    /// The signal does not exist, or is one of the real-time ones.
    UnusableSignal {
        /// The number that was asked for.
        signal: i32,
    },
    /// The path of a Unix socket is empty, or has a zero byte.
    UnusablePath,
    /// The child process has ended before.
    AlreadyExited,
    /// Anything else that the system reports, such as a refused connection.
    Io(io::Error),
}

impl SourceError {
    /// The kind that the system's own errors have, for code that treats both alike.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            SourceError::Io(error) => error.kind(),
            SourceError::NotConnected => io::ErrorKind::NotConnected,
            SourceError::WouldBlock | SourceError::QueueFull { .. } | SourceError::SendQueueFull { .. } => {
                io::ErrorKind::WouldBlock
            }
            SourceError::AlreadyShutDown => io::ErrorKind::BrokenPipe,
            SourceError::NotWatchable => io::ErrorKind::Unsupported,
            SourceError::UnusableSignal { .. } | SourceError::UnusablePath => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        }
    }
}

impl SourceError {
    /// The number by which the system calls this error, for results that are kept and told more than once. An error that
    /// has none is about room in the poller.
    pub(super) fn into_errno(self) -> Errno {
        Errno::from_io_error(&self.into()).unwrap_or(Errno::NOSPC)
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Closed => write!(formatter, "it was closed before"),
            SourceError::Cancelled => {
                write!(formatter, "it was closed, or could not be connected, while this was under way")
            }
            SourceError::NotConnected => write!(formatter, "it is not connected"),
            SourceError::AlreadyReading => write!(formatter, "somebody waits for what comes in already"),
            SourceError::AlreadyShutDown => write!(formatter, "its writing side was shut down before"),
            SourceError::QueueFull { queued, limit } => {
                write!(formatter, "the write queue is full: {queued} of {limit} bytes wait")
            }
            SourceError::SendQueueFull { datagrams, bytes } => {
                write!(
                    formatter,
                    "the send queue is full: {datagrams} of {SEND_QUEUE_LEN_MAX} datagrams and {bytes} of \
                     {SEND_QUEUE_BYTES_MAX} bytes wait"
                )
            }
            SourceError::WouldBlock => write!(formatter, "there is no room at once"),
            SourceError::OutOfDescriptors => {
                write!(formatter, "out of file descriptors or of room for watches")
            }
            SourceError::NotWatchable => {
                write!(formatter, "the descriptor cannot be watched (a regular file?): read it on a thread")
            }
            SourceError::UnusableSignal { signal } => write!(formatter, "signal {signal} cannot be sent"),
            SourceError::UnusablePath => {
                write!(formatter, "the path of a Unix socket must not be empty and must not have a zero byte")
            }
            SourceError::AlreadyExited => write!(formatter, "the child process has ended before"),
            SourceError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SourceError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Errno> for SourceError {
    fn from(errno: Errno) -> SourceError {
        match errno {
            Errno::AGAIN => SourceError::WouldBlock,
            Errno::NOTCONN => SourceError::NotConnected,
            Errno::MFILE | Errno::NFILE | Errno::NOSPC => SourceError::OutOfDescriptors,
            other => SourceError::Io(other.into()),
        }
    }
}

impl From<io::Error> for SourceError {
    fn from(error: io::Error) -> SourceError {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => SourceError::Io(error),
        }
    }
}

impl From<LoopError> for SourceError {
    fn from(error: LoopError) -> SourceError {
        match error {
            LoopError::AlreadyClosed | LoopError::Gone => SourceError::Closed,
            LoopError::Cancelled => SourceError::Cancelled,
            LoopError::NotWatchable => SourceError::NotWatchable,
            LoopError::OutOfDescriptors => SourceError::OutOfDescriptors,
            LoopError::Io(error) => SourceError::Io(error),
            other => SourceError::Io(io::Error::other(other)),
        }
    }
}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> io::Error {
        match error {
            SourceError::Io(error) => error,
            other => io::Error::new(other.kind(), other),
        }
    }
}
