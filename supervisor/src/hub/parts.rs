//! Outputs in parts: those that are collected for one answer, and those that wait for the reader of a stream. What is done
//! with a part, and when its worker may send more, is decided by the core (`offload_core::parts`).
//!
//! ```text
//!   Collect ---> one buffer for each job ---- the job has ended well ------------> in front of what the task returned
//!                     '---------------------- it failed, or is run again --------> dropped
//!   PassOn ----> the reader's queue, and the reader is called ---- next_part ----> Delivered: the core is told first
//!                     '---------------------- it is run again --------------------> dropped
//!   Finish ----> behind the parts in the same queue
//! ```
//!
//! While [`PARTS_APART_MAX`] parts wait for their reader, further ones are joined. Every part is charged to the job's client
//! until it is taken or dropped. A reader that is dropped has left: what comes for it is dropped too.

use super::holding::OutputCharge;
use super::live_jobs::{LiveJob, Subscriber};
use super::{Hub, Payload, RefusedJob};
use crate::job::{Finished, Job};
use crate::limits::PARTS_APART_MAX;
use crate::origin::Origin;
use bytes::{Bytes, BytesMut};
use offload_core::action::{Accepted, Ended};
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_event_loop::{Context, LoopHandle};
use offload_protocol::limits::PART_MAX;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The parts of a live job's output that are here.
pub(super) enum LiveParts {
    Collected(Vec<u8>),
    Stream {
        reader: Weak<Stream>,
        /// The client connection that reads.
        connection: Option<u64>,
        /// Bytes of the parts that came in this attempt.
        came: u64,
    },
}

/// Called on the event loop when there is something to take from a stream that was empty. A reader that is part of this program is
/// also called, at once, when the loop has ended before the job: then nothing more will come.
pub(crate) type OnNews = Box<dyn Fn()>;

/// The reader of a stream. Dropping it gives the stream up.
#[must_use = "dropping it gives the stream up"]
pub(crate) struct StreamReader(Rc<Stream>);

/// What a reader takes from its stream.
#[derive(Debug)]
pub(crate) enum StreamItem {
    /// There is nothing to take now. The reader will be called.
    Nothing,
    /// The next part. The client is charged for it until the second value is dropped.
    Part(Bytes, OutputCharge),
    /// The end of the stream: how the job ended, and what the task returned behind all parts.
    End(Box<Finished>, OutputCharge),
}

/// What is between the hub and the reader.
pub(super) struct Stream {
    job: Cell<Option<JobId>>,
    queue: RefCell<Queue>,
    on_news: OnNews,
    /// The reader is part of this program.
    own: Option<Origin>,
    site: &'static Location<'static>,
}

#[derive(Default)]
struct Queue {
    parts: VecDeque<(Bytes, OutputCharge)>,
    end: Option<(Box<Finished>, OutputCharge)>,
    /// The reader was called and has not found the queue empty since.
    is_told: bool,
}

impl Queue {
    /// Puts the part behind the last one that waits, as one with it, if many wait and both are no longer than one may be. So what is kept
    /// of a stream takes as much memory as it has bytes, however short its parts are.
    fn join(&mut self, part: &[u8]) -> bool {
        let is_crowded = self.parts.len() >= PARTS_APART_MAX;
        let fits = |last: &&mut (Bytes, OutputCharge)| last.0.len() + part.len() <= PART_MAX;
        let Some((last, held)) = self.parts.back_mut().filter(|_| is_crowded).filter(fits) else {
            return false;
        };
        // Nobody else has it, so it grows where it is.
        let whole = std::mem::take(last).try_into_mut();
        let mut joined = whole.unwrap_or_else(|shared| BytesMut::from(&*shared));
        joined.extend_from_slice(part);
        *last = joined.freeze();
        held.grow(part.len() as u64);
        true
    }

    fn pop(&mut self) -> StreamItem {
        if let Some((part, held)) = self.parts.pop_front() {
            return StreamItem::Part(part, held);
        }
        match self.end.take() {
            Some((finished, held)) => StreamItem::End(finished, held),
            None => {
                self.is_told = false;
                StreamItem::Nothing
            }
        }
    }
}

/// Part of what calls the reader of a stream, or its subscriber. If that is dropped with the loop, the reader is called.
struct LostStream {
    reader: Weak<Stream>,
    handle: LoopHandle,
    origin: Origin,
}

impl Drop for LostStream {
    fn drop(&mut self) {
        // The reader of the parent of a forked child waits there.
        if self.handle.is_gone() && self.origin.is_here() {
            self.reader.upgrade().into_iter().for_each(|stream| (stream.on_news)());
        }
    }
}

impl Stream {
    /// Has the event loop call the reader, if it was not called before.
    fn tell(self: &Rc<Stream>, handle: &LoopHandle) {
        if std::mem::replace(&mut self.queue.borrow_mut().is_told, true) {
            return;
        }
        let (reader, lost) = (Rc::downgrade(self), self.lost(handle));
        handle.set_pending_at(self.site, move |_| {
            if let Some(stream) = reader.upgrade() {
                (stream.on_news)();
            }
            drop(lost);
        });
    }

    fn lost(self: &Rc<Stream>, handle: &LoopHandle) -> Option<LostStream> {
        let (reader, handle) = (Rc::downgrade(self), handle.clone());
        self.own.map(|origin| LostStream { reader, handle, origin })
    }
}

impl Hub {
    /// Submits a job whose output is read in parts. `on_news` is called on the event loop, later, when there is something
    /// to take with [`Hub::next_part`]. `connection` is the client connection that reads.
    ///
    /// # Errors
    /// Why the job is refused.
    #[track_caller]
    pub(crate) fn submit_stream(
        &mut self,
        mut job: Job,
        connection: Option<u64>,
        on_news: OnNews,
    ) -> Result<(Accepted, StreamReader), RefusedJob> {
        job.options.stream = true;
        let (job_of, site) = (Cell::new(None), Location::caller());
        let own = connection.is_none().then(Origin::here);
        let stream = Rc::new(Stream { job: job_of, queue: RefCell::default(), on_news, own, site });
        let subscriber = self.end_of(&stream, connection);
        let accepted = self.admit(job, false, Some(subscriber))?;
        stream.job.set(Some(accepted.job));
        if let Some(live_job) = self.records.live_mut(accepted.job) {
            let reader = Rc::downgrade(&stream);
            live_job.early_mut().parts = Some(LiveParts::Stream { reader, connection, came: 0 });
        }
        Ok((accepted, StreamReader(stream)))
    }

    /// The subscriber that puts the end of the job behind its parts.
    #[track_caller]
    fn end_of(&self, stream: &Rc<Stream>, connection: Option<u64>) -> Subscriber {
        let (reader, handle) = (Rc::downgrade(stream), self.handle.clone());
        let lost = stream.lost(&self.handle);
        let end = move |finished: Box<Finished>, held, _cx: &mut Context| {
            if let Some(stream) = reader.upgrade() {
                stream.queue.borrow_mut().end = Some((finished, held));
                stream.tell(&handle);
            }
            drop(lost);
        };
        match connection {
            Some(id) => Subscriber::of_connection(id, end),
            None => Subscriber::holding(end),
        }
    }

    /// Takes the next part of a stream, or its end. The core is told before the reader has the part: it is delivered.
    pub(crate) fn next_part(&mut self, reader: &StreamReader) -> StreamItem {
        let item = reader.0.queue.borrow_mut().pop();
        if let (StreamItem::Part(part, _), Some(job)) = (&item, reader.0.job.get()) {
            self.handle_event(Event::Delivered { job, bytes: part.len() as u64 });
        }
        item
    }

    /// Adds a part to those that are collected for one answer.
    pub(super) fn collect(&mut self, job: JobId, part: &[u8]) {
        let Some(live_job) = self.records.live_mut(job) else { return };
        let collected = live_job.early_mut().parts.get_or_insert_with(|| LiveParts::Collected(Vec::new()));
        if let LiveParts::Collected(bytes) = collected {
            bytes.extend_from_slice(part);
        }
    }

    /// Passes a part on to the reader of the stream. If the reader is gone, the part is dropped.
    pub(super) fn pass_on(&mut self, job: JobId, part: Bytes) {
        let Some(account) = self.account_of(job) else { return };
        let bytes = part.len() as u64;
        let parts = self.records.live_mut(job).and_then(LiveJob::parts_mut);
        let reader = match parts {
            Some(LiveParts::Stream { reader, came, .. }) => {
                *came += bytes;
                reader.upgrade()
            }
            Some(LiveParts::Collected(_)) | None => None,
        };
        let Some(stream) = reader else { return drop(self.records.charge_output(&account, bytes)) };
        let is_joined = stream.queue.borrow_mut().join(&part);
        if !is_joined {
            let held = self.records.charge_output(&account, bytes);
            stream.queue.borrow_mut().parts.push_back((part, held));
        }
        stream.tell(&self.handle);
    }

    /// The account that a job which has not ended is charged to.
    pub(super) fn account_of(&self, job: JobId) -> Option<Arc<str>> {
        self.core.jobs().get(job).map(|job| self.core.account_of(job).clone())
    }

    /// Drops the parts of a job that is run again.
    pub(super) fn drop_parts(&mut self, job: JobId) {
        let Some(account) = self.account_of(job) else { return };
        match self.records.live_mut(job).and_then(LiveJob::parts_mut) {
            Some(LiveParts::Collected(bytes)) => {
                let length = std::mem::take(bytes).len() as u64;
                drop(self.records.charge_output(&account, length));
            }
            Some(LiveParts::Stream { reader, came, .. }) => {
                *came = 0;
                if let Some(stream) = reader.upgrade() {
                    stream.queue.borrow_mut().parts.clear();
                }
            }
            None => {}
        }
    }

    /// Whether the output of a live job is read in parts by whoever submitted it, and nobody else can have it. Others may
    /// wait for its end.
    pub(crate) fn is_streamed(&self, job: JobId) -> bool {
        self.core.jobs().get(job).is_some_and(offload_core::jobs::Job::is_streamed)
    }

    /// The output that a subscriber is given when the job has ended, and the length of all of it.
    pub(super) fn whole_output(&self, ended: &Ended, live_job: &mut LiveJob, output: &mut Payload) -> u64 {
        let rest = output.bytes.len() as u64;
        match live_job.early.take().and_then(|early| early.parts) {
            None => rest,
            Some(LiveParts::Stream { came, .. }) => came + rest,
            Some(LiveParts::Collected(bytes)) if ended.error.is_some() => {
                drop(self.records.charge_output(&ended.account, bytes.len() as u64));
                rest
            }
            Some(LiveParts::Collected(mut bytes)) => {
                bytes.extend_from_slice(&output.bytes);
                output.bytes = bytes.into();
                output.bytes.len() as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::limits::PARTS_CREDIT;

    #[test]
    fn however_short_the_parts_are_few_of_them_wait_for_their_reader() {
        let mut queue = Queue::default();
        let sent: Vec<u8> = (0..PARTS_CREDIT).map(|index| index as u8).collect();
        for part in sent.chunks(1) {
            if !queue.join(part) {
                queue.parts.push_back((Bytes::copy_from_slice(part), OutputCharge::none()));
            }
        }
        let longest_alone = PARTS_CREDIT as usize / PART_MAX;
        assert!(queue.parts.len() <= PARTS_APART_MAX + longest_alone, "{} parts", queue.parts.len());
        let mut taken = Vec::new();
        while let StreamItem::Part(part, _) = queue.pop() {
            assert!(part.len() <= PART_MAX);
            taken.extend_from_slice(&part);
        }
        assert!(taken == sent);
    }
}
