//! What was sent to a worker and is not written: of that it cannot know, whatever it says.

use super::Hub;
use super::crew::Member;
use crate::workers::Flushed;
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::messages::ToWorker;
use std::io;

impl Member {
    /// Sends a message, unless nothing is sent to it any more.
    pub(super) fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) {
        if self.is_condemned {
            return;
        }
        if let ToWorker::Run { job, .. } = message {
            let start = self.process.written() + self.process.unsent() as u64;
            self.unwritten.push_back((JobId(*job), start));
        }
        let sent = self.process.send(message, payload);
        sent.expect("what is sent to workers fits on the wire");
    }

    /// Writes once, and takes note of what is written.
    pub(super) fn flush(&mut self) -> io::Result<Flushed> {
        let flushed = self.process.flush();
        let written = self.process.written();
        while self.unwritten.pop_front_if(|(_, start)| *start < written).is_some() {}
        flushed
    }

    /// Throws away what is not written. Returns the jobs of which nothing was.
    pub(super) fn condemn(&mut self) -> Vec<JobId> {
        self.is_condemned = true;
        self.process.discard_unsent();
        self.unwritten.iter().map(|(job, _)| *job).collect()
    }

    /// Whether it was given this job, and cannot know of it.
    pub(super) fn has_not_seen(&self, job: JobId) -> bool {
        self.unwritten.iter().any(|(unwritten, _)| *unwritten == job)
    }
}

impl Hub {
    /// The event; but nobody can begin what he does not know of.
    pub(super) fn if_it_can_be(&self, event: Event) -> Event {
        let (Event::Started { worker, job, .. }
        | Event::Finished { worker, job, .. }
        | Event::Failed { worker, job, .. }
        | Event::Progress { worker, job, .. }
        | Event::Checkpoint { worker, job, .. }
        | Event::Yielded { worker, job, .. }) = event
        else {
            return event;
        };
        match self.crew.has_not_seen(worker, job) {
            true => {
                Event::Violation { worker, message: "it speaks of a job that was not sent to it".to_owned() }
            }
            false => event,
        }
    }
}
