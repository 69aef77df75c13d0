//! TCP sockets before they are listeners or streams: their options, and their address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

use super::SourceError;
use super::listener::Listener;
use super::stream::Stream;
use super::transport::{self, Address, Connecting, SOCKET_FLAGS};
use crate::callback::Site;
use crate::limits::BACKLOG;
use crate::{Context, LoopHandle};

/// As libuv: this long between two probes, and this many of them.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBES: u32 = 10;

/// How a TCP socket is made.
///
/// | option | default | libuv 1.52 |
/// |---|---|---|
/// | [`reuse_address`](TcpOptions::reuse_address) | on | always on |
/// | [`reuse_port`](TcpOptions::reuse_port) | off | `UV_TCP_REUSEPORT` |
/// | [`only_v6`](TcpOptions::only_v6) | off | `UV_TCP_IPV6ONLY` |
/// | [`no_delay`](TcpOptions::no_delay) | off | `uv_tcp_nodelay` |
/// | [`keep_alive`](TcpOptions::keep_alive) | off | `uv_tcp_keepalive` |
/// | [`backlog`](TcpOptions::backlog) | 1,024 | an argument of `uv_listen` |
///
/// The first three count for a socket with an address of its own: one that listens, or was [bound](TcpOptions::bind). The
/// streams that a listener accepts have its `no_delay` and `keep_alive`. For other options there is [`BoundTcp::as_fd`],
/// and [`Stream::descriptor`] and [`Listener::descriptor`].
///
/// ```
/// use offload_event_loop::{EventLoop, TcpOptions};
/// use std::time::Duration;
///
/// let event_loop = EventLoop::new()?;
/// let options = TcpOptions::new().no_delay(true).keep_alive(Some(Duration::from_secs(60)));
/// let listener = options.listen(&event_loop, "127.0.0.1:0".parse()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    reuse_address: bool,
    reuse_port: bool,
    only_v6: bool,
    no_delay: bool,
    keep_alive: Option<Duration>,
    backlog: u32,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions::new()
    }
}

/// The options.
impl TcpOptions {
    /// The defaults.
    pub const fn new() -> TcpOptions {
        TcpOptions {
            reuse_address: true,
            reuse_port: false,
            only_v6: false,
            no_delay: false,
            keep_alive: None,
            backlog: BACKLOG,
        }
    }

    /// Whether the address may be taken although connections of an earlier socket linger there (`SO_REUSEADDR`). With it, a
    /// server that is restarted gets its port back.
    pub const fn reuse_address(self, is_set: bool) -> TcpOptions {
        TcpOptions { reuse_address: is_set, ..self }
    }

    /// Whether several sockets may listen at the same address, and the kernel shares the connections out among them
    /// (`SO_REUSEPORT`). Each of them has to ask for it, and all must belong to the same user.
    pub const fn reuse_port(self, is_set: bool) -> TcpOptions {
        TcpOptions { reuse_port: is_set, ..self }
    }

    /// Whether a socket at an IPv6 address leaves IPv4 alone (`IPV6_V6ONLY`). Without it, one at `[::]` takes connections
    /// of both, whatever the system's default is. For an IPv4 address it is refused.
    pub const fn only_v6(self, is_set: bool) -> TcpOptions {
        TcpOptions { only_v6: is_set, ..self }
    }

    /// Whether small writes are sent at once instead of being collected (`TCP_NODELAY`).
    pub const fn no_delay(self, is_set: bool) -> TcpOptions {
        TcpOptions { no_delay: is_set, ..self }
    }

    /// See [`Stream::set_keep_alive`].
    pub const fn keep_alive(self, delay: Option<Duration>) -> TcpOptions {
        TcpOptions { keep_alive: delay, ..self }
    }

    /// How many connections the kernel holds that nobody has accepted yet. It may hold fewer.
    pub const fn backlog(self, connections: u32) -> TcpOptions {
        TcpOptions { backlog: connections, ..self }
    }
}

/// What is made with them.
impl TcpOptions {
    /// As [`Listener::tcp`], with these options.
    ///
    /// # Errors
    /// As [`Listener::tcp`]; [`SourceError::Io`] for options that the system refuses.
    #[track_caller]
    pub fn listen(&self, event_loop: &LoopHandle, address: SocketAddr) -> Result<Listener, SourceError> {
        self.bind(address)?.listen(event_loop)
    }

    /// As [`Stream::connect_tcp`], with these options. If the system refuses one, `done` gets the error.
    #[track_caller]
    pub fn connect(
        &self,
        event_loop: &LoopHandle,
        address: SocketAddr,
        done: impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static,
    ) -> Stream {
        let start = || self.start_connecting(address);
        Stream::connecting(event_loop, Location::caller(), start, Box::new(done))
    }

    /// A socket with an address of its own, which can [listen](BoundTcp::listen) or [connect](BoundTcp::connect) later; port 0
    /// lets the system choose one. No connection comes in before it listens.
    ///
    /// # Errors
    /// [`SourceError::Io`] for an address that is in use or not this machine's, and for options that the system refuses;
    /// [`SourceError::OutOfDescriptors`]. (libuv reports an address in use later, when the socket listens or connects.)
    pub fn bind(&self, address: SocketAddr) -> Result<BoundTcp, SourceError> {
        let socket = self.socket(address)?;
        if self.reuse_address {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        if self.reuse_port {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        set_only_v6(&socket, address, self.only_v6)?;
        rustix::net::bind(&socket, &address)?;
        Ok(BoundTcp { socket, backlog: self.backlog })
    }

    pub(super) fn start_connecting(&self, address: SocketAddr) -> Result<(OwnedFd, Connecting), SourceError> {
        let socket = self.socket(address)?;
        let connecting = transport::connect(&socket, address)?;
        Ok((socket, connecting))
    }

    fn socket(&self, address: SocketAddr) -> Result<OwnedFd, SourceError> {
        let socket = rustix::net::socket_with(family_of(address), SocketType::STREAM, SOCKET_FLAGS, None)?;
        if self.no_delay {
            set_no_delay(&socket, true)?;
        }
        if self.keep_alive.is_some() {
            set_keep_alive(&socket, self.keep_alive)?;
        }
        Ok(socket)
    }
}

/// A TCP socket with an address of its own, before it listens or connects. Made by [`TcpOptions::bind`]. Dropping it closes
/// it.
#[derive(Debug)]
#[must_use = "dropping it closes the socket"]
pub struct BoundTcp {
    socket: OwnedFd,
    backlog: u32,
}

impl BoundTcp {
    /// Its address.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> Result<Address, SourceError> {
        transport::local_address(&self.socket)
    }

    /// Begins to listen: connections come in from here on.
    ///
    /// # Errors
    /// [`SourceError::Io`] if another socket has come to listen at the address meanwhile.
    #[track_caller]
    pub fn listen(self, event_loop: &LoopHandle) -> Result<Listener, SourceError> {
        event_loop.shared.check_not_gone()?;
        transport::listen(&self.socket, self.backlog)?;
        Ok(Listener::new(event_loop, Location::caller(), self.socket))
    }

    /// Connects to `address` from this socket's address, and calls `done` with the result, as [`Stream::connect_tcp`] does.
    #[track_caller]
    pub fn connect(
        self,
        event_loop: &LoopHandle,
        address: SocketAddr,
        done: impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static,
    ) -> Stream {
        let site: Site = Location::caller();
        let start = || {
            let connecting = transport::connect(&self.socket, address)?;
            Ok((self.socket, connecting))
        };
        Stream::connecting(event_loop, site, start, Box::new(done))
    }
}

impl AsFd for BoundTcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(super) fn family_of(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// It is set in both directions, so that the system's default does not matter.
pub(super) fn set_only_v6(socket: impl AsFd, address: SocketAddr, is_set: bool) -> Result<(), SourceError> {
    match address {
        SocketAddr::V6(_) => Ok(sockopt::set_ipv6_v6only(socket, is_set)?),
        SocketAddr::V4(_) if is_set => Err(invalid("an IPv4 address cannot be for IPv6 only")),
        SocketAddr::V4(_) => Ok(()),
    }
}

pub(super) fn set_no_delay(socket: impl AsFd, is_set: bool) -> Result<(), SourceError> {
    Ok(sockopt::set_tcp_nodelay(socket, is_set)?)
}

pub(super) fn set_keep_alive(socket: impl AsFd, delay: Option<Duration>) -> Result<(), SourceError> {
    let Some(delay) = delay else { return Ok(sockopt::set_socket_keepalive(socket, false)?) };
    if delay < Duration::from_secs(1) {
        return Err(invalid("the delay of keep-alive is at least one second"));
    }
    let seconds = delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0));
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepintvl(&socket, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    // Last, so that a delay that the system refuses leaves it off.
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

fn invalid(why: &'static str) -> SourceError {
    SourceError::Io(io::Error::new(io::ErrorKind::InvalidInput, why))
}
