//! Cuts a stream of bytes into frames, without doing any I/O. The caller reads bytes into [`FrameDecoder::space`], reports
//! how many came with [`FrameDecoder::filled`], and takes frames with [`FrameDecoder::next`].
//!
//! ```text
//!   Collecting --- a frame whose payload is at most INLINE_PAYLOAD_MAX ---> next() lends it from the buffer
//!       |
//!       | prefix and header of a longer one are complete
//!       v
//!   Announced --- next() or space() is called ---> Large: bytes go straight into the payload's own allocation
//!       |                                            |     '--- complete: next() returns it ---> Collecting
//!       | refuse()                                   | give_up()
//!       '--------------------------------------------'---> Discarding: bytes are dropped ---> Collecting
//! ```
//!
//! Both lengths are checked as soon as the eight bytes of the prefix have arrived, before anything is allocated. The
//! allocation of a large payload takes no memory until its bytes arrive.

use crate::limits::{HEADER_MAX, INLINE_PAYLOAD_MAX, PREFIX_BYTES, READ_CHUNK};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;

/// One message as it arrived: its header, for [`crate::codec::decode`], and its payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The encoded message.
    pub header: Cow<'a, [u8]>,
    /// The raw payload: owned if it is large, otherwise lent from the buffer.
    pub payload: Cow<'a, [u8]>,
}

/// Makes a payload that outlives its frame. A large payload keeps its allocation; a small one is copied out of the
/// decoder's buffer.
pub fn owned_payload(payload: Cow<'_, [u8]>) -> Bytes {
    match payload {
        Cow::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    }
}

/// A large frame whose payload has not arrived yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced<'a> {
    /// The encoded message.
    pub header: &'a [u8],
    /// Length of the payload, in bytes.
    pub payload_length: usize,
}

/// A frame that the protocol forbids. Its sender broke the protocol, and nothing more can be read from the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The header's length is zero or over [`HEADER_MAX`].
    HeaderLength {
        /// The announced length, in bytes.
        length: usize,
    },
    /// The payload's length is over the limit that this decoder was given.
    PayloadLength {
        /// The announced length, in bytes.
        length: usize,
        /// The limit, in bytes.
        max: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::HeaderLength { length } => {
                write!(formatter, "header of {length} bytes, 1 to {HEADER_MAX} are allowed")
            }
            FrameError::PayloadLength { length, max } => {
                write!(formatter, "payload of {length} bytes, {max} are allowed")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// See the module's documentation.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    payload_max: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Collecting,
    /// The prefix and header are at `start` of the buffer. The payload has been neither asked for nor refused.
    Announced {
        header_length: usize,
        payload_length: usize,
    },
    /// The first `filled` bytes of `payload` have arrived; after them are zeros to read into.
    Large {
        header: Vec<u8>,
        payload: Vec<u8>,
        filled: usize,
        length: usize,
    },
    Discarding {
        left: usize,
    },
}

/// Lengths of the frame at the front of the buffer.
struct Lengths {
    header: usize,
    payload: usize,
}

impl FrameDecoder {
    /// A decoder that accepts payloads of up to `payload_max` bytes.
    pub fn new(payload_max: usize) -> FrameDecoder {
        FrameDecoder {
            buffer: vec![0; READ_CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
            payload_max,
            state: State::Collecting,
        }
    }

    /// The space for the next read: at least one byte, at most [`READ_CHUNK`].
    ///
    /// Take all frames with [`FrameDecoder::next`] first. If a payload is announced, this call asks for it.
    pub fn space(&mut self) -> &mut [u8] {
        self.want_announced();
        match &mut self.state {
            State::Large { payload, filled, length, .. } => {
                let end = (*filled + READ_CHUNK).min(*length);
                payload.resize(end, 0);
                &mut payload[*filled..end]
            }
            State::Discarding { left } => {
                let length = (*left).min(self.buffer.len());
                &mut self.buffer[..length]
            }
            State::Collecting | State::Announced { .. } => {
                if self.start > 0 {
                    self.buffer.copy_within(self.start..self.end, 0);
                    self.end -= self.start;
                    self.start = 0;
                }
                &mut self.buffer[self.end..]
            }
        }
    }

    /// Reports that the first `count` bytes of [`FrameDecoder::space`] were read.
    ///
    /// # Panics
    /// If `count` is larger than the space was.
    pub fn filled(&mut self, count: usize) {
        match &mut self.state {
            State::Large { payload, filled, .. } => {
                assert!(*filled + count <= payload.len(), "more bytes than there was space");
                *filled += count;
            }
            State::Discarding { left } => {
                assert!(count <= *left, "more bytes than there was space");
                *left -= count;
                if *left == 0 {
                    self.state = State::Collecting;
                }
            }
            State::Collecting | State::Announced { .. } => {
                assert!(self.end + count <= self.buffer.len(), "more bytes than there was space");
                self.end += count;
            }
        }
    }

    /// The next complete frame, if there is one.
    ///
    /// # Errors
    /// [`FrameError`] if the next bytes are no valid frame. The decoder cannot be used any further.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, which Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        self.want_announced();
        match &self.state {
            State::Large { filled, length, .. } if filled == length => Ok(Some(self.take_large())),
            State::Collecting => self.next_inline(),
            State::Large { .. } | State::Discarding { .. } | State::Announced { .. } => Ok(None),
        }
    }

    /// The large frame whose header is complete and whose payload has been neither asked for nor refused, if there is
    /// one. Worth calling when [`FrameDecoder::next`] has returned `None`. To ask for the payload, go on reading; to
    /// refuse it, call [`FrameDecoder::refuse`].
    pub fn announced(&self) -> Option<Announced<'_>> {
        let State::Announced { header_length, payload_length } = self.state else { return None };
        let header_at = self.start + PREFIX_BYTES;
        Some(Announced { header: &self.buffer[header_at..header_at + header_length], payload_length })
    }

    /// Number of bytes of a large payload that have arrived and are in memory, while its frame is not complete.
    pub fn arrived(&self) -> usize {
        match &self.state {
            State::Large { filled, .. } => *filled,
            State::Collecting | State::Announced { .. } | State::Discarding { .. } => 0,
        }
    }

    /// Refuses the announced frame: its payload is dropped as it arrives. Does nothing if none is announced.
    pub fn refuse(&mut self) {
        let State::Announced { header_length, payload_length } = self.state else { return };
        self.start += PREFIX_BYTES + header_length;
        let here = (self.end - self.start).min(payload_length);
        self.start += here;
        self.discard(payload_length - here);
    }

    /// Refuses a large frame in the middle of its payload: what has arrived is freed, and the rest is dropped as it
    /// arrives. Does nothing if no large payload is arriving.
    pub fn give_up(&mut self) {
        if let State::Large { filled, length, .. } = self.state {
            self.discard(length - filled);
        }
    }

    fn discard(&mut self, left: usize) {
        self.state = match left {
            0 => State::Collecting,
            left => State::Discarding { left },
        };
    }

    /// Whether part of a frame has arrived: a peer that stops now is stuck or gone.
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.end || !matches!(self.state, State::Collecting)
    }

    fn next_inline(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some(Lengths { header, payload }) = self.lengths()? else { return Ok(None) };
        let there = self.end - self.start;
        if payload > INLINE_PAYLOAD_MAX {
            if there >= PREFIX_BYTES + header {
                self.state = State::Announced { header_length: header, payload_length: payload };
            }
            return Ok(None);
        }
        let total = PREFIX_BYTES + header + payload;
        if there < total {
            return Ok(None);
        }
        let frame = &self.buffer[self.start + PREFIX_BYTES..self.start + total];
        self.start += total;
        let (header, payload) = frame.split_at(header);
        Ok(Some(Frame { header: Cow::Borrowed(header), payload: Cow::Borrowed(payload) }))
    }

    fn lengths(&self) -> Result<Option<Lengths>, FrameError> {
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h] = *prefix;
        let header = u32::from_le_bytes([a, b, c, d]) as usize;
        let payload = u32::from_le_bytes([e, f, g, h]) as usize;
        if header == 0 || header > HEADER_MAX {
            return Err(FrameError::HeaderLength { length: header });
        }
        if payload > self.payload_max {
            return Err(FrameError::PayloadLength { length: payload, max: self.payload_max });
        }
        Ok(Some(Lengths { header, payload }))
    }

    fn want_announced(&mut self) {
        let State::Announced { header_length, payload_length } = self.state else { return };
        let header_at = self.start + PREFIX_BYTES;
        let payload_at = header_at + header_length;
        let here = (self.end - payload_at).min(payload_length);
        let mut payload = Vec::with_capacity(payload_length);
        payload.extend_from_slice(&self.buffer[payload_at..payload_at + here]);
        let header = self.buffer[header_at..payload_at].to_vec();
        self.start = payload_at + here;
        self.state = State::Large { header, payload, filled: here, length: payload_length };
    }

    fn take_large(&mut self) -> Frame<'_> {
        match std::mem::replace(&mut self.state, State::Collecting) {
            State::Large { header, payload, .. } => {
                Frame { header: Cow::Owned(header), payload: Cow::Owned(payload) }
            }
            _ => unreachable!("the caller has looked at the state"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAYLOAD_MAX_DEFAULT;
    use proptest::prelude::*;

    fn frame(header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Header and payload.
    type Pair = (Vec<u8>, Vec<u8>);

    /// Feeds `stream` in pieces of at most `piece` bytes and collects the frames, refusing what `refuse` says.
    fn decode_all(
        decoder: &mut FrameDecoder,
        mut stream: &[u8],
        piece: usize,
        refuse: impl Fn(&Announced) -> bool,
    ) -> Result<Vec<Pair>, FrameError> {
        let mut frames = Vec::new();
        while !stream.is_empty() {
            let space = decoder.space();
            let count = space.len().min(piece).min(stream.len());
            space[..count].copy_from_slice(&stream[..count]);
            stream = &stream[count..];
            decoder.filled(count);
            loop {
                while let Some(frame) = decoder.next()? {
                    frames.push((frame.header.into_owned(), frame.payload.into_owned()));
                }
                match decoder.announced() {
                    Some(announced) if refuse(&announced) => decoder.refuse(),
                    Some(_) => continue,
                    None => break,
                }
            }
        }
        Ok(frames)
    }

    #[test]
    fn a_large_payload_is_announced_before_it_comes_and_arrives_in_an_allocation_of_its_own() {
        let payload = vec![7; 100_000];
        let bytes = frame(b"head", &payload);
        let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
        decoder.space()[..12].copy_from_slice(&bytes[..12]);
        decoder.filled(12);
        assert_eq!(decoder.next(), Ok(None));
        assert_eq!(decoder.announced(), Some(Announced { header: b"head", payload_length: 100_000 }));
        let frames = decode_all(&mut decoder, &bytes[12..], usize::MAX, |_| false).unwrap();
        assert_eq!(frames, [(b"head".to_vec(), payload)]);
        assert!(!decoder.is_mid_frame());
    }

    #[test]
    fn a_refused_payload_is_skipped_and_the_next_frame_is_whole() {
        let mut bytes = frame(b"big", &vec![1; 200_000]);
        bytes.extend(frame(b"small", b"payload"));
        for piece in [1000, 65536, usize::MAX] {
            let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
            let frames =
                decode_all(&mut decoder, &bytes, piece, |announced| announced.header == b"big").unwrap();
            assert_eq!(frames, [(b"small".to_vec(), b"payload".to_vec())]);
        }
    }

    #[test]
    fn absurd_lengths_are_refused_on_the_prefix_alone() {
        for (prefix, error) in [
            ([0, 0, 0, 0, 0, 0, 0, 0], FrameError::HeaderLength { length: 0 }),
            ([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], FrameError::HeaderLength { length: 0xffff_ffff }),
            (
                [4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
                FrameError::PayloadLength { length: 0xffff_ffff, max: 1000 },
            ),
        ] {
            let mut decoder = FrameDecoder::new(1000);
            decoder.space()[..8].copy_from_slice(&prefix);
            decoder.filled(8);
            assert_eq!(decoder.next(), Err(error));
        }
    }

    #[test]
    fn a_frame_that_has_begun_is_told_from_silence() {
        let mut decoder = FrameDecoder::new(1000);
        assert!(!decoder.is_mid_frame());
        decoder.space()[0] = 4;
        decoder.filled(1);
        assert_eq!(decoder.next(), Ok(None));
        assert!(decoder.is_mid_frame());
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_bytes_are_cut(
            sizes in proptest::collection::vec((1usize..300, prop_oneof![0usize..300, 32_000usize..70_000]), 1..8),
            piece in prop_oneof![Just(1usize << 20), 1usize..5000],
        ) {
            let frames: Vec<_> = sizes.iter().map(|&(header, payload)| {
                (vec![header as u8; header], (0..payload).map(|i| i as u8).collect::<Vec<_>>())
            }).collect();
            let stream: Vec<u8> = frames.iter().flat_map(|(header, payload)| frame(header, payload)).collect();
            let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
            prop_assert_eq!(decode_all(&mut decoder, &stream, piece, |_| false).unwrap(), frames);
        }

        #[test]
        fn no_bytes_at_all_make_it_panic(stream in proptest::collection::vec(any::<u8>(), 0..300), piece in 1usize..50) {
            let _ = decode_all(&mut FrameDecoder::new(1 << 16), &stream, piece, |_| false);
        }
    }
}
