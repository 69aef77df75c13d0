//! Who is at the other end of a local socket.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;
use std::os::fd::AsFd;

/// Whether the other end was opened under our own user id. Root is nobody special, and a peer that cannot be asked
/// about is a stranger.
///
/// Only the user id is looked at. The process id is zero for a peer in another pid namespace, where other wrappers
/// of this call fail or, worse, take it for one that cannot be zero.
pub(super) fn is_same_user(socket: &impl AsFd) -> bool {
    getsockopt(socket, PeerCredentials).is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}
