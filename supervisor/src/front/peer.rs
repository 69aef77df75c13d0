//! What the kernel says of the process at the other end of a local socket.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;
use std::os::fd::AsFd;

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
