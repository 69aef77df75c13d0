//! Whether an application has accepted a connection. Until then the connection lies in the backlog of the listening socket, and dies
//! with that: so nothing of a job is sent before, and a job of which nothing was sent was not begun.
//!
//! No event tells, so the kernel is asked (sock_diag(7)): the other end of a connection has no inode before it is accepted, nor after it
//! was closed.
//!
//! ```text
//!   other end                      for a job
//!   has no inode                   wait: it is not accepted yet, or closed again, which reading will tell
//!   has an inode                   it is accepted: send
//!   SYN_RECV                       send: with TCP_DEFER_ACCEPT it is accepted only when something was sent
//!   is not there                   wait a moment: the listening socket is being closed, and the reset that tells it is under way.
//!                                  Another socket may listen at that port by now
//!   the kernel does not say        send
//! ```

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname, netlink, recv,
    send, socket_with, sockopt,
};
use std::cell::Cell;
use std::net::SocketAddrV4;
use std::num::TryFromIntError;
use std::os::fd::OwnedFd;

// Of linux/netlink.h, sock_diag.h, unix_diag.h and inet_diag.h.
const HEADER: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
/// The error for a socket that is not there.
const NOT_THERE: i32 = -Errno::NOENT.raw_os_error();
const NLM_F_REQUEST: u16 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const FAMILY_UNIX: u8 = 1;
const FAMILY_INET: u8 = 2;
const PROTOCOL_TCP: u8 = 6;
const TCP_SYN_RECV: u8 = 3;
const TCP_LISTEN: u8 = 10;
const ALL_STATES: [u8; 4] = [0xff; 4];
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Where the first attribute of an answer about a Unix socket begins.
const UNIX_ATTRIBUTE: usize = HEADER + 16;
/// Where the state and the inode are in an answer about a TCP socket.
const TCP_STATE: usize = HEADER + 1;
const TCP_INODE: usize = HEADER + 68;

/// Asks the kernel. See the module's documentation.
#[derive(Debug)]
pub(super) struct Backlog {
    /// `None` where this cannot be asked, as in a sandbox that forbids netlink.
    kernel: Option<OwnedFd>,
    /// It has found the other end of a connection over TCP. Only a kernel that has found a connection before is believed when it
    /// finds none.
    knows_tcp: Cell<bool>,
}

/// Where the other end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherEnd {
    /// Nobody has it: it was not accepted yet, or is closed.
    Unowned,
    /// Somebody has it.
    Accepted,
    /// There is none any more. Reading will tell, in a moment.
    Gone,
    /// The kernel does not say.
    Unknown,
}

impl Backlog {
    pub(super) fn open() -> Backlog {
        let protocol = Some(netlink::SOCK_DIAG);
        let kernel =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol).ok();
        Backlog { kernel, knows_tcp: Cell::new(false) }
    }

    /// Where the other end of this connection is.
    pub(super) fn other_end(&self, stream: &OwnedFd) -> OtherEnd {
        let is_unix = sockopt::socket_domain(stream) == Ok(AddressFamily::UNIX);
        let inode = if is_unix { self.inode_over_unix(stream) } else { self.inode_over_tcp(stream) };
        self.knows_tcp.set(self.knows_tcp.get() || (!is_unix && inode.is_ok()));
        self.seen_as(inode)
    }

    fn seen_as(&self, inode: Result<u32, Untold>) -> OtherEnd {
        match inode {
            Ok(0) => OtherEnd::Unowned,
            Ok(_) => OtherEnd::Accepted,
            Err(Untold::NotThere) if self.knows_tcp.get() => OtherEnd::Gone,
            Err(_) => OtherEnd::Unknown,
        }
    }

    fn inode_over_unix(&self, stream: &OwnedFd) -> Result<u32, Untold> {
        let ours = u32::try_from(fstat(stream)?.st_ino)?;
        let mut question = vec![FAMILY_UNIX, 0, 0, 0];
        question.extend(ALL_STATES);
        question.extend(ours.to_ne_bytes());
        question.extend(UDIAG_SHOW_PEER.to_ne_bytes());
        question.extend(NO_COOKIE);
        let answer = self.ask(&question)?;
        let is_peer = u16::from_ne_bytes(bytes_at(&answer, UNIX_ATTRIBUTE + 2)?) == UNIX_DIAG_PEER;
        let inode = u32::from_ne_bytes(bytes_at(&answer, UNIX_ATTRIBUTE + 4)?);
        is_peer.then_some(inode).ok_or(Untold::Unknown)
    }

    fn inode_over_tcp(&self, stream: &OwnedFd) -> Result<u32, Untold> {
        let theirs = SocketAddrV4::try_from(getpeername(stream)?.ok_or(Untold::Unknown)?)?;
        self.inode_at(theirs, SocketAddrV4::try_from(getsockname(stream)?)?)
    }

    fn inode_at(&self, theirs: SocketAddrV4, ours: SocketAddrV4) -> Result<u32, Untold> {
        let mut question = vec![FAMILY_INET, PROTOCOL_TCP, 0, 0];
        question.extend(ALL_STATES);
        // Seen from the other end.
        question.extend(theirs.port().to_be_bytes());
        question.extend(ours.port().to_be_bytes());
        for address in [theirs.ip(), ours.ip()] {
            question.extend(address.octets());
            question.extend([0; 12]);
        }
        question.extend([0; 4]);
        question.extend(NO_COOKIE);
        let answer = self.ask(&question)?;
        let [state] = bytes_at(&answer, TCP_STATE)?;
        let inode = u32::from_ne_bytes(bytes_at(&answer, TCP_INODE)?);
        match state {
            TCP_SYN_RECV => Err(Untold::Unknown),
            // Where there is no such connection, but a listener at its port, the kernel names the listener.
            TCP_LISTEN => Err(Untold::NotThere),
            _ => Ok(inode),
        }
    }

    /// The answer to a question about one socket, with its header. The kernel has it ready when the question is sent.
    fn ask(&self, question: &[u8]) -> Result<Vec<u8>, Untold> {
        let kernel = self.kernel.as_ref().ok_or(Untold::Unknown)?;
        let mut message = u32::try_from(HEADER + question.len())?.to_ne_bytes().to_vec();
        message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(question);
        send(kernel, &message, SendFlags::empty())?;
        let mut answer = vec![0; 512];
        let (length, _) = recv(kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
        answer.truncate(length);
        match u16::from_ne_bytes(bytes_at(&answer, 4)?) {
            SOCK_DIAG_BY_FAMILY => Ok(answer),
            NLMSG_ERROR if i32::from_ne_bytes(bytes_at(&answer, HEADER)?) == NOT_THERE => {
                Err(Untold::NotThere)
            }
            _ => Err(Untold::Unknown),
        }
    }
}

/// Why there is no inode.
#[derive(Clone, Copy, Debug)]
enum Untold {
    NotThere,
    Unknown,
}

impl From<Errno> for Untold {
    fn from(_: Errno) -> Untold {
        Untold::Unknown
    }
}

impl From<TryFromIntError> for Untold {
    fn from(_: TryFromIntError) -> Untold {
        Untold::Unknown
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], start: usize) -> Result<[u8; N], Untold> {
    bytes.get(start..start + N).and_then(|bytes| bytes.try_into().ok()).ok_or(Untold::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_connection_over_unix_is_in_the_backlog_until_it_is_accepted() {
        let path = std::env::temp_dir().join(format!("offload-backlog-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let ours: OwnedFd = UnixStream::connect(&path).unwrap().into();
        std::fs::remove_file(&path).unwrap();
        let backlog = Backlog::open();
        assert_eq!(backlog.other_end(&ours), OtherEnd::Unowned);
        let theirs = listener.accept().unwrap();
        assert_eq!(backlog.other_end(&ours), OtherEnd::Accepted);
        drop(theirs);
        assert_eq!(backlog.other_end(&ours), OtherEnd::Unowned, "nobody has it any more");
    }

    #[test]
    fn a_connection_over_tcp_is_in_the_backlog_until_it_is_accepted() {
        for place in ["127.0.0.1:0", "[::]:0"] {
            let listener = TcpListener::bind(place).unwrap();
            let port = listener.local_addr().unwrap().port();
            let ours: OwnedFd = TcpStream::connect(("127.0.0.1", port)).unwrap().into();
            let backlog = Backlog::open();
            assert_eq!(backlog.other_end(&ours), OtherEnd::Unowned, "{place}");
            assert!(backlog.knows_tcp.get(), "{place}");
            let theirs = listener.accept().unwrap();
            assert_eq!(backlog.other_end(&ours), OtherEnd::Accepted, "{place}");
            drop(theirs);
        }
    }

    /// Between the removal of the other end and the reset there is no time that a test could hit.
    #[test]
    fn that_the_other_end_is_gone_is_said_by_a_kernel_that_has_known_one() {
        let nowhere = SocketAddrV4::new([127, 0, 0, 1].into(), 1);
        let backlog = Backlog::open();
        assert!(matches!(backlog.inode_at(nowhere, nowhere), Err(Untold::NotThere)));
        assert_eq!(backlog.seen_as(Err(Untold::NotThere)), OtherEnd::Unknown);
        backlog.knows_tcp.set(true);
        assert_eq!(backlog.seen_as(Err(Untold::NotThere)), OtherEnd::Gone);
    }

    /// The kernel names the listener, which is not the other end of anything.
    #[test]
    fn a_connection_that_is_gone_is_not_taken_for_the_socket_that_listens_at_its_port() {
        for place in ["127.0.0.1:0", "[::]:0"] {
            let listener = TcpListener::bind(place).unwrap();
            let port = listener.local_addr().unwrap().port();
            let [theirs, ours] = [port, 1].map(|port| SocketAddrV4::new([127, 0, 0, 1].into(), port));
            let backlog = Backlog::open();
            let found = backlog.inode_at(theirs, ours);
            assert!(matches!(found, Err(Untold::NotThere)), "{place}: {found:?}");
            drop(listener);
        }
    }

    #[test]
    fn where_the_kernel_cannot_be_asked_nothing_is_waited_for() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let backlog = Backlog { kernel: None, knows_tcp: Cell::new(true) };
        assert_eq!(backlog.other_end(&ours.into()), OtherEnd::Unknown);
    }
}
