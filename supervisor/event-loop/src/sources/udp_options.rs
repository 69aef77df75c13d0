//! How a UDP socket is made, and the groups that it may belong to.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;

use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use super::SourceError;
use super::tcp::{family_of, set_only_v6};
use super::transport::SOCKET_FLAGS;
use super::udp::UdpSocket;
use crate::LoopHandle;

/// How a UDP socket is made.
///
/// | option | default | libuv 1.52 |
/// |---|---|---|
/// | [`reuse_address`](UdpOptions::reuse_address) | off | `UV_UDP_REUSEADDR` |
/// | [`reuse_port`](UdpOptions::reuse_port) | off | `UV_UDP_REUSEPORT` |
/// | [`only_v6`](UdpOptions::only_v6) | off | `UV_UDP_IPV6ONLY` |
/// | [`broadcast`](UdpOptions::broadcast) | off | `uv_udp_set_broadcast` |
/// | [`time_to_live`](UdpOptions::time_to_live) | the system's, usually 64 | `uv_udp_set_ttl` |
/// | [`multicast_time_to_live`](UdpOptions::multicast_time_to_live) | 1: the local network | `uv_udp_set_multicast_ttl` |
/// | [`multicast_loop`](UdpOptions::multicast_loop) | on | `uv_udp_set_multicast_loop` |
///
/// For other options there is [`UdpSocket::descriptor`].
///
/// ```
/// use offload_event_loop::{EventLoop, UdpOptions};
///
/// let event_loop = EventLoop::new()?;
/// let socket = UdpOptions::new().broadcast(true).bind(&event_loop, "127.0.0.1:0".parse()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    reuse_address: bool,
    reuse_port: bool,
    only_v6: bool,
    broadcast: bool,
    time_to_live: Option<u8>,
    multicast_time_to_live: u8,
    multicast_loop: bool,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions::new()
    }
}

impl UdpOptions {
    /// The defaults.
    pub const fn new() -> UdpOptions {
        UdpOptions {
            reuse_address: false,
            reuse_port: false,
            only_v6: false,
            broadcast: false,
            time_to_live: None,
            multicast_time_to_live: 1,
            multicast_loop: true,
        }
    }

    /// Whether several sockets may have the same address (`SO_REUSEADDR`): all of them get what is sent to a group, the
    /// newest one what is sent to the address alone. Each of them has to ask for it.
    pub const fn reuse_address(self, is_set: bool) -> UdpOptions {
        UdpOptions { reuse_address: is_set, ..self }
    }

    /// Whether several sockets may have the same address, and the kernel shares the datagrams out among them
    /// (`SO_REUSEPORT`). Each of them has to ask for it, and all must belong to the same user.
    pub const fn reuse_port(self, is_set: bool) -> UdpOptions {
        UdpOptions { reuse_port: is_set, ..self }
    }

    /// Whether a socket at an IPv6 address leaves IPv4 alone (`IPV6_V6ONLY`). Without it, one at `[::]` gets datagrams of
    /// both, whatever the system's default is. For an IPv4 address it is refused.
    pub const fn only_v6(self, is_set: bool) -> UdpOptions {
        UdpOptions { only_v6: is_set, ..self }
    }

    /// Whether datagrams may be sent to the broadcast address of a network (`SO_BROADCAST`). IPv4 only; IPv6 has none.
    pub const fn broadcast(self, is_set: bool) -> UdpOptions {
        UdpOptions { broadcast: is_set, ..self }
    }

    /// Over how many routers a datagram goes at most (`IP_TTL`, `IPV6_UNICAST_HOPS`): at least 1.
    pub const fn time_to_live(self, hops: u8) -> UdpOptions {
        UdpOptions { time_to_live: Some(hops), ..self }
    }

    /// The same for datagrams to a group. 0 keeps them on this machine.
    pub const fn multicast_time_to_live(self, hops: u8) -> UdpOptions {
        UdpOptions { multicast_time_to_live: hops, ..self }
    }

    /// Whether this machine gets what is sent to a group by this socket, if it belongs to it.
    pub const fn multicast_loop(self, is_set: bool) -> UdpOptions {
        UdpOptions { multicast_loop: is_set, ..self }
    }

    /// As [`UdpSocket::bind`], with these options.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]; [`SourceError::Io`] for options that the system refuses.
    #[track_caller]
    pub fn bind(&self, event_loop: &LoopHandle, address: SocketAddr) -> Result<UdpSocket, SourceError> {
        event_loop.shared.check_not_gone()?;
        let socket = rustix::net::socket_with(family_of(address), SocketType::DGRAM, SOCKET_FLAGS, None)?;
        if self.reuse_address {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        if self.reuse_port {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        set_only_v6(&socket, address, self.only_v6)?;
        if self.broadcast {
            sockopt::set_socket_broadcast(&socket, true)?;
        }
        match address {
            SocketAddr::V4(_) => self.set_v4(&socket)?,
            SocketAddr::V6(_) => self.set_v6(&socket)?,
        }
        rustix::net::bind(&socket, &address)?;
        Ok(UdpSocket::open(event_loop, Location::caller(), socket))
    }

    fn set_v4(&self, socket: &OwnedFd) -> Result<(), Errno> {
        if let Some(hops) = self.time_to_live {
            sockopt::set_ip_ttl(socket, u32::from(hops))?;
        }
        sockopt::set_ip_multicast_ttl(socket, u32::from(self.multicast_time_to_live))?;
        sockopt::set_ip_multicast_loop(socket, self.multicast_loop)
    }

    fn set_v6(&self, socket: &OwnedFd) -> Result<(), Errno> {
        match self.time_to_live {
            // The kernel takes it as a hop limit here, and as an error for IPv4.
            Some(0) => return Err(Errno::INVAL),
            Some(hops) => sockopt::set_ipv6_unicast_hops(socket, Some(hops))?,
            None => {}
        }
        sockopt::set_ipv6_multicast_hops(socket, u32::from(self.multicast_time_to_live))?;
        sockopt::set_ipv6_multicast_loop(socket, self.multicast_loop)
    }
}

/// A group of sockets that get the same datagrams. See [`UdpSocket::join_multicast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastGroup {
    /// Of IPv4.
    V4 {
        /// The address of the group.
        group: Ipv4Addr,
        /// The address of the network interface; `0.0.0.0` lets the system choose one.
        interface: Ipv4Addr,
    },
    /// Of IPv6.
    V6 {
        /// The address of the group.
        group: Ipv6Addr,
        /// The number of the network interface; 0 lets the system choose one.
        interface: u32,
    },
}

impl MulticastGroup {
    pub(super) fn add(&self, socket: impl AsFd) -> Result<(), Errno> {
        match self {
            MulticastGroup::V4 { group, interface } => {
                sockopt::set_ip_add_membership(socket, group, interface)
            }
            MulticastGroup::V6 { group, interface } => {
                sockopt::set_ipv6_add_membership(socket, group, *interface)
            }
        }
    }

    pub(super) fn drop(&self, socket: impl AsFd) -> Result<(), Errno> {
        match self {
            MulticastGroup::V4 { group, interface } => {
                sockopt::set_ip_drop_membership(socket, group, interface)
            }
            MulticastGroup::V6 { group, interface } => {
                sockopt::set_ipv6_drop_membership(socket, group, *interface)
            }
        }
    }
}
