//! Name look-ups. They may take long, so they use the slow lane.

use std::net::{SocketAddr, ToSocketAddrs};

use super::{IoError, IoFuture, IoHandle, Lane, TaskId};
use crate::Context;
use crate::one_shot::OneShot;

impl IoHandle {
    /// Asks the system (`getaddrinfo`) for the addresses of `host`, in its order of preference, each with `port`. An
    /// address in digits is one, too. The task waits in [`Lane::Slow`], whatever the lane of this handle is.
    ///
    /// `done` gets [`IoError::Io`] if the name is unknown or invalid.
    #[track_caller]
    pub fn dns_lookup(
        &self,
        host: impl Into<String>,
        port: u16,
        done: impl FnOnce(&mut Context, Result<Vec<SocketAddr>, IoError>) + 'static,
    ) -> TaskId {
        let host = host.into();
        self.on_lane(Lane::Slow).submit(
            move || (&*host, port).to_socket_addrs().map(Iterator::collect).map_err(IoError::Io),
            |context, result| done(context, result.flatten()),
        )
    }

    /// As [`IoHandle::dns_lookup`], with the addresses as a future.
    #[track_caller]
    pub fn dns_lookup_async(&self, host: impl Into<String>, port: u16) -> IoFuture<Vec<SocketAddr>> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.dns_lookup(host, port, one_shot.filling()), one_shot)
    }
}
