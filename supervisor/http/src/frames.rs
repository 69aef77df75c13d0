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

/// What a client is told that speaks something else: `PROTOCOL_ERROR`.
pub(crate) const NOT_HTTP2: u32 = 1;

/// What a client is told that took too long for a head: `ENHANCE_YOUR_CALM`.
pub(crate) const TOO_SLOW: u32 = 11;

/// What this end of a connection says first: SETTINGS, of which all are the usual ones.
pub(crate) const PREFACE: [u8; HEAD] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

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

/// What a portion of bytes was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// So many frames ended in it.
    pub(crate) frames: usize,
    /// A head, or a frame other than DATA, ended in it. Never true until the head of the first request has ended.
    pub(crate) has_ended: bool,
    pub(crate) rest: Rest,
}

/// What the client has begun, and not finished, of that which a healthy client sends at once: a head, or a frame (of a DATA frame, its
/// first nine bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// It was unfinished before this portion, too. Until the head of the first request has come, always this.
    SameAsBefore,
    /// It began in this portion.
    Another,
}

impl Frames {
    /// These bytes came.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> Passed {
        let (mut frames, mut has_ended, mut was_finished) = (0, false, !self.is_unfinished());
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
            was_finished |= !self.is_unfinished();
            if self.left == 0 {
                has_ended |= self.end();
                frames += 1;
                was_finished |= !self.is_unfinished();
            }
        }
        let rest = match (self.is_unfinished(), was_finished) {
            (false, _) => Rest::Nothing,
            (true, false) => Rest::SameAsBefore,
            (true, true) => Rest::Another,
        };
        Passed { frames, has_ended, rest }
    }

    fn is_unfinished(&self) -> bool {
        let is_in_frame = self.have > 0 && (self.have < HEAD || self.head[3] != DATA);
        self.last_stream == 0 || self.is_in_block || is_in_frame
    }

    /// The frame that tells the client why the connection ends: GOAWAY.
    pub(crate) fn goodbye(&self, code: u32, reason: &str) -> Vec<u8> {
        let length = u32::try_from(8 + reason.len()).unwrap_or(8).to_be_bytes();
        let mut frame = [&length[1..], &[7, 0, 0, 0, 0, 0]].concat();
        frame.extend(self.last_stream.to_be_bytes());
        frame.extend(code.to_be_bytes());
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

    fn ended(frames: usize) -> Passed {
        Passed { frames, has_ended: true, rest: Rest::Nothing }
    }

    /// Whether something is unfinished after each byte.
    fn after_each_byte(frames: &mut Frames, bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|byte| frames.pass(&[*byte]).rest != Rest::Nothing).collect()
    }

    fn greeted() -> Frames {
        let mut frames = Frames::default();
        for before in [frame(4, 0, &[]), frame(6, 0, &[0; 8])] {
            let owed = Passed { frames: 1, has_ended: false, rest: Rest::SameAsBefore };
            assert_eq!(frames.pass(&before), owed, "a request is owed");
        }
        assert_eq!(frames.pass(&frame(HEADERS, END_HEADERS, b"abc")), ended(1));
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
            assert_eq!(greeted().pass(&bytes), ended(frames.len()));
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
        let data = frame(DATA, 0, b"slow");
        assert_eq!(frames.pass(&head[..5]), Passed { frames: 0, has_ended: false, rest: Rest::Another });
        assert_eq!(
            frames.pass(&head[5..6]),
            Passed { frames: 0, has_ended: false, rest: Rest::SameAsBefore }
        );
        let (next, another) = ([&head[6..], &head[..5]].concat(), Rest::Another);
        assert_eq!(frames.pass(&next), Passed { frames: 1, has_ended: true, rest: another });
        assert_eq!(frames.pass(&head[5..]), ended(1));
        // So has the beginning of each frame of a body, although the rest of the frame may take its time.
        assert_eq!(frames.pass(&data[..5]), Passed { frames: 0, has_ended: false, rest: another });
        let (next, none) = ([&data[5..], &data[..5]].concat(), Rest::Nothing);
        assert_eq!(frames.pass(&next), Passed { frames: 1, has_ended: false, rest: another });
        assert_eq!(frames.pass(&data[5..9]), Passed { frames: 0, has_ended: false, rest: none });
        assert_eq!(frames.pass(&data[9..]), Passed { frames: 1, has_ended: false, rest: none });
    }
}
