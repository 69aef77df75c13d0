//! The state of a stream, how it connects and how it ends.
//!
//! ```text
//!   connecting --(success)--> open --(a pipe's writing end is shut down)--> Gone::ShutDown
//!       |
//!       +--(failure)--> Gone::NotConnected
//! ```
//!
//! While it connects, a stream can be read and written to already: both wait for the connection. When that fails, the
//! callback for connecting is told why, then writes and shutdowns that they are cancelled, then the reader that it is not
//! connected.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Waker;

use super::SourceError;
use super::answers::{Answering, DueAnswer};
use super::base::{Base, Gone, Liveness, Source};
use super::reader::{Readable, Reader};
use super::stream::{Incoming, Stream};
use super::transport::Transport;
use super::writer::Writer;
use crate::callback::Site;
use crate::{AliveKind, Context, Interest, LoopHandle, Phase, Readiness};

pub(super) type ReadCallback = Box<dyn FnMut(&mut Context, &Stream, Incoming<'_>)>;
pub(super) type ConnectCallback = Box<dyn FnOnce(&mut Context, &Stream, Result<(), SourceError>)>;

/// The inside of a [`Stream`].
pub(super) struct StreamInner {
    pub(super) base: Base,
    pub(super) reader: RefCell<Reader<ReadCallback>>,
    pub(super) state: RefCell<StreamState>,
}

pub(super) struct StreamState {
    /// Missing once it is told how connecting ended.
    pub(super) connecting: Option<ConnectWaiter>,
    pub(super) transport: Transport,
    pub(super) writer: Writer,
}

/// Who is to be told how connecting ended.
pub(super) struct ConnectWaiter {
    pub(super) site: Site,
    pub(super) done: ConnectCallback,
}

impl StreamInner {
    pub(super) fn new(
        event_loop: &LoopHandle,
        site: Site,
        descriptor: Result<OwnedFd, Gone>,
        transport: Transport,
        connecting: Option<ConnectWaiter>,
    ) -> Rc<StreamInner> {
        Rc::new_cyclic(|inner| StreamInner {
            base: Base::new(event_loop, site, AliveKind::Stream, inner, descriptor),
            reader: RefCell::new(Reader::Nobody),
            state: RefCell::new(StreamState { connecting, transport, writer: Writer::new() }),
        })
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.state.borrow().connecting.is_some()
    }

    /// The descriptor, once it can be read and written.
    ///
    /// # Errors
    /// [`SourceError::WouldBlock`] while it connects, or why there is no descriptor any more.
    pub(super) fn connected(&self) -> Result<Rc<OwnedFd>, SourceError> {
        if self.is_connecting() { Err(SourceError::WouldBlock) } else { self.base.descriptor() }
    }
}

/// Connecting.
impl StreamInner {
    fn connecting_is_over(self: &Rc<Self>, context: &mut Context, site: Site) {
        // Without a descriptor the failure is known, and is told by the pending phase.
        let Ok(socket) = self.base.descriptor() else { return };
        let error = rustix::net::sockopt::socket_error(&socket).unwrap_or_else(Err);
        if let Err(errno) = error {
            // It leaves the poller now, or it would be ready again and again until its error is told.
            self.base.give_up(Gone::NotConnected);
            return self.put_off_connect(site, Err(errno.into()));
        }
        if let Some((done, result)) = self.finish_connecting(Ok(())) {
            context.call(Phase::Poll, site, |context| done(context, &Stream::of(self), result));
        }
    }

    /// Lets the pending phase tell how connecting ended.
    pub(super) fn put_off_connect(self: &Rc<Self>, site: Site, result: Result<(), SourceError>) {
        let inner = Rc::clone(self);
        self.base.event_loop().set_pending_at(site, move |context| {
            if let Some((done, result)) = inner.finish_connecting(result) {
                done(context, &Stream::of(&inner), result);
            }
        });
    }

    /// Nothing if the stream was closed meanwhile.
    fn finish_connecting(
        self: &Rc<Self>,
        result: Result<(), SourceError>,
    ) -> Option<(ConnectCallback, Result<(), SourceError>)> {
        let mut state = self.state.borrow_mut();
        let ConnectWaiter { done, .. } = state.connecting.take()?;
        if result.is_err() {
            self.base.give_up(Gone::NotConnected);
            state.writer.fail(|| SourceError::Cancelled);
        }
        drop(state);
        self.update_writes();
        self.put_off_answers();
        self.tell_of_room();
        if result.is_err() {
            self.put_off_not_connected();
        }
        Some((done, result))
    }
}

/// Everybody who waited for a stream that was closed.
pub(super) struct Waiting {
    connecting: Option<ConnectWaiter>,
    reader: Reader<ReadCallback>,
    answers: VecDeque<DueAnswer>,
    for_room: Vec<Waker>,
}

impl Source for StreamInner {
    type Waiting = Waiting;

    fn base(&self) -> &Base {
        &self.base
    }

    fn interest(&self) -> Interest {
        let state = self.state.borrow();
        if state.connecting.is_some() {
            return Interest::WRITE;
        }
        let read = if self.reader.borrow().is_there() { Interest::READ } else { Interest::NONE };
        let write = if state.writer.is_busy() { Interest::WRITE } else { Interest::NONE };
        read | write
    }

    fn liveness(&self) -> Liveness {
        let (state, reader) = (self.state.borrow(), self.reader.borrow());
        let is_busy = state.connecting.is_some() || state.writer.is_busy();
        Liveness { is_active: reader.is_there(), is_busy, is_kept: is_busy || reader.is_callback() }
    }

    fn on_ready(self: &Rc<Self>, context: &mut Context, readiness: Readiness) {
        let connecting = self.state.borrow().connecting.as_ref().map(|connecting| connecting.site);
        if let Some(site) = connecting {
            return self.connecting_is_over(context, site);
        }
        if readiness.is_readable() {
            self.take_in(|| self.read_for_callback(context));
        }
        if readiness.is_writable() {
            self.write_ready(context);
        }
    }

    fn take_waiting(&self) -> Waiting {
        let mut state = self.state.borrow_mut();
        state.writer.fail(|| SourceError::Cancelled);
        Waiting {
            connecting: state.connecting.take(),
            reader: self.reader.take(),
            answers: state.writer.answers.take(),
            for_room: state.writer.waiting_for_room.take(),
        }
    }

    fn tell_closed(self: &Rc<Self>, waiting: Waiting) -> Vec<Waker> {
        let Waiting { connecting, reader, answers, for_room } = waiting;
        if let Some(ConnectWaiter { site, done }) = connecting {
            let stream = Stream::of(self);
            let cancelled = Err(SourceError::Cancelled);
            self.base.run_in_closing(site, move |context| done(context, &stream, cancelled));
        }
        self.answer_in_closing(answers);
        for_room.into_iter().chain(reader.into_future()).collect()
    }
}

impl Readable for StreamInner {
    type Callback = ReadCallback;

    fn reader(&self) -> &RefCell<Reader<ReadCallback>> {
        &self.reader
    }

    /// A stream that connects is read as soon as it is connected.
    fn check_open(&self) -> Result<(), SourceError> {
        if self.is_connecting() { Ok(()) } else { self.base.descriptor().map(drop) }
    }
}
