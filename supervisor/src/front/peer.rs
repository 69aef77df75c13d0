//! The process at the other end of a local socket.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;
use std::fmt;
use std::os::fd::AsFd;

/// The peer of a connection, whatever name it claims: a process, however many connections it has. A process in another
/// pid namespace cannot be seen from here and is known by its connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A process, by its id.
    Process(u32),
    /// A connection, by its number in this supervisor.
    Connection(u64),
}

const PROCESS: &str = "process ";
const CONNECTION: &str = "connection ";

impl Peer {
    /// Whether this is a name that a client without a name is shown under. No client may choose such a name.
    pub fn may_be_called(name: &str) -> bool {
        let number = name.strip_prefix(PROCESS).or_else(|| name.strip_prefix(CONNECTION));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Process(number) => write!(formatter, "{PROCESS}{number}"),
            Peer::Connection(number) => write!(formatter, "{CONNECTION}{number}"),
        }
    }
}

/// Whether the peer runs under our own user id. Root gets no exception, and a peer whose credentials cannot be read
/// counts as another user.
///
/// Only the user id is checked.
pub(super) fn is_same_user(socket: &impl AsFd) -> bool {
    getsockopt(socket, PeerCredentials).is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

/// The process id of the peer. The kernel reports zero for a peer in another pid namespace, and that is None here.
/// Other wrappers of this call fail in this case or, worse, treat the id as one that cannot be zero.
pub(super) fn process_of(socket: &impl AsFd) -> Option<u32> {
    let peer = getsockopt(socket, PeerCredentials).ok()?;
    u32::try_from(peer.pid()).ok().filter(|&process| process != 0)
}
