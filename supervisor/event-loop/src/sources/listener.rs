//! Listeners: they wait for connections over TCP or a Unix socket and make a stream of each.
//!
//! When there is no descriptor left for a connection, accepting pauses, or the kernel would report the same connection again
//! and again. The connection waits in the backlog meanwhile and is not refused: a moment later there may be room.
//!
//! ```text
//!   accepting --(no descriptor left: the callback is told, once a pause)--> pausing --(50 ms)--> accepting
//! ```

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use rustix::io::Errno;

use super::SourceError;
use super::base::{Base, Liveness, Source};
use super::methods::impl_common_methods;
use super::reader::{Readable, Reader};
use super::stream::Stream;
use super::tcp::TcpOptions;
use super::transport::{self, Address, Transport};
use super::waiting::WaitingPlace;
use crate::callback::Site;
use crate::limits::TURNS_PER_EVENT;
use crate::{AliveKind, Context, Interest, LoopHandle, Readiness, TimerId};

/// How long accepting pauses when it fails for a reason that does not lie in one connection.
const PAUSE: Duration = Duration::from_millis(50);

type AcceptCallback = Box<dyn FnMut(&mut Context, &Listener, Result<Stream, SourceError>)>;

/// A socket that connections arrive at. Cheap to clone: all clones are the same listener.
///
/// The loop keeps a listener whose callback waits; any other is closed when its last handle is dropped. The file of
/// a Unix socket stays, as with the standard library, and binding to one that exists is refused: only its owner
/// knows whether it is stale.
///
/// It is not [`AsFd`], because any clone may close it: see [`Listener::descriptor`].
#[derive(Clone)]
pub struct Listener {
    inner: Rc<ListenerInner>,
}

struct ListenerInner {
    base: Base,
    acceptor: RefCell<Reader<AcceptCallback>>,
    /// The timer that ends the pause, during one.
    pause: Cell<Option<TimerId>>,
}

impl Listener {
    /// Listens at `address`; with port 0 the system chooses a port, which [`Listener::local_address`] returns.
    /// Connections wait in the kernel until they are accepted. [`TcpOptions::listen`] listens with other options, and
    /// [`TcpOptions::bind`] takes the address now and listens later.
    ///
    /// # Errors
    /// [`SourceError::Io`] for an address in use and the like, [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn tcp(event_loop: &LoopHandle, address: SocketAddr) -> Result<Listener, SourceError> {
        TcpOptions::new().listen(event_loop, address)
    }

    /// Listens at the Unix socket `path`, which must not exist before.
    ///
    /// # Errors
    /// As [`Listener::tcp`], and [`SourceError::UnusablePath`]: there are no sockets without a file here, because only a
    /// file has permissions.
    #[track_caller]
    pub fn unix(event_loop: &LoopHandle, path: impl AsRef<Path>) -> Result<Listener, SourceError> {
        event_loop.shared.check_not_gone()?;
        Ok(Listener::new(event_loop, Location::caller(), transport::listen_unix(path.as_ref())?))
    }

    pub(super) fn new(event_loop: &LoopHandle, site: Site, socket: OwnedFd) -> Listener {
        let inner = Rc::new_cyclic(|inner| ListenerInner {
            base: Base::new(event_loop, site, AliveKind::Listener, inner, Ok(socket)),
            acceptor: RefCell::new(Reader::Nobody),
            pause: Cell::new(None),
        });
        Listener { inner }
    }

    /// Calls `callback` with a stream for each connection. When accepting fails, the callback gets the error, and accepting
    /// goes on after a pause of 50 ms: while no descriptors are left ([`SourceError::OutOfDescriptors`]), connections wait.
    ///
    /// # Errors
    /// [`SourceError::AlreadyReading`] if a callback or future accepts already, [`SourceError::Closed`],
    /// [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn accept_start(
        &self,
        callback: impl FnMut(&mut Context, &Listener, Result<Stream, SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        self.inner.start(Location::caller(), Box::new(callback))
    }

    /// Ends what [`Listener::accept_start`] began; nothing happens if it is over. Connections still wait in the
    /// kernel.
    pub fn accept_stop(&self) {
        self.inner.stop();
    }

    /// The next connection. Dropping the future takes none.
    ///
    /// # Errors
    /// As [`Listener::accept_start`], and what the system says. [`SourceError::OutOfDescriptors`] comes at once, without a
    /// pause: sleep before you accept again.
    pub async fn accept(&self) -> Result<Stream, SourceError> {
        let place = WaitingPlace::new(&*self.inner, ListenerInner::leave_reading);
        poll_fn(|context| {
            let accept = || self.inner.accept()?.ok_or(SourceError::WouldBlock);
            let accepted = self.inner.poll_next(place.ticket, context.waker(), accept);
            accepted.map_ok(|connection| self.inner.stream(self.inner.base.site(), connection))
        })
        .await
    }

    /// Where it listens.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<Address, SourceError> {
        self.inner.base.local_address()
    }
}

impl_common_methods!(Listener {
    /// Its file descriptor.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    descriptor,
    /// Closes the listener at once. Connections that nobody accepted are refused; the streams of others go on.
    /// `on_closed` runs in the closing phase.
    close,
});

impl ListenerInner {
    /// A connection, or nothing if none waits. Failures of single connections are passed over.
    fn accept(&self) -> Result<Option<OwnedFd>, SourceError> {
        let socket = self.base.descriptor()?;
        for _ in 0..TURNS_PER_EVENT {
            match transport::accept(socket.as_fd()) {
                Ok(connection) => return Ok(Some(connection)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) if concerns_one_connection(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    fn stream(&self, site: Site, connection: OwnedFd) -> Stream {
        Stream::open(self.base.event_loop(), site, connection, Transport::Socket)
    }

    /// One connection and its callback. True if there may be more.
    fn accept_for_callback(self: &Rc<Self>, context: &mut Context) -> bool {
        let accepted = self.accept();
        if matches!(accepted, Ok(None)) {
            return false;
        }
        let may_be_more = accepted.is_ok();
        let call = |callback: &mut AcceptCallback, context: &mut Context, site| {
            let result = match accepted {
                Ok(Some(connection)) => Ok(self.stream(site, connection)),
                Ok(None) => return,
                Err(error) => {
                    self.pause();
                    Err(error)
                }
            };
            callback(context, &Listener { inner: Rc::clone(self) }, result);
        };
        self.call_back(context, call) && may_be_more
    }

    fn pause(self: &Rc<Self>) {
        let inner = Rc::downgrade(self);
        let timer = self.base.event_loop().set_timeout(PAUSE, move |_| {
            if let Some(inner) = inner.upgrade() {
                inner.pause.set(None);
                // What was watched before can be watched again; if not, the next accept_start says so.
                let _ = inner.update();
            }
        });
        self.base.event_loop().unref(timer);
        self.pause.set(Some(timer));
        self.rest();
    }

    fn end_pause(&self) {
        if let Some(timer) = self.pause.take() {
            self.base.event_loop().clear(timer);
        }
    }
}

/// Errors that one peer has caused, or the network on the way to it: the next connection may be fine.
fn concerns_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}

impl Source for ListenerInner {
    type Waiting = Reader<AcceptCallback>;

    fn base(&self) -> &Base {
        &self.base
    }

    fn interest(&self) -> Interest {
        let is_accepting = self.acceptor.borrow().is_there() && self.pause.get().is_none();
        if is_accepting { Interest::READ } else { Interest::NONE }
    }

    fn liveness(&self) -> Liveness {
        let acceptor = self.acceptor.borrow();
        Liveness { is_active: acceptor.is_there(), is_busy: false, is_kept: acceptor.is_callback() }
    }

    fn on_ready(self: &Rc<Self>, context: &mut Context, _: Readiness) {
        self.take_in(|| self.accept_for_callback(context));
    }

    fn take_waiting(&self) -> Reader<AcceptCallback> {
        self.end_pause();
        self.acceptor.take()
    }

    fn tell_closed(self: &Rc<Self>, acceptor: Reader<AcceptCallback>) -> Vec<Waker> {
        Vec::from_iter(acceptor.into_future())
    }
}

impl Readable for ListenerInner {
    type Callback = AcceptCallback;

    fn reader(&self) -> &RefCell<Reader<AcceptCallback>> {
        &self.acceptor
    }
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        self.end_pause();
    }
}
