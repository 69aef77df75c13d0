//! The process at the other end of a local socket.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;
use std::fmt;
use std::os::fd::AsFd;

/// Who is at the other end of a connection, whatever it calls itself: a process, however many connections it has. One
/// that cannot be seen from here, because it is in another pid namespace, is known by its connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// By its process id.
    Process(u32),
    /// By our number for it.
    Connection(u64),
}

const PROCESS: &str = "process ";
const CONNECTION: &str = "connection ";

impl Peer {
    /// Whether a client without a name may be called so. Nobody else may have such a name.
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

/// Whether the other end was opened under our own user id. Root is nobody special, and a peer that cannot be asked
/// about is a stranger.
///
/// Only the user id is looked at.
pub(super) fn is_same_user(socket: &impl AsFd) -> bool {
    getsockopt(socket, PeerCredentials).is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

/// The process that opened the other end. It is zero for a peer in another pid namespace, where other wrappers of this
/// call fail or, worse, take it for one that cannot be zero: then nobody knows which one it was.
pub(super) fn process_of(socket: &impl AsFd) -> Option<u32> {
    let peer = getsockopt(socket, PeerCredentials).ok()?;
    u32::try_from(peer.pid()).ok().filter(|&process| process != 0)
}
