//! The state of a UDP socket, how it receives and sends when its descriptor is ready, and how it ends.

use std::cell::{RefCell, RefMut};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::answers::{Answering, Answers, Done};
use super::base::{Liveness, Source, SourceBase};
use super::demand::{Demand, Receiver};
use super::send_queue::{SendQueue, WaitingDatagram};
use super::stream_inner::errno_of;
use super::udp::{Datagram, UdpSocket};
use super::{INCOMING_BYTES, SourceError};
use crate::callback::Site;
use crate::{Context, Interest, Readiness};

pub(super) type ReceiveCallback = Box<dyn FnMut(&mut Context, &UdpSocket, Datagram<'_>)>;

/// The inside of a [`UdpSocket`].
pub(super) struct UdpInner {
    pub(super) base: SourceBase,
    pub(super) state: RefCell<State>,
}

pub(super) struct State {
    /// Missing once the socket is closed.
    pub(super) socket: Option<Rc<std::net::UdpSocket>>,
    pub(super) receiver: Demand<ReceiveCallback>,
    pub(super) queue: SendQueue,
    /// Futures that wait for room, by their tickets.
    pub(super) waiting_for_room: Vec<(u64, Waker)>,
}

impl State {
    pub(super) fn open(&self) -> Result<&Rc<std::net::UdpSocket>, SourceError> {
        self.socket.as_ref().ok_or(SourceError::Closed)
    }

    /// Sends one datagram now, unless others wait.
    pub(super) fn send_now(&self, bytes: &[u8], receiver: Option<SocketAddr>) -> Result<(), SourceError> {
        let socket = self.open()?;
        if self.queue.is_idle() { send(socket, bytes, receiver) } else { Err(SourceError::WouldBlock) }
    }

    fn interest(&self) -> Interest {
        let read = if self.receiver.is_there() { Interest::READ } else { Interest::NONE };
        let is_sending = !self.waiting_for_room.is_empty() || !self.queue.is_idle();
        let write = if is_sending { Interest::WRITE } else { Interest::NONE };
        read | write
    }

    fn life(&self) -> Liveness {
        let is_busy = !self.queue.is_idle();
        let is_active = self.receiver.is_there() || !self.waiting_for_room.is_empty();
        Liveness { is_active, is_busy, is_kept: is_busy || self.receiver.is_callback() }
    }
}

impl UdpInner {
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SourceError> {
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

    pub(super) fn send(
        self: &Rc<Self>,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        receiver: Option<SocketAddr>,
        site: Site,
        done: Done,
    ) -> Result<(), SourceError> {
        let length = bytes.as_ref().len();
        let state = self.state.borrow();
        state.open()?;
        state.queue.admit(length)?;
        let sent = state.send_now(bytes.as_ref(), receiver);
        drop(state);
        if !matches!(sent, Err(SourceError::WouldBlock)) {
            self.put_off_answer(site, done, sent);
            return Ok(());
        }
        let bytes = bytes.into();
        self.state.borrow_mut().queue.push(WaitingDatagram { bytes, receiver, site, done });
        if let Err(error) = self.update() {
            // What cannot be watched for will never be sent.
            let errno = errno_of(error);
            self.state.borrow_mut().queue.fail(|| errno.into());
            self.want_less();
            self.put_off_answers();
        }
        Ok(())
    }

    /// The kernel has room again: first for the datagrams that wait, then for those who wait to send one.
    fn send_waiting(self: &Rc<Self>, context: &mut Context) {
        let mut state = self.state.borrow_mut();
        let State { socket, queue, .. } = &mut *state;
        if let Some(socket) = socket {
            queue.flush(|bytes, receiver| send(socket, bytes, receiver));
        }
        let has_room = queue.is_idle();
        drop(state);
        if has_room {
            self.wake_senders();
        }
        self.want_less();
        self.give_answers(context);
    }

    fn wake_senders(&self) {
        let wakers = std::mem::take(&mut self.state.borrow_mut().waiting_for_room);
        self.want_less();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The kernel says for sure only by an event, so every future waits for one.
    pub(super) fn poll_room(
        &self,
        ticket: u64,
        waker: &Waker,
        has_waited: &mut bool,
    ) -> Poll<Result<(), SourceError>> {
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

    /// Closes without telling anybody.
    fn abandon(&self) {
        let Some(remains) = self.take_apart() else { return };
        drop(remains);
        self.drop_answers();
    }

    /// Leaves the loop. Nothing if that happened before. Drop what is returned only when no borrow is held.
    pub(super) fn take_apart(&self) -> Option<State> {
        let mut state = self.state.borrow_mut();
        state.socket.as_ref()?;
        // The answers stay, for whoever closes the socket to give or to drop.
        state.queue.fail(|| SourceError::Cancelled);
        let closed = State {
            socket: None,
            receiver: Demand::Nobody,
            queue: std::mem::take(&mut state.queue),
            waiting_for_room: Vec::new(),
        };
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

impl Answering for UdpInner {
    fn source_base(&self) -> &SourceBase {
        &self.base
    }

    fn answers(&self) -> RefMut<'_, Answers> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.queue.answers)
    }

    fn on_answer_taken(&self) {}
}

impl Source for UdpInner {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness) {
        self.base.begin_event();
        if readiness.is_writable() {
            self.send_waiting(context);
        }
        if readiness.is_readable() {
            self.take_in(|| self.receive_for_callback(context));
        }
    }

    fn on_loop_gone(&self) {
        self.abandon();
    }
}

impl Drop for UdpInner {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn send(socket: &std::net::UdpSocket, bytes: &[u8], receiver: Option<SocketAddr>) -> Result<(), SourceError> {
    loop {
        let sent = match receiver {
            Some(receiver) => socket.send_to(bytes, receiver),
            None => socket.send(bytes),
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

/// A future that waits for room. Dropping it ends its waiting.
pub(super) struct WaitingForRoom<'a> {
    pub(super) inner: &'a UdpInner,
    pub(super) ticket: u64,
}

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.inner.leave_room(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::Location;

    use super::*;
    use crate::EventLoop;

    /// The kernel takes every datagram for this machine at once, so one is put into the queue by hand.
    fn queue(socket: &UdpSocket, receiver: SocketAddr, done: Done) {
        let (bytes, site) = (b"late".to_vec(), Location::caller());
        let datagram = WaitingDatagram { bytes, receiver: Some(receiver), site, done };
        socket.inner.state.borrow_mut().queue.push(datagram);
        socket.inner.update().unwrap();
    }

    fn socket(event_loop: &EventLoop) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_address().unwrap();
        (socket, address)
    }

    #[test]
    fn a_datagram_that_waits_keeps_the_loop_alive_and_is_sent_when_there_is_room() {
        let mut event_loop = EventLoop::new().unwrap();
        let ((sender, _), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
        let answered = Rc::new(Cell::new(0));
        let count = Rc::clone(&answered);
        queue(&sender, to, Box::new(move |_, sent| sent.map(|()| count.set(count.get() + 1)).unwrap()));
        assert!(matches!(sender.try_send_to(b"no overtaking", to), Err(SourceError::WouldBlock)));
        let count = Rc::clone(&answered);
        sender
            .send_to(b"later", to, move |_, sent| sent.map(|()| count.set(count.get() + 10)).unwrap())
            .unwrap();
        assert_eq!((sender.send_queue_len(), sender.send_queue_bytes()), (2, 9));
        sender.unref();
        assert!(event_loop.is_alive() && sender.is_active());
        // The loop keeps the socket until its datagrams are sent.
        drop(sender);
        assert!(!event_loop.run().unwrap());
        assert_eq!(answered.get(), 11);
        let mut buffer = [0; 8];
        assert_eq!(receiver.inner.receive(&mut buffer).unwrap().0, 4);
        assert_eq!(receiver.inner.receive(&mut buffer).unwrap().0, 5);
    }

    #[test]
    fn closing_a_socket_cancels_the_datagrams_that_wait() {
        let mut event_loop = EventLoop::new().unwrap();
        let (sender, to) = socket(&event_loop);
        let order = Rc::new(RefCell::new(Vec::new()));
        let (told, closed) = (Rc::clone(&order), Rc::clone(&order));
        queue(&sender, to, Box::new(move |_, sent| told.borrow_mut().push(format!("{sent:?}"))));
        sender.close(move |_| closed.borrow_mut().push("closed".to_owned())).unwrap();
        event_loop.run().unwrap();
        assert_eq!(*order.borrow(), ["Err(Cancelled)", "closed"]);
    }
}
