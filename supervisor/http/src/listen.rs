//! Where a server listens: TCP, a Unix socket, or a descriptor that was handed to this process.

use crate::limits::ACCEPTS_PER_TURN;
use crate::request::Origin;
use offload_event_loop::{Context, HandleId, Interest, LoopHandle};
use offload_supervisor::limits::ACCEPT_PAUSE;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, getsockname, listen, socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; 0 is any free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket. A socket that is there already and that nobody listens at is replaced.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(formatter, "{address}"),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// A listening socket. Dropping it closes it; a Unix socket's file is removed.
pub(crate) struct Listener {
    socket: Rc<OwnedFd>,
    handle: LoopHandle,
    watcher: Option<HandleId>,
    file: Option<PathBuf>,
}

impl Listener {
    /// # Errors
    /// What the system says, such as that the address is in use.
    pub(crate) fn bind(handle: &LoopHandle, address: &Address) -> io::Result<Listener> {
        let (socket, file) = match address {
            Address::Tcp(address) => (tcp(*address)?, None),
            Address::Unix(path) => (unix(path)?, Some(path.clone())),
        };
        listen(&socket, BACKLOG)?;
        Ok(Listener { socket: Rc::new(socket), handle: handle.clone(), watcher: None, file })
    }

    /// A socket that listens already.
    ///
    /// # Errors
    /// It is no socket, or cannot be made non-blocking.
    pub(crate) fn inherited(handle: &LoopHandle, socket: OwnedFd) -> io::Result<Listener> {
        getsockname(&socket)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Listener { socket: Rc::new(socket), handle: handle.clone(), watcher: None, file: None })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn address(&self) -> io::Result<Address> {
        let address = getsockname(&self.socket)?;
        match SocketAddr::try_from(address.clone()) {
            Ok(address) => Ok(Address::Tcp(address)),
            Err(_) => {
                let address = rustix::net::SocketAddrUnix::try_from(address)?;
                let path = address.path_bytes().unwrap_or_default();
                Ok(Address::Unix(String::from_utf8_lossy(path).into_owned().into()))
            }
        }
    }

    /// Calls `accepted` with each connection; `exhausted` when there is no descriptor for one: accepting pauses then.
    ///
    /// # Errors
    /// What the loop says.
    pub(crate) fn start(
        &mut self,
        accepted: impl Fn(OwnedFd, Origin) + 'static,
        exhausted: impl Fn(Errno) + 'static,
    ) -> Result<(), offload_event_loop::LoopError> {
        let (socket, handle) = (Rc::clone(&self.socket), self.handle.clone());
        let own = Rc::new(std::cell::Cell::new(None));
        let me = Rc::clone(&own);
        let watcher = self.handle.watch(Shared(Rc::clone(&self.socket)), Interest::READ, move |_: &mut Context, _| {
            for _ in 0..ACCEPTS_PER_TURN {
                match accept(socket.as_fd()) {
                    Ok(Some((connection, origin))) => accepted(connection, origin),
                    Ok(None) => return,
                    Err(error) => {
                        exhausted(error);
                        return me.get().into_iter().for_each(|watcher| pause(&handle, watcher));
                    }
                }
            }
        })?;
        own.set(Some(watcher));
        self.watcher = Some(watcher);
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher {
            // Nobody else closes it.
            let _ = self.handle.close(watcher, |_| ());
        }
        if let Some(file) = &self.file {
            // If somebody has removed it, it is gone.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The connection still waits, so the socket stays readable: without a pause the loop would spin.
fn pause(handle: &LoopHandle, watcher: HandleId) {
    // If the listener is closed by then, neither call has any effect.
    let _ = handle.set_interest(watcher, Interest::NONE);
    let again = handle.clone();
    let timer = handle.set_timeout(ACCEPT_PAUSE, move |_| {
        let _ = again.set_interest(watcher, Interest::READ);
    });
    handle.unref(timer);
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn unix(path: &Path) -> io::Result<OwnedFd> {
    let address = rustix::net::SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    if bind(&socket, &address) == Err(Errno::ADDRINUSE) {
        let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        if rustix::net::connect(&probe, &address) != Err(Errno::CONNREFUSED) {
            return Err(Errno::ADDRINUSE.into());
        }
        // Whoever listened there is gone.
        std::fs::remove_file(path)?;
        bind(&socket, &address)?;
    }
    // Whoever may enter the directory may be another user; the mode of the socket is what stops them.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(socket)
}

/// The next connection. None if none waits, or if it was gone before it was accepted.
fn accept(listener: BorrowedFd<'_>) -> Result<Option<(OwnedFd, Origin)>, Errno> {
    match accept_with(listener, FLAGS) {
        Ok(connection) => {
            let origin = origin(connection.as_fd());
            Ok(Some((connection, origin)))
        }
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

fn origin(connection: BorrowedFd<'_>) -> Origin {
    let peer = rustix::net::getpeername(connection).ok().flatten();
    match peer.and_then(|peer: SocketAddrAny| SocketAddr::try_from(peer).ok()) {
        Some(address) => {
            // An answer is written at once, in one piece.
            let _ = sockopt::set_tcp_nodelay(connection, true);
            Origin::Address(address)
        }
        None => {
            let process = sockopt::socket_peercred(connection).ok();
            Origin::Process(process.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok()))
        }
    }
}

struct Shared(Rc<OwnedFd>);

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
