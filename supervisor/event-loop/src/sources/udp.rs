//! Datagrams over UDP.
//!
//! There is no write queue: a datagram that finds no room is refused, and its owner knows best whether an old one is
//! still worth sending. Who wants to wait for room awaits [`UdpSocket::writable`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use super::demand::{Demand, Next, Wanted};
use super::place::{Life, Place, Source};
use super::{INCOMING_BYTES, SourceError, TURNS_PER_EVENT};
use crate::{Context, Interest, LoopHandle, Phase, Readiness};

/// What a receiving callback is told: the datagram and who sent it.
pub type Datagram<'a> = Result<(&'a [u8], SocketAddr), SourceError>;

type ReceiveCallback = Box<dyn FnMut(&mut Context, &UdpSocket, Datagram<'_>)>;

/// A socket for datagrams. Cheap to clone: all clones are the same socket.
///
/// The loop keeps a socket whose callback waits; any other is closed when its last handle is dropped.
#[derive(Clone)]
pub struct UdpSocket {
    core: Rc<Core>,
}

struct Core {
    place: Place,
    state: RefCell<State>,
    /// How many datagrams futures took since the last event.
    turns: Cell<u32>,
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

    fn life(&self) -> Life {
        Life { is_active: !self.interest().is_none(), is_busy: false, is_kept: self.receiver.is_callback() }
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
        let core = Rc::new_cyclic(|core: &Weak<Core>| {
            let core: Weak<Core> = core.clone();
            Core {
                place: Place::new(event_loop, site, core),
                state: RefCell::new(state),
                turns: Cell::new(0),
            }
        });
        Ok(UdpSocket { core })
    }

    /// From here on only datagrams of `peer` come in, and [`UdpSocket::send`] goes there.
    ///
    /// # Errors
    /// [`SourceError::Closed`], or what the system says.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), SourceError> {
        Ok(self.core.state.borrow().open()?.connect(peer)?)
    }

    /// Sends one datagram, whole or not at all.
    ///
    /// # Errors
    /// [`SourceError::WouldBlock`] without room for it now, [`SourceError::Closed`], or what the system says, which
    /// may concern an earlier datagram.
    pub fn send_to(&self, bytes: &[u8], receiver: SocketAddr) -> Result<(), SourceError> {
        let state = self.core.state.borrow();
        state.open()?.send_to(bytes, receiver)?;
        Ok(())
    }

    /// Sends one datagram to the peer of [`UdpSocket::connect`].
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send(&self, bytes: &[u8]) -> Result<(), SourceError> {
        let state = self.core.state.borrow();
        state.open()?.send(bytes)?;
        Ok(())
    }

    /// Resolves when there is room for a datagram.
    ///
    /// # Errors
    /// [`SourceError::Closed`], [`SourceError::OutOfDescriptors`].
    pub async fn writable(&self) -> Result<(), SourceError> {
        let waiting = Waiting { core: &self.core, ticket: self.core.place.next_ticket() };
        let mut has_waited = false;
        poll_fn(|context| self.core.poll_room(waiting.ticket, context.waker(), &mut has_waited)).await
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
        let mut state = self.core.state.borrow_mut();
        state.open()?;
        let started = state.receiver.start(Location::caller(), Box::new(callback));
        drop(state);
        if started.is_err() {
            return Err(SourceError::AlreadyReading);
        }
        self.core.update().inspect_err(|_| self.receive_stop())
    }

    /// Ends what [`UdpSocket::receive_start`] began; nothing happens if it is over.
    pub fn receive_stop(&self) {
        let mut state = self.core.state.borrow_mut();
        let stopped = if state.receiver.is_callback() { state.receiver.stop() } else { Demand::Nobody };
        drop(state);
        self.core.rest();
        drop(stopped);
    }

    /// The next datagram: how many bytes of it are in `buffer`, which cuts off what is longer, and who sent it.
    /// Dropping the future takes none.
    ///
    /// # Errors
    /// As [`UdpSocket::receive_start`], and what the system says.
    pub async fn receive_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SourceError> {
        let waiting = Waiting { core: &self.core, ticket: self.core.place.next_ticket() };
        poll_fn(|context| self.core.poll_receive(waiting.ticket, context.waker().clone(), buffer)).await
    }

    /// The address of this socket.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<SocketAddr, SourceError> {
        Ok(self.core.state.borrow().open()?.local_addr()?)
    }

    /// Lets the loop end although this socket receives.
    pub fn unref(&self) {
        self.core.place.unref();
    }

    /// Undoes [`UdpSocket::unref`].
    pub fn ref_(&self) {
        self.core.place.ref_();
    }

    /// Closes the socket at once. `on_closed` runs in the closing phase.
    ///
    /// # Errors
    /// [`SourceError::Closed`] if it was closed before; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(&self, on_closed: impl FnOnce(&mut Context) + 'static) -> Result<(), SourceError> {
        let Some(mut state) = self.core.take_apart() else { return Err(SourceError::Closed) };
        self.core.place.run_in_closing(Location::caller(), on_closed);
        if let Wanted::Future(waker) = state.receiver.take() {
            waker.wake();
        }
        state.waiting_for_room.into_iter().for_each(|(_, waker)| waker.wake());
        Ok(())
    }
}

impl Core {
    /// Tells the loop what the socket waits for now. Receiving stays watched until a datagram comes that nobody
    /// wants.
    fn update(&self) -> Result<(), SourceError> {
        let current = self.place.interest();
        let is_receiving = current | Interest::READ == current;
        self.apply(if is_receiving { Interest::READ } else { Interest::NONE })
    }

    fn rest(&self) {
        // Asking for less cannot fail.
        let _ = self.apply(Interest::NONE);
    }

    fn apply(&self, also: Interest) -> Result<(), SourceError> {
        let state = self.state.borrow();
        let interest = state.interest() | also;
        let watched = state.open().and_then(|socket| self.place.watch(socket.as_fd(), interest));
        let life = state.life();
        drop(state);
        self.place.live(life);
        watched
    }

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

    fn receive_ready(self: &Rc<Self>, context: &mut Context) {
        for _ in 0..TURNS_PER_EVENT {
            let next = self.state.borrow().receiver.next();
            match next {
                Next::Call if self.receive_for_callback(context) => {}
                Next::Call => return,
                Next::Wake => return self.wake_receiver(),
                Next::Nobody => return self.rest(),
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
        let wanted = self.state.borrow_mut().receiver.take();
        let Wanted::Callback(site, mut callback) = wanted else { return false };
        let datagram = received.map(|(count, sender)| (&buffer[..count], sender));
        let socket = UdpSocket { core: Rc::clone(self) };
        let panic = context.call_guarded(Phase::Poll, site, |context| callback(context, &socket, datagram));
        let stopped = self.state.borrow_mut().receiver.restore(site, callback);
        let dropped = context.drop_guarded(stopped);
        context.buffers.incoming = buffer;
        context.finish_call(panic.or(dropped));
        true
    }

    fn wake_receiver(&self) {
        let wanted = self.state.borrow_mut().receiver.take();
        let Wanted::Future(waker) = wanted else { return };
        // It can only want less than before.
        let _ = self.update();
        waker.wake();
    }

    fn wake_senders(&self) {
        let wakers = std::mem::take(&mut self.state.borrow_mut().waiting_for_room);
        // It can only want less than before.
        let _ = self.update();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn poll_receive(
        &self,
        ticket: u64,
        waker: Waker,
        buffer: &mut [u8],
    ) -> Poll<Result<(usize, SocketAddr), SourceError>> {
        let admitted = self.state.borrow().receiver.admit(ticket);
        if let Err(error) = admitted {
            return Poll::Ready(Err(error));
        }
        let has_turns = self.turns.replace(self.turns.get().saturating_add(1)) < TURNS_PER_EVENT;
        let received = match has_turns {
            true => self.receive(buffer),
            false => self.state.borrow().open().and(Err(SourceError::WouldBlock)),
        };
        if !matches!(received, Err(SourceError::WouldBlock)) {
            self.leave(ticket);
            return Poll::Ready(received);
        }
        let replaced = self.state.borrow_mut().receiver.wait(ticket, waker);
        drop(replaced);
        self.wait_for_event(ticket)
    }

    /// The kernel says for sure only by an event, so every future waits for one.
    fn poll_room(&self, ticket: u64, waker: &Waker, has_waited: &mut bool) -> Poll<Result<(), SourceError>> {
        let still_waits = self.state.borrow().waiting_for_room.iter().any(|(other, _)| *other == ticket);
        if *has_waited && !still_waits {
            return Poll::Ready(self.state.borrow().open().map(|_| ()));
        }
        *has_waited = true;
        self.leave(ticket);
        let waker = waker.clone();
        self.state.borrow_mut().waiting_for_room.push((ticket, waker));
        self.wait_for_event(ticket)
    }

    fn wait_for_event<T>(&self, ticket: u64) -> Poll<Result<T, SourceError>> {
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket waits no more.
    fn leave(&self, ticket: u64) {
        let mut state = self.state.borrow_mut();
        let receiver = state.receiver.leave(ticket);
        let own = state.waiting_for_room.iter().position(|(other, _)| *other == ticket);
        let sender = own.map(|index| state.waiting_for_room.swap_remove(index));
        drop(state);
        if receiver.is_some() || sender.is_some() {
            // It can only want less than before.
            let _ = self.update();
        }
    }

    /// Leaves the loop. Nothing if that happened before. What is returned is dropped by who holds no borrow.
    fn take_apart(&self) -> Option<State> {
        let mut state = self.state.borrow_mut();
        state.socket.as_ref()?;
        let closed = State { socket: None, receiver: Demand::Nobody, waiting_for_room: Vec::new() };
        let taken = std::mem::replace(&mut *state, closed);
        drop(state);
        self.place.leave(taken.socket.as_ref().map(AsFd::as_fd));
        Some(taken)
    }
}

impl Source for Core {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness) {
        self.turns.set(0);
        if readiness.is_writable() {
            self.wake_senders();
        }
        if readiness.is_readable() {
            self.receive_ready(context);
        }
    }

    fn on_loop_gone(&self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

/// A future that waits for a datagram or for room. Dropping it ends its waiting.
struct Waiting<'a> {
    core: &'a Core,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.core.leave(self.ticket);
    }
}
