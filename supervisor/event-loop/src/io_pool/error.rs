//! Why a task of a pool has no result.

use std::fmt;
use std::io;

/// Why a task has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum IoError {
    /// The queue was full when it was submitted. It did not run.
    Overloaded {
        /// The name of the pool.
        pool: &'static str,
    },
    /// It was not done by its deadline. It may still be running.
    TimedOut {
        /// The name of the pool.
        pool: &'static str,
    },
    /// It was cancelled before it was done. It did not run, or ran only in part.
    Cancelled,
    /// The pool was shut down before the task was submitted, or dropped while it waited.
    ShutDown {
        /// The name of the pool.
        pool: &'static str,
    },
    /// It panicked with this message.
    Panicked(String),
    /// The file is not a regular file. Reading other kinds could go on for ever.
    NotRegularFile,
    /// The file is longer than the caller accepts.
    TooLarge {
        /// The longest file that the caller accepts, in bytes.
        max_bytes: usize,
    },
    /// The system reported this error.
    Io(io::Error),
}

impl fmt::Display for IoError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::Overloaded { pool } => {
                write!(formatter, "too many tasks wait for a thread of the pool {pool}")
            }
            IoError::TimedOut { pool } => {
                write!(formatter, "the task was not done in time by the pool {pool}")
            }
            IoError::Cancelled => write!(formatter, "the I/O task was cancelled"),
            IoError::ShutDown { pool } => write!(formatter, "the pool {pool} was shut down"),
            IoError::Panicked(message) => write!(formatter, "the I/O task panicked: {message}"),
            IoError::NotRegularFile => write!(formatter, "not a regular file"),
            IoError::TooLarge { max_bytes } => write!(formatter, "the file has more than {max_bytes} bytes"),
            IoError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IoError::Io(error) => Some(error),
            _ => None,
        }
    }
}
