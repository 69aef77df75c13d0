//! Errors of the client.

use offload_protocol::codec::EncodeError;
use offload_protocol::greeting::Greeting;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why connecting failed.
#[derive(Debug)]
pub enum ConnectError {
    /// No supervisor listens at the socket.
    NoSupervisor {
        /// The socket.
        socket: PathBuf,
    },
    /// A supervisor listens at the socket and does not accept us now: it is overloaded or stopped.
    Busy {
        /// The socket.
        socket: PathBuf,
        /// What the supervisor did not do.
        what: &'static str,
    },
    /// The supervisor refused this client, for the reason that it gave, or this client refused the supervisor.
    /// [`Unsupported`](offload_protocol::nouns::OutcomeCode::Unsupported): it speaks another version of the protocol.
    Refused(ErrorDetail),
    /// Something else failed.
    Io {
        /// The socket.
        socket: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl ConnectError {
    pub(super) fn of(socket: &Path, error: io::Error) -> ConnectError {
        let socket = socket.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ConnectError::NoSupervisor { socket }
            }
            io::ErrorKind::WouldBlock => ConnectError::Busy { socket, what: "it accepts nobody now" },
            io::ErrorKind::TimedOut => ConnectError::Busy { socket, what: "it does not answer" },
            _ => ConnectError::Io { socket, error },
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::NoSupervisor { socket } => {
                write!(formatter, "no supervisor at {}", socket.display())
            }
            ConnectError::Busy { socket, what } => {
                write!(formatter, "the supervisor at {} is busy: {what}", socket.display())
            }
            ConnectError::Refused(reason) => write!(formatter, "the supervisor refused: {}", reason.message),
            ConnectError::Io { socket, error } => {
                write!(formatter, "cannot connect to {}: {error}", socket.display())
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Why a request could not be sent or an answer could not be received.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection has ended. The outcome of jobs without an answer is unknown.
    Closed {
        /// The reason, if the supervisor gave one.
        reason: Option<ErrorDetail>,
    },
    /// The payload exceeds the supervisor's limit. Nothing was sent.
    TooLarge {
        /// Its length, in bytes.
        length: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The request is longer than the protocol allows. Nothing was sent.
    Encode(EncodeError),
    /// The supervisor sent something that breaks the protocol.
    Protocol(String),
    /// The socket failed.
    Io(io::Error),
}

impl ClientError {
    pub(super) fn protocol(error: impl fmt::Display) -> ClientError {
        ClientError::Protocol(error.to_string())
    }

    /// For a welcome of another major version: the connection is of no use.
    pub(super) fn of_another_version(greeting: Greeting) -> ClientError {
        let reason = ErrorDetail::new(OutcomeCode::Unsupported, greeting.foreign_supervisor());
        ClientError::Closed { reason: Some(reason) }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Closed { reason: Some(reason) } => {
                write!(formatter, "the supervisor closed the connection: {}", reason.message)
            }
            ClientError::Closed { reason: None } => write!(formatter, "the supervisor closed the connection"),
            ClientError::TooLarge { length, max } => {
                write!(formatter, "payload of {length} bytes, the supervisor takes {max} (its max_payload)")
            }
            ClientError::Encode(error) => write!(formatter, "the request cannot be sent: {error}"),
            ClientError::Protocol(reason) => write!(formatter, "the supervisor broke the protocol: {reason}"),
            ClientError::Io(error) => write!(formatter, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Encode(error) => Some(error),
            ClientError::Io(error) => Some(error),
            _ => None,
        }
    }
}
