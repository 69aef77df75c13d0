//! What comes into a batch, what is noted down of it, and what goes out.

use crate::input::{Input, Payload};
use crate::keeper::Printed;
use offload_protocol::nouns::Report;
use offload_supervisor::Finished;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

/// What is kept on disk of each result as soon as its job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its output, in a file of its own.
    pub(crate) in_files: bool,
    /// A line in the job log.
    pub(crate) in_log: bool,
}

/// A result and the number of its input, counted from 0.
#[derive(Clone, Debug)]
pub(crate) struct NumberedResult {
    /// The number.
    pub(crate) index: u64,
    /// The result.
    pub(crate) finished: Finished,
    /// What else is known of the job.
    pub(crate) notes: Notes,
}

/// What is noted down about a job of a batch, from its reading until its result is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The name of the file that is the input, if the input is one of a list of files.
    pub(crate) file: Option<PathBuf>,
    /// The name of the file for its output, and the file once it is there.
    pub(crate) output_name: Option<OsString>,
    /// See [`Notes::output_name`].
    pub(crate) output_file: Option<PathBuf>,
    /// The digest of that file, where there is a job log.
    pub(crate) output_digest: Option<String>,
    /// The digest of its input, where there is a job log.
    pub(crate) input_digest: Option<String>,
    /// When it was submitted.
    pub(crate) submitted: Option<SystemTime>,
    /// Its attempts that returned an error and were followed by another one.
    pub(crate) earlier: Vec<Report>,
    /// What is printed of it, if that is in the results of the job log.
    pub(crate) printed: Option<Printed>,
}

/// What became of an input that was loaded.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// Its job can be submitted.
    Job {
        /// The input.
        payload: Payload,
        /// Its digest, where there is a job log.
        digest: Option<String>,
    },
    /// Its job is done already: this is what is printed of it.
    Done(Printed),
    /// Its job is not to be done, and has no result.
    LeftOut,
}

impl From<Payload> for Loaded {
    fn from(payload: Payload) -> Loaded {
        Loaded::Job { payload, digest: None }
    }
}

/// An input as it comes from the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchInput {
    /// The input.
    pub(crate) input: Input,
    /// What is known of it from the start.
    pub(crate) notes: Notes,
}

impl From<Input> for BatchInput {
    fn from(input: Input) -> BatchInput {
        BatchInput { input, notes: Notes::default() }
    }
}
