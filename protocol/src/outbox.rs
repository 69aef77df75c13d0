//! Bytes on their way out, without doing any I/O: messages are appended as they come up, and whoever owns the
//! descriptor writes [`Outbox::front`] once a turn and says with [`Outbox::written`] how far it got.
//!
//! Small payloads are copied behind their header so that many frames leave in one write. Large ones are shared, not
//! copied: a job of 50 MB that is tried three times exists once.

use crate::codec::{self, EncodeError};
use crate::limits::INLINE_PAYLOAD_MAX;
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
    /// An empty one.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// [`EncodeError`] if the message cannot travel; nothing was appended.
    pub fn push<M: Serialize>(&mut self, message: &M, payload: &Bytes) -> Result<(), EncodeError> {
        let tail = self.tail();
        let before = tail.len();
        codec::encode(message, payload.len(), tail)?;
        let share = payload.len() > INLINE_PAYLOAD_MAX;
        if !share {
            tail.extend_from_slice(payload);
        }
        self.length += tail.len() - before;
        if share {
            self.length += payload.len();
            self.chunks.push_back(Chunk::Shared(payload.clone()));
        }
        Ok(())
    }

    /// The bytes to write next; empty when all is written.
    pub fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk.as_slice()[self.written..])
    }

    /// Says that the first `count` bytes of [`Outbox::front`] were written.
    ///
    /// # Panics
    /// If `count` is more than there was.
    pub fn written(&mut self, count: usize) {
        assert!(count <= self.front().len(), "more bytes written than there were");
        self.written += count;
        self.length -= count;
        if self.front().is_empty() {
            self.drop_front();
        }
    }

    /// Bytes not written yet.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether all is written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        if !matches!(self.chunks.back(), Some(Chunk::Copied(_))) {
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
        match self.chunks.pop_front() {
            Some(Chunk::Copied(mut bytes)) if self.chunks.is_empty() => {
                bytes.clear();
                bytes.shrink_to(4 * INLINE_PAYLOAD_MAX);
                self.chunks.push_back(Chunk::Copied(bytes));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameDecoder;
    use crate::limits::PAYLOAD_MAX_DEFAULT;
    use crate::messages::ToWorker;
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
    fn a_message_that_cannot_travel_leaves_no_trace() {
        let mut outbox = Outbox::new();
        let task = "x".repeat(5000);
        let run = ToWorker::Run { job: 1, attempt: 1, task: &task, content: Default::default() };
        assert!(outbox.push(&run, &Bytes::from_static(b"payload")).is_err());
        assert!(outbox.is_empty() && outbox.front().is_empty());
    }

    proptest! {
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
