//! TLS is not compiled in: there are no keys, and so no sessions.

use super::{BadTls, Tls, TlsVersion};
use crate::line::Protocol;
use crate::socket::Socket;
use offload_event_loop::LoopHandle;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// There are none.
#[derive(Clone)]
pub(super) struct Keys(Infallible);

impl Keys {
    pub(super) fn from_pem(_: &[u8], _: &[u8]) -> Result<Keys, BadTls> {
        Err(BadTls("this program was built without TLS: build it with the feature `tls`".to_owned()))
    }
}

/// There is none.
pub(crate) struct Acceptor(Infallible);

impl Acceptor {
    pub(crate) fn new(tls: &Tls, _: &LoopHandle) -> Acceptor {
        match tls.keys().0 {}
    }

    pub(crate) fn accept(&self) -> Result<Session, BadTls> {
        match self.0 {}
    }
}

/// There is none.
pub(crate) struct Session(Infallible);

impl Session {
    pub(crate) fn version(&self) -> Option<TlsVersion> {
        match self.0 {}
    }

    pub(crate) fn agreed(&self) -> Option<Protocol> {
        match self.0 {}
    }

    pub(crate) fn text_without_tls(&self) -> Option<Vec<u8>> {
        match self.0 {}
    }

    pub(crate) fn is_other_protocol(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn poll_read(
        &self,
        _: &Socket,
        _: &Context<'_>,
        _: usize,
        _: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_write(
        &self,
        _: &Socket,
        _: &Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_flush(&self, _: &Socket, _: &Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn close(&self) {
        match self.0 {}
    }
}
