//! Where a server listens: TCP, a Unix socket, or a descriptor that was handed to this process.

use crate::limits::ACCEPTS_PER_TURN;
use crate::request::Remote;
use offload_event_loop::{Context, HandleId, Interest, LoopError, LoopHandle};
use offload_supervisor::limits::ACCEPT_PAUSE;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname,
    listen, socket_with, sockopt,
};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::id;
use std::rc::Rc;
use std::str::FromStr;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; 0 is any free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket. A socket of this user that is there already and that nobody listens at is replaced, and nothing
    /// else is. Beside it there is a file `PATH.lock`.
    Unix(PathBuf),
    /// The number of a descriptor that was handed to this process, of a socket that listens: see [`Bound::of`].
    Descriptor(i32),
}

/// A text that is no [`Address`]. Its `Debug` is the sentence, too: that is what Rust prints of an error that `main` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct BadAddress(String);

impl fmt::Display for BadAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no address to listen at: write HOST:PORT with a literal address, as in 127.0.0.1:8080, or unix:PATH, or fd:N",
            self.0
        )
    }
}

impl fmt::Debug for BadAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for BadAddress {}

impl FromStr for Address {
    type Err = BadAddress;

    /// `HOST:PORT`, where the host is a literal address or `localhost` (127.0.0.1), because no name is looked up; `unix:PATH`;
    /// `fd:N`.
    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Address::Unix(path.into())) };
        }
        if let Some(number) = text.strip_prefix("fd:") {
            let number: i32 = number.parse().map_err(|_| bad())?;
            return if number > 2 { Ok(Address::Descriptor(number)) } else { Err(bad()) };
        }
        let address = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        address.parse().map(Address::Tcp).map_err(|_| bad())
    }
}

impl Address {
    /// Checks of a Unix socket whether it could be made there, as far as that can be seen without making it.
    ///
    /// # Errors
    /// The path is too long, or there is something else, which is never replaced.
    pub fn check_path(&self) -> io::Result<()> {
        match self {
            Address::Unix(path) => address_at(path).map(drop),
            Address::Tcp(_) | Address::Descriptor(_) => Ok(()),
        }
    }

    /// Whether other machines can reach it. Of a descriptor this is the choice of whoever has opened it.
    pub fn is_beyond_this_machine(&self) -> bool {
        matches!(self, Address::Tcp(address) if !address.ip().is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(formatter, "{address}"),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Address::Descriptor(number) => write!(formatter, "fd:{number}"),
        }
    }
}

/// A socket that listens and from which nobody accepts yet: connections wait in the kernel. Dropping it closes it; a Unix socket's
/// file is removed.
#[derive(Debug)]
pub struct Bound {
    socket: Rc<OwnedFd>,
    _file: Option<SocketFile>,
}

impl Bound {
    /// # Errors
    /// What the system says, such as that the address is in use. [`Address::Descriptor`] is an invalid input: only whoever knows
    /// that nobody else uses the descriptor can make it an [`OwnedFd`], for [`Bound::of`].
    pub fn at(address: &Address) -> io::Result<Bound> {
        let (socket, file) = match address {
            Address::Tcp(address) => (tcp(*address)?, None),
            Address::Unix(path) => {
                let (socket, file) = unix(path)?;
                (socket, Some(file))
            }
            Address::Descriptor(_) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        listen(&socket, BACKLOG)?;
        Ok(Bound { socket: Rc::new(socket), _file: file })
    }

    /// A socket that listens already, such as one that a service manager has opened.
    ///
    /// # Errors
    /// It is no socket, or cannot be made non-blocking.
    pub fn of(socket: OwnedFd) -> io::Result<Bound> {
        getsockname(&socket)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Bound { socket: Rc::new(socket), _file: None })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<Address> {
        let address = getsockname(&self.socket)?;
        match SocketAddr::try_from(address.clone()) {
            Ok(address) => Ok(Address::Tcp(address)),
            Err(_) => {
                let address = SocketAddrUnix::try_from(address)?;
                let path = address.path_bytes().unwrap_or_default();
                Ok(Address::Unix(String::from_utf8_lossy(path).into_owned().into()))
            }
        }
    }
}

/// A socket from which connections are accepted. Dropping it closes it.
pub(crate) struct Listener {
    _bound: Bound,
    handle: LoopHandle,
    watcher: HandleId,
}

impl Listener {
    /// Calls `accepted` with each connection; `exhausted` when there is no descriptor for one: accepting pauses then.
    ///
    /// # Errors
    /// What the loop says.
    pub(crate) fn start(
        bound: Bound,
        handle: &LoopHandle,
        accepted: impl Fn(OwnedFd, Remote) + 'static,
        exhausted: impl Fn(Errno) + 'static,
    ) -> Result<Listener, LoopError> {
        let (socket, own_handle) = (Rc::clone(&bound.socket), handle.clone());
        let own = Rc::new(Cell::new(None));
        let me = Rc::clone(&own);
        let watched = Shared(Rc::clone(&bound.socket));
        let watcher = handle.watch(watched, Interest::READ, move |_: &mut Context, _| {
            for _ in 0..ACCEPTS_PER_TURN {
                match accept(socket.as_fd()) {
                    Ok(Some((connection, remote))) => accepted(connection, remote),
                    Ok(None) => return,
                    Err(error) => {
                        exhausted(error);
                        return me.get().into_iter().for_each(|watcher| pause(&own_handle, watcher));
                    }
                }
            }
        })?;
        own.set(Some(watcher));
        Ok(Listener { _bound: bound, handle: handle.clone(), watcher })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Nobody else closes it.
        let _ = self.handle.close(self.watcher, |_| ());
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

fn unix(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let address = address_at(path)?;
    let lock = lock(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    match bind(&socket, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            replaceable(path)?;
            let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            if rustix::net::connect(&probe, &address) != Err(Errno::CONNREFUSED) {
                return Err(Errno::ADDRINUSE.into());
            }
            // Whoever listened there is gone, and nobody else replaces it while the lock is held.
            std::fs::remove_file(path)?;
            bind(&socket, &address)?;
        }
        Err(error) => return Err(error.into()),
    }
    // Whoever may enter the directory may be another user; the mode of the socket is what stops them.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)?, process: id(), _lock: lock };
    Ok((socket, file))
}

/// The file beside a Unix socket whose lock its owner holds. The supervisor's own socket has one of such a name, too.
pub fn lock_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Of several processes that want to listen at this path, one has the lock: it goes with the process.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(lock_path(path), flags, Mode::RUSR | Mode::WUSR)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::ADDRINUSE.into()),
        other => Ok(other.map(|()| file)?),
    }
}

/// The address of a socket at this path, if nothing is there, or what may be replaced.
fn address_at(path: &Path) -> io::Result<SocketAddrUnix> {
    let address = SocketAddrUnix::new(path)?;
    match replaceable(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(address),
        other => other.map(|()| address),
    }
}

/// Only a socket of this user may be replaced, and nothing that a link leads to.
fn replaceable(path: &Path) -> io::Result<()> {
    let about = rustix::fs::lstat(path)?;
    let is_socket = FileType::from_raw_mode(about.st_mode) == FileType::Socket;
    if is_socket && about.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is no socket of this user"))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = rustix::fs::lstat(path)?;
    Ok((about.st_dev, about.st_ino))
}

/// The file of a Unix socket: removed when nobody listens any more, if it is still that one. A forked child leaves it to its parent,
/// which listens on.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// The one that has made it.
    process: u32,
    _lock: OwnedFd,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = self.process == id();
        if is_ours && identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If somebody has removed it, it is gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The next connection. None if none waits, or if it was gone before it was accepted.
fn accept(listener: BorrowedFd<'_>) -> Result<Option<(OwnedFd, Remote)>, Errno> {
    match accept_with(listener, FLAGS) {
        Ok(connection) => {
            let remote = remote(connection.as_fd());
            Ok(Some((connection, remote)))
        }
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) if is_of_the_connection(error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it is the connection that has failed, and is gone (accept(2)). Not those errors that may come again and again while it
/// stays: the loop would spin.
fn is_of_the_connection(error: Errno) -> bool {
    use rustix::io::Errno as E;
    let network = [E::NETDOWN, E::NETUNREACH, E::HOSTDOWN, E::HOSTUNREACH, E::NONET];
    let protocol = [E::PROTO, E::NOPROTOOPT];
    network.contains(&error) || protocol.contains(&error)
}

fn remote(connection: BorrowedFd<'_>) -> Remote {
    let peer = rustix::net::getpeername(connection).ok().flatten();
    match peer.and_then(|peer: SocketAddrAny| SocketAddr::try_from(peer).ok()) {
        Some(address) => {
            // An answer is written at once, in one piece.
            let _ = sockopt::set_tcp_nodelay(connection, true);
            Remote::Address(address)
        }
        None => {
            let Ok(peer) = sockopt::socket_peercred(connection) else { return Remote::Stranger(None) };
            let process = u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
            // Whoever has made the socket may have let others in.
            let is_ours = peer.uid == rustix::process::geteuid();
            if is_ours { Remote::Process(process) } else { Remote::Stranger(process) }
        }
    }
}

struct Shared(Rc<OwnedFd>);

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_and_what_is_none_is_refused() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:80", "unix:/run/x.sock", "fd:3"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:80".parse::<Address>().unwrap().to_string(), "127.0.0.1:80");
        for text in [
            "",
            "8080",
            ":8080",
            "127.0.0.1",
            "example.com:80",
            "unix:",
            "fd:",
            "fd:2",
            "fd:-1",
            "http://127.0.0.1:80",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("127.0.0.1:8080"), "{error}");
        }
    }

    #[test]
    fn what_is_no_socket_of_ours_is_in_the_way_and_nothing_is_made_beside_it() {
        let folder = std::env::temp_dir().join(format!("offload-listen-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, socket) = (folder.join("file"), folder.join("socket"));
        std::fs::write(&file, "mine").unwrap();
        let address = Address::Unix(file.clone());
        for refused in [address.check_path().unwrap_err(), Bound::at(&address).unwrap_err()] {
            assert!(refused.to_string().contains("no socket of this user"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no lock either");
        let address = Address::Unix(socket);
        address.check_path().unwrap();
        let bound = Bound::at(&address).unwrap();
        address.check_path().unwrap();
        drop(bound);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_forked_child_leaves_the_socket_to_its_parent_and_its_maker_removes_it() {
        let folder = std::env::temp_dir().join(format!("offload-forked-{}", id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        let (listener, file) = unix(&path).unwrap();
        listen(&listener, BACKLOG).unwrap();
        let SocketFile { identity, process, .. } = file;
        let copy = SocketFile {
            path: path.clone(),
            identity,
            process: process + 1,
            _lock: file._lock.try_clone().unwrap(),
        };
        drop(copy);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok(), "the parent listens on");
        drop(file);
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_the_loopback_interface_and_sockets_are_of_this_machine() {
        let is_beyond = |text: &str| text.parse::<Address>().unwrap().is_beyond_this_machine();
        assert!(["0.0.0.0:80", "10.0.0.1:80", "[::]:80"].into_iter().all(is_beyond));
        assert!(!["127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "unix:x", "fd:3"].into_iter().any(is_beyond));
    }
}
