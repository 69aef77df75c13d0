//! A client that writes frames of HTTP/2 as it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;
use tests::harness::PATIENCE;
use tests::http::HttpDaemon;

pub(in crate::http) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first byte of the fields of a response with status 200.
pub(in crate::http) const OK: u8 = 0x88;

pub(in crate::http) const DATA: u8 = 0;
pub(in crate::http) const HEADERS: u8 = 1;
pub(in crate::http) const PRIORITY: u8 = 2;
pub(in crate::http) const RST_STREAM: u8 = 3;
pub(in crate::http) const SETTINGS: u8 = 4;
pub(in crate::http) const PUSH_PROMISE: u8 = 5;
pub(in crate::http) const PING: u8 = 6;
pub(in crate::http) const GOAWAY: u8 = 7;
pub(in crate::http) const WINDOW_UPDATE: u8 = 8;
pub(in crate::http) const CONTINUATION: u8 = 9;

pub(in crate::http) const END_STREAM: u8 = 1;
pub(in crate::http) const END_HEADERS: u8 = 4;
pub(in crate::http) const ACK: u8 = 1;

pub(in crate::http) const NO_ERROR: u32 = 0;
pub(in crate::http) const PROTOCOL_ERROR: u32 = 1;
pub(in crate::http) const FLOW_CONTROL_ERROR: u32 = 3;
pub(in crate::http) const REFUSED_STREAM: u32 = 7;
pub(in crate::http) const CANCEL: u32 = 8;
pub(in crate::http) const STREAM_CLOSED: u32 = 5;
pub(in crate::http) const FRAME_SIZE_ERROR: u32 = 6;
pub(in crate::http) const COMPRESSION_ERROR: u32 = 9;
pub(in crate::http) const ENHANCE_YOUR_CALM: u32 = 11;

pub(in crate::http) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as literals that are never indexed and not compressed.
pub(in crate::http) fn fields(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

pub(in crate::http) struct Peer {
    pub(in crate::http) stream: TcpStream,
    pub(in crate::http) host: String,
    token: String,
    /// The first byte of the block of fields that came last.
    pub(in crate::http) block: u8,
}

/// What the other end does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) enum Heard {
    GoAway(u32),
    Reset(u32, u32),
    /// The status of a response begins like this in its block of fields.
    Response(u32),
    PingAck,
    End,
}

impl Peer {
    /// A connection with the preface and an empty SETTINGS frame.
    pub(in crate::http) fn greeted(http: &HttpDaemon) -> Peer {
        let mut peer = Peer::silent(http);
        peer.write(PREFACE);
        peer.write(&frame(SETTINGS, 0, 0, &[]));
        peer
    }

    pub(in crate::http) fn silent(http: &HttpDaemon) -> Peer {
        let stream = TcpStream::connect(&http.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer { stream, host: http.address.clone(), token: http.token.clone(), block: 0 }
    }

    /// The other end may have hung up.
    pub(in crate::http) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The fields of a request, and these.
    pub(in crate::http) fn request(&self, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let authorization = format!("Bearer {}", self.token);
        let mut all =
            vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", &self.host)];
        all.push(("authorization", &authorization));
        all.extend(more);
        fields(&all)
    }

    fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                let is_over = error.kind() != std::io::ErrorKind::WouldBlock;
                assert!(is_over, "nothing comes: {error}");
                None
            }
        }
    }

    /// The next frame: its kind, its flags, its stream and what it has. None at the end.
    pub(in crate::http) fn next_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let head = self.read(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream, self.read(length)?))
    }

    /// The next thing that says something.
    pub(in crate::http) fn hear(&mut self) -> Heard {
        loop {
            let Some((kind, flags, stream, payload)) = self.next_frame() else { return Heard::End };
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            match kind {
                GOAWAY => return Heard::GoAway(number(4)),
                RST_STREAM => return Heard::Reset(stream, number(0)),
                PING if flags & ACK != 0 => return Heard::PingAck,
                HEADERS => {
                    self.block = payload.first().copied().unwrap_or_default();
                    return Heard::Response(stream);
                }
                _ => {}
            }
        }
    }
}

pub(in crate::http) fn setting(identifier: u16, value: u32) -> Vec<u8> {
    let payload = [identifier.to_be_bytes().as_slice(), &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &payload)
}
