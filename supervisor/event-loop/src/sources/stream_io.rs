//! How a stream reads and writes, at once and when its descriptor is ready.
//!
//! No borrow is held while a callback runs or is dropped, and the state is consistent before each callback, so that a panic
//! leaves nothing half done.

use std::cell::RefMut;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};

use super::SourceError;
use super::answers::{Answering, Answers, Done};
use super::base::{Gone, Source};
use super::reader::{Readable, Reader};
use super::stream::{Incoming, Stream};
use super::stream_inner::{ReadCallback, StreamInner, StreamState};
use super::transport::Transport;
use crate::callback::Site;
use crate::limits::{INCOMING_BYTES, SLICES_PER_CALL, TURNS_PER_EVENT};
use crate::{Context, Phase};

/// How far a write has come at once.
pub(super) enum WriteProgress {
    /// It has succeeded or failed, and the callback is still to be called.
    Through(Done, Result<(), SourceError>),
    Queued,
}

/// Reading.
impl StreamInner {
    /// One read and its callback. True if there may be more.
    pub(super) fn read_for_callback(self: &Rc<Self>, context: &mut Context) -> bool {
        let mut buffer = std::mem::take(&mut context.buffers.incoming);
        buffer.resize(INCOMING_BYTES, 0);
        match self.read_into(&mut buffer) {
            Ok(count @ 1..) => self.call_reader(context, buffer, count),
            ended => {
                context.buffers.incoming = buffer;
                match ended {
                    Ok(_) => self.call_last(context, Incoming::End),
                    Err(SourceError::WouldBlock) => {}
                    Err(error) => self.call_last(context, Incoming::Failed(error)),
                }
                false
            }
        }
    }

    fn read_into(&self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let descriptor = self.connected()?;
        Ok(retry_on_intr(|| rustix::io::read(&descriptor, &mut *buffer))?)
    }

    fn call_reader(self: &Rc<Self>, context: &mut Context, buffer: Vec<u8>, count: usize) -> bool {
        let was_filled = count == buffer.len();
        let (stream, incoming) = (Stream::of(self), Incoming::Data(&buffer[..count]));
        let call =
            |callback: &mut ReadCallback, context: &mut Context, _| callback(context, &stream, incoming);
        let was_called = self.call_back(context, call);
        context.buffers.incoming = buffer;
        was_called && was_filled
    }

    /// Nothing comes in after this, so the callback is dropped when it returns.
    fn call_last(self: &Rc<Self>, context: &mut Context, incoming: Incoming<'_>) {
        let Some((site, mut callback)) = self.take_last_callback() else { return };
        let stream = Stream::of(self);
        context.call(Phase::Poll, site, move |context| callback(context, &stream, incoming));
    }

    fn take_last_callback(&self) -> Option<(Site, ReadCallback)> {
        let reader = self.reader.take();
        let Reader::Callback { site, callback } = reader else { return None };
        self.rest();
        Some((site, callback))
    }

    /// The connection that a reader waits for has failed: the pending phase tells it so, after the answers that wait there.
    pub(super) fn put_off_not_connected(self: &Rc<Self>) {
        let site = match &*self.reader.borrow() {
            Reader::Callback { site, .. } => Some(*site),
            _ => None,
        };
        let Some(site) = site else { return self.wake_future() };
        let inner = Rc::clone(self);
        self.base.event_loop().set_pending_at(site, move |context| {
            if let Some((_, mut callback)) = inner.take_last_callback() {
                let stream = Stream::of(&inner);
                callback(context, &stream, Incoming::Failed(SourceError::NotConnected));
            }
        });
    }

    /// For a future: reads at once, or lets it wait.
    pub(super) fn poll_read(
        &self,
        ticket: u64,
        waker: &Waker,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, SourceError>> {
        self.poll_next(ticket, waker, || self.read_into(buffer))
    }
}

/// Writing.
impl StreamInner {
    /// # Errors
    /// Why nothing may be written any more. While it connects, writes are queued.
    fn check_writable(&self) -> Result<(), SourceError> {
        self.check_open()?;
        self.state.borrow().writer.admit()
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> Result<usize, SourceError> {
        self.check_writable()?;
        Ok(self.write_now(bytes).ok_or(SourceError::WouldBlock)??)
    }

    /// Writes what can be written at once. Nothing if others have to be written before.
    fn write_now(&self, bytes: &[u8]) -> Option<Result<usize, Errno>> {
        let descriptor = self.connected().ok()?;
        let state = self.state.borrow();
        if !state.writer.is_idle() {
            return None;
        }
        match state.transport.write(descriptor.as_fd(), bytes) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            result => Some(result),
        }
    }

    pub(super) fn write(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        site: Site,
        done: Done,
    ) -> Result<(), SourceError> {
        let length = bytes.as_ref().len();
        self.check_writable()?;
        self.state.borrow().writer.admit_length(length)?;
        if let WriteProgress::Through(done, result) = self.start_write(bytes, site, done) {
            self.put_off_answer(site, done, result);
        }
        Ok(())
    }

    /// Writes at once as much as possible and queues the rest.
    fn start_write(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        site: Site,
        done: Done,
    ) -> WriteProgress {
        let slice = bytes.as_ref();
        match self.write_now(slice) {
            Some(Ok(count)) if count == slice.len() => return WriteProgress::Through(done, Ok(())),
            Some(Err(errno)) => return WriteProgress::Through(done, Err(errno.into())),
            Some(Ok(count)) => self.queue(bytes.into(), count, site, done),
            None => self.queue(bytes.into(), 0, site, done),
        }
        WriteProgress::Queued
    }

    /// As [`StreamInner::write`] for a future that has waited for room.
    pub(super) fn write_for_future(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        done: Done,
    ) -> WriteProgress {
        let site = self.base.site();
        if self.base.has_turns() {
            return self.start_write(bytes, site, done);
        }
        self.queue(bytes.into(), 0, site, done);
        WriteProgress::Queued
    }

    /// Waits until a write of this length fits, or until nothing waits before it. Who has come first has the room first, or short
    /// writes would overtake a long one for ever.
    pub(super) fn poll_room(
        &self,
        ticket: u64,
        length: usize,
        waker: &Waker,
    ) -> Poll<Result<(), SourceError>> {
        let admitted = self.check_writable().and_then(|()| self.state.borrow().writer.admit_length(length));
        let has_room = match admitted {
            Ok(()) => true,
            Err(SourceError::QueueFull { queued, .. }) => queued == 0,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if has_room && !self.state.borrow().writer.waiting_for_room.has_one_before(ticket) {
            return Poll::Ready(Ok(()));
        }
        let waker = waker.clone();
        let replaced = self.state.borrow_mut().writer.waiting_for_room.insert(ticket, waker);
        drop(replaced);
        Poll::Pending
    }

    /// The future with this ticket waits for room no more, and those behind it may be next.
    pub(super) fn leave_room(&self, ticket: u64) {
        let left = self.state.borrow_mut().writer.waiting_for_room.remove(ticket);
        if left.is_some() {
            self.tell_of_room();
        }
    }

    fn queue(self: &Rc<Self>, bytes: Vec<u8>, written: usize, site: Site, done: Done) {
        self.state.borrow_mut().writer.queue(bytes, written, site, done);
        self.update_writes();
    }

    /// As [`StreamInner::update`] after a change of what is to be written. What cannot be watched for fails.
    pub(super) fn update_writes(self: &Rc<Self>) {
        let Err(error) = self.update() else { return };
        let errno = error.into_errno();
        self.state.borrow_mut().writer.fail(|| errno.into());
        self.rest();
        self.put_off_answers();
        self.tell_of_room();
    }

    pub(super) fn write_ready(self: &Rc<Self>, context: &mut Context) {
        self.flush();
        self.shut_down_if_due();
        self.update_writes();
        self.tell_of_room();
        self.give_answers(context);
    }

    /// Writes the queue as far as the kernel takes it. The answers become due.
    fn flush(&self) {
        let Ok(descriptor) = self.connected() else { return };
        let StreamState { writer, transport, .. } = &mut *self.state.borrow_mut();
        for _ in 0..TURNS_PER_EVENT {
            if writer.is_idle() {
                return;
            }
            let mut slices = [IoSlice::new(&[]); SLICES_PER_CALL];
            let slices = writer.slices(&mut slices);
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            match transport.write_slices(descriptor.as_fd(), slices) {
                Ok(written) => {
                    writer.advance(written);
                    if written < offered {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => return writer.fail(|| errno.into()),
            }
        }
    }

    /// Lets futures that wait for room in the queue look again: there is more of it, or there never will be.
    pub(super) fn tell_of_room(&self) {
        let wakers = self.state.borrow_mut().writer.waiting_for_room.take();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn shut_down(self: &Rc<Self>, site: Site, done: Done) -> Result<(), SourceError> {
        self.check_writable()?;
        self.state.borrow_mut().writer.want_shutdown(site, done);
        self.shut_down_if_due();
        self.put_off_answers();
        self.update_writes();
        self.tell_of_room();
        Ok(())
    }

    /// Shuts the writing side down if that is wanted and nothing is left to write.
    fn shut_down_if_due(&self) {
        let Ok(descriptor) = self.connected() else { return };
        let StreamState { transport, writer, .. } = &mut *self.state.borrow_mut();
        let Some((site, done)) = writer.take_due_shutdown() else { return };
        let result = match transport {
            // Nothing but closing it would end the writing, and it may be read still.
            Transport::Pipe if !is_write_only(&descriptor) => Err(Errno::BADF.into()),
            // A pipe has no other side, so its end is all there is to close.
            Transport::Pipe => {
                self.base.give_up(Gone::ShutDown);
                Ok(())
            }
            _ => transport.shut_down_writing(descriptor.as_fd()).map_err(SourceError::from),
        };
        writer.answers.add(site, done, result);
    }
}

fn is_write_only(descriptor: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(descriptor);
    flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::WRONLY)
}

impl Answering for StreamInner {
    fn answers(&self) -> RefMut<'_, Answers> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.writer.answers)
    }

    fn on_answer_taken(&self) {
        self.tell_of_room();
    }
}
