//! Streams: bytes in both directions over TCP, Unix sockets, pipes and terminals, all of one type.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::SourceError;
use super::base::{Gone, Source};
use super::methods::impl_common_methods;
use super::reader::Readable;
use super::stream_inner::{self, ConnectCallback, StreamInner};
use super::tcp::{self, TcpOptions};
use super::transport::{self, Address, Connecting, Transport};
use crate::callback::Site;
use crate::{Context, LoopHandle};

/// What a read callback gets.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Bytes, at least one and at most 64 KiB. They are gone when the callback returns.
    Data(&'a [u8]),
    /// The peer writes no more. Reading has stopped; writing goes on until it is shut down.
    End,
    /// Reading failed, and has stopped.
    Failed(SourceError),
}

/// One end of a connection, or of a pipe. Cheap to clone: all clones are the same stream.
///
/// The loop keeps a stream that is read by a callback, connects, or has something to write. Any other is closed when
/// its last handle is dropped. To learn when it is closed, call [`Stream::close`].
///
/// It is not [`AsFd`], because any clone may close it: see [`Stream::descriptor`].
#[derive(Clone)]
pub struct Stream {
    pub(super) inner: Rc<StreamInner>,
}

/// Making.
impl Stream {
    /// Connects to `address` and calls `done` with the result, never within this call. Failures, and a success that is known
    /// at once, are told in the pending phase. Reading may be started and writes may be queued before `done` is called. When
    /// connecting fails, the writes end with [`SourceError::Cancelled`] and the reader with [`SourceError::NotConnected`].
    ///
    /// If the loop was dropped, `done` is dropped at once, and the stream is closed.
    ///
    /// [`TcpOptions::connect`] connects with other options, and [`TcpOptions::bind`] from a local address of your choice.
    #[track_caller]
    pub fn connect_tcp(
        event_loop: &LoopHandle,
        address: SocketAddr,
        done: impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static,
    ) -> Stream {
        TcpOptions::new().connect(event_loop, address, done)
    }

    /// As [`Stream::connect_tcp`], to a Unix socket. `done` is also told when the path is too long or empty, and when the
    /// backlog of the listener is full ([`SourceError::WouldBlock`]): the kernel cannot wait for room there.
    #[track_caller]
    pub fn connect_unix(
        event_loop: &LoopHandle,
        path: impl AsRef<Path>,
        done: impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static,
    ) -> Stream {
        let start = || transport::connect_unix(path.as_ref());
        Stream::connecting(event_loop, Location::caller(), start, Box::new(done))
    }

    /// A stream over a descriptor that is open already: a connected socket, a pipe, a terminal. It is made
    /// non-blocking, and with it every copy of it, also those in other processes.
    ///
    /// Writing to a pipe that nobody reads any more raises SIGPIPE, unless the process ignores that signal, as Rust programs
    /// do by default. For sockets it is always an error and never a signal.
    ///
    /// # Errors
    /// [`SourceError::NotWatchable`] for regular files and devices without readiness, [`SourceError::Io`].
    #[track_caller]
    pub fn from_descriptor(event_loop: &LoopHandle, descriptor: OwnedFd) -> Result<Stream, SourceError> {
        event_loop.shared.check_not_gone()?;
        let transport = Transport::of(descriptor.as_fd())?;
        Ok(Stream::open(event_loop, Location::caller(), descriptor, transport))
    }

    /// A new pipe: what is written to the second stream is read from the first.
    ///
    /// # Errors
    /// [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn pipe(event_loop: &LoopHandle) -> Result<(Stream, Stream), SourceError> {
        event_loop.shared.check_not_gone()?;
        let (reader, writer) = transport::pipe()?;
        let site = Location::caller();
        let stream = |descriptor| Stream::open(event_loop, site, descriptor, Transport::Pipe);
        Ok((stream(reader), stream(writer)))
    }

    /// Two streams that are connected with each other, in both directions.
    ///
    /// # Errors
    /// [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn pair(event_loop: &LoopHandle) -> Result<(Stream, Stream), SourceError> {
        event_loop.shared.check_not_gone()?;
        let (one, other) = transport::socket_pair()?;
        let site = Location::caller();
        let stream = |descriptor| Stream::open(event_loop, site, descriptor, Transport::Socket);
        Ok((stream(one), stream(other)))
    }

    pub(super) fn open(
        event_loop: &LoopHandle,
        site: Site,
        descriptor: OwnedFd,
        transport: Transport,
    ) -> Stream {
        Stream { inner: StreamInner::new(event_loop, site, Ok(descriptor), transport, None) }
    }

    /// If the loop is gone, nothing is begun and `done` is dropped.
    pub(super) fn connecting(
        event_loop: &LoopHandle,
        site: Site,
        start: impl FnOnce() -> Result<(OwnedFd, Connecting), SourceError>,
        done: ConnectCallback,
    ) -> Stream {
        if event_loop.is_gone() {
            let inner = StreamInner::new(event_loop, site, Err(Gone::Closed), Transport::Socket, None);
            return Stream { inner };
        }
        let (descriptor, known) = match start() {
            Ok((descriptor, Connecting::UnderWay)) => (Ok(descriptor), None),
            Ok((descriptor, Connecting::Done)) => (Ok(descriptor), Some(Ok(()))),
            Err(error) => (Err(Gone::NotConnected), Some(Err(error))),
        };
        let connecting = stream_inner::ConnectWaiter { site, done };
        let inner = StreamInner::new(event_loop, site, descriptor, Transport::Socket, Some(connecting));
        // What is known already needs no watching.
        let result = known.or_else(|| inner.update().err().map(Err));
        if let Some(result) = result {
            inner.put_off_connect(site, result);
        }
        Stream { inner }
    }

    pub(super) fn of(inner: &Rc<StreamInner>) -> Stream {
        Stream { inner: Rc::clone(inner) }
    }
}

/// Reading.
impl Stream {
    /// Calls `callback` with what comes in, until the end, a failure, or [`Stream::read_stop`]. At most 32 times
    /// for one event: then the other sources have their turn. A stream that connects is read as soon as it is connected.
    ///
    /// # Errors
    /// [`SourceError::AlreadyReading`]: one reader at a time, callback or future. [`SourceError::NotConnected`] if
    /// connecting has failed, [`SourceError::Closed`], [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn read_start(
        &self,
        callback: impl FnMut(&mut Context, &Stream, Incoming<'_>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.start(Location::caller(), Box::new(callback))
    }

    /// Ends what [`Stream::read_start`] began; nothing happens if it is over. What has not been read stays with the
    /// kernel.
    pub fn read_stop(&self) {
        self.inner.stop();
    }
}

/// Writing.
impl Stream {
    /// Writes `bytes` after all earlier writes. What the kernel takes at once is written; the rest is queued. `done` is
    /// called when the kernel has all bytes, or with the reason why it never will: never within this call, and in the order
    /// of the writes. An empty write is answered after those before it.
    ///
    /// # Errors
    /// [`SourceError::QueueFull`] if they do not fit below the [limit](Stream::set_write_limit): wait for the answer
    /// of an earlier write. [`SourceError::AlreadyShutDown`], [`SourceError::NotConnected`], [`SourceError::Closed`].
    /// Nothing was written then, and `done` is dropped.
    #[track_caller]
    pub fn write(
        &self,
        bytes: impl AsRef<[u8]> + Into<Vec<u8>>,
        done: impl FnOnce(&mut Context, Result<(), SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.write(bytes, Location::caller(), Box::new(done))
    }

    /// Writes as many of `bytes` as the kernel has room for now, and returns how many.
    ///
    /// # Errors
    /// [`SourceError::WouldBlock`] if there is none, if other writes wait, or while it connects; otherwise as
    /// [`Stream::write`], and what the system says.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, SourceError> {
        self.inner.try_write(bytes)
    }

    /// Ends the writing side when everything is written, and calls `done` then. Reading goes on. For the writing end of a
    /// pipe, such as a child's standard input, this is the end. A FIFO that is open for both directions, and a
    /// terminal, have no side that could be shut down, and `done` gets an error.
    ///
    /// # Errors
    /// [`SourceError::AlreadyShutDown`], [`SourceError::NotConnected`], [`SourceError::Closed`].
    #[track_caller]
    pub fn shutdown(
        &self,
        done: impl FnOnce(&mut Context, Result<(), SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.shut_down(Location::caller(), Box::new(done))
    }

    /// How many bytes wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.inner.state.borrow().writer.queued()
    }

    /// Sets how many bytes may wait at most; the default is 1 MiB. What waits already stays. A write that is
    /// not answered yet counts 64 bytes beside its own, so the limit bounds the number of writes, too: with 1 MiB it
    /// is 16,384, however short they are. The first one only has to fit with its own bytes.
    pub fn set_write_limit(&self, bytes: usize) {
        self.inner.state.borrow_mut().writer.set_limit(bytes);
        self.inner.tell_of_room();
    }
}

/// Everything else.
impl Stream {
    /// Sends small writes of a TCP stream at once instead of collecting them.
    ///
    /// # Errors
    /// [`SourceError::Io`] if it is no TCP stream; [`SourceError::NotConnected`], [`SourceError::Closed`].
    pub fn set_nodelay(&self, is_set: bool) -> Result<(), SourceError> {
        tcp::set_no_delay(self.inner.base.descriptor()?, is_set)
    }

    /// Lets the kernel ask the peer of a TCP stream whether it is still there, after `delay` without traffic: rounded up to
    /// seconds, at least one. If ten probes, one a second, have no answer, reading fails with a timeout. `None` ends it.
    ///
    /// # Errors
    /// [`SourceError::Io`] for a delay below a second or beyond what the system takes (32,767 s), and if it is no TCP
    /// stream; [`SourceError::NotConnected`], [`SourceError::Closed`].
    pub fn set_keep_alive(&self, delay: Option<Duration>) -> Result<(), SourceError> {
        tcp::set_keep_alive(self.inner.base.descriptor()?, delay)
    }

    /// The address of this end, also while it connects.
    ///
    /// # Errors
    /// [`SourceError::Io`] if it is no socket; [`SourceError::NotConnected`] if connecting has failed,
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<Address, SourceError> {
        self.inner.base.local_address()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// As [`Stream::local_address`].
    pub fn peer_address(&self) -> Result<Address, SourceError> {
        if self.inner.is_connecting() {
            return Err(SourceError::NotConnected);
        }
        Address::peer(self.inner.base.descriptor()?.as_fd())
    }
}

impl_common_methods!(Stream {
    /// Its file descriptor, also while it connects.
    ///
    /// # Errors
    /// [`SourceError::NotConnected`] if connecting has failed, [`SourceError::AlreadyShutDown`] if it was the writing end of a
    /// pipe, [`SourceError::Closed`].
    descriptor,
    /// Closes the stream at once. The read callback is never called again; connects, writes and shutdowns that are
    /// under way are answered with [`SourceError::Cancelled`] in the closing phase, and `on_closed` after them.
    close,
});
