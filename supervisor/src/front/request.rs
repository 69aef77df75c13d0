//! The requests of clients, as values that do not depend on the buffer that they were read from.

use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::{Announced, Frame, owned_payload};
use offload_protocol::messages::{DeadDeed, SubmitOptions, ToSupervisor, View};
use offload_protocol::nouns::ContentType;
use std::time::Duration;

const PAYLOAD_WITHOUT_JOB: &str = "a payload with a message that is not a job";

/// One request. `ticket` is the client's own number for it, to be repeated in the answers.
///
/// Names of tasks and jobs are as the client sent them, at most a header long: unknown ones are to be expected, and
/// they may contain anything that is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A job.
    Submit {
        /// The client's number for it.
        ticket: u64,
        /// The task to run.
        task: String,
        /// What the payload is.
        content: ContentType,
        /// The client does not want `Finished`.
        detach: bool,
        /// How it wants to be treated.
        options: SubmitOptions,
        /// The input.
        payload: Bytes,
    },
    /// Tell when the job has ended.
    Wait {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Tell how the job ended, if it has.
    Result {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// End the job.
    Cancel {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Show something.
    Show {
        /// The client's number for it.
        ticket: u64,
        /// What.
        view: View,
    },
    /// Take no more jobs, finish those there are, end.
    Drain {
        /// The client's number for it.
        ticket: u64,
        /// After this time what is not done is cancelled.
        limit: Option<Duration>,
    },
    /// End now.
    Stop {
        /// The client's number for it.
        ticket: u64,
    },
    /// Why is the job waiting, retried or dead?
    Explain {
        /// The client's number for it.
        ticket: u64,
        /// The job's public id.
        job: String,
    },
    /// Do something with a dead letter.
    Dead {
        /// The client's number for it.
        ticket: u64,
        /// What.
        deed: DeadDeed,
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
        /// Where the page before ended, as it said; empty for the first one.
        after: String,
        /// Most rows.
        limit: u32,
    },
    /// A job whose payload is over the limit. It is skipped as it comes; the answer is `too_large`.
    TooLarge {
        /// The client's number for it.
        ticket: u64,
        /// Length of the payload, in bytes.
        length: usize,
    },
    /// A job whose payload was not granted. It is skipped as it comes; the answer is `overloaded`.
    NoRoom {
        /// The client's number for it.
        ticket: u64,
        /// Length of the payload, in bytes.
        length: usize,
    },
}

impl Request {
    /// The request in `frame`, or in which way the frame breaks the protocol.
    pub(super) fn from_frame(frame: Frame<'_>, payload_max: usize) -> Result<Request, String> {
        let message: ToSupervisor = codec::decode(&frame.header).map_err(|error| error.to_string())?;
        let is_submit = matches!(message, ToSupervisor::Submit { .. });
        if !is_submit && !frame.payload.is_empty() {
            return Err(PAYLOAD_WITHOUT_JOB.to_owned());
        }
        Ok(match message {
            ToSupervisor::Hello { .. } => return Err("a second hello".to_owned()),
            ToSupervisor::Submit { ticket, .. } if frame.payload.len() > payload_max => {
                Request::TooLarge { ticket, length: frame.payload.len() }
            }
            ToSupervisor::Submit { ticket, task, content, detach, options } => Request::Submit {
                ticket,
                task: task.to_owned(),
                content,
                detach,
                options,
                payload: owned_payload(frame.payload),
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
            ToSupervisor::Dead { ticket, deed, job } => Request::Dead { ticket, deed, job: job.to_owned() },
            ToSupervisor::Reload { ticket } => Request::Reload { ticket },
            ToSupervisor::Page { ticket, view, after, limit } => {
                Request::Page { ticket, view, after: after.to_owned(), limit }
            }
        })
    }

    /// Whether the answer may be long, or take long to make. Such requests are handed over one at a time.
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
            | Request::Reload { .. } => true,
        }
    }

    /// Whether those who look after the supervisor ask for it: also while there is no room for other clients.
    pub fn is_control(&self) -> bool {
        match self {
            Request::Submit { .. }
            | Request::Wait { .. }
            | Request::Result { .. }
            // It submits a job.
            | Request::Dead { deed: DeadDeed::Retry, .. }
            | Request::TooLarge { .. }
            | Request::NoRoom { .. } => false,
            Request::Cancel { .. }
            | Request::Show { .. }
            | Request::Page { .. }
            | Request::Drain { .. }
            | Request::Stop { .. }
            | Request::Explain { .. }
            | Request::Dead { deed: DeadDeed::Drop | DeadDeed::Show, .. }
            | Request::Reload { .. } => true,
        }
    }

    /// The client's number for it.
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
            | Request::Reload { ticket }
            | Request::TooLarge { ticket, .. }
            | Request::NoRoom { ticket, .. } => *ticket,
        }
    }
}

/// The ticket of the job that a large payload is announced for, or in which way that breaks the protocol.
pub(super) fn ticket_of(announced: &Announced<'_>) -> Result<u64, String> {
    match codec::decode(announced.header) {
        Ok(ToSupervisor::Submit { ticket, .. }) => Ok(ticket),
        Ok(_) => Err(PAYLOAD_WITHOUT_JOB.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
