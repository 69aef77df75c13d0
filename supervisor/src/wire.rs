//! A wire is a non-blocking socket that carries frames in both directions. Workers (`workers/link.rs`) and clients
//! (`front/connection.rs`) use the same one. Each read and each write is bounded. What the frames mean, and what
//! follows from an error, is up to the user of the wire. When a wire is written to is decided in `end_of_turn.rs`.
//!
//! ```text
//!   push ---> outbox ---> flush: at most FLUSH_MAX ---> socket ---> read: at most READ_CHUNK ---> decoder ---> frames
//! ```

use crate::limits::FLUSH_MAX;
use bytes::Bytes;
use offload_protocol::codec::EncodeError;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::outbox::Outbox;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, Shutdown};
use serde::Serialize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A socket with frames. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Arc<UnixStream>,
    decoder: FrameDecoder,
    outbox: Outbox,
    written: u64,
}

/// The result of reading once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Bytes arrived. There may be frames, and there may be more to read.
    Bytes,
    /// There is nothing to read now.
    Nothing,
    /// The other end sends no more.
    End,
}

/// The result of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// Everything is written.
    Done,
    /// The socket takes no more now: write again when it is writable.
    Blocked,
    /// [`FLUSH_MAX`] bytes are written and there is more: write again in the next turn.
    More,
    /// The other end does not read any more. Unsent bytes are dropped. What the other end has sent can still be read.
    Closed,
}

impl Wire {
    /// A wire over a non-blocking socket. A received payload of more than `payload_max` bytes is an error.
    pub(crate) fn new(socket: UnixStream, payload_max: usize) -> Wire {
        let (socket, decoder) = (Arc::new(socket), FrameDecoder::new(payload_max));
        Wire { socket, decoder, outbox: Outbox::new(), written: 0 }
    }

    /// The socket to watch.
    pub(crate) fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.socket)
    }

    /// The decoder with the frames that have arrived.
    pub(crate) fn decoder(&mut self) -> &mut FrameDecoder {
        &mut self.decoder
    }

    /// Length of the payload that is announced, in bytes, if there is one.
    pub(crate) fn announced(&self) -> Option<usize> {
        self.decoder.announced().map(|announced| announced.payload_length)
    }

    /// Number of bytes of a large payload that have arrived.
    pub(crate) fn arrived(&self) -> usize {
        self.decoder.arrived()
    }

    /// Whether a frame has arrived in part.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }

    /// Reads once, at most [`READ_CHUNK`](offload_protocol::limits::READ_CHUNK) bytes. All complete frames must have
    /// been taken from the decoder before. This is a plain read, so the kernel discards descriptors that are attached
    /// to the bytes.
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

    /// Queues a message for writing.
    ///
    /// # Errors
    /// The message is longer than the protocol allows. Nothing was queued.
    pub(crate) fn push(&mut self, message: &impl Serialize, payload: &Bytes) -> Result<(), EncodeError> {
        self.outbox.push(message, payload)
    }

    /// Number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes of memory that unsent messages take. A payload counts in full until its last byte is written.
    pub(crate) fn held(&self) -> usize {
        self.outbox.held()
    }

    /// Total number of bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Drops all unsent bytes.
    pub(crate) fn discard_unsent(&mut self) {
        self.outbox = Outbox::new();
    }

    /// Drops all unsent messages, except the rest of the one that is partly written.
    pub(crate) fn cut(&mut self) {
        self.outbox.cut();
    }

    /// Writes until nothing is unsent, the socket takes no more, or [`FLUSH_MAX`] bytes are written.
    ///
    /// # Errors
    /// The socket failed. Unsent bytes are dropped.
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

    /// Closes both directions, also for every process that has inherited the other end. Closing twice has no effect.
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
