//! A wire is a non-blocking socket that carries frames in both directions. Workers (`workers/link.rs`) and clients
//! (`front/connection.rs`) use the same one. Each read and each write is bounded; what the frames mean, and what
//! follows from an error, is up to the user of the wire. When it is written to is in `end_of_turn.rs`.
//!
//! ```text
//!   push ---> outbox ---> flush: at most so many bytes ---> socket ---> read: at most a chunk ---> decoder ---> frames
//! ```

use bytes::Bytes;
use offload_protocol::codec::EncodeError;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::outbox::Outbox;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, Shutdown};
use serde::Serialize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Arc<UnixStream>,
    decoder: FrameDecoder,
    outbox: Outbox,
    written: u64,
}

/// What came of reading once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Bytes: there may be frames, and there may be more to read.
    Bytes,
    /// There is nothing to read now.
    Nothing,
    /// The other end sends no more.
    End,
}

/// Bytes that one flush writes at the most (1 MiB), so that one large payload does not hold up the loop.
pub const FLUSH_MAX: usize = 1 << 20;

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// All is written.
    Done,
    /// The socket takes no more now: go on when it is writable.
    Blocked,
    /// [`FLUSH_MAX`] bytes are written and there is more: go on in the next turn.
    More,
    /// Nobody reads any more; what was unsent is dropped. Reading tells the rest.
    Closed,
}

impl Wire {
    /// A wire over a non-blocking socket. A longer payload, in bytes, is an error.
    pub(crate) fn new(socket: UnixStream, payload_max: usize) -> Wire {
        let (socket, decoder) = (Arc::new(socket), FrameDecoder::new(payload_max));
        Wire { socket, decoder, outbox: Outbox::new(), written: 0 }
    }

    /// What to watch.
    pub(crate) fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.socket)
    }

    /// The frames that have come.
    pub(crate) fn decoder(&mut self) -> &mut FrameDecoder {
        &mut self.decoder
    }

    /// Length of the payload that is announced, in bytes, if one is.
    pub(crate) fn announced(&self) -> Option<usize> {
        self.decoder.announced().map(|announced| announced.payload_length)
    }

    /// Bytes of a large payload that have come.
    pub(crate) fn arrived(&self) -> usize {
        self.decoder.arrived()
    }

    /// Whether a frame has begun and is not complete.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }

    /// Reads once, at most [`READ_CHUNK`](offload_protocol::limits::READ_CHUNK) bytes. There must be no complete frame then
    /// that was not taken. A plain read: descriptors that somebody attaches to the bytes are discarded by the kernel.
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn read(&mut self) -> Result<Arrived, Errno> {
        match retry_on_intr(|| rustix::io::read(&self.socket, self.decoder.space())) {
            Ok(0) => Ok(Arrived::End),
            Ok(count) => {
                self.decoder.filled(count);
                Ok(Arrived::Bytes)
            }
            Err(Errno::WOULDBLOCK) => Ok(Arrived::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Appends a message to what is to be written.
    ///
    /// # Errors
    /// The message is longer than the wire allows; nothing was appended.
    pub(crate) fn push(&mut self, message: &impl Serialize, payload: &Bytes) -> Result<(), EncodeError> {
        self.outbox.push(message, payload)
    }

    /// Bytes to be written.
    pub(crate) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes in memory that are to be written; a payload counts in full until its last byte is written.
    pub(crate) fn held(&self) -> usize {
        self.outbox.held()
    }

    /// Bytes that were ever written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Throws away what is to be written.
    pub(crate) fn discard_unsent(&mut self) {
        self.outbox = Outbox::new();
    }

    /// The same but for the rest of the message that is under way.
    pub(crate) fn cut(&mut self) {
        self.outbox.cut();
    }

    /// Writes until all is written, the socket takes no more, or [`FLUSH_MAX`] bytes are written.
    ///
    /// # Errors
    /// The socket failed; what was to be written is thrown away.
    pub(crate) fn flush(&mut self) -> Result<Flushed, Errno> {
        let mut allowance = FLUSH_MAX;
        while !self.outbox.is_empty() {
            if allowance == 0 {
                return Ok(Flushed::More);
            }
            let front = self.outbox.front();
            let piece = &front[..front.len().min(allowance)];
            match retry_on_intr(|| rustix::net::send(&self.socket, piece, SendFlags::NOSIGNAL)) {
                Ok(count) => {
                    self.outbox.written(count);
                    self.written += count as u64;
                    allowance -= count;
                }
                Err(Errno::WOULDBLOCK) => return Ok(Flushed::Blocked),
                Err(error) => {
                    self.discard_unsent();
                    let is_end = matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN);
                    return if is_end { Ok(Flushed::Closed) } else { Err(error) };
                }
            }
        }
        Ok(Flushed::Done)
    }

    /// Ends both directions, for everybody who holds the other end. One that is closed already stays so.
    pub(crate) fn close(&mut self) {
        self.discard_unsent();
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::messages::ToWorker;
    use std::io::Write;

    fn wire_and_peer() -> (Wire, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Wire::new(ours, 1 << 20), peer)
    }

    #[test]
    fn one_flush_writes_no_more_than_its_share_and_all_that_is_written_is_counted() {
        let (mut wire, peer) = wire_and_peer();
        rustix::net::sockopt::set_socket_send_buffer_size(&wire.socket, 8 << 20).unwrap();
        wire.push(&ToWorker::Drain, &Bytes::from(vec![1; 3 * FLUSH_MAX])).unwrap();
        let all = wire.unsent() as u64;
        assert!(matches!(wire.flush().unwrap(), Flushed::More | Flushed::Blocked));
        assert!(0 < wire.written() && wire.written() <= FLUSH_MAX as u64);
        assert_eq!(wire.written() + wire.unsent() as u64, all);
        drop(peer);
        assert_eq!(wire.flush().unwrap(), Flushed::Closed);
        assert_eq!((wire.unsent(), wire.held()), (0, 0), "what nobody reads is not held");
    }

    #[test]
    fn reading_tells_bytes_from_silence_and_silence_from_the_end() {
        let (mut wire, mut peer) = wire_and_peer();
        assert_eq!(wire.read(), Ok(Arrived::Nothing));
        peer.write_all(b"\x04").unwrap();
        assert_eq!(wire.read(), Ok(Arrived::Bytes));
        assert!(wire.is_mid_frame() && wire.announced().is_none() && wire.arrived() == 0);
        drop(peer);
        assert_eq!(wire.read(), Ok(Arrived::End));
    }
}
