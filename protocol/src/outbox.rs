//! Messages that wait to be written, without doing any I/O. The owner of the descriptor appends messages with
//! [`Outbox::push`], writes [`Outbox::front`] once per turn of the loop, and reports with [`Outbox::written`] how many bytes
//! were written.
//!
//! A small payload is copied behind its header, so that many frames leave in one write. A large one is shared: the input of
//! a job that is tried three times is in memory once.

use crate::codec::{self, EncodeError};
use crate::limits::{COPIED_MAX, INLINE_PAYLOAD_MAX, PREFIX_BYTES};
use bytes::Bytes;
use serde::Serialize;
use std::collections::VecDeque;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// How much of the first chunk is written.
    written: usize,
    /// Bytes not written yet, over all chunks.
    length: usize,
    /// Bytes in memory, over all chunks: a chunk is there until its last byte is written.
    held: usize,
}

#[derive(Debug)]
enum Chunk {
    Copied(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Copied(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// [`EncodeError`] if the message is longer than the wire allows. Then nothing is appended.
    pub fn push<M: Serialize>(&mut self, message: &M, payload: &Bytes) -> Result<(), EncodeError> {
        let tail = self.tail();
        let before = tail.len();
        codec::encode(message, payload.len(), tail)?;
        let share = payload.len() > INLINE_PAYLOAD_MAX;
        if !share {
            tail.extend_from_slice(payload);
        }
        let copied = tail.len() - before;
        self.length += copied;
        self.held += copied;
        if share {
            self.length += payload.len();
            self.held += payload.len();
            self.chunks.push_back(Chunk::Shared(payload.clone()));
        }
        Ok(())
    }

    /// The bytes to write next; empty if everything is written.
    pub fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk.as_slice()[self.written..])
    }

    /// Reports that the first `count` bytes of [`Outbox::front`] were written.
    ///
    /// # Panics
    /// If `count` is larger than the length of [`Outbox::front`].
    pub fn written(&mut self, count: usize) {
        assert!(count <= self.front().len(), "more bytes written than there were");
        self.written += count;
        self.length -= count;
        if self.front().is_empty() {
            self.drop_front();
        }
    }

    /// Number of bytes that are not written yet.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Number of bytes that are in memory because of what is not written yet. A payload counts in full until its last byte
    /// is written.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Drops all messages of which nothing is written yet. A message that is partly written stays.
    pub fn cut(&mut self) {
        let (kept, has_payload) = match self.chunks.front() {
            None => (0, false),
            // Its header is written already.
            Some(Chunk::Shared(payload)) => (payload.len(), false),
            Some(Chunk::Copied(frames)) => frame_at(frames, self.written),
        };
        let chunks = if kept == 0 { 0 } else { 1 + usize::from(has_payload) };
        self.chunks.truncate(chunks);
        if let Some(Chunk::Copied(frames)) = self.chunks.front_mut() {
            frames.truncate(kept);
        }
        self.written = self.written.min(kept);
        self.held = self.chunks.iter().map(|chunk| chunk.as_slice().len()).sum();
        self.length = self.held - self.written;
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        let has_room = |bytes: &Vec<u8>| bytes.len() < COPIED_MAX;
        if !matches!(self.chunks.back(), Some(Chunk::Copied(bytes)) if has_room(bytes)) {
            self.chunks.push_back(Chunk::Copied(Vec::new()));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Copied(bytes)) => bytes,
            _ => unreachable!("one was appended if there was none"),
        }
    }

    /// The buffer of the last chunk is kept for what comes next.
    fn drop_front(&mut self) {
        self.written = 0;
        let front = self.chunks.pop_front();
        self.held -= front.as_ref().map_or(0, |chunk| chunk.as_slice().len());
        match front {
            Some(Chunk::Copied(mut bytes)) if self.chunks.is_empty() => {
                bytes.clear();
                bytes.shrink_to(COPIED_MAX);
                self.chunks.push_back(Chunk::Copied(bytes));
            }
            _ => {}
        }
    }
}

/// Where the frame ends that is partly written when `written` bytes are, and whether its payload is a chunk of its own. 0
/// if a frame begins at `written`.
fn frame_at(frames: &[u8], written: usize) -> (usize, bool) {
    let mut start = 0;
    while start < written {
        let Some([a, b, c, d, e, f, g, h]) = frames[start..].first_chunk::<PREFIX_BYTES>() else { break };
        let header = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let payload = u32::from_le_bytes([*e, *f, *g, *h]) as usize;
        let is_shared = payload > INLINE_PAYLOAD_MAX;
        let end = start + PREFIX_BYTES + header + if is_shared { 0 } else { payload };
        if end > written {
            return (end, is_shared);
        }
        start = end;
    }
    (0, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameDecoder;
    use crate::limits::PAYLOAD_MAX_DEFAULT;
    use crate::messages::{ToSupervisor, ToWorker};
    use proptest::prelude::*;

    #[test]
    fn small_frames_share_one_write_and_a_large_payload_is_not_copied() {
        let mut outbox = Outbox::new();
        let large = Bytes::from(vec![1; INLINE_PAYLOAD_MAX + 1]);
        outbox.push(&ToWorker::Cancel { job: 1 }, &Bytes::new()).unwrap();
        outbox.push(&ToWorker::Cancel { job: 2 }, &large).unwrap();
        outbox.push(&ToWorker::Drain, &Bytes::from_static(b"abc")).unwrap();
        let first = outbox.front().len();
        assert_eq!(first, 2 * (8 + 12));
        outbox.written(first);
        assert_eq!(outbox.front().as_ptr(), large.as_ptr());
        outbox.written(large.len());
        assert_eq!(outbox.front().len(), 8 + 4 + 3);
        outbox.written(15);
        assert!(outbox.is_empty() && outbox.front().is_empty());
    }

    #[test]
    fn a_payload_counts_in_full_until_its_last_byte_is_written() {
        let mut outbox = Outbox::new();
        let large = Bytes::from(vec![1; INLINE_PAYLOAD_MAX + 1]);
        outbox.push(&ToWorker::Cancel { job: 1 }, &large).unwrap();
        let (all, header) = (outbox.held(), outbox.front().len());
        assert_eq!(all, outbox.len());
        outbox.written(header);
        assert_eq!(outbox.held(), large.len());
        outbox.written(large.len() - 1);
        assert_eq!((outbox.held(), outbox.len()), (large.len(), 1));
        outbox.written(1);
        assert_eq!((outbox.held(), outbox.len()), (0, 0));
    }

    #[test]
    fn for_a_reader_that_is_always_a_little_behind_memory_does_not_grow() {
        let mut outbox = Outbox::new();
        let small = Bytes::from(vec![1; 1000]);
        for job in 0..10_000 {
            outbox.push(&ToWorker::Cancel { job }, &small).unwrap();
            while outbox.len() > 5000 {
                let count = outbox.front().len().min(100);
                outbox.written(count);
            }
            assert!(outbox.held() <= 2 * (COPIED_MAX + small.len()) + 5000, "{}", outbox.held());
        }
    }

    #[test]
    fn a_message_that_cannot_travel_leaves_no_trace() {
        let mut outbox = Outbox::new();
        let job = "x".repeat(crate::limits::HEADER_MAX);
        let run = ToSupervisor::Wait { ticket: 1, job: &job };
        assert!(outbox.push(&run, &Bytes::from_static(b"payload")).is_err());
        assert!(outbox.is_empty() && outbox.front().is_empty());
    }

    proptest! {
        #[test]
        fn after_a_cut_only_the_rest_of_a_partly_written_frame_is_left(
            payloads in proptest::collection::vec(prop_oneof![0usize..200, 32_700usize..40_000], 1..10),
            written in 0usize..200_000,
        ) {
            let mut outbox = Outbox::new();
            let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
            for (job, length) in payloads.iter().enumerate() {
                outbox.push(&ToWorker::Cancel { job: job as u64 }, &Bytes::from(vec![job as u8; *length])).unwrap();
            }
            let mut write = |outbox: &mut Outbox, most: usize| {
                let mut left = most;
                while left > 0 && !outbox.is_empty() {
                    let space = decoder.space();
                    let count = outbox.front().len().min(left).min(space.len());
                    space[..count].copy_from_slice(&outbox.front()[..count]);
                    decoder.filled(count);
                    outbox.written(count);
                    left -= count;
                    while decoder.next().unwrap().is_some() || decoder.announced().is_some() {}
                }
                decoder.is_mid_frame()
            };
            let is_mid_frame = write(&mut outbox, written);
            outbox.cut();
            prop_assert_eq!(is_mid_frame, !outbox.is_empty());
            prop_assert!(outbox.held() >= outbox.len() && outbox.len() <= 40_100);
            prop_assert!(!write(&mut outbox, usize::MAX), "the frame is whole");
            outbox.push(&ToWorker::Drain, &Bytes::new()).unwrap();
            prop_assert_eq!((outbox.len(), outbox.held()), (12, 12));
        }

        #[test]
        fn whatever_the_writes_are_cut_into_the_frames_arrive(
            payloads in proptest::collection::vec(prop_oneof![0usize..200, 32_700usize..40_000], 1..10),
            cut in 1usize..9000,
        ) {
            let mut outbox = Outbox::new();
            let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
            let mut arrived = Vec::new();
            for (job, length) in payloads.iter().enumerate() {
                outbox.push(&ToWorker::Cancel { job: job as u64 }, &Bytes::from(vec![job as u8; *length])).unwrap();
            }
            while !outbox.is_empty() {
                let space = decoder.space();
                let count = outbox.front().len().min(cut).min(space.len());
                space[..count].copy_from_slice(&outbox.front()[..count]);
                decoder.filled(count);
                outbox.written(count);
                loop {
                    while let Some(frame) = decoder.next().unwrap() {
                        arrived.push(frame.payload.len());
                    }
                    if decoder.announced().is_none() { break; }
                }
            }
            prop_assert_eq!(arrived, payloads);
        }
    }
}
