//! What a client may send over HTTP/1, checked before anything else sees it. Two programs that read the same bytes as different
//! requests can be played off against each other (request smuggling), so nothing ambiguous is passed on:
//!
//! ```text
//!          all of it is there, and it is sound         Content-Length
//!   Head ----------------------------------------+---------------------> Length ---> Head
//!    |                                           |        chunked
//!    |                                           +---------------------> Chunked --> Head
//!    '--> a violation: nothing more is passed    |        neither
//!                                                '---------------------> Head
//! ```
//!
//! The rules are stricter than RFC 9112, which lets recipients tolerate some of this: lines end with CR and LF, there is one `Host` and
//! one length, `chunked` is the only coding, and a target is a path (or `*`). A whole URL as the target, which is for proxies, is refused
//! although a server should accept it: it would be a second name beside `Host`. This is a pure state machine: it knows no
//! socket, and any bytes in any portions are legal input.

use crate::limits::{
    CHUNK_EXTENSION_MAX, CHUNKS_AT_ONCE, FIELDS_MAX, HEAD_MAX, TARGET_MAX, TRAILER_BYTES_MAX, TRAILERS_MAX,
};
use http::HeaderMap;
use std::fmt;
use std::mem::MaybeUninit;

/// Why nothing more is read from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The status that the client is answered with.
    pub status: u16,
    /// What is wrong, in one line.
    pub reason: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason)
    }
}

impl std::error::Error for Violation {}

const fn bad(reason: &'static str) -> Violation {
    Violation { status: 400, reason }
}

const TOO_LONG: Violation = Violation { status: 431, reason: "the head of the request is too long" };

/// Watches over the requests of one connection. See the module's documentation.
#[derive(Debug, Default)]
pub struct Guard {
    state: State,
    /// Of the head that is incomplete, so many bytes were looked at.
    looked_at: usize,
    /// So many chunks began in what was passed on last.
    chunks: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    /// So many bytes of the body are still to come; never 0.
    Length(u64),
    Chunked(Chunked),
}

impl Guard {
    /// How many of these bytes may be passed on: 0 if more have to come first, and then the next call has to begin with the same
    /// bytes. Otherwise the next call begins behind those that may be passed on. A head is passed on as a whole.
    ///
    /// # Errors
    /// A [`Violation`]: pass on nothing more of this connection.
    pub fn admit(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        match &mut self.state {
            State::Head => self.admit_head(bytes),
            State::Length(left) => {
                let admitted = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.count(admitted);
                Ok(admitted)
            }
            State::Chunked(chunked) => {
                let (admitted, is_end);
                (admitted, self.chunks, is_end) = chunked.admit(bytes)?;
                if is_end {
                    self.state = State::Head;
                }
                Ok(admitted)
            }
        }
    }

    /// How many bytes of a body with a length are still to come, so that they can be read without being looked at: then tell
    /// [`Guard::count`].
    pub fn body_left(&self) -> Option<u64> {
        if let State::Length(left) = self.state { Some(left) } else { None }
    }

    /// Whether the next bytes are those of a chunked body.
    pub fn is_in_chunks(&self) -> bool {
        matches!(self.state, State::Chunked(_))
    }

    /// How many chunks began in what was passed on last. Each of them is handled by itself, however small it is, so there are never
    /// more than a few.
    pub fn take_chunks(&mut self) -> usize {
        std::mem::take(&mut self.chunks)
    }

    /// So many bytes of the body were passed on.
    ///
    /// # Panics
    /// If they are more than [`Guard::body_left`].
    pub fn count(&mut self, bytes: usize) {
        let left = self.body_left().unwrap_or(0).checked_sub(bytes as u64).expect("not more than is left");
        self.state = if left == 0 { State::Head } else { State::Length(left) };
    }

    /// Whether the next bytes are the head of a request.
    pub fn awaits_head(&self) -> bool {
        matches!(self.state, State::Head)
    }

    fn admit_head(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        // One empty line before a request is left over from old clients that sent it behind a body.
        let skipped = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
        let Some(end) = self.end_of_head(bytes, skipped)? else {
            return if bytes.len() >= HEAD_MAX { Err(TOO_LONG) } else { Ok(0) };
        };
        if end > HEAD_MAX {
            return Err(TOO_LONG);
        }
        self.looked_at = 0;
        self.state = body_of(&bytes[skipped..end])?;
        Ok(end)
    }

    /// Where the head ends, if all of it is there. A control character or half a line end is a violation as soon as it is seen.
    fn end_of_head(&mut self, bytes: &[u8], skipped: usize) -> Result<Option<usize>, Violation> {
        let mut at = self.looked_at.max(skipped);
        while let Some(found) = bytes.get(at..).and_then(first_control) {
            let place = at + found;
            if bytes[place] != b'\r' {
                return Err(bad("a control character, or a line that does not end with CR and LF"));
            }
            match bytes.get(place + 1) {
                None => {
                    self.looked_at = place;
                    return Ok(None);
                }
                Some(b'\n') => {}
                Some(_) => return Err(bad("a CR without LF")),
            }
            at = place + 2;
            if place == skipped {
                return Err(bad("empty lines before a request"));
            }
            // The line before was empty, too, if this line end follows another one.
            if bytes[..place].ends_with(b"\r\n") {
                return Ok(Some(at));
            }
        }
        self.looked_at = bytes.len().max(at);
        Ok(None)
    }
}

/// All that RFC 9110 does not allow in a field, and the end of lines. A tab is allowed.
fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Where the first control character is. Most of a head has none, so eight bytes are looked at together.
fn first_control(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let mut found = controls_and_tabs(u64::from_le_bytes(*word));
        while found != 0 {
            let place = found.trailing_zeros() as usize / 8;
            if is_control(word[place]) {
                return Some(index * 8 + place);
            }
            found &= found - 1;
        }
    }
    let place = rest.iter().position(|byte| is_control(*byte))?;
    Some(words.len() * 8 + place)
}

/// Sets the highest bit of each byte that is a control character or a tab.
fn controls_and_tabs(word: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    // No byte of these sums carries into the next one.
    let low_bits = word & (0x7f * EACH);
    let from_space = low_bits + (0x80 - 0x20) * EACH;
    let is_delete = low_bits + EACH;
    (!from_space | is_delete) & !word & (0x80 * EACH)
}

/// Looks at a complete head, and returns what follows it.
fn body_of(head: &[u8]) -> Result<State, Violation> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(bad("the head of the request is not sound")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Violation { status: 431, reason: "too many header fields" });
        }
        Err(httparse::Error::Version) if names_another_version(head) => {
            return Err(Violation { status: 505, reason: "a version of HTTP that is not supported here" });
        }
        Err(_) => return Err(bad("the head of the request is not sound")),
    }
    check_target(request.method.unwrap_or(""), request.path.unwrap_or(""))?;
    body_by_fields(request.headers, request.version == Some(1))
}

/// Whether the first line would be sound, but for the version.
fn names_another_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    matches!(words[..], [_, _, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]]
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

fn check_target(method: &str, target: &str) -> Result<(), Violation> {
    if matches!(method, "CONNECT" | "TRACE") {
        return Err(Violation { status: 501, reason: "this method is not supported" });
    }
    if target.len() > TARGET_MAX {
        return Err(Violation { status: 414, reason: "the target of the request is too long" });
    }
    let is_path = target.starts_with('/') && !target.contains('#');
    let is_all = target == "*" && method == "OPTIONS";
    if !is_path && !is_all {
        return Err(bad("the target of the request is no path"));
    }
    if target.bytes().all(is_plain) {
        return Ok(());
    }
    // The same parser as the HTTP library's, which would refuse it without a word.
    match target.is_ascii() && http::Uri::try_from(target).is_ok() {
        true => Ok(()),
        false => Err(bad("the target of the request has characters that none may have: write them as %XX")),
    }
}

/// Whether a path may have this character anywhere (`unreserved` of RFC 3986, and what separates).
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~')
}

fn body_by_fields(fields: &[httparse::Header<'_>], is_latest: bool) -> Result<State, Violation> {
    let mut length = None;
    let (mut hosts, mut is_chunked) = (0, false);
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            hosts += 1;
        } else if is("content-length") {
            if length.replace(parse_length(field.value)?).is_some() {
                return Err(bad("more than one Content-Length"));
            }
        } else if is("transfer-encoding") {
            if is_chunked || !field.value.eq_ignore_ascii_case(b"chunked") || !is_latest {
                return Err(bad("a Transfer-Encoding other than a single `chunked`"));
            }
            is_chunked = true;
        }
    }
    if hosts > 1 || (hosts == 0 && is_latest) {
        return Err(bad("a request has exactly one Host"));
    }
    match (length, is_chunked) {
        (Some(_), true) => Err(bad("both Content-Length and Transfer-Encoding")),
        (None, true) => Ok(State::Chunked(Chunked::default())),
        (None | Some(0), false) => Ok(State::Head),
        (Some(length), false) => Ok(State::Length(length)),
    }
}

fn parse_length(value: &[u8]) -> Result<u64, Violation> {
    let is_number = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or(bad("a Content-Length that is no number"))
}

/// A chunked body, byte by byte:
///
/// ```text
///   Size --;--> Extension
///    |             |
///    '---- CR LF --+--> Data --> CR LF --> Size (the next one)
///                  '--> (size 0) Trailers: lines, until an empty one
/// ```
#[derive(Debug)]
enum Chunked {
    Size { digits: u32, size: u64 },
    Extension { length: usize, size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailers(Trailers),
}

impl Default for Chunked {
    fn default() -> Chunked {
        Chunked::Size { digits: 0, size: 0 }
    }
}

#[derive(Debug, Default)]
struct Trailers {
    fields: usize,
    bytes: usize,
    /// Length of the current line.
    line: usize,
    /// The last byte was a CR.
    is_ending: bool,
    has_colon: bool,
}

const BAD_CHUNK: Violation = bad("a chunked body that is not sound");

impl Chunked {
    /// How many of the bytes may be passed on, how many chunks begin in them, and whether the body ends there.
    fn admit(&mut self, bytes: &[u8]) -> Result<(usize, usize, bool), Violation> {
        let (mut at, mut chunks) = (0, 0);
        while at < bytes.len() {
            match self {
                Chunked::SizeEnd { .. } => chunks += 1,
                Chunked::Size { digits: 0, .. } if chunks >= CHUNKS_AT_ONCE => break,
                _ => {}
            }
            if let Chunked::Data { left } = self {
                let taken = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                at += taken;
                *left -= taken as u64;
                if *left == 0 {
                    *self = Chunked::DataCr;
                }
                continue;
            }
            if self.step(bytes[at])? {
                return Ok((at + 1, chunks, true));
            }
            at += 1;
        }
        Ok((at, chunks, false))
    }

    /// One byte that is no data. True if it is the last one of the body.
    fn step(&mut self, byte: u8) -> Result<bool, Violation> {
        *self = match std::mem::take(self) {
            Chunked::Size { digits, size } => match (byte, char::from(byte).to_digit(16)) {
                (_, Some(digit)) if digits < 15 => {
                    Chunked::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
                }
                (b';', None) if digits > 0 => Chunked::Extension { length: 0, size },
                (b'\r', None) if digits > 0 => Chunked::SizeEnd { size },
                _ => return Err(BAD_CHUNK),
            },
            Chunked::Extension { size, .. } if byte == b'\r' => Chunked::SizeEnd { size },
            Chunked::Extension { length, size } if length < CHUNK_EXTENSION_MAX && !is_control(byte) => {
                Chunked::Extension { length: length + 1, size }
            }
            Chunked::SizeEnd { size: 0 } if byte == b'\n' => Chunked::Trailers(Trailers::default()),
            Chunked::SizeEnd { size } if byte == b'\n' => Chunked::Data { left: size },
            Chunked::DataCr if byte == b'\r' => Chunked::DataLf,
            Chunked::DataLf if byte == b'\n' => Chunked::default(),
            Chunked::Trailers(mut trailers) => {
                if trailers.step(byte)? {
                    return Ok(true);
                }
                Chunked::Trailers(trailers)
            }
            _ => return Err(BAD_CHUNK),
        };
        Ok(false)
    }
}

impl Trailers {
    /// True at the end of the empty line.
    fn step(&mut self, byte: u8) -> Result<bool, Violation> {
        self.bytes += 1;
        if self.bytes > TRAILER_BYTES_MAX {
            return Err(Violation { status: 431, reason: "the fields behind the body are too long" });
        }
        match (self.is_ending, byte) {
            (true, b'\n') if self.line == 0 => return Ok(true),
            (true, b'\n') if self.has_colon && self.fields < TRAILERS_MAX => {
                *self = Trailers { fields: self.fields + 1, bytes: self.bytes, ..Trailers::default() };
            }
            (false, b'\r') => self.is_ending = true,
            (false, b' ' | b'\t' | b':') if self.line == 0 => return Err(BAD_CHUNK),
            (false, b' ' | b'\t') if !self.has_colon => return Err(BAD_CHUNK),
            (false, byte) if !is_control(byte) => {
                self.line += 1;
                self.has_colon |= byte == b':';
            }
            _ => return Err(BAD_CHUNK),
        }
        Ok(false)
    }
}

/// The same bounds for the fields behind a body over HTTP/2.
pub(crate) fn are_too_many(trailers: &HeaderMap) -> bool {
    // With a colon, a space and the end of the line.
    let bytes: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    trailers.len() > TRAILERS_MAX || bytes > TRAILER_BYTES_MAX
}

#[cfg(test)]
mod tests;
