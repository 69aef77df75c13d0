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
use rustix::io::Errno;

use super::answers::{Answering, Answers, Done};
use super::base::SourceBase;
use super::demand::{Demand, Receiver};
use super::stream::{Incoming, Stream};
use super::stream_inner::{Gone, Link, ReadCallback, State, StreamInner, errno_of};
use super::transport::Transport;
use super::writer::{SLICES_PER_CALL, Writer};
use super::{INCOMING_BYTES, SourceError, TURNS_PER_EVENT};
use crate::callback::Site;
use crate::{Context, Interest, Phase};

/// How far a write has come at once.
pub(super) enum Progress {
    /// It has succeeded or failed, and the callback is still to be called.
    Through(Done, Result<(), SourceError>),
    Queued,
}

impl State {
    fn admit_write(&self) -> Result<&Writer, SourceError> {
        match &self.link {
            Link::Gone(gone) => Err((*gone).into()),
            _ => self.writer.admit().map(|()| &self.writer),
        }
    }

    /// Writes what can be written at once. Nothing if others have to be written before.
    fn write_now(&self, bytes: &[u8]) -> Option<Result<usize, Errno>> {
        let Link::Open(descriptor) = &self.link else { return None };
        if !self.writer.is_idle() {
            return None;
        }
        match self.transport.write(descriptor.as_fd(), bytes) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            result => Some(result),
        }
    }

    /// Writes the queue as far as the kernel takes it. The answers become due.
    fn flush(&mut self) {
        for _ in 0..TURNS_PER_EVENT {
            let Link::Open(descriptor) = &self.link else { return };
            if self.writer.is_idle() {
                return;
            }
            let mut slices = [IoSlice::new(&[]); SLICES_PER_CALL];
            let slices = self.writer.slices(&mut slices);
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            match self.transport.write_slices(descriptor.as_fd(), slices) {
                Ok(written) => {
                    self.writer.advance(written);
                    if written < offered {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => return self.writer.fail(|| errno.into()),
            }
        }
    }
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
        let state = self.state.borrow();
        let descriptor = state.open_or_connecting()?.ok_or(SourceError::WouldBlock)?;
        loop {
            match rustix::io::read(descriptor, &mut *buffer) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
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
        let wanted = self.state.borrow_mut().reader.stop();
        let Demand::Callback { site, callback } = wanted else { return None };
        self.rest();
        Some((site, callback))
    }

    /// The connection that a reader waits for has failed: the pending phase tells it so, after the answers that wait there.
    pub(super) fn put_off_not_connected(self: &Rc<Self>) {
        let site = match &self.state.borrow().reader {
            Demand::Callback { site, .. } => Some(*site),
            _ => None,
        };
        let Some(site) = site else { return self.wake_future() };
        let inner = Rc::clone(self);
        self.base.event_loop().set_pending_at(site, move |context| {
            let has_failed = matches!(inner.state.borrow().link, Link::Gone(Gone::NotConnected));
            if has_failed && let Some((_, mut callback)) = inner.take_last_callback() {
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
    pub(super) fn try_write(&self, bytes: &[u8]) -> Result<usize, SourceError> {
        let state = self.state.borrow();
        state.admit_write()?;
        Ok(state.write_now(bytes).ok_or(SourceError::WouldBlock)??)
    }

    pub(super) fn write(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        site: Site,
        done: Done,
    ) -> Result<(), SourceError> {
        let length = bytes.as_ref().len();
        self.state.borrow().admit_write()?.admit_length(length)?;
        if let Progress::Through(done, result) = self.start_write(bytes, site, done) {
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
    ) -> Progress {
        let slice = bytes.as_ref();
        let written = self.state.borrow().write_now(slice);
        match written {
            Some(Ok(count)) if count == slice.len() => return Progress::Through(done, Ok(())),
            Some(Err(errno)) => return Progress::Through(done, Err(errno.into())),
            Some(Ok(count)) => self.queue(bytes.into(), count, site, done),
            None => self.queue(bytes.into(), 0, site, done),
        }
        Progress::Queued
    }

    /// As [`StreamInner::write`] for a future that has waited for room.
    pub(super) fn write_for_future(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        done: Done,
    ) -> Progress {
        let site = self.base.site();
        if self.base.has_turns() {
            return self.start_write(bytes, site, done);
        }
        self.queue(bytes.into(), 0, site, done);
        Progress::Queued
    }

    /// Waits until a write of this length fits, or until nothing waits before it.
    pub(super) fn poll_room(
        &self,
        ticket: u64,
        length: usize,
        waker: &Waker,
    ) -> Poll<Result<(), SourceError>> {
        let admitted = self.state.borrow().admit_write().and_then(|writer| writer.admit_length(length));
        match admitted {
            Err(SourceError::QueueFull { queued, .. }) if queued > 0 => {
                let waker = waker.clone();
                let replaced = self.state.borrow_mut().writer.wait_for_room(ticket, waker);
                drop(replaced);
                Poll::Pending
            }
            Err(SourceError::QueueFull { .. }) => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }

    /// The future with this ticket waits no more.
    pub(super) fn leave_room(&self, ticket: u64) {
        let left = self.state.borrow_mut().writer.leave_room(ticket);
        drop(left);
    }

    fn queue(self: &Rc<Self>, bytes: Vec<u8>, written: usize, site: Site, done: Done) {
        self.state.borrow_mut().writer.queue(bytes, written, site, done);
        self.update_writes();
    }

    /// As [`StreamInner::update`] after a change of what is to be written. What cannot be watched for fails.
    pub(super) fn update_writes(self: &Rc<Self>) {
        let Err(error) = self.update() else { return };
        let errno = errno_of(error);
        self.state.borrow_mut().writer.fail(|| errno.into());
        self.rest();
        self.put_off_answers();
        self.tell_of_room();
    }

    pub(super) fn write_ready(self: &Rc<Self>, context: &mut Context) {
        self.state.borrow_mut().flush();
        self.shut_down_if_due();
        self.update_writes();
        self.tell_of_room();
        self.give_answers(context);
    }

    /// Lets futures that wait for room in the queue look again: there is more of it, or there never will be.
    pub(super) fn tell_of_room(&self) {
        let wakers = self.state.borrow_mut().writer.take_waiting_for_room();
        wakers.into_values().for_each(Waker::wake);
    }

    pub(super) fn shut_down(self: &Rc<Self>, site: Site, done: Done) -> Result<(), SourceError> {
        self.state.borrow().admit_write()?;
        self.state.borrow_mut().writer.want_shutdown(site, done);
        self.shut_down_if_due();
        self.put_off_answers();
        self.update_writes();
        self.tell_of_room();
        Ok(())
    }

    /// Shuts the writing side down if that is wanted and nothing is left to write.
    fn shut_down_if_due(&self) {
        let mut state = self.state.borrow_mut();
        let State { link, transport, writer, .. } = &mut *state;
        let Link::Open(descriptor) = &*link else { return };
        let Some((site, done)) = writer.take_due_shutdown() else { return };
        let result = match transport {
            // Nothing but closing it would end the writing, and it may be read still.
            Transport::Pipe if !is_write_only(descriptor) => Err(Errno::BADF.into()),
            // A pipe has no other side, so its end is all there is to close.
            Transport::Pipe => {
                let _ = self.base.watch(descriptor.as_fd(), Interest::NONE);
                *link = Link::Gone(Gone::ShutDown);
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
    fn source_base(&self) -> &SourceBase {
        &self.base
    }

    fn answers(&self) -> RefMut<'_, Answers> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.writer.answers)
    }

    fn on_answer_taken(&self) {
        self.tell_of_room();
    }
}
