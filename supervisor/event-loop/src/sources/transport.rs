//! The kinds of descriptors that a stream can have (sockets, pipes, devices), and the system calls that differ between them.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::epoll;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::SourceError;
use crate::limits::BACKLOG;

pub(super) const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The address of one end of a stream or listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of a TCP socket.
    Tcp(SocketAddr),
    /// Of a Unix socket; most connecting ends have no path.
    Unix(Option<PathBuf>),
}

impl TryFrom<SocketAddrAny> for Address {
    type Error = SourceError;

    fn try_from(address: SocketAddrAny) -> Result<Address, SourceError> {
        if address.address_family() != AddressFamily::UNIX {
            return Ok(Address::Tcp(SocketAddr::try_from(address)?));
        }
        let address = SocketAddrUnix::try_from(address)?;
        let path = address.path_bytes().map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)));
        Ok(Address::Unix(path))
    }
}

impl Address {
    pub(super) fn peer(socket: BorrowedFd<'_>) -> Result<Address, SourceError> {
        match rustix::net::getpeername(socket)? {
            Some(address) => Address::try_from(address),
            None => Ok(Address::Unix(None)),
        }
    }
}

/// The address of this end of a socket: an [`Address`], or a [`SocketAddr`] where there is no other kind.
pub(super) fn local_address<A: TryFrom<SocketAddrAny>>(socket: impl AsFd) -> Result<A, SourceError>
where
    SourceError: From<A::Error>,
{
    Ok(A::try_from(rustix::net::getsockname(socket)?)?)
}

/// What a stream goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Socket,
    /// One end of a pipe: it has one direction only.
    Pipe,
    /// A terminal or another device.
    Device,
}

impl Transport {
    /// Looks at a descriptor of unknown origin and makes it non-blocking.
    pub(super) fn of(descriptor: BorrowedFd<'_>) -> Result<Transport, SourceError> {
        let status = rustix::fs::fstat(descriptor)?;
        let transport = match FileType::from_raw_mode(status.st_mode) {
            FileType::Socket => Transport::Socket,
            FileType::Fifo => Transport::Pipe,
            _ => {
                check_watchable(descriptor)?;
                Transport::Device
            }
        };
        rustix::io::ioctl_fionbio(descriptor, true)?;
        Ok(transport)
    }

    /// A socket whose peer is gone fails with an error and not with a signal. For pipes the kernel offers no such choice.
    pub(super) fn write(self, descriptor: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Transport::Socket => rustix::net::send(descriptor, bytes, SendFlags::NOSIGNAL),
            _ => rustix::io::write(descriptor, bytes),
        }
    }

    pub(super) fn write_slices(
        self,
        descriptor: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        match self {
            Transport::Socket => {
                let mut nothing = SendAncillaryBuffer::default();
                rustix::net::sendmsg(descriptor, slices, &mut nothing, SendFlags::NOSIGNAL)
            }
            _ => rustix::io::writev(descriptor, slices),
        }
    }

    pub(super) fn shut_down_writing(self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::net::shutdown(descriptor, Shutdown::Write)
    }
}

/// epoll refuses regular files and some devices. Asking it is the only way to know which.
fn check_watchable(descriptor: BorrowedFd<'_>) -> Result<(), SourceError> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let answer = epoll::add(&set, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::empty());
    match answer {
        Err(Errno::PERM) => Err(SourceError::NotWatchable),
        other => Ok(other?),
    }
}

/// How far connecting has come.
pub(super) enum Connecting {
    Done,
    UnderWay,
}

pub(super) fn connect(socket: &OwnedFd, address: SocketAddr) -> Result<Connecting, SourceError> {
    progress(rustix::net::connect(socket, &address))
}

/// Only what has a file has permissions. An empty path and one that begins with a zero byte name sockets without a file,
/// which every user of the machine can reach, and the empty one is another at each call.
fn unix_address(path: &Path) -> Result<SocketAddrUnix, SourceError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(SourceError::UnusablePath);
    }
    Ok(SocketAddrUnix::new(path)?)
}

pub(super) fn connect_unix(path: &Path) -> Result<(OwnedFd, Connecting), SourceError> {
    let socket = unix_socket()?;
    let connecting = progress(rustix::net::connect(&socket, &unix_address(path)?))?;
    Ok((socket, connecting))
}

fn progress(answer: Result<(), Errno>) -> Result<Connecting, SourceError> {
    match answer {
        Ok(()) => Ok(Connecting::Done),
        // An interrupted call goes on connecting, too.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connecting::UnderWay),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn listen_unix(path: &Path) -> Result<OwnedFd, SourceError> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &unix_address(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Lets connections come in; the kernel holds at most `backlog` of them.
pub(super) fn listen(socket: &OwnedFd, backlog: u32) -> Result<(), Errno> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
}

pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SOCKET_FLAGS)
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)
}

/// Both ends of a new pipe, the reading one first.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    use rustix::pipe::{PipeFlags, pipe_with};
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// Two Unix sockets that are connected with each other.
pub(super) fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)
}
