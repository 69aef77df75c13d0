//! The state of a stream, how it connects and how it ends.
//!
//! ```text
//!   Connecting --(success)--> Open --(a pipe's end is shut down)--> Gone: ShutDown --close--> Gone: Closed
//!       |                      |
//!       |                      +--(close, or the loop is dropped)--> Gone: Closed
//!       +--(failure)--> Gone: NotConnected --close--> Gone: Closed
//! ```
//!
//! While it connects, a stream can be read and written to already: both wait for the connection. When that fails, the
//! callback for connecting is told why, then writes and shutdowns that they are cancelled, then the reader that it is not
//! connected.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;

use rustix::io::Errno;

use super::SourceError;
use super::answers::Answering;
use super::base::{Liveness, Source, SourceBase};
use super::demand::{Demand, Receiver, Wanted};
use super::stream::{Incoming, Stream};
use super::transport::Transport;
use super::writer::Writer;
use crate::callback::Site;
use crate::{AliveKind, Context, Interest, LoopHandle, Phase, Readiness};

pub(super) type ReadCallback = Box<dyn FnMut(&mut Context, &Stream, Incoming<'_>)>;
pub(super) type ConnectCallback = Box<dyn FnOnce(&mut Context, &Stream, Result<(), SourceError>)>;

pub(super) enum Link {
    Connecting {
        /// Missing when there is nothing left to wait for but the telling.
        descriptor: Option<Rc<OwnedFd>>,
        site: Site,
        done: ConnectCallback,
    },
    Open(Rc<OwnedFd>),
    Gone(Gone),
}

/// Why a stream has no descriptor any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    NotConnected,
    ShutDown,
    Closed,
}

impl From<Gone> for SourceError {
    fn from(gone: Gone) -> SourceError {
        match gone {
            Gone::NotConnected => SourceError::NotConnected,
            Gone::ShutDown => SourceError::AlreadyShutDown,
            Gone::Closed => SourceError::Closed,
        }
    }
}

pub(super) struct State {
    pub(super) link: Link,
    pub(super) transport: Transport,
    pub(super) reader: Demand<ReadCallback>,
    pub(super) writer: Writer,
}

impl State {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Connecting { descriptor, .. } => descriptor.as_ref().map(AsFd::as_fd),
            Link::Open(descriptor) => Some(descriptor.as_fd()),
            Link::Gone(_) => None,
        }
    }

    pub(super) fn open(&self) -> Result<BorrowedFd<'_>, SourceError> {
        self.open_or_connecting()?.ok_or(SourceError::NotConnected)
    }

    /// Nothing while it connects.
    pub(super) fn open_or_connecting(&self) -> Result<Option<BorrowedFd<'_>>, SourceError> {
        match &self.link {
            Link::Open(descriptor) => Ok(Some(descriptor.as_fd())),
            Link::Connecting { .. } => Ok(None),
            Link::Gone(gone) => Err((*gone).into()),
        }
    }

    /// The descriptor, also while it connects.
    pub(super) fn socket(&self) -> Result<BorrowedFd<'_>, SourceError> {
        self.descriptor().map_or_else(|| self.open(), Ok)
    }

    /// As [`State::socket`], shared.
    pub(super) fn file(&self) -> Result<Rc<OwnedFd>, SourceError> {
        match &self.link {
            Link::Open(descriptor) | Link::Connecting { descriptor: Some(descriptor), .. } => {
                Ok(Rc::clone(descriptor))
            }
            Link::Connecting { descriptor: None, .. } => Err(SourceError::NotConnected),
            Link::Gone(gone) => Err((*gone).into()),
        }
    }

    fn interest(&self) -> Interest {
        match &self.link {
            Link::Connecting { .. } => Interest::WRITE,
            Link::Open(_) => {
                let read = if self.reader.is_there() { Interest::READ } else { Interest::NONE };
                let write = if self.writer.is_busy() { Interest::WRITE } else { Interest::NONE };
                read | write
            }
            Link::Gone(_) => Interest::NONE,
        }
    }

    fn life(&self) -> Liveness {
        let is_busy = matches!(self.link, Link::Connecting { .. }) || self.writer.is_busy();
        Liveness { is_active: self.reader.is_there(), is_busy, is_kept: is_busy || self.reader.is_callback() }
    }
}

/// The inside of a [`Stream`].
pub(super) struct StreamInner {
    pub(super) base: SourceBase,
    pub(super) state: RefCell<State>,
}

impl StreamInner {
    pub(super) fn new(
        event_loop: &LoopHandle,
        site: Site,
        link: Link,
        transport: Transport,
    ) -> Rc<StreamInner> {
        let state = State { link, transport, reader: Demand::Nobody, writer: Writer::new() };
        Rc::new_cyclic(|inner| StreamInner {
            base: SourceBase::new(event_loop, site, AliveKind::Stream, inner),
            state: RefCell::new(state),
        })
    }
}

/// Connecting.
impl StreamInner {
    fn connecting_is_over(self: &Rc<Self>, context: &mut Context) {
        let mut state = self.state.borrow_mut();
        let Link::Connecting { descriptor, site, .. } = &mut state.link else { return };
        let site = *site;
        let Some(socket) = descriptor.take() else { return };
        let error = rustix::net::sockopt::socket_error(&socket).unwrap_or_else(Err);
        if let Err(errno) = error {
            // It leaves the poller now, or it would be ready again and again until its error is told.
            let _ = self.base.watch(socket.as_fd(), Interest::NONE);
            drop(state);
            return self.put_off_connect(site, Err(errno.into()));
        }
        *descriptor = Some(socket);
        drop(state);
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
        let link = std::mem::replace(&mut state.link, Link::Gone(Gone::NotConnected));
        let Link::Connecting { descriptor, done, .. } = link else {
            state.link = link;
            return None;
        };
        match descriptor {
            Some(descriptor) if result.is_ok() => state.link = Link::Open(descriptor),
            _ => state.writer.fail(|| SourceError::Cancelled),
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

/// What is left of a stream that was closed. Drop it only when no borrow is held.
struct Remains {
    link: Link,
    reader: Demand<ReadCallback>,
    waiting_for_room: BTreeMap<u64, Waker>,
}

/// The end.
impl StreamInner {
    /// Leaves the loop. Nothing if that happened before.
    fn take_apart(&self) -> Option<Remains> {
        let mut state = self.state.borrow_mut();
        if matches!(state.link, Link::Gone(Gone::Closed)) {
            return None;
        }
        let link = std::mem::replace(&mut state.link, Link::Gone(Gone::Closed));
        let reader = state.reader.stop();
        state.writer.fail(|| SourceError::Cancelled);
        let waiting_for_room = state.writer.take_waiting_for_room();
        drop(state);
        match &link {
            Link::Connecting { descriptor: Some(descriptor), .. } | Link::Open(descriptor) => {
                self.base.leave(Some(descriptor.as_fd()));
            }
            _ => self.base.leave(None),
        }
        Some(Remains { link, reader, waiting_for_room })
    }

    /// Everything that is under way is answered in the closing phase, before `on_closed`.
    pub(super) fn close(
        self: &Rc<Self>,
        site: Site,
        on_closed: impl FnOnce(&mut Context) + 'static,
    ) -> Result<(), SourceError> {
        let Some(Remains { link, mut reader, waiting_for_room }) = self.take_apart() else {
            return Err(SourceError::Closed);
        };
        if let Link::Connecting { site, done, .. } = link {
            let stream = Stream::of(self);
            self.base.run_in_closing(site, move |context| {
                done(context, &stream, Err(SourceError::Cancelled));
            });
        }
        self.answer_in_closing();
        self.base.run_in_closing(site, on_closed);
        waiting_for_room.into_values().for_each(Waker::wake);
        if let Wanted::Future(waker) = reader.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Closes without telling anybody.
    pub(super) fn abandon(&self) {
        let Some(remains) = self.take_apart() else { return };
        self.drop_answers();
        drop(remains);
    }
}

impl Receiver for StreamInner {
    type Callback = ReadCallback;

    fn base(&self) -> &SourceBase {
        &self.base
    }

    fn demand(&self) -> RefMut<'_, Demand<ReadCallback>> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.reader)
    }

    fn check_open(&self) -> Result<(), SourceError> {
        self.state.borrow().open_or_connecting().map(drop)
    }

    fn apply(&self, also: Interest) -> Result<(), SourceError> {
        let state = self.state.borrow();
        let watched = match state.descriptor() {
            Some(descriptor) => self.base.watch(descriptor, state.interest() | also),
            None => Ok(()),
        };
        let life = state.life();
        drop(state);
        self.base.set_life(life);
        watched
    }
}

impl Source for StreamInner {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness) {
        self.base.begin_event();
        let is_connecting = matches!(self.state.borrow().link, Link::Connecting { .. });
        if is_connecting {
            return self.connecting_is_over(context);
        }
        if readiness.is_readable() {
            self.take_in(|| self.read_for_callback(context));
        }
        if readiness.is_writable() {
            self.write_ready(context);
        }
    }

    fn on_loop_gone(&self) {
        self.abandon();
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        self.base.leave(self.state.get_mut().descriptor());
    }
}

/// What a failed registration means for writes, which know the system's numbers only.
pub(super) fn errno_of(error: SourceError) -> Errno {
    Errno::from_io_error(&error.into()).unwrap_or(Errno::NOSPC)
}
