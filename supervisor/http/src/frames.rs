//! The frames of an HTTP/2 connection, as far as it matters how long they take. hyper reads them, and has no limit for a client that
//! stops in the middle of one; the fields of a head may even be spread over several.
//!
//! ```text
//!   preface --> Head (9 bytes) --> Payload --> Head (of the next frame) --> ...
//!               '--- unfinished, until the block of fields that began here has all of its frames ---'
//! ```
//!
//! Until the first request has come, everything is unfinished: settings and pings alone give a connection no more time.
//! DATA is not looked after here: bodies have a limit of their own.

const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What a client is told that took too long for a head: `ENHANCE_YOUR_CALM`.
const TOO_SLOW: u32 = 11;

/// Follows the frames of one connection. Any bytes in any portions are legal input.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; HEAD],
    /// So many bytes of the head are there.
    have: usize,
    /// So many bytes of the payload are still to come.
    left: usize,
    /// A block of fields has begun, and its last frame has not ended.
    is_in_block: bool,
    /// The last stream with a whole head; 0 if there is none.
    last_stream: u32,
}

impl Frames {
    /// These bytes came. True if a head, or a frame other than DATA, ended with one of them, even if it also began in this portion.
    /// Always false until the head of the first request has ended.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_ended = false;
        while !bytes.is_empty() {
            if self.have < HEAD {
                let taken = bytes.len().min(HEAD - self.have);
                self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                self.have += taken;
                bytes = &bytes[taken..];
                if self.have < HEAD {
                    break;
                }
                self.begin();
            } else {
                let taken = bytes.len().min(self.left);
                self.left -= taken;
                bytes = &bytes[taken..];
            }
            if self.left == 0 {
                has_ended |= self.end();
            }
        }
        has_ended
    }

    /// Whether the client has begun, and not finished, something that a healthy client sends at once: a head, or a frame (of a DATA
    /// frame, its first nine bytes). Always true until the head of the first request has come.
    pub(crate) fn is_unfinished(&self) -> bool {
        let is_in_frame = self.have > 0 && (self.have < HEAD || self.head[3] != DATA);
        self.last_stream == 0 || self.is_in_block || is_in_frame
    }

    /// The frame that tells the client why the connection ends: GOAWAY.
    pub(crate) fn goodbye(&self, reason: &str) -> Vec<u8> {
        let length = u32::try_from(8 + reason.len()).unwrap_or(8).to_be_bytes();
        let mut frame = [&length[1..], &[7, 0, 0, 0, 0, 0]].concat();
        frame.extend(self.last_stream.to_be_bytes());
        frame.extend(TOO_SLOW.to_be_bytes());
        frame.extend(reason.bytes());
        frame
    }

    fn begin(&mut self) {
        let [long, middle, short, kind, ..] = self.head;
        self.left = usize::from(long) << 16 | usize::from(middle) << 8 | usize::from(short);
        self.is_in_block |= kind == HEADERS;
    }

    fn end(&mut self) -> bool {
        let [_, _, _, kind, flags, stream @ ..] = self.head;
        self.have = 0;
        if matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0 {
            self.is_in_block = false;
            self.last_stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        }
        kind != DATA && !self.is_in_block && self.last_stream != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Whether something is unfinished after each byte.
    fn after_each_byte(frames: &mut Frames, bytes: &[u8]) -> Vec<bool> {
        let mut pass = |byte| {
            frames.pass(&[byte]);
            frames.is_unfinished()
        };
        bytes.iter().map(|byte| pass(*byte)).collect()
    }

    fn greeted() -> Frames {
        let mut frames = Frames::default();
        for before in [frame(4, 0, &[]), frame(6, 0, &[0; 8])] {
            assert!(!frames.pass(&before) && frames.is_unfinished(), "a request is owed");
        }
        assert!(frames.pass(&frame(HEADERS, END_HEADERS, b"abc")));
        assert!(!frames.is_unfinished());
        frames
    }

    #[test]
    fn a_head_is_unfinished_until_the_last_of_its_frames_has_ended() {
        for (frames, unfinished) in [
            (vec![frame(HEADERS, END_HEADERS, b"abc")], 11),
            (vec![frame(HEADERS, 0, b"abc"), frame(CONTINUATION, 0, b""), frame(CONTINUATION, 4, b"d")], 30),
            (vec![frame(6, 0, &[0; 8])], 16),
        ] {
            let bytes = frames.concat();
            let after = after_each_byte(&mut greeted(), &bytes);
            assert_eq!(after.iter().filter(|is| **is).count(), unfinished, "{after:?}");
            assert!(after[..unfinished].iter().all(|is| *is) && after.len() == unfinished + 1);
            let mut at_once = greeted();
            assert!(at_once.pass(&bytes) && !at_once.is_unfinished());
        }
    }

    #[test]
    fn a_body_takes_its_time() {
        let after = after_each_byte(&mut greeted(), &frame(DATA, 0, b"slow"));
        assert_eq!(after.iter().filter(|is| **is).count(), 8, "the head of its frame does not: {after:?}");
    }

    #[test]
    fn each_head_has_its_own_time_though_the_next_one_comes_with_its_end() {
        let mut frames = greeted();
        let head = frame(HEADERS, END_HEADERS, b"abc");
        assert!(!frames.pass(&head[..5]) && frames.is_unfinished());
        assert!(frames.pass(&[&head[5..], &head[..5]].concat()) && frames.is_unfinished());
    }
}
