//! The answers that a front gets. A reply is a typed value; the front turns it into bytes.

use super::Service;
use super::reload::Ignored;
use crate::hub::OutputCharge;
use crate::job::Finished;
use crate::views::{Candidates, DeadView, ExplanationView, PausedView, PrintedPage, Status, TaskView};
use bytes::Bytes;
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use serde::Serialize;
use std::fmt;

/// One answer to one request.
#[derive(Debug)]
pub enum Reply {
    /// The job is accepted. Unless it was submitted as detached, a [`Reply::Report`] follows when it ends.
    Accepted {
        /// The job's public id.
        job: String,
    },
    /// How a job ended, and its output.
    Report(Box<Report>),
    /// There is something to take from the stream of this request ([`Session::next_part`](super::Session::next_part)): take
    /// until there is nothing, as fast as the client takes it.
    News,
    /// Any other answer, ready to be written as JSON.
    Document(Box<Document>),
    /// The job whose input is a file is not accepted: the client is to submit it again with the bytes.
    SendInput,
    /// The request was refused, or it failed. The error has a code, a sentence, and perhaps a time after which to try
    /// again.
    Refusal(ErrorDetail),
}

/// How a job ended. Until this is dropped, the memory of the output is charged to the client that submitted the job. A
/// front that keeps the output longer charges it to the session's own [`Account`](super::Account) first.
#[derive(Debug)]
pub struct Report {
    /// The outcome and the output.
    pub finished: Box<Finished>,
    /// To be [completed](Collection::complete) when the client has received the last byte of the output. None if the
    /// result is not kept.
    pub collection: Option<Collection>,
    pub(super) _held: OutputCharge,
}

/// What a client that reads a stream is sent next.
#[derive(Debug)]
pub enum StreamPart {
    /// Nothing for now. [`Reply::News`] will come.
    Nothing,
    /// A part of the output.
    Part(HeldPart),
    /// The end: how the job ended, and what its task returned behind all parts.
    End(Box<Report>),
}

/// A part of an output. Until this is dropped, its memory is charged to the client that reads. A front that keeps the part
/// longer charges it to the session's own [`Account`](super::Account) first.
#[derive(Debug)]
pub struct HeldPart {
    /// The part; not empty.
    pub bytes: Bytes,
    pub(super) _held: OutputCharge,
}

/// A kept result that is being sent to a client. If it is dropped without [`Collection::complete`], because the client
/// went away, the result stays for the next client that asks.
#[derive(Clone)]
pub struct Collection {
    service: Service,
    job: JobId,
}

/// An answer that is written as one JSON document: the fields of the variant, without its name.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Document {
    /// The state of the supervisor.
    Status(Box<Status>),
    /// The tasks that workers offer.
    Tasks(Vec<TaskView>),
    /// Lines that workers have printed.
    Printed(PrintedPage),
    /// What is paused now.
    Paused {
        /// All of it.
        paused: PausedView,
    },
    /// The jobs that a shortened id can stand for.
    Candidates(Candidates),
    /// The state of a job and the reasons for it.
    Explanation(ExplanationView),
    /// A dead letter.
    Letter(DeadView),
    /// A dead letter was deleted.
    Dropped {
        /// The job that died.
        job: String,
        /// Always true.
        dropped: bool,
    },
    /// The job of a dead letter was submitted again.
    Retried {
        /// The job that died.
        dead: String,
        /// The public id of the new job.
        job: String,
    },
    /// The answer to a request to cancel a job.
    Cancelled {
        /// The job's public id.
        job: String,
        /// Whether the job had not ended when it was cancelled.
        cancelled: bool,
        /// The job's outcome, if it has ended by now.
        state: Option<&'static str>,
    },
    /// The supervisor has drained or was stopped. This is the last answer, to clients that asked for the end.
    Ended {
        /// Always `stopped`.
        state: &'static str,
        /// Jobs that were cancelled because they had not ended in time.
        cancelled: u64,
        /// Kept results that nobody had collected and that are lost now.
        uncollected: usize,
    },
    /// The configuration was reloaded and the workers were replaced.
    Reloaded {
        /// Always true.
        reloaded: bool,
        /// Settings that were read but are not in effect.
        ignored: Vec<Ignored>,
    },
}

impl Collection {
    pub(super) fn new(service: Service, job: JobId) -> Collection {
        Collection { service, job }
    }

    /// The client has received the whole output, so the result need not be kept any longer.
    pub fn complete(self) {
        self.service.hub().borrow_mut().collected(self.job);
    }

    /// Whether the result takes no more room than its client may have. A result that nobody has asked to keep need not stay
    /// otherwise: the jobs of others would wait until it is gone.
    pub fn is_within_its_share(&self) -> bool {
        self.service.hub().borrow().is_within_its_share(self.job)
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Collection").field(&self.job).finish()
    }
}

impl Reply {
    pub(super) fn report(
        finished: Box<Finished>,
        collection: Option<Collection>,
        held: OutputCharge,
    ) -> Reply {
        Reply::Report(Box::new(Report { finished, collection, _held: held }))
    }

    pub(super) fn document(document: Document) -> Reply {
        Reply::Document(Box::new(document))
    }

    pub(super) fn refusal(code: OutcomeCode, message: String) -> Reply {
        Reply::Refusal(ErrorDetail::new(code, message))
    }
}

impl Document {
    /// The document as JSON.
    ///
    /// # Panics
    /// Never: views have string keys and no numbers out of range.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("views have string keys and no numbers out of range")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_written_without_its_name_and_in_the_order_of_its_fields() {
        let cancelled = Document::Cancelled { job: "01".to_owned(), cancelled: true, state: Some("ok") };
        assert_eq!(cancelled.to_json(), br#"{"job":"01","cancelled":true,"state":"ok"}"#);
        let unknown = Document::Cancelled { job: "01".to_owned(), cancelled: false, state: None };
        assert_eq!(unknown.to_json(), br#"{"job":"01","cancelled":false,"state":null}"#);
        assert_eq!(Document::Tasks(Vec::new()).to_json(), b"[]");
    }
}
