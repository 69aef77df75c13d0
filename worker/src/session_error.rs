//! Why a session ended early, for whoever serves on a socket of their own.

use offload_protocol::codec::DecodeError;
use offload_protocol::frame::FrameError;
use offload_protocol::messages::{VERSION_MAJOR, VERSION_MINOR};
use std::fmt;
use std::io;

/// Why a session ended early: the supervisor broke the protocol, or the socket failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// The bytes that arrived are no valid frame.
    Frame(FrameError),
    /// A frame has no valid message for a worker.
    Decode(DecodeError),
    /// The supervisor speaks another version of the protocol.
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// A job for a task that this worker does not offer.
    UnknownTask(String),
    /// An input in a segment that this worker does not have, or outside of it.
    Segment(u32),
    /// A batch of so many jobs, which cannot be, or one within another.
    Batch(u32),
    /// The socket failed.
    Io(io::Error),
}

impl fmt::Display for SessionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("offload worker: ")?;
        match self {
            SessionError::Frame(error) => write!(formatter, "the supervisor broke the protocol: {error}"),
            SessionError::Decode(error) => write!(formatter, "the supervisor broke the protocol: {error}"),
            SessionError::Version { major, minor } => write!(
                formatter,
                "the supervisor speaks protocol {major}.{minor}, this worker {VERSION_MAJOR}.{VERSION_MINOR}: build both from \
                 the same release"
            ),
            SessionError::UnknownTask(name) => {
                write!(formatter, "the supervisor asked for task {name:?}, which is not offered")
            }
            SessionError::Segment(segment) => {
                write!(formatter, "the supervisor put an input into segment {segment}, where it cannot be")
            }
            SessionError::Batch(jobs) => {
                write!(formatter, "the supervisor sent a batch of {jobs} jobs where it cannot be")
            }
            SessionError::Io(error) => write!(formatter, "the socket to the supervisor failed: {error}"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SessionError::Frame(error) => Some(error),
            SessionError::Decode(error) => Some(error),
            SessionError::Io(error) => Some(error),
            _ => None,
        }
    }
}
