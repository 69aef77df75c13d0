//! What waits for a UDP socket, how it receives and sends when its descriptor is ready, and how it ends.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};

use super::SourceError;
use super::answers::{Answering, Answers, Done, DueAnswer};
use super::base::{Base, Liveness, Source};
use super::reader::{Readable, Reader};
use super::send_queue::{SendQueue, WaitingDatagram};
use super::udp::{Datagram, UdpSocket};
use super::waiting::WaitingFutures;
use crate::callback::Site;
use crate::limits::INCOMING_BYTES;
use crate::{Context, Interest, Readiness};

pub(super) type ReceiveCallback = Box<dyn FnMut(&mut Context, &UdpSocket, Datagram<'_>)>;

/// The inside of a [`UdpSocket`].
pub(super) struct UdpInner {
    pub(super) base: Base,
    pub(super) receiver: RefCell<Reader<ReceiveCallback>>,
    pub(super) outgoing: RefCell<Outgoing>,
}

/// What waits until the kernel has room.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) queue: SendQueue,
    /// Futures that want to send something themselves.
    waiting_for_room: WaitingFutures,
}

impl UdpInner {
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), SourceError> {
        let socket = self.base.descriptor()?;
        let (count, _, sender) =
            retry_on_intr(|| rustix::net::recvfrom(&socket, &mut *buffer, RecvFlags::empty()))?;
        // A datagram always has a sender.
        let sender = SocketAddr::try_from(sender.ok_or(Errno::AFNOSUPPORT)?)?;
        Ok((count, sender))
    }

    /// Sends one datagram now, unless others wait.
    pub(super) fn send_now(&self, bytes: &[u8], receiver: Option<SocketAddr>) -> Result<(), SourceError> {
        let socket = self.base.descriptor()?;
        match self.outgoing.borrow().queue.is_idle() {
            true => send(&socket, bytes, receiver),
            false => Err(SourceError::WouldBlock),
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
        self.check_open()?;
        self.outgoing.borrow().queue.admit(bytes.as_ref().len())?;
        let sent = self.send_now(bytes.as_ref(), receiver);
        if !matches!(sent, Err(SourceError::WouldBlock)) {
            self.put_off_answer(site, done, sent);
            return Ok(());
        }
        let bytes = bytes.into();
        self.outgoing.borrow_mut().queue.push(WaitingDatagram { bytes, receiver, site, done });
        if let Err(error) = self.update() {
            // What cannot be watched for will never be sent.
            let errno = error.into_errno();
            self.outgoing.borrow_mut().queue.fail(|| errno.into());
            self.want_less();
            self.put_off_answers();
        }
        Ok(())
    }

    /// The kernel has room again: first for the datagrams that wait, then for those who wait to send one.
    fn send_waiting(self: &Rc<Self>, context: &mut Context) {
        let mut outgoing = self.outgoing.borrow_mut();
        if let Ok(socket) = self.base.descriptor() {
            outgoing.queue.flush(|bytes, receiver| send(&socket, bytes, receiver));
        }
        let has_room = outgoing.queue.is_idle();
        drop(outgoing);
        if has_room {
            self.wake_senders();
        }
        self.want_less();
        self.give_answers(context);
    }

    fn wake_senders(&self) {
        let wakers = self.outgoing.borrow_mut().waiting_for_room.take();
        self.want_less();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The kernel says for sure only by an event, so every future waits for one.
    pub(super) fn poll_room(
        &self,
        ticket: u64,
        waker: &Waker,
        has_waited: &mut bool,
    ) -> Poll<Result<(), SourceError>> {
        let is_open = self.check_open();
        let was_woken = *has_waited && !self.outgoing.borrow().waiting_for_room.contains(ticket);
        if was_woken || is_open.is_err() {
            return Poll::Ready(is_open);
        }
        *has_waited = true;
        let waker = waker.clone();
        let replaced = self.outgoing.borrow_mut().waiting_for_room.insert(ticket, waker);
        drop(replaced);
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave_room(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket waits for room no more.
    pub(super) fn leave_room(&self, ticket: u64) {
        let left = self.outgoing.borrow_mut().waiting_for_room.remove(ticket);
        if left.is_some() {
            self.want_less();
        }
    }
}

/// Everybody who waited for a socket that was closed.
pub(super) struct Waiting {
    receiver: Reader<ReceiveCallback>,
    answers: VecDeque<DueAnswer>,
    futures: Vec<Waker>,
}

impl Source for UdpInner {
    type Waiting = Waiting;

    fn base(&self) -> &Base {
        &self.base
    }

    fn interest(&self) -> Interest {
        let outgoing = self.outgoing.borrow();
        let is_sending = !outgoing.waiting_for_room.is_empty() || !outgoing.queue.is_idle();
        let read = if self.receiver.borrow().is_there() { Interest::READ } else { Interest::NONE };
        let write = if is_sending { Interest::WRITE } else { Interest::NONE };
        read | write
    }

    fn liveness(&self) -> Liveness {
        let (receiver, outgoing) = (self.receiver.borrow(), self.outgoing.borrow());
        let is_busy = !outgoing.queue.is_idle();
        let is_active = receiver.is_there() || !outgoing.waiting_for_room.is_empty();
        Liveness { is_active, is_busy, is_kept: is_busy || receiver.is_callback() }
    }

    fn on_ready(self: &Rc<Self>, context: &mut Context, readiness: Readiness) {
        if readiness.is_writable() {
            self.send_waiting(context);
        }
        if readiness.is_readable() {
            self.take_in(|| self.receive_for_callback(context));
        }
    }

    fn take_waiting(&self) -> Waiting {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.queue.fail(|| SourceError::Cancelled);
        Waiting {
            receiver: self.receiver.take(),
            answers: outgoing.queue.answers.take(),
            futures: outgoing.waiting_for_room.take(),
        }
    }

    fn tell_closed(self: &Rc<Self>, waiting: Waiting) -> Vec<Waker> {
        let Waiting { receiver, answers, futures } = waiting;
        self.answer_in_closing(answers);
        receiver.into_future().into_iter().chain(futures).collect()
    }
}

impl Readable for UdpInner {
    type Callback = ReceiveCallback;

    fn reader(&self) -> &RefCell<Reader<ReceiveCallback>> {
        &self.receiver
    }
}

impl Answering for UdpInner {
    fn answers(&self) -> RefMut<'_, Answers> {
        RefMut::map(self.outgoing.borrow_mut(), |outgoing| &mut outgoing.queue.answers)
    }

    fn on_answer_taken(&self) {}
}

fn send(socket: &OwnedFd, bytes: &[u8], receiver: Option<SocketAddr>) -> Result<(), SourceError> {
    let sent = retry_on_intr(|| match &receiver {
        Some(receiver) => rustix::net::sendto(socket, bytes, SendFlags::NOSIGNAL, receiver),
        None => rustix::net::send(socket, bytes, SendFlags::NOSIGNAL),
    });
    Ok(sent.map(drop)?)
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
        socket.inner.outgoing.borrow_mut().queue.push(datagram);
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
