//! Datagrams over UDP.
//!
//! There is no write queue: a datagram that finds no room is refused, and its owner knows best whether an old one is
//! still worth sending. Who wants to wait for room awaits [`UdpSocket::writable`].

use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::base::{Liveness, Source, SourceBase, impl_references};
use super::demand::{Demand, Receiver, Waiting, Wanted};
use super::{INCOMING_BYTES, SourceError};
use crate::{AliveKind, Context, Interest, LoopHandle, Readiness};

/// What a receiving callback is told: the datagram and who sent it.
pub type Datagram<'a> = Result<(&'a [u8], SocketAddr), SourceError>;

type ReceiveCallback = Box<dyn FnMut(&mut Context, &UdpSocket, Datagram<'_>)>;

/// A socket for datagrams. Cheap to clone: all clones are the same socket.
///
/// The loop keeps a socket whose callback waits; any other is closed when its last handle is dropped.
#[derive(Clone)]
pub struct UdpSocket {
    inner: Rc<UdpInner>,
}

struct UdpInner {
    base: SourceBase,
    state: RefCell<State>,
}

struct State {
    /// Missing once the socket is closed.
    socket: Option<std::net::UdpSocket>,
    receiver: Demand<ReceiveCallback>,
    /// Futures that wait for room, by their tickets.
    waiting_for_room: Vec<(u64, Waker)>,
}

impl State {
    fn open(&self) -> Result<&std::net::UdpSocket, SourceError> {
        self.socket.as_ref().ok_or(SourceError::Closed)
    }

    fn interest(&self) -> Interest {
        let read = if self.receiver.is_there() { Interest::READ } else { Interest::NONE };
        let write = if self.waiting_for_room.is_empty() { Interest::NONE } else { Interest::WRITE };
        read | write
    }

    fn life(&self) -> Liveness {
        Liveness {
            is_active: !self.interest().is_none(),
            is_busy: false,
            is_kept: self.receiver.is_callback(),
        }
    }
}

impl UdpSocket {
    /// A socket at `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// [`SourceError::Io`] for an address in use and the like, [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn bind(event_loop: &LoopHandle, address: SocketAddr) -> Result<UdpSocket, SourceError> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let site = Location::caller();
        let (receiver, waiting_for_room) = (Demand::Nobody, Vec::new());
        let state = State { socket: Some(socket), receiver, waiting_for_room };
        let inner = Rc::new_cyclic(|inner| UdpInner {
            base: SourceBase::new(event_loop, site, AliveKind::UdpSocket, inner),
            state: RefCell::new(state),
        });
        Ok(UdpSocket { inner })
    }

    /// From here on only datagrams of `peer` come in, and [`UdpSocket::send`] goes there.
    ///
    /// # Errors
    /// [`SourceError::Closed`], or what the system says.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), SourceError> {
        Ok(self.inner.state.borrow().open()?.connect(peer)?)
    }

    /// Sends one datagram, whole or not at all.
    ///
    /// # Errors
    /// [`SourceError::WouldBlock`] without room for it now, [`SourceError::Closed`], or what the system says, which
    /// may concern an earlier datagram.
    pub fn send_to(&self, bytes: &[u8], receiver: SocketAddr) -> Result<(), SourceError> {
        let state = self.inner.state.borrow();
        state.open()?.send_to(bytes, receiver)?;
        Ok(())
    }

    /// Sends one datagram to the peer of [`UdpSocket::connect`].
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send(&self, bytes: &[u8]) -> Result<(), SourceError> {
        let state = self.inner.state.borrow();
        state.open()?.send(bytes)?;
        Ok(())
    }

    /// Resolves when there is room for a datagram.
    ///
    /// # Errors
    /// [`SourceError::Closed`], [`SourceError::OutOfDescriptors`].
    pub async fn writable(&self) -> Result<(), SourceError> {
        let waiting = WaitingForRoom { inner: &self.inner, ticket: self.inner.base.next_ticket() };
        let mut has_waited = false;
        poll_fn(|context| self.inner.poll_room(waiting.ticket, context.waker(), &mut has_waited)).await
    }

    /// Calls `callback` with each datagram that comes in, at most 32 for one event. Errors are told, too, such as
    /// that a connected peer refuses datagrams, and receiving goes on.
    ///
    /// # Errors
    /// [`SourceError::AlreadyReading`] if a callback or future receives already, [`SourceError::Closed`],
    /// [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn receive_start(
        &self,
        callback: impl FnMut(&mut Context, &UdpSocket, Datagram<'_>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.start(Location::caller(), Box::new(callback))
    }

    /// Ends what [`UdpSocket::receive_start`] began; nothing happens if it is over.
    pub fn receive_stop(&self) {
        self.inner.stop();
    }

    /// The next datagram: how many bytes of it are in `buffer`, which cuts off what is longer, and who sent it.
    /// Dropping the future takes none.
    ///
    /// # Errors
    /// As [`UdpSocket::receive_start`], and what the system says.
    pub async fn receive_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SourceError> {
        let waiting = Waiting::new(&*self.inner);
        poll_fn(|context| {
            let receive = || self.inner.receive(&mut *buffer);
            self.inner.poll_next(waiting.ticket, context.waker(), receive)
        })
        .await
    }

    /// The address of this socket.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<SocketAddr, SourceError> {
        Ok(self.inner.state.borrow().open()?.local_addr()?)
    }

    /// Closes the socket at once. `on_closed` runs in the closing phase.
    ///
    /// # Errors
    /// [`SourceError::Closed`] if it was closed before; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(&self, on_closed: impl FnOnce(&mut Context) + 'static) -> Result<(), SourceError> {
        let Some(mut state) = self.inner.take_apart() else { return Err(SourceError::Closed) };
        self.inner.base.run_in_closing(Location::caller(), on_closed);
        if let Wanted::Future(waker) = state.receiver.take() {
            waker.wake();
        }
        state.waiting_for_room.into_iter().for_each(|(_, waker)| waker.wake());
        Ok(())
    }
}

impl_references!(UdpSocket);

impl UdpInner {
    fn receive(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SourceError> {
        let state = self.state.borrow();
        let socket = state.open()?;
        loop {
            match socket.recv_from(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return Ok(result?),
            }
        }
    }

    /// One datagram and its callback. True if there may be more.
    fn receive_for_callback(self: &Rc<Self>, context: &mut Context) -> bool {
        let mut buffer = std::mem::take(&mut context.buffers.incoming);
        buffer.resize(INCOMING_BYTES, 0);
        let received = self.receive(&mut buffer);
        if matches!(received, Err(SourceError::WouldBlock)) {
            context.buffers.incoming = buffer;
            return false;
        }
        let datagram = received.map(|(count, sender)| (&buffer[..count], sender));
        let socket = UdpSocket { inner: Rc::clone(self) };
        let call =
            |callback: &mut ReceiveCallback, context: &mut Context, _| callback(context, &socket, datagram);
        let was_called = self.call_back(context, call);
        context.buffers.incoming = buffer;
        was_called
    }

    fn wake_senders(&self) {
        let wakers = std::mem::take(&mut self.state.borrow_mut().waiting_for_room);
        self.want_less();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The kernel says for sure only by an event, so every future waits for one.
    fn poll_room(&self, ticket: u64, waker: &Waker, has_waited: &mut bool) -> Poll<Result<(), SourceError>> {
        let still_waits = self.state.borrow().waiting_for_room.iter().any(|(other, _)| *other == ticket);
        if *has_waited && !still_waits {
            return Poll::Ready(self.state.borrow().open().map(|_| ()));
        }
        *has_waited = true;
        self.leave_room(ticket);
        let waker = waker.clone();
        self.state.borrow_mut().waiting_for_room.push((ticket, waker));
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave_room(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket waits no more.
    fn leave_room(&self, ticket: u64) {
        let mut state = self.state.borrow_mut();
        let own = state.waiting_for_room.iter().position(|(other, _)| *other == ticket);
        let left = own.map(|index| state.waiting_for_room.swap_remove(index));
        drop(state);
        if left.is_some() {
            self.want_less();
        }
    }

    /// Leaves the loop. Nothing if that happened before. What is returned is dropped by who holds no borrow.
    fn take_apart(&self) -> Option<State> {
        let mut state = self.state.borrow_mut();
        state.socket.as_ref()?;
        let closed = State { socket: None, receiver: Demand::Nobody, waiting_for_room: Vec::new() };
        let taken = std::mem::replace(&mut *state, closed);
        drop(state);
        self.base.leave(taken.socket.as_ref().map(AsFd::as_fd));
        Some(taken)
    }
}

impl Receiver for UdpInner {
    type Callback = ReceiveCallback;

    fn base(&self) -> &SourceBase {
        &self.base
    }

    fn demand(&self) -> RefMut<'_, Demand<ReceiveCallback>> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.receiver)
    }

    fn check_open(&self) -> Result<(), SourceError> {
        self.state.borrow().open().map(drop)
    }

    fn apply(&self, also: Interest) -> Result<(), SourceError> {
        let state = self.state.borrow();
        let interest = state.interest() | also;
        let watched = state.open().and_then(|socket| self.base.watch(socket.as_fd(), interest));
        let life = state.life();
        drop(state);
        self.base.set_life(life);
        watched
    }
}

impl Source for UdpInner {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness) {
        self.base.begin_event();
        if readiness.is_writable() {
            self.wake_senders();
        }
        if readiness.is_readable() {
            self.take_in(|| self.receive_for_callback(context));
        }
    }

    fn on_loop_gone(&self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

impl Drop for UdpInner {
    fn drop(&mut self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

/// A future that waits for room. Dropping it ends its waiting.
struct WaitingForRoom<'a> {
    inner: &'a UdpInner,
    ticket: u64,
}

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.inner.leave_room(self.ticket);
    }
}
