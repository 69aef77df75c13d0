//! A wire is a non-blocking socket that carries frames in both directions. Workers (`workers/link.rs`) and clients
//! (`front/connection.rs`) use the same one. Each read and each write is bounded. What the frames mean, and what
//! follows from an error, is up to the user of the wire. When a wire is written to is decided in `end_of_turn.rs`.
//!
//! ```text
//!   push ---> outbox ---> flush: at most FLUSH_MAX ---> socket ---> read: at most READ_CHUNK ---> decoder ---> frames
//!     |--> attached: descriptors, each sent together with the first byte of its frame
//!     '--> copies: bytes that go into shared memory, each before the first byte of its frame
//! ```

#[cfg(test)]
pub(crate) mod refusals;

use crate::limits::{COPY_PIECE, DESCRIPTORS_SEEN, FLUSH_MAX, SEND_REFUSED_MAX, TIME_PER_TURN};
use crate::sys::{self, SharedMapping};
use bytes::Bytes;
use offload_protocol::codec::EncodeError;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::outbox::Outbox;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, send, sendmsg,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// A socket with frames. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Arc<UnixStream>,
    decoder: FrameDecoder,
    outbox: Outbox,
    written: u64,
    received: u64,
    /// Descriptors that were not sent yet, each with the count of written bytes at which its frame begins.
    attached: VecDeque<(u64, Attached)>,
    /// Copies that were not completed yet, each with the count of written bytes at which its frame begins.
    copies: VecDeque<(u64, SharedCopy)>,
    /// Since when the kernel has not taken the next bytes although the socket has room.
    refused_since: Option<Instant>,
}

/// A descriptor that is sent with a message, whoever holds it beside.
pub(crate) type Descriptor = Arc<dyn AsFd + Send + Sync>;

struct Attached(Descriptor);

impl fmt::Debug for Attached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Attached").field(&self.0.as_fd()).finish()
    }
}

/// Bytes to be copied into memory that the peer has mapped too.
#[derive(Debug)]
pub(crate) struct SharedCopy {
    bytes: Bytes,
    target: Arc<SharedMapping>,
    offset: usize,
    copied: usize,
}

impl SharedCopy {
    /// A copy of all of `bytes` to `offset` of the mapping.
    pub(crate) fn new(bytes: Bytes, target: Arc<SharedMapping>, offset: usize) -> SharedCopy {
        SharedCopy { bytes, target, offset, copied: 0 }
    }

    /// Copies at most `most` bytes more. Returns how many.
    fn copy_some(&mut self, most: usize) -> usize {
        let rest = &self.bytes[self.copied..];
        let piece = &rest[..rest.len().min(most)];
        self.target.write(self.offset + self.copied, piece);
        self.copied += piece.len();
        piece.len()
    }

    fn is_done(&self) -> bool {
        self.copied == self.bytes.len()
    }
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
    /// The socket takes more, but the kernel has no memory now, or too many descriptors are on their way: write again a
    /// little later.
    Refused,
    /// [`FLUSH_MAX`] bytes are written and there is more: write again in the next turn.
    More,
    /// The other end does not read any more. Unsent bytes are dropped. What the other end has sent can still be read.
    Closed,
}

impl Wire {
    /// A wire over a non-blocking socket. A received payload of more than `payload_max` bytes is an error.
    pub(crate) fn new(socket: UnixStream, payload_max: usize) -> Wire {
        let (socket, decoder) = (Arc::new(socket), FrameDecoder::new(payload_max));
        Wire {
            socket,
            decoder,
            outbox: Outbox::new(),
            written: 0,
            received: 0,
            attached: VecDeque::new(),
            copies: VecDeque::new(),
            refused_since: None,
        }
    }

    /// The socket to watch.
    pub(crate) fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.socket)
    }

    /// How much of what was written the other end has not read, as the kernel counts it.
    pub(crate) fn unread(&self) -> usize {
        sys::unread(self.socket.as_fd()).unwrap_or(0)
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
        let read = retry_on_intr(|| rustix::io::read(&self.socket, self.decoder.space()));
        self.arrived_by(read)
    }

    /// As [`Wire::read`], with the descriptors that come along. The read ends with the bytes that were sent together with
    /// them. Of many, the first ones are returned ([`DESCRIPTORS_SEEN`]), and the kernel discards the others.
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn read_with(&mut self) -> Result<(Arrived, Vec<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_SEEN))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let bytes = self.decoder.space();
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = retry_on_intr(|| {
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut *bytes)], &mut ancillary, flags)
        });
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        self.arrived_by(received.map(|received| received.bytes)).map(|arrived| (arrived, descriptors))
    }

    fn arrived_by(&mut self, read: Result<usize, Errno>) -> Result<Arrived, Errno> {
        match read {
            Ok(0) => Ok(Arrived::End),
            Ok(count) => {
                self.decoder.filled(count);
                self.received += count as u64;
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

    /// Queues a message for writing, with a descriptor that is sent together with its first byte.
    ///
    /// # Errors
    /// The message is longer than the protocol allows. Nothing was queued.
    pub(crate) fn push_with(
        &mut self,
        message: &impl Serialize,
        payload: &Bytes,
        descriptor: Descriptor,
    ) -> Result<(), EncodeError> {
        let start = self.written + self.outbox.len() as u64;
        self.outbox.push(message, payload)?;
        self.attached.push_back((start, Attached(descriptor)));
        Ok(())
    }

    /// Queues a message for writing. None of it is sent before the copy is complete.
    ///
    /// # Errors
    /// The message is longer than the protocol allows. Nothing was queued.
    pub(crate) fn push_after(
        &mut self,
        copy: SharedCopy,
        message: &impl Serialize,
        payload: &Bytes,
    ) -> Result<(), EncodeError> {
        let start = self.written + self.outbox.len() as u64;
        self.outbox.push(message, payload)?;
        self.copies.push_back((start, copy));
        Ok(())
    }

    /// Number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes of memory that unsent messages take; a payload in full until its last byte is written.
    pub(crate) fn held(&self) -> usize {
        self.outbox.held()
    }

    /// Total number of bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Total number of bytes read.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Drops all unsent bytes.
    pub(crate) fn discard_unsent(&mut self) {
        self.outbox = Outbox::new();
        self.attached.clear();
        self.copies.clear();
    }

    /// Drops all unsent messages, except the rest of the one that is partly written.
    pub(crate) fn cut(&mut self) {
        self.outbox.cut();
        // The message that is partly written has taken its descriptor along, and its copy is complete.
        self.attached.clear();
        self.copies.clear();
    }

    /// Writes until nothing is unsent, the socket takes no more, or [`FLUSH_MAX`] bytes are written.
    ///
    /// # Errors
    /// The socket failed, or the kernel has taken nothing for [`SEND_REFUSED_MAX`] although there was room. Unsent bytes are dropped.
    pub(crate) fn flush(&mut self) -> Result<Flushed, Errno> {
        let mut allowance = FLUSH_MAX;
        while !self.outbox.is_empty() {
            allowance -= self.copy_some(allowance);
            let next_copy = self.copies.front().map(|(start, _)| *start);
            if allowance == 0 || next_copy == Some(self.written) {
                return Ok(Flushed::More);
            }
            match self.send_piece(allowance) {
                Ok(count) => {
                    self.outbox.written(count);
                    self.written += count as u64;
                    allowance -= count;
                    self.refused_since = None;
                }
                Err(error) => return self.after_error(error, Instant::now()),
            }
        }
        Ok(Flushed::Done)
    }

    /// What follows from an error of the socket.
    fn after_error(&mut self, error: Errno, now: Instant) -> Result<Flushed, Errno> {
        match error {
            Errno::WOULDBLOCK => return Ok(Flushed::Blocked),
            Errno::TOOMANYREFS | Errno::NOBUFS => {
                let since = *self.refused_since.get_or_insert(now);
                if now.saturating_duration_since(since) < SEND_REFUSED_MAX {
                    return Ok(Flushed::Refused);
                }
            }
            _ => {}
        }
        self.discard_unsent();
        let is_end = matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN);
        if is_end { Ok(Flushed::Closed) } else { Err(error) }
    }

    /// Goes on with the copy that has to be complete before the next byte is written, for a limited time: memory that the peer
    /// has given back costs much more. Returns how many bytes were copied.
    fn copy_some(&mut self, most: usize) -> usize {
        let (mut copied, began) = (0, Instant::now());
        while copied < most
            && let Some((_, copy)) = self.copies.front_mut().filter(|(start, _)| *start == self.written)
        {
            copied += copy.copy_some((most - copied).min(COPY_PIECE));
            if copy.is_done() {
                self.copies.pop_front();
            }
            if began.elapsed() >= TIME_PER_TURN {
                break;
            }
        }
        copied
    }

    /// Sends at most `most` bytes from the outbox, and only up to the next frame that has a descriptor or comes after a copy.
    /// A frame with a descriptor begins a piece of its own, and its descriptor goes with that.
    fn send_piece(&mut self, most: usize) -> Result<usize, Errno> {
        #[cfg(test)]
        if refusals::is_next_write_refused() {
            return Err(Errno::NOBUFS);
        }
        let front = self.outbox.front();
        let goes_along = self.attached.front().filter(|(start, _)| *start == self.written);
        let next_attached = self.attached.get(usize::from(goes_along.is_some())).map(|(start, _)| *start);
        let next_copy = self.copies.front().map(|(start, _)| *start);
        let next = next_attached.into_iter().chain(next_copy).min();
        let until =
            next.map_or(usize::MAX, |start| usize::try_from(start - self.written).unwrap_or(usize::MAX));
        let piece = &front[..front.len().min(most).min(until)];
        let Some((_, Attached(descriptor))) = goes_along else {
            return retry_on_intr(|| send(&self.socket, piece, SendFlags::NOSIGNAL));
        };
        let count = retry_on_intr(|| send_with(&self.socket, piece, descriptor.as_fd()))?;
        self.attached.pop_front();
        Ok(count)
    }

    /// Closes both directions, also for every process that has inherited the other end. Closing twice has no effect.
    pub(crate) fn close(&mut self) {
        self.discard_unsent();
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

/// Sends bytes together with one descriptor.
pub(crate) fn send_with(
    socket: &UnixStream,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> Result<usize, Errno> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOMEM);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::messages::ToWorker;
    use std::io::{Read, Write};
    use std::net::Shutdown;

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
        // A process that another test has just forked may still hold a copy of the descriptor, so closing would not be enough.
        peer.shutdown(Shutdown::Both).unwrap();
        assert_eq!(wire.flush().unwrap(), Flushed::Closed);
        assert_eq!((wire.unsent(), wire.held()), (0, 0), "what nobody reads is not held");
    }

    /// What one read brings: how many bytes, and descriptors.
    fn receive_with(peer: &UnixStream, most: usize) -> (usize, Vec<OwnedFd>) {
        let mut bytes = vec![0; most];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(peer, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
                .unwrap();
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        (received.bytes, descriptors.collect())
    }

    #[test]
    fn a_descriptor_comes_with_the_first_byte_of_its_frame_and_no_sooner() {
        let (mut wire, peer) = wire_and_peer();
        let ends = [std::io::pipe().unwrap(), std::io::pipe().unwrap()];
        let frame = 8 + 4;
        wire.push(&ToWorker::Drain, &Bytes::new()).unwrap();
        let mut readers = Vec::new();
        for (reader, writer) in ends {
            wire.push_with(&ToWorker::Drain, &Bytes::new(), Arc::new(OwnedFd::from(writer))).unwrap();
            readers.push(reader);
        }
        wire.push(&ToWorker::Drain, &Bytes::new()).unwrap();
        assert_eq!(wire.flush().unwrap(), Flushed::Done);
        assert_eq!(receive_with(&peer, frame).1.len(), 0);
        for mut reader in readers {
            let (count, descriptors) = receive_with(&peer, 1);
            assert_eq!((count, descriptors.len()), (1, 1));
            drop(descriptors);
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no other copy is left");
            assert_eq!(receive_with(&peer, frame - 1).1.len(), 0);
        }
        assert_eq!(receive_with(&peer, 100).0, frame);
    }

    #[test]
    fn a_descriptor_whose_message_is_dropped_is_closed_unsent() {
        let (mut wire, peer) = wire_and_peer();
        for is_cut in [true, false] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            wire.push_with(&ToWorker::Drain, &Bytes::new(), Arc::new(OwnedFd::from(writer))).unwrap();
            if is_cut {
                wire.cut();
            } else {
                wire.discard_unsent();
            }
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        }
        wire.push(&ToWorker::Drain, &Bytes::new()).unwrap();
        assert_eq!(wire.flush().unwrap(), Flushed::Done);
        let (count, descriptors) = receive_with(&peer, 100);
        assert_eq!((count, descriptors.len()), (12, 0));
    }

    #[test]
    fn what_the_kernel_cannot_take_now_is_kept_for_a_while() {
        let (mut wire, peer) = wire_and_peer();
        wire.push(&ToWorker::Drain, &Bytes::new()).unwrap();
        let begin = Instant::now();
        for error in [Errno::TOOMANYREFS, Errno::NOBUFS] {
            assert_eq!(wire.after_error(error, begin + SEND_REFUSED_MAX / 2), Ok(Flushed::Refused));
        }
        assert_eq!(wire.flush(), Ok(Flushed::Done));
        assert_eq!(receive_with(&peer, 100).0, 12);
        wire.push(&ToWorker::Drain, &Bytes::new()).unwrap();
        let later = begin + 3 * SEND_REFUSED_MAX;
        assert_eq!(wire.after_error(Errno::NOBUFS, later), Ok(Flushed::Refused), "time counts anew");
        assert_eq!(wire.after_error(Errno::NOBUFS, later + SEND_REFUSED_MAX), Err(Errno::NOBUFS));
        assert_eq!(wire.unsent(), 0);
    }

    #[test]
    fn reading_tells_bytes_from_silence_and_silence_from_the_end() {
        let (mut wire, mut peer) = wire_and_peer();
        assert_eq!(wire.read(), Ok(Arrived::Nothing));
        peer.write_all(b"\x04").unwrap();
        assert_eq!(wire.read(), Ok(Arrived::Bytes));
        assert!(wire.is_mid_frame() && wire.announced().is_none() && wire.arrived() == 0);
        peer.shutdown(Shutdown::Both).unwrap();
        assert_eq!(wire.read(), Ok(Arrived::End));
    }
}
