//! What a front may ask for, and what it is answered: the one way from whoever talks to clients to the hub. A reply is a value
//! with a type; which bytes it becomes is the front's affair, so another front asks the same and needs no other hub.
//!
//! ```text
//!   a front ---> Service ---> hub        submit, wait, leave, result, cancel, explain, show, page, dead letters
//!      ^            |
//!      '-- Reply: Report | Page | Document | Refusal
//! ```
//!
//! Jobs are named by their public ids, as clients know them. Nothing here waits: the end of a job comes to a [`Listener`].

use crate::front::Peer;
use crate::hub::{HubRef, Listener, Page};
use crate::job::{Finished, Job};
use crate::views::{DeadView, ExplanationView, IoPoolView, Status, TaskView};
use offload_core::ids::JobId;
use offload_event_loop::io_pool::IoPool;
use offload_protocol::messages::{DeadDeed, View};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use serde::Serialize;
use std::rc::Rc;

/// See the module's documentation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    hub: HubRef,
    io_pool: Rc<IoPool>,
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// How a job ended, and what it returned. Whoever has given all of it away says so, with `Hub::collected`.
    Report {
        /// Which.
        job: JobId,
        /// How.
        finished: Box<Finished>,
    },
    /// Some rows of a list.
    Page(Page),
    /// Something else that can be written down.
    Document(Box<Document>),
    /// It is not done, and why.
    Refusal(ErrorDetail),
}

/// What can be written down. It is written without its name.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Document {
    /// How the supervisor is.
    Status(Status),
    /// What can be asked for.
    Tasks(Vec<TaskView>),
    /// Why a job is where it is.
    Explanation(ExplanationView),
    /// A dead letter.
    Letter(DeadView),
    /// A dead letter was dropped.
    Dropped {
        /// The job that died.
        job: String,
        /// It was.
        dropped: bool,
    },
    /// The job of a dead letter is tried again.
    Retried {
        /// The job that died.
        dead: String,
        /// The one that it is now.
        job: String,
    },
    /// A job was to be cancelled.
    Cancelled {
        /// Which.
        job: String,
        /// It had not ended.
        cancelled: bool,
        /// How it has ended by now, if it has.
        state: Option<&'static str>,
    },
}

/// A job that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) job: JobId,
    /// It was there already, under the same key.
    pub(crate) is_known: bool,
}

/// A job of which something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has not ended.
    Live(JobId),
    /// It has.
    Ended(JobId),
}

impl Service {
    pub(crate) fn new(hub: HubRef, io_pool: Rc<IoPool>) -> Service {
        Service { hub, io_pool }
    }

    /// Submits a job. Its output is kept for whoever asks for it if nobody listens.
    ///
    /// # Errors
    /// Why it is refused; then the listener is told nothing.
    pub(crate) fn submit(&self, job: Job, listener: Option<Listener>) -> Result<Taken, ErrorDetail> {
        let keeps_output = listener.is_none();
        let accepted = self.hub.borrow_mut().submit(job, keeps_output, listener);
        let accepted = accepted.map_err(|refused| refused.error)?;
        Ok(Taken { job: accepted.job, is_known: accepted.is_known })
    }

    /// The public id of a job.
    pub(crate) fn name(&self, job: JobId) -> String {
        self.hub.borrow().name(job)
    }

    /// The job of this name.
    ///
    /// # Errors
    /// Why nothing is known of it.
    pub(crate) fn find(&self, name: &str) -> Result<Found, ErrorDetail> {
        let hub = self.hub.borrow();
        match hub.find(name) {
            Some(job) if hub.is_live(job) => Ok(Found::Live(job)),
            Some(job) if hub.look_up(job).is_some() => Ok(Found::Ended(job)),
            _ => Err(ErrorDetail::new(OutcomeCode::NoSuchJob, hub.why_unknown(name))),
        }
    }

    /// Has a job that has not ended tell this listener how it ends.
    ///
    /// # Errors
    /// If too many wait for it.
    pub(crate) fn wait(&self, job: JobId, listener: Listener) -> Result<(), ErrorDetail> {
        let listens = self.hub.borrow_mut().listen(job, listener);
        listens.map_err(|_| ErrorDetail::new(OutcomeCode::Overloaded, "too many wait for this job"))
    }

    /// This connection does not wait for a job any more.
    pub(crate) fn leave(&self, job: JobId, connection: u64) {
        self.hub.borrow_mut().leave(job, connection);
    }

    /// How a job ended.
    pub(crate) fn result(&self, name: &str) -> Reply {
        match self.find(name) {
            Ok(Found::Ended(job)) => self.result_of(job),
            Ok(Found::Live(_)) => Reply::refusal(
                OutcomeCode::Unavailable,
                "the job has not ended; `offload wait` waits for it".to_owned(),
            ),
            Err(error) => Reply::Refusal(error),
        }
    }

    fn result_of(&self, job: JobId) -> Reply {
        let hub = self.hub.borrow();
        let found = hub.look_up(job).map(|record| record.finished().ok_or_else(|| record.why_no_output()));
        match found {
            Some(Ok(finished)) => Reply::Report { job, finished: Box::new(finished) },
            Some(Err(why)) => Reply::refusal(OutcomeCode::NoSuchJob, why),
            None => Reply::refusal(OutcomeCode::NoSuchJob, hub.why_unknown(&hub.name(job))),
        }
    }

    /// Ends a job.
    pub(crate) fn cancel(&self, name: &str) -> Reply {
        let (job, was_live) = match self.find(name) {
            Ok(Found::Live(job)) => (job, true),
            Ok(Found::Ended(job)) => (job, false),
            Err(error) => return Reply::Refusal(error),
        };
        self.hub.borrow_mut().cancel(job);
        let state = self.hub.borrow().look_up(job).map(|record| record.report.outcome.as_str());
        Reply::document(Document::Cancelled { job: name.to_owned(), cancelled: was_live, state })
    }

    /// Why a job is where it is.
    pub(crate) fn explain(&self, name: &str) -> Reply {
        let hub = self.hub.borrow();
        match hub.find(name).and_then(|job| hub.explain(job)) {
            Some(explanation) => Reply::document(Document::Explanation(explanation)),
            None => Reply::refusal(OutcomeCode::NoSuchJob, hub.why_unknown(name)),
        }
    }

    /// A document, or the first page of a list.
    pub(crate) fn show(&self, view: View) -> Reply {
        match view {
            View::Status => Reply::document(Document::Status(self.hub.borrow().status(self.io_pool_view()))),
            View::Tasks => Reply::document(Document::Tasks(self.hub.borrow().tasks())),
            View::Workers | View::Jobs | View::Dead => self.page(view, "", usize::MAX),
        }
    }

    /// Some rows of a list, after the place where the page before ended, as it said; empty for the first one.
    pub(crate) fn page(&self, view: View, after: &str, most: usize) -> Reply {
        match self.hub.borrow().page(view, after, most) {
            Some(page) => Reply::Page(page),
            None => Reply::refusal(
                OutcomeCode::BadRequest,
                "there is no such list, or no such row in it from which it could go on".to_owned(),
            ),
        }
    }

    /// Does something with a dead letter. What is tried again is a job of this client, by name and process.
    pub(crate) fn dead(&self, deed: DeadDeed, name: &str, asker: (&str, Peer)) -> Reply {
        let letter = {
            let hub = self.hub.borrow();
            hub.find(name).and_then(|job| Some((job, hub.dead_letter(job)?)))
        };
        let Some((job, letter)) = letter else {
            let message =
                "there is no dead letter of this job; `offload dead list` shows those that there are";
            return Reply::refusal(OutcomeCode::NoSuchJob, message.to_owned());
        };
        match deed {
            DeadDeed::Show => Reply::document(Document::Letter(letter)),
            DeadDeed::Drop => {
                self.hub.borrow_mut().drop_dead_letter(job);
                Reply::document(Document::Dropped { job: name.to_owned(), dropped: true })
            }
            DeadDeed::Retry => self.retry(job, name, asker),
        }
    }

    fn retry(&self, job: JobId, name: &str, asker: (&str, Peer)) -> Reply {
        let retried = self.hub.borrow_mut().retry_dead_letter(job, asker);
        match retried {
            Some(Ok(accepted)) => {
                let job = self.name(accepted.job);
                Reply::document(Document::Retried { dead: name.to_owned(), job })
            }
            Some(Err(refused)) => Reply::Refusal(refused.error),
            None => Reply::refusal(OutcomeCode::NoSuchJob, self.hub.borrow().why_unknown(name)),
        }
    }

    fn io_pool_view(&self) -> IoPoolView {
        let stats = self.io_pool.stats();
        IoPoolView { threads: stats.threads, busy: stats.busy, queued: stats.queued, stuck: stats.stuck }
    }
}

impl Reply {
    fn document(document: Document) -> Reply {
        Reply::Document(Box::new(document))
    }

    fn refusal(code: OutcomeCode, message: String) -> Reply {
        Reply::Refusal(ErrorDetail::new(code, message))
    }
}

impl Document {
    /// The document as JSON.
    ///
    /// # Panics
    /// Never: views have string keys and no numbers out of range.
    pub(crate) fn to_json(&self) -> Vec<u8> {
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
