//! The streams that one session reads: a front is told that there is something to take, and takes it as fast as its client
//! does. So a client that stops reading stops its tasks, and nothing else.
//!
//! ```text
//!   submit with `stream` ---> Reply::News ---> next_part: Part, Part, ... Nothing ---> Reply::News ---> next_part: ... End
//! ```

use super::Reply;
use super::reply::{HeldPart, Report, StreamPart};
use super::session::OpenSession;
use crate::hub::{StreamItem, StreamReader};
use crate::job::Job;
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The streams of one session, by the tickets of their requests.
pub(super) type Streams = BTreeMap<u64, (JobId, StreamReader)>;

impl OpenSession {
    /// Submits a job of this session whose output it reads in parts.
    pub(super) fn submit_stream(
        self: &Rc<OpenSession>,
        ticket: u64,
        job: Job,
        detach: bool,
    ) -> Result<JobId, ErrorDetail> {
        let bad = |message: &str| Err(ErrorDetail::new(OutcomeCode::BadRequest, message));
        if detach {
            return bad("nothing of a stream is kept, so its job cannot be detached");
        }
        if self.streams.borrow().contains_key(&ticket) {
            return bad("the ticket is that of another stream, which has not ended");
        }
        let me = Rc::downgrade(self);
        let on_news = Box::new(move || {
            if let Some(open) = me.upgrade() {
                open.reply(ticket, Reply::News);
            }
        });
        let submitted = self.service.hub().borrow_mut().submit_stream(job, Some(self.id), on_news);
        let (accepted, reader) = submitted.map_err(|refused| refused.error)?;
        self.streams.borrow_mut().insert(ticket, (accepted.job, reader));
        self.await_stream(ticket, accepted.job);
        Ok(accepted.job)
    }

    /// Takes what comes next in the stream of this ticket. Nothing if there is no such stream.
    pub(super) fn next_part(&self, ticket: u64) -> StreamPart {
        let mut streams = self.streams.borrow_mut();
        let Some((job, reader)) = streams.get(&ticket) else { return StreamPart::Nothing };
        let (job, item) = (*job, self.service.hub().borrow_mut().next_part(reader));
        match item {
            StreamItem::Nothing => StreamPart::Nothing,
            StreamItem::Part(bytes, held) => StreamPart::Part(HeldPart { bytes, _held: held }),
            StreamItem::End(finished, held) => {
                streams.remove(&ticket);
                self.end_stream(job);
                StreamPart::End(Box::new(Report { finished, collection: None, _held: held }))
            }
        }
    }
}
