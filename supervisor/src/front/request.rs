//! The requests of clients, as values that do not depend on the buffer from which they were read.

use super::files::{ArrivingFiles, NOT_ITS_JOB, TakenFile};
use crate::input_file::InputFile;
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::{Announced, Frame, owned_payload};
use offload_protocol::messages::{DeadLetterAction, Operation, PARTS, SubmitOptions, ToSupervisor, View};
use offload_protocol::nouns::MediaType;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const PAYLOAD_WITHOUT_JOB: &str = "a payload with a message that is not a job";

/// One request. `ticket` is the number that the client chose for it; the answers repeat it.
///
/// Names of tasks and jobs are as the client sent them, at most as long as a header. Expect unknown names; they may
/// contain any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Submit a job.
    Submit {
        /// The client's number for it.
        ticket: u64,
        /// The task to run.
        task: String,
        /// What the payload is.
        media_type: MediaType,
        /// The client does not want a `Finished` message.
        detach: bool,
        /// Options of the job.
        options: SubmitOptions,
        /// The input; empty if it is a file.
        payload: Bytes,
        /// The file that is the input, if it is one.
        file: Option<SubmittedFile>,
    },
    /// Answer when the job has ended.
    Wait {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Answer how the job ended, if it has ended.
    Result {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Cancel the job.
    Cancel {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Show a view.
    Show {
        /// The client's number for it.
        ticket: u64,
        /// Which view.
        view: View,
    },
    /// Graceful shutdown: accept no more jobs, finish the accepted ones, then end.
    Drain {
        /// The client's number for it.
        ticket: u64,
        /// After this time the jobs that have not ended are cancelled.
        limit: Option<Duration>,
    },
    /// Immediate shutdown: cancel all jobs and end.
    Stop {
        /// The client's number for it.
        ticket: u64,
    },
    /// Explain why the job is waiting, retried or dead.
    Explain {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Show, delete or retry a dead letter.
    Dead {
        /// The client's number for it.
        ticket: u64,
        /// Which of these.
        action: DeadLetterAction,
        /// The job's public id.
        job: String,
    },
    /// Read the configuration again and replace the workers.
    Reload {
        /// The client's number for it.
        ticket: u64,
    },
    /// Show some rows of a list.
    Page {
        /// The client's number for it.
        ticket: u64,
        /// Which list.
        view: View,
        /// The last row of the previous page, as that page named it. Empty for the first page.
        after: String,
        /// The maximum number of rows.
        limit: u32,
        /// Of the jobs, only those with this label. Empty for all.
        label: String,
    },
    /// What somebody asks for who operates the supervisor.
    Operate {
        /// The client's number for it.
        ticket: u64,
        /// What it is.
        operation: Operation,
    },
    /// A job whose payload exceeds the limit. The payload is skipped as it arrives. The answer is `too_large`.
    TooLarge {
        /// The client's number for it.
        ticket: u64,
        /// Length of the payload, in bytes.
        length: usize,
    },
    /// A job for whose payload there was no room. The payload is skipped as it arrives. The answer is `overloaded`.
    NoRoom {
        /// The client's number for it.
        ticket: u64,
        /// Length of the payload, in bytes.
        length: usize,
    },
}

/// A file that a client has sent as the input of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmittedFile {
    /// It is open.
    Open(Arc<InputFile>),
    /// It has not the length that the client has stated, or there was no room for its descriptor. The client is to send the
    /// bytes.
    Unusable,
}

impl Request {
    /// The request in `frame`, or a sentence that says how the frame breaks the protocol.
    ///
    /// `None` if it only announces the file of the next one.
    pub(super) fn from_frame(
        frame: Frame<'_>,
        payload_max: usize,
        files: &mut ArrivingFiles,
    ) -> Result<Option<Request>, String> {
        let message: ToSupervisor = codec::decode(&frame.header).map_err(|error| error.to_string())?;
        match files.take(&message, frame.payload.len())? {
            TakenFile::Announced => Ok(None),
            TakenFile::None => Request::of(message, frame.payload, payload_max, None).map(Some),
            TakenFile::OfJob(file) => Request::of(message, frame.payload, payload_max, Some(file)).map(Some),
        }
    }

    fn of(
        message: ToSupervisor<'_>,
        payload: Cow<'_, [u8]>,
        payload_max: usize,
        file: Option<SubmittedFile>,
    ) -> Result<Request, String> {
        let is_submit = matches!(message, ToSupervisor::Submit { .. });
        if !is_submit && !payload.is_empty() {
            return Err(PAYLOAD_WITHOUT_JOB.to_owned());
        }
        Ok(match message {
            ToSupervisor::Hello { .. } => return Err("a second hello".to_owned()),
            ToSupervisor::InputFile { .. } => return Err(NOT_ITS_JOB.to_owned()),
            ToSupervisor::Submit { ticket, .. } if payload.len() > payload_max => {
                Request::TooLarge { ticket, length: payload.len() }
            }
            ToSupervisor::Submit { ticket, task, media_type, detach, options } => Request::Submit {
                ticket,
                task: task.to_owned(),
                media_type,
                detach,
                options,
                payload: owned_payload(payload),
                file,
            },
            ToSupervisor::Wait { ticket, job } => Request::Wait { ticket, job: job.to_owned() },
            ToSupervisor::Result { ticket, job } => Request::Result { ticket, job: job.to_owned() },
            ToSupervisor::Cancel { ticket, job } => Request::Cancel { ticket, job: job.to_owned() },
            ToSupervisor::Show { ticket, view } => Request::Show { ticket, view },
            ToSupervisor::Drain { ticket } => Request::Drain { ticket, limit: None },
            ToSupervisor::DrainWithin { ticket, limit_ms } => {
                Request::Drain { ticket, limit: Some(Duration::from_millis(limit_ms)) }
            }
            ToSupervisor::Stop { ticket } => Request::Stop { ticket },
            ToSupervisor::Explain { ticket, job } => Request::Explain { ticket, job: job.to_owned() },
            ToSupervisor::Dead { ticket, action, job } => {
                Request::Dead { ticket, action, job: job.to_owned() }
            }
            ToSupervisor::Reload { ticket } => Request::Reload { ticket },
            ToSupervisor::Operate { ticket, operation } => Request::Operate { ticket, operation },
            ToSupervisor::Page { ticket, view, after, limit, label } => {
                Request::Page { ticket, view, after: after.to_owned(), limit, label: label.to_owned() }
            }
        })
    }

    /// The capability that both ends have if this is asked for, and what it is for; 0 if it needs none.
    pub(super) fn capability(&self) -> (u64, &'static str) {
        match self {
            Request::Submit { options, .. } if options.stream => (PARTS, "a stream"),
            Request::Operate { operation, .. } => (operation.capability(), operation.name()),
            _ => (0, ""),
        }
    }

    /// Whether the answer may be long, or take long to make. Such requests are passed on one at a time.
    pub fn is_costly(&self) -> bool {
        match self {
            Request::Submit { .. }
            | Request::Cancel { .. }
            | Request::TooLarge { .. }
            | Request::NoRoom { .. } => false,
            Request::Wait { .. }
            | Request::Result { .. }
            | Request::Show { .. }
            | Request::Page { .. }
            | Request::Drain { .. }
            | Request::Stop { .. }
            | Request::Explain { .. }
            | Request::Dead { .. }
            | Request::Operate { .. }
            | Request::Reload { .. } => true,
        }
    }

    /// Whether this is a request to look after the supervisor. Such requests are answered even when there is no room
    /// for other clients.
    pub fn is_control(&self) -> bool {
        match self {
            Request::Submit { .. }
            | Request::Wait { .. }
            | Request::Result { .. }
            // It submits a job.
            | Request::Dead { action: DeadLetterAction::Retry, .. }
            | Request::TooLarge { .. }
            | Request::NoRoom { .. } => false,
            Request::Cancel { .. }
            | Request::Show { .. }
            | Request::Page { .. }
            | Request::Drain { .. }
            | Request::Stop { .. }
            | Request::Explain { .. }
            | Request::Dead { action: DeadLetterAction::Drop | DeadLetterAction::Show, .. }
            | Request::Operate { .. }
            | Request::Reload { .. } => true,
        }
    }

    /// The number that the client chose for this request.
    pub fn ticket(&self) -> u64 {
        match self {
            Request::Submit { ticket, .. }
            | Request::Wait { ticket, .. }
            | Request::Result { ticket, .. }
            | Request::Cancel { ticket, .. }
            | Request::Show { ticket, .. }
            | Request::Page { ticket, .. }
            | Request::Drain { ticket, .. }
            | Request::Stop { ticket }
            | Request::Explain { ticket, .. }
            | Request::Dead { ticket, .. }
            | Request::Operate { ticket, .. }
            | Request::Reload { ticket }
            | Request::TooLarge { ticket, .. }
            | Request::NoRoom { ticket, .. } => *ticket,
        }
    }
}

/// The ticket of the job whose large payload is announced, or a sentence that says how the announcement breaks the
/// protocol.
pub(super) fn ticket_of(announced: &Announced<'_>) -> Result<u64, String> {
    match codec::decode(announced.header) {
        Ok(ToSupervisor::Submit { ticket, .. }) => Ok(ticket),
        Ok(_) => Err(PAYLOAD_WITHOUT_JOB.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
