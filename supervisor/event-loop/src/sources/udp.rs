//! Datagrams over UDP.
//!
//! A datagram that the kernel has no room for waits in a queue with a bound, so that one slow network cannot fill the memory.
//! A program that would rather drop a datagram than send it late uses [`UdpSocket::try_send_to`], which queues nothing, and
//! awaits [`UdpSocket::writable`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::rc::Rc;

use rustix::io::retry_on_intr;

use super::SourceError;
use super::base::{Base, Source, impl_references};
use super::descriptor::Descriptor;
use super::reader::{Readable, Reader};
use super::udp_inner::{Outgoing, UdpInner};
use super::udp_options::{MulticastGroup, UdpOptions};
use super::waiting::WaitingPlace;
use crate::callback::Site;
use crate::{AliveKind, Context, LoopHandle};

/// What a receiving callback gets: the datagram and the address of its sender, or an error.
pub type Datagram<'a> = Result<(&'a [u8], SocketAddr), SourceError>;

/// A socket for datagrams. Cheap to clone: all clones are the same socket.
///
/// The loop keeps a socket whose callback waits; any other is closed when its last handle is dropped.
#[derive(Clone)]
pub struct UdpSocket {
    pub(super) inner: Rc<UdpInner>,
}

impl UdpSocket {
    /// A socket at `address`; port 0 lets the system choose one. For other than the default options there is
    /// [`UdpOptions::bind`].
    ///
    /// # Errors
    /// [`SourceError::Io`] for an address in use and the like, [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn bind(event_loop: &LoopHandle, address: SocketAddr) -> Result<UdpSocket, SourceError> {
        UdpOptions::new().bind(event_loop, address)
    }

    pub(super) fn open(event_loop: &LoopHandle, site: Site, socket: OwnedFd) -> UdpSocket {
        let inner = Rc::new_cyclic(|inner| UdpInner {
            base: Base::new(event_loop, site, AliveKind::UdpSocket, inner, Ok(socket)),
            receiver: RefCell::new(Reader::Nobody),
            outgoing: RefCell::new(Outgoing::default()),
        });
        UdpSocket { inner }
    }

    /// Ties the socket to one peer: it receives datagrams from `peer` only, and [`UdpSocket::send`] sends to it.
    ///
    /// # Errors
    /// [`SourceError::Closed`], or what the system says.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), SourceError> {
        let socket = self.inner.base.descriptor()?;
        Ok(retry_on_intr(|| rustix::net::connect(&socket, &peer))?)
    }

    /// Sends one datagram, whole or not at all, after those that were given before. If the kernel has no room for it, it
    /// waits. `done` is called when the kernel has it, or with the reason why it was not sent: never within this call, and in
    /// the order of the sends. The error may be about an earlier datagram: the kernel reports a refusal with the next call.
    ///
    /// Like `uv_udp_send`, but libuv's queue has no bound. Here at most [`SEND_QUEUE_LEN_MAX`](crate::SEND_QUEUE_LEN_MAX)
    /// (1,024) datagrams wait to be sent or for their answer, and at most
    /// [`SEND_QUEUE_BYTES_MAX`](crate::SEND_QUEUE_BYTES_MAX) (1 MiB) of bytes to be sent.
    ///
    /// # Errors
    /// [`SourceError::SendQueueFull`]: wait for the answer of an earlier one. [`SourceError::Closed`]. Nothing was sent then,
    /// and `done` is dropped.
    #[track_caller]
    pub fn send_to(
        &self,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        receiver: SocketAddr,
        done: impl FnOnce(&mut Context, Result<(), SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.send(bytes, Some(receiver), Location::caller(), Box::new(done))
    }

    /// As [`UdpSocket::send_to`], to the peer of [`UdpSocket::connect`].
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    #[track_caller]
    pub fn send(
        &self,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        done: impl FnOnce(&mut Context, Result<(), SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.send(bytes, None, Location::caller(), Box::new(done))
    }

    /// Sends one datagram at once, whole or not at all, and queues nothing.
    ///
    /// # Errors
    /// [`SourceError::WouldBlock`] without room for it now, or if others wait; [`SourceError::Closed`]; or what the system
    /// says, which may concern an earlier datagram.
    pub fn try_send_to(&self, bytes: &[u8], receiver: SocketAddr) -> Result<(), SourceError> {
        self.inner.send_now(bytes, Some(receiver))
    }

    /// As [`UdpSocket::try_send_to`], to the peer of [`UdpSocket::connect`].
    ///
    /// # Errors
    /// As [`UdpSocket::try_send_to`].
    pub fn try_send(&self, bytes: &[u8]) -> Result<(), SourceError> {
        self.inner.send_now(bytes, None)
    }

    /// How many datagrams wait to be sent or for their answer, as `uv_udp_get_send_queue_count`.
    pub fn send_queue_len(&self) -> usize {
        self.inner.outgoing.borrow().queue.len()
    }

    /// How many bytes wait to be sent. Unlike `uv_udp_get_send_queue_size`, it does not count what is sent and waits for its
    /// answer: that takes no memory any more.
    pub fn send_queue_bytes(&self) -> usize {
        self.inner.outgoing.borrow().queue.bytes()
    }

    /// Joins a group: what is sent to it and to this socket's port comes in here, too.
    ///
    /// # Errors
    /// [`SourceError::Closed`], or what the system says.
    pub fn join_multicast(&self, group: MulticastGroup) -> Result<(), SourceError> {
        Ok(group.add(self.inner.base.descriptor()?.as_fd())?)
    }

    /// Undoes [`UdpSocket::join_multicast`] of the same group and interface.
    ///
    /// # Errors
    /// [`SourceError::Closed`], or what the system says, also if it did not belong to the group.
    pub fn leave_multicast(&self, group: MulticastGroup) -> Result<(), SourceError> {
        Ok(group.drop(self.inner.base.descriptor()?.as_fd())?)
    }

    /// Its file descriptor.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn descriptor(&self) -> Result<Descriptor, SourceError> {
        self.inner.base.descriptor().map(Descriptor::new)
    }

    /// Resolves when there is room for a datagram.
    ///
    /// # Errors
    /// [`SourceError::Closed`], [`SourceError::OutOfDescriptors`].
    pub async fn writable(&self) -> Result<(), SourceError> {
        let place = WaitingPlace::new(&*self.inner, UdpInner::leave_room);
        let mut has_waited = false;
        poll_fn(|context| self.inner.poll_room(place.ticket, context.waker(), &mut has_waited)).await
    }

    /// Calls `callback` with each datagram that comes in, at most 32 for one event. The callback gets
    /// errors too, such as a connected peer that refuses datagrams, and receiving goes on.
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
        let place = WaitingPlace::new(&*self.inner, UdpInner::leave_reading);
        poll_fn(|context| {
            let receive = || self.inner.receive(&mut *buffer);
            self.inner.poll_next(place.ticket, context.waker(), receive)
        })
        .await
    }

    /// The address of this socket.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<SocketAddr, SourceError> {
        let address = rustix::net::getsockname(self.inner.base.descriptor()?)?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Closes the socket at once. Datagrams that wait are not sent and are answered with [`SourceError::Cancelled`] in the
    /// closing phase, and `on_closed` runs after them.
    ///
    /// # Errors
    /// [`SourceError::Closed`] if it was closed before; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(&self, on_closed: impl FnOnce(&mut Context) + 'static) -> Result<(), SourceError> {
        self.inner.close(Location::caller(), on_closed)
    }
}

impl_references!(UdpSocket);
