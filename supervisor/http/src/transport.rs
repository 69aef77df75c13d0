//! What is below HTTP in a connection: a socket, with or without TLS on it.

use crate::line::Protocol;
use crate::socket::Socket;
use crate::sys;
use crate::tls::{Session, TlsVersion};
use hyper::rt::ReadBufCursor;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

/// See the module's documentation.
pub(crate) struct Transport {
    socket: Socket,
    tls: Option<Session>,
}

/// How far TLS is in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// There is none.
    Plain,
    /// The handshake is not complete, and may never be.
    Handshake,
    /// What is sent and received is protected.
    Secure(TlsVersion),
    /// The client was to speak TLS, and speaks something else.
    OtherProtocol,
}

impl Transport {
    pub(crate) fn new(socket: Socket, tls: Option<Session>) -> Transport {
        Transport { socket, tls }
    }

    /// For all that concerns the connection as a whole.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn security(&self) -> Security {
        match &self.tls {
            None => Security::Plain,
            Some(session) if session.is_other_protocol() => Security::OtherProtocol,
            Some(session) => session.version().map_or(Security::Handshake, Security::Secure),
        }
    }

    /// What the client has agreed to speak in the handshake, if it was asked.
    pub(crate) fn agreed(&self) -> Option<Protocol> {
        self.tls.as_ref().and_then(Session::agreed)
    }

    /// What a client has begun with that was to speak TLS and speaks something else.
    pub(crate) fn text_without_tls(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().and_then(Session::text_without_tls)
    }

    /// Whether something can be told to the client that it understands.
    pub(crate) fn can_answer(&self) -> bool {
        self.security() != Security::Handshake
    }

    /// Appends at most `room` bytes to `bytes`, which have room for them, and says how many; 0 is the end.
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        room: usize,
        bytes: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.socket.poll_read(context, room, |socket| append(socket, bytes)),
            Some(session) => {
                session.poll_read(&self.socket, context, room, |text| bytes.extend_from_slice(text))
            }
        }
    }

    /// Reads at most `most` bytes and what `cursor` has room for, shows them to `seen`, and says how many; 0 is the end.
    pub(crate) fn poll_read_into(
        &self,
        context: &Context<'_>,
        most: usize,
        cursor: &mut ReadBufCursor<'_>,
        seen: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.socket.poll_read(context, most, |socket| sys::read(socket, cursor, most, seen)),
            Some(session) => session.poll_read(&self.socket, context, most, |text| {
                cursor.put_slice(text);
                seen(text);
            }),
        }
    }

    /// Reads what nobody wants any more; 0 is the end.
    pub(crate) fn poll_discard(
        &self,
        context: &Context<'_>,
        scratch: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        scratch.clear();
        self.socket.poll_read(context, scratch.capacity(), |socket| append(socket, scratch))
    }

    /// Takes as many of the bytes as there is room for, and says how many. With TLS some of them may wait to be flushed.
    pub(crate) fn poll_write(
        &self,
        context: &Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &self.tls {
            Some(session) if !session.is_other_protocol() => {
                session.poll_write(&self.socket, context, pieces)
            }
            _ => self.socket.poll_write(context, pieces),
        }
    }

    pub(crate) fn poll_flush(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            None => Poll::Ready(Ok(())),
            Some(session) => session.poll_flush(&self.socket, context),
        }
    }

    /// Nothing more is written. With TLS that is to be flushed.
    pub(crate) fn close(&self) {
        if let Some(session) = self.tls.as_ref().filter(|session| !session.is_other_protocol()) {
            session.close();
        }
    }
}

fn append(socket: BorrowedFd<'_>, bytes: &mut Vec<u8>) -> Result<usize, rustix::io::Errno> {
    rustix::io::read(socket, rustix::buffer::spare_capacity(bytes))
}
