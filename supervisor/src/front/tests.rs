//! What clients may rely on and what they cannot do, over real sockets.

mod client;
mod connection;
mod files;
mod greeting;
mod listener;

use super::{Connection, FilePlaces, Received, Request, Room};
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_protocol::messages::{
    CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR, View,
};
use offload_protocol::nouns::MediaType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tempfile::TempDir;

/// Nothing here takes long; whatever is waited for and has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A temporary folder that a socket may be in. What `tempdir` makes by itself depends on the umask.
pub(super) fn private_folder() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// Waits until one of `interest` can be done with `descriptor`.
#[track_caller]
fn wait(descriptor: impl AsFd, interest: PollFlags) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let ready = poll(&mut [PollFd::new(&descriptor, interest)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "nothing came");
}

fn hello(major: u16, client: &str) -> Vec<u8> {
    hello_with(0, major, client)
}

fn hello_with(capabilities: u64, major: u16, client: &str) -> Vec<u8> {
    let hello =
        ToSupervisor::Hello { magic: CLIENT_MAGIC, major, minor: VERSION_MINOR, capabilities, client };
    frame(&hello, b"")
}

fn submit(ticket: u64) -> ToSupervisor<'static> {
    let options = SubmitOptions::default();
    ToSupervisor::Submit { ticket, task: "echo", media_type: MediaType::TEXT, detach: false, options }
}

fn submitted(ticket: u64, payload: &[u8]) -> Request {
    Request::Submit {
        ticket,
        task: "echo".to_owned(),
        media_type: MediaType::TEXT,
        detach: false,
        options: SubmitOptions::default(),
        payload: Bytes::copy_from_slice(payload),
        file: None,
    }
}

fn show(ticket: u64) -> ToSupervisor<'static> {
    ToSupervisor::Show { ticket, view: View::Status }
}

fn frame(message: &ToSupervisor<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(message, payload.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

/// The other end of a connection, which may say anything.
struct RawPeer {
    socket: UnixStream,
    decoder: FrameDecoder,
}

impl RawPeer {
    fn new(socket: UnixStream) -> RawPeer {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        RawPeer { socket, decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING) }
    }

    /// Says `bytes`, of which the socket must have room for all.
    fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next message in words, and the length of its payload; `None` at the end.
    fn hear(&mut self) -> Option<(String, usize)> {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                let message: ToClient = codec::decode(&frame.header).unwrap();
                return Some((format!("{message:?}"), frame.payload.len()));
            }
            if self.decoder.announced().is_some() {
                continue;
            }
            let count = self.socket.read(self.decoder.space()).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.decoder.filled(count);
        }
    }

    /// All that is left to hear, in words.
    fn hear_out(mut self) -> String {
        std::iter::from_fn(|| self.hear()).map(|(message, _)| message).collect()
    }
}

/// A connection and its peer, and what has come out of it.
struct Pair {
    connection: Connection,
    places: FilePlaces,
    peer: RawPeer,
    requests: Vec<Request>,
    /// How much room there is for large payloads.
    room: usize,
    /// What is done with those for which there is none.
    otherwise: Room,
    /// The lengths that room was asked for.
    asked: Vec<usize>,
}

impl Pair {
    fn new(payload_max: usize) -> Pair {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let places = FilePlaces::new(2);
        let connection = Connection::new(near, payload_max, places.clone());
        let (requests, asked) = (Vec::new(), Vec::new());
        Pair {
            connection,
            places,
            peer: RawPeer::new(far),
            requests,
            room: usize::MAX,
            otherwise: Room::Refuse,
            asked,
        }
    }

    fn greeted(payload_max: usize) -> Pair {
        Pair::greeted_with(0, payload_max)
    }

    /// The peer has these capabilities.
    fn greeted_with(capabilities: u64, payload_max: usize) -> Pair {
        let mut pair = Pair::new(payload_max);
        pair.peer.say(&hello_with(capabilities, VERSION_MAJOR, "tester"));
        assert_eq!(pair.receive(), Ok(Received::Messages));
        pair.flush();
        assert!(pair.peer.hear().unwrap().0.starts_with("Welcome"));
        pair
    }

    /// One call of `receive`; an error comes as its text.
    fn receive(&mut self) -> Result<Received, String> {
        let Pair { connection, requests, room, otherwise, asked, .. } = self;
        let mut find_room = |_: &str, length| {
            asked.push(length);
            match length <= *room {
                true => Room::Take,
                false => *otherwise,
            }
        };
        connection
            .receive(&mut find_room, &mut |request| requests.push(request))
            .map_err(|error| error.to_string())
    }

    /// Says `bytes`, more than the socket has room for, while the connection receives.
    fn pump(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        self.peer.socket.set_nonblocking(true).unwrap();
        loop {
            let said = if left.is_empty() { 0 } else { self.peer.socket.write(left).unwrap_or(0) };
            left = &left[said..];
            match self.receive() {
                Ok(Received::WouldBlock) if left.is_empty() => break,
                other => assert!(other.is_ok(), "{other:?}"),
            }
        }
        self.peer.socket.set_nonblocking(false).unwrap();
    }

    fn flush(&mut self) {
        let _ = self.connection.flush().unwrap();
    }

    /// Flushes, drops the connection, and returns what the peer has heard by then.
    fn end(mut self) -> String {
        self.flush();
        assert!(self.connection.is_finished());
        drop(self.connection);
        self.peer.hear_out()
    }
}
