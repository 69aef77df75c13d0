//! Listeners: they wait for connections over TCP or a Unix socket and make a stream of each.
//!
//! When there is no descriptor left for a connection, accepting pauses: the kernel would report the connection again
//! and again. It waits in the backlog meanwhile, and nobody is turned away who can be served a moment later.
//!
//! ```text
//!   accepting --(no descriptor left: the callback is told, once a pause)--> pausing --(50 ms)--> accepting
//! ```

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::io::Errno;

use super::demand::{Demand, Next, Wanted};
use super::place::{Life, Place, Source};
use super::stream::Stream;
use super::transport::{self, Address, Transport};
use super::{SourceError, TURNS_PER_EVENT};
use crate::callback::Site;
use crate::{Context, Interest, LoopHandle, Phase, Readiness, TimerId};

/// How long accepting pauses when it fails for a reason that does not lie in one connection.
const PAUSE: Duration = Duration::from_millis(50);

type AcceptCallback = Box<dyn FnMut(&mut Context, &Listener, Result<Stream, SourceError>)>;

/// A socket that connections arrive at. Cheap to clone: all clones are the same listener.
///
/// The loop keeps a listener whose callback waits; any other is closed when its last handle is dropped. The file of
/// a Unix socket stays, as with the standard library, and binding to one that exists is refused: only its owner
/// knows whether it is stale.
#[derive(Clone)]
pub struct Listener {
    core: Rc<Core>,
}

struct Core {
    place: Place,
    state: RefCell<State>,
    /// How many connections futures took since the last event.
    turns: Cell<u32>,
}

struct State {
    /// Missing once the listener is closed.
    socket: Option<OwnedFd>,
    acceptor: Demand<AcceptCallback>,
    pause: Option<TimerId>,
}

impl State {
    fn open(&self) -> Result<BorrowedFd<'_>, SourceError> {
        self.socket.as_ref().map(AsFd::as_fd).ok_or(SourceError::Closed)
    }
}

impl Listener {
    /// Listens at `address`; port 0 lets the system choose one, which [`Listener::local_address`] tells.
    /// Connections wait in the kernel until somebody accepts them.
    ///
    /// # Errors
    /// [`SourceError::Io`] for an address in use and the like, [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn tcp(event_loop: &LoopHandle, address: SocketAddr) -> Result<Listener, SourceError> {
        Ok(Listener::new(event_loop, Location::caller(), transport::listen_tcp(address)?))
    }

    /// Listens at the Unix socket `path`, which must not exist before.
    ///
    /// # Errors
    /// As [`Listener::tcp`], and [`SourceError::UnusablePath`]: there are no sockets without a file here, because only a
    /// file has permissions.
    #[track_caller]
    pub fn unix(event_loop: &LoopHandle, path: impl AsRef<Path>) -> Result<Listener, SourceError> {
        Ok(Listener::new(event_loop, Location::caller(), transport::listen_unix(path.as_ref())?))
    }

    fn new(event_loop: &LoopHandle, site: Site, socket: OwnedFd) -> Listener {
        let state = State { socket: Some(socket), acceptor: Demand::Nobody, pause: None };
        let core = Rc::new_cyclic(|core: &Weak<Core>| {
            let core: Weak<Core> = core.clone();
            Core {
                place: Place::new(event_loop, site, core),
                state: RefCell::new(state),
                turns: Cell::new(0),
            }
        });
        Listener { core }
    }

    /// Calls `callback` with a stream for each connection. A failure is told, too, and accepting goes on after a
    /// pause of 50 ms: without descriptors left ([`SourceError::OutOfDescriptors`]) connections wait for that long.
    ///
    /// # Errors
    /// [`SourceError::AlreadyReading`] if a callback or future accepts already, [`SourceError::Closed`],
    /// [`SourceError::OutOfDescriptors`].
    #[track_caller]
    pub fn accept_start(
        &self,
        callback: impl FnMut(&mut Context, &Listener, Result<Stream, SourceError>) + 'static,
    ) -> Result<(), SourceError> {
        let mut state = self.core.state.borrow_mut();
        state.open()?;
        let started = state.acceptor.start(Location::caller(), Box::new(callback));
        drop(state);
        if started.is_err() {
            return Err(SourceError::AlreadyReading);
        }
        self.core.update().inspect_err(|_| self.accept_stop())
    }

    /// Ends what [`Listener::accept_start`] began; nothing happens if it is over. Connections still wait in the
    /// kernel.
    pub fn accept_stop(&self) {
        let mut state = self.core.state.borrow_mut();
        let stopped = if state.acceptor.is_callback() { state.acceptor.stop() } else { Demand::Nobody };
        drop(state);
        self.core.rest();
        drop(stopped);
    }

    /// The next connection. Dropping the future takes none.
    ///
    /// # Errors
    /// As [`Listener::accept_start`], and what the system says. [`SourceError::OutOfDescriptors`] is told at once,
    /// so who accepts again should sleep before.
    pub async fn accept(&self) -> Result<Stream, SourceError> {
        let accepting = Accepting { core: &self.core, ticket: self.core.place.next_ticket() };
        poll_fn(|context| self.core.poll_accept(accepting.ticket, context.waker().clone())).await
    }

    /// Where it listens.
    ///
    /// # Errors
    /// [`SourceError::Closed`].
    pub fn local_address(&self) -> Result<Address, SourceError> {
        Address::local(self.core.state.borrow().open()?)
    }

    /// Lets the loop end although this listener accepts.
    pub fn unref(&self) {
        self.core.place.unref();
    }

    /// Undoes [`Listener::unref`].
    pub fn ref_(&self) {
        self.core.place.ref_();
    }

    /// Closes the listener at once. Connections that nobody accepted are refused; the streams of others go on.
    /// `on_closed` runs in the closing phase.
    ///
    /// # Errors
    /// [`SourceError::Closed`] if it was closed before; `on_closed` is dropped then.
    #[track_caller]
    pub fn close(&self, on_closed: impl FnOnce(&mut Context) + 'static) -> Result<(), SourceError> {
        let Some((_socket, mut acceptor)) = self.core.take_apart() else { return Err(SourceError::Closed) };
        self.core.place.run_in_closing(Location::caller(), on_closed);
        if let Wanted::Future(waker) = acceptor.take() {
            waker.wake();
        }
        Ok(())
    }
}

impl Core {
    /// Tells the loop what the listener waits for now. It stays watched until a connection comes that nobody wants.
    fn update(&self) -> Result<(), SourceError> {
        self.apply(self.place.interest())
    }

    fn rest(&self) {
        // Asking for less cannot fail.
        let _ = self.apply(Interest::NONE);
    }

    fn apply(&self, also: Interest) -> Result<(), SourceError> {
        let state = self.state.borrow();
        let interest = match (&state.pause, state.acceptor.is_there()) {
            (Some(_), _) => Interest::NONE,
            (None, true) => Interest::READ,
            (None, false) => also,
        };
        let watched = state.open().and_then(|socket| self.place.watch(socket, interest));
        let is_active = state.acceptor.is_there();
        let life = Life { is_active, is_busy: false, is_kept: state.acceptor.is_callback() };
        drop(state);
        self.place.live(life);
        watched
    }

    /// A connection, or nothing if none waits. Failures of single connections are passed over.
    fn accept(&self) -> Result<Option<OwnedFd>, SourceError> {
        let state = self.state.borrow();
        let socket = state.open()?;
        for _ in 0..TURNS_PER_EVENT {
            match transport::accept(socket) {
                Ok(connection) => return Ok(Some(connection)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) if concerns_one_connection(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    fn stream(&self, site: Site, connection: OwnedFd) -> Stream {
        Stream::open(self.place.event_loop(), site, connection, Transport::Socket)
    }

    /// One connection and its callback. True if there may be more.
    fn accept_for_callback(self: &Rc<Self>, context: &mut Context) -> bool {
        let accepted = self.accept();
        if matches!(accepted, Ok(None)) {
            return false;
        }
        let wanted = self.state.borrow_mut().acceptor.take();
        let Wanted::Callback(site, mut callback) = wanted else { return false };
        let result = match accepted {
            Ok(Some(connection)) => Ok(self.stream(site, connection)),
            Ok(None) => return false,
            Err(error) => {
                self.pause();
                Err(error)
            }
        };
        let may_be_more = result.is_ok();
        let listener = Listener { core: Rc::clone(self) };
        let panic = context.call_guarded(Phase::Poll, site, |context| callback(context, &listener, result));
        let stopped = self.state.borrow_mut().acceptor.restore(site, callback);
        let dropped = context.drop_guarded(stopped);
        context.finish_call(panic.or(dropped));
        may_be_more
    }

    fn pause(self: &Rc<Self>) {
        let core = Rc::downgrade(self);
        let timer = self.place.event_loop().set_timeout(PAUSE, move |_| {
            if let Some(core) = core.upgrade() {
                core.state.borrow_mut().pause = None;
                // What was watched before can be watched again, or the next accept_start tells.
                let _ = core.update();
            }
        });
        self.place.event_loop().unref(timer);
        self.state.borrow_mut().pause = Some(timer);
        self.rest();
    }

    fn wake_acceptor(&self) {
        let wanted = self.state.borrow_mut().acceptor.take();
        let Wanted::Future(waker) = wanted else { return };
        // It can only want less than before.
        let _ = self.update();
        waker.wake();
    }

    fn poll_accept(&self, ticket: u64, waker: Waker) -> Poll<Result<Stream, SourceError>> {
        let admitted = self.state.borrow().acceptor.admit(ticket);
        if let Err(error) = admitted {
            return Poll::Ready(Err(error));
        }
        let has_turns = self.turns.replace(self.turns.get().saturating_add(1)) < TURNS_PER_EVENT;
        let accepted = if has_turns { self.accept() } else { self.state.borrow().open().map(|_| None) };
        if let Some(result) = accepted.transpose() {
            self.leave_acceptor(ticket);
            return Poll::Ready(result.map(|connection| self.stream(self.place.site(), connection)));
        }
        let replaced = self.state.borrow_mut().acceptor.wait(ticket, waker);
        drop(replaced);
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave_acceptor(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket waits no more.
    fn leave_acceptor(&self, ticket: u64) {
        let left = self.state.borrow_mut().acceptor.leave(ticket);
        if left.is_some() {
            // It can only want less than before.
            let _ = self.update();
        }
    }

    /// Leaves the loop. Nothing if that happened before. What is returned is dropped by who holds no borrow.
    fn take_apart(&self) -> Option<(OwnedFd, Demand<AcceptCallback>)> {
        let mut state = self.state.borrow_mut();
        let socket = state.socket.take()?;
        let acceptor = state.acceptor.stop();
        let pause = state.pause.take();
        drop(state);
        if let Some(timer) = pause {
            self.place.event_loop().clear(timer);
        }
        self.place.leave(Some(socket.as_fd()));
        Some((socket, acceptor))
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

impl Source for Core {
    fn on_ready(self: Rc<Self>, context: &mut Context, _: Readiness) {
        self.turns.set(0);
        for _ in 0..TURNS_PER_EVENT {
            let next = self.state.borrow().acceptor.next();
            match next {
                Next::Call if self.accept_for_callback(context) => {}
                Next::Call => return,
                Next::Wake => return self.wake_acceptor(),
                Next::Nobody => return self.rest(),
            }
        }
    }

    fn on_loop_gone(&self) {
        let remains = self.take_apart();
        drop(remains);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(timer) = state.pause {
            self.place.event_loop().clear(timer);
        }
        self.place.leave(state.socket.as_ref().map(AsFd::as_fd));
    }
}

/// A future that accepts. Dropping it ends its waiting.
struct Accepting<'a> {
    core: &'a Core,
    ticket: u64,
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        self.core.leave_acceptor(self.ticket);
    }
}
