//! One client's connection: turns frames into requests, and answers into frames.
//!
//! ```text
//!             Hello, answered
//!             with Welcome           close_after_flush()
//!  Greeting -----------------> Open ---------------------> Closing ---> is_finished()
//!     |                          |    or goodbye()            ^   all is written
//!     |                          `-- breaks the protocol -----|
//!     |-- Hello of another version, or an invalid one ---------|   a Goodbye says why
//!     |                                                       |
//!     `-- HTTP or anything else that is no Hello of ours -----'   without a Goodbye, which would not be understood
//!
//!  Open -- the client reads no more --> Leaving -- what it had sent is received --> Closing
//!
//!  in any state: an I/O error drops the unsent bytes, and the connection is finished at once
//! ```
//!
//! A client may send its last request, as a `Cancel`, and close its socket at once. Then a write to it can fail before that
//! request is read. It counts nevertheless, so what is in the socket is received before the connection is finished.
//!
//! A payload that is too long, or for which there is no room, does not end the connection. The request is refused when
//! the payload is announced, and its bytes are skipped as they arrive. If there may soon be room, the payload stays in
//! the socket until then.

use super::files::{ArrivingFiles, NOT_ITS_JOB};
use super::greeting::{ClientHello, client_hello, identify_protocol};
use super::peer::process_of;
use super::request::{Request, ticket_of};
use crate::input_file::FilePlaces;
use crate::limits::REQUESTS_PER_CALL_MAX;
use crate::wire::{Arrived, Flushed, Wire};
use bytes::Bytes;
use offload_protocol::codec::EncodeError;
use offload_protocol::greeting::Greeting;
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::messages::{CLIENT_MAGIC, ToClient, VERSION_MAJOR, VERSION_MINOR};
use offload_protocol::nouns::{OutcomeCode, cut};
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The result of one call of [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// All complete requests were passed on. The socket is readable if there is more.
    Messages,
    /// The limit of requests for one call was reached, or a request whose answer may be long was passed on. More
    /// requests may be in the buffer. Call again in the next turn: the socket need not become readable for them.
    More,
    /// There was nothing to read.
    WouldBlock,
    /// A payload is announced for which there is no room yet. Call again when there may be room.
    NoRoom,
    /// The client sends no more (a frame that has begun stays unfinished, see [`Connection::is_mid_frame`]), or the
    /// connection is closing. The client may still read, so answers are written as before. Stop watching for input.
    Ended,
}

/// What to do with a payload that is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room: it is read.
    Take,
    /// There may be room soon. Nothing is read until the next call of [`Connection::receive`], which asks again.
    Wait,
    /// There is no room. The request is refused, and the payload is skipped as it arrives.
    Refuse,
}

/// Decides what to do with an announced payload, given the name of the client and the length of the payload in bytes.
pub type FindRoom<'a> = dyn FnMut(&str, usize) -> Room + 'a;

/// Why a connection ends. The connection is already closing when this is returned.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer speaks HTTP: it has the wrong address, or an attacker tricks a browser into talking to us.
    Http,
    /// The peer speaks another protocol.
    NotAClient,
    /// A client of another major version.
    Version(Greeting),
    /// A client broke the protocol.
    Violation {
        /// How.
        reason: String,
    },
    /// The socket failed.
    Io(io::Error),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::Http => write!(formatter, "the peer speaks HTTP"),
            ConnectionError::NotAClient => write!(formatter, "the peer is no client"),
            ConnectionError::Version(greeting) => formatter.write_str(&greeting.foreign_client()),
            ConnectionError::Violation { reason } => write!(formatter, "protocol violation: {reason}"),
            ConnectionError::Io(error) => write!(formatter, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for ConnectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectionError::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// One client's connection; see the module's documentation.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    process: Option<u32>,
    payload_max: usize,
    coming: Option<Coming>,
    waits_for_room: bool,
    files: ArrivingFiles,
    /// Those that this client and this supervisor have.
    capabilities: u64,
    state: ConnectionState,
}

/// A large payload that is being received.
#[derive(Clone, Copy, Debug)]
struct Coming {
    ticket: u64,
    length: usize,
}

#[derive(Debug)]
enum ConnectionState {
    Greeting,
    Open {
        client: String,
    },
    /// The client reads no more. Nothing is sent, and what it had sent before is received.
    Leaving {
        client: String,
    },
    /// Requests that were read before closing may still be handled; they belong to this client.
    Closing {
        client: String,
    },
}

impl Connection {
    /// A connection over a non-blocking socket that accepts payloads of up to `payload_max` bytes, and files while there are places.
    pub(super) fn new(socket: UnixStream, payload_max: usize, files: FilePlaces) -> Connection {
        Connection {
            process: process_of(&socket),
            // The decoder has no limit of its own: a payload over our limit gets an answer, and is no violation.
            wire: Wire::new(socket, usize::MAX),
            payload_max,
            coming: None,
            waits_for_room: false,
            files: ArrivingFiles::new(files),
            capabilities: 0,
            state: ConnectionState::Greeting,
        }
    }

    /// The descriptor to watch.
    pub fn socket(&self) -> Arc<UnixStream> {
        self.wire.socket()
    }

    /// The process id of the peer, as the kernel reports it. None if the peer is in another pid namespace.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// The name of the client: at most [`NAME_MAX`](offload_protocol::limits::NAME_MAX) bytes without control
    /// characters. Empty before the client's hello, and if the client has no name.
    pub fn client(&self) -> &str {
        match &self.state {
            ConnectionState::Open { client }
            | ConnectionState::Leaving { client }
            | ConnectionState::Closing { client } => client,
            ConnectionState::Greeting => "",
        }
    }

    /// Whether the client has sent a valid hello, or the connection is closing.
    pub fn is_greeted(&self) -> bool {
        !matches!(self.state, ConnectionState::Greeting)
    }

    /// Whether a frame has arrived in part, or a file without its job. A client that stops now is stuck or gone.
    pub fn is_mid_frame(&self) -> bool {
        self.wire.is_mid_frame() || self.files.is_submit_due()
    }

    /// Length of the large payload that is being received, in bytes, from when there was room for it until its `Submit` is passed on.
    pub fn coming(&self) -> Option<usize> {
        self.coming.map(|coming| coming.length)
    }

    /// How many bytes of that payload have arrived and are held.
    pub fn arrived(&self) -> usize {
        self.wire.arrived()
    }

    /// Whether a payload is announced for which there is no room yet.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Length of the announced payload that waits for room, in bytes, if there is one.
    pub fn announced(&self) -> Option<usize> {
        self.wire.announced().filter(|_| self.waits_for_room)
    }

    /// Stops receiving the current payload and drops what has arrived of it. Returns the request that is refused by that, if one is.
    pub fn give_up_payload(&mut self) -> Option<Request> {
        let Coming { ticket, length } = self.coming.take()?;
        self.wire.decoder().give_up();
        Some(Request::NoRoom { ticket, length })
    }

    /// Number of bytes that are queued for writing. The caller has to limit it.
    pub fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    /// How much of what was written the client has not read, as the kernel counts it: by pieces of up to 36 KiB.
    pub fn unread(&self) -> usize {
        self.wire.unread()
    }

    /// Bytes of memory that unsent messages take. A payload counts in full until its last byte is written.
    pub fn held(&self) -> usize {
        self.wire.held()
    }

    /// Whether the connection is closed and nothing is left to be written, so that it can be dropped.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, ConnectionState::Closing { .. }) && self.wire.unsent() == 0
    }

    /// Reads once, at most [`READ_CHUNK`](offload_protocol::limits::READ_CHUNK) bytes, and passes at most
    /// [`REQUESTS_PER_CALL_MAX`] requests to `sink`. After a request whose answer may be long ([`Request::is_costly`])
    /// no other is passed on. The client's hello is answered here and not passed on.
    ///
    /// `room` is called before a payload of more than
    /// [`INLINE_PAYLOAD_MAX`](offload_protocol::limits::INLINE_PAYLOAD_MAX) bytes is read.
    ///
    /// # Errors
    /// [`ConnectionError`] if the connection ends. Flush the connection until it is finished, because a Goodbye may be
    /// unsent.
    pub fn receive(
        &mut self,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<Received, ConnectionError> {
        if matches!(self.state, ConnectionState::Closing { .. }) {
            return Ok(Received::Ended);
        }
        let result = self.read_and_hand_over(room, sink);
        if let Err(error) = &result {
            self.end_because_of(error);
        }
        match self.state {
            ConnectionState::Leaving { .. } => result.map(|received| self.received_of_leaving(received)),
            _ => result,
        }
    }

    /// All that a leaving client had sent is in the socket, so once there is nothing to read there will be nothing.
    fn received_of_leaving(&mut self, received: Received) -> Received {
        match received {
            Received::Messages | Received::More => Received::More,
            Received::WouldBlock | Received::NoRoom | Received::Ended => {
                self.close_after_flush();
                Received::Ended
            }
        }
    }

    /// Queues a message for writing. Nothing is queued once the client reads no more or the connection is closing.
    ///
    /// # Errors
    /// [`EncodeError`] if the message is longer than the protocol allows. Nothing was queued.
    pub fn send(&mut self, message: &ToClient<'_>, payload: &Bytes) -> Result<(), EncodeError> {
        match self.state {
            ConnectionState::Leaving { .. } | ConnectionState::Closing { .. } => Ok(()),
            ConnectionState::Greeting | ConnectionState::Open { .. } => self.wire.push(message, payload),
        }
    }

    /// Writes until nothing is unsent, the socket takes no more, or [`FLUSH_MAX`](super::FLUSH_MAX) bytes are written.
    /// If the client reads no more, what is unsent is dropped. The connection is finished when all that the client had sent
    /// is received: call [`Connection::receive`], unless that has returned [`Received::Ended`] before.
    ///
    /// # Errors
    /// The socket failed. The connection is finished.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        let flushed = self.wire.flush();
        match (&flushed, &self.state) {
            (Ok(Flushed::Closed), ConnectionState::Open { client }) => {
                self.state = ConnectionState::Leaving { client: client.clone() };
            }
            (Ok(Flushed::Closed) | Err(_), _) => self.close_after_flush(),
            (Ok(_), _) => {}
        }
        Ok(flushed?)
    }

    /// Stops reading. The connection is finished when all unsent bytes are written.
    pub fn close_after_flush(&mut self) {
        self.files.give_up();
        self.state = ConnectionState::Closing { client: self.client().to_owned() };
    }

    /// For a client that does not take its answers: drops the unsent messages, except the rest of the one that is
    /// partly written, and then does the same as [`Connection::goodbye`]. Returns the length of that rest in bytes.
    pub fn cut_off(&mut self, reason: &str) -> usize {
        self.wire.cut();
        let rest = self.wire.unsent();
        self.goodbye(OutcomeCode::Overloaded, reason);
        rest
    }

    /// Queues a Goodbye with the reason, then does the same as [`Connection::close_after_flush`]. A long reason is cut.
    pub fn goodbye(&mut self, code: OutcomeCode, reason: &str) {
        let goodbye = ToClient::Goodbye { reason: cut(reason, MESSAGE_MAX).into() };
        self.send(&goodbye, &Bytes::from_static(code.as_str().as_bytes()))
            .expect("a reason of MESSAGE_MAX bytes fits into a header");
        self.close_after_flush();
    }

    fn read_and_hand_over(
        &mut self,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<Received, ConnectionError> {
        let mut left = REQUESTS_PER_CALL_MAX;
        // Requests that the last call left in the buffer come first: when more is read, the buffer must hold no
        // complete frame.
        if !self.hand_over(&mut left, room, sink)? {
            return Ok(Received::More);
        }
        if self.waits_for_room {
            return Ok(Received::NoRoom);
        }
        match self.read()? {
            Arrived::End => Ok(Received::Ended),
            Arrived::Bytes => {
                let is_all = self.hand_over(&mut left, room, sink)?;
                Ok(match is_all {
                    _ if self.waits_for_room => Received::NoRoom,
                    true => Received::Messages,
                    false => Received::More,
                })
            }
            Arrived::Nothing => Ok(Received::WouldBlock),
        }
    }

    fn read(&mut self) -> Result<Arrived, ConnectionError> {
        let failed = |error: rustix::io::Errno| ConnectionError::Io(error.into());
        if !self.files.are_looked_for() {
            return self.wire.read().map_err(failed);
        }
        let (arrived, descriptors) = self.wire.read_with().map_err(failed)?;
        self.files.came(descriptors).map_err(violation)?;
        Ok(arrived)
    }

    /// Passes on up to `left` requests. Returns whether no complete request is left.
    fn hand_over(
        &mut self,
        left: &mut usize,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<bool, ConnectionError> {
        if matches!(self.state, ConnectionState::Greeting) && !self.greet()? {
            return Ok(true);
        }
        while *left > 0 {
            let Some(request) = self.next_request(room)? else {
                return match self.files.is_one_left(self.wire.is_mid_frame()) {
                    true => Err(violation("a descriptor with a message that has none")),
                    false => Ok(true),
                };
            };
            *left = if request.is_costly() { 0 } else { *left - 1 };
            sink(request);
        }
        Ok(false)
    }

    /// The next complete request, or the refusal of a request whose payload is announced.
    fn next_request(&mut self, room: &mut FindRoom<'_>) -> Result<Option<Request>, ConnectionError> {
        loop {
            // Asking the decoder for the next frame accepts the announced payload, so it is decided on first.
            if let Some(refused) = self.decide_on_announced(room)? {
                return Ok(Some(refused));
            }
            if self.waits_for_room {
                return Ok(None);
            }
            if let Some(frame) = self.wire.decoder().next().map_err(violation)? {
                // Frames arrive one after another, so if a payload was being received, it belongs to this frame.
                self.coming = None;
                let request = Request::from_frame(frame, self.payload_max, &mut self.files);
                match request.map_err(violation)? {
                    Some(request) => return self.check_capability(request).map(Some),
                    None => continue,
                }
            }
            if self.wire.announced().is_none() {
                return Ok(None);
            }
        }
    }

    fn check_capability(&self, request: Request) -> Result<Request, ConnectionError> {
        let (capability, what) = request.capability();
        match self.capabilities & capability == capability {
            true => Ok(request),
            false => Err(violation(format_args!("it asks for {what} without the capability for that"))),
        }
    }

    /// Decides on an announced payload, if there is one. Returns the request if it is refused.
    fn decide_on_announced(&mut self, room: &mut FindRoom<'_>) -> Result<Option<Request>, ConnectionError> {
        let Some(announced) = self.wire.decoder().announced() else { return Ok(None) };
        if self.files.is_submit_due() {
            return Err(violation(NOT_ITS_JOB));
        }
        let length = announced.payload_length;
        let ticket = ticket_of(&announced).map_err(violation)?;
        if length > self.payload_max {
            self.wire.decoder().refuse();
            return Ok(Some(Request::TooLarge { ticket, length }));
        }
        let found = room(self.client(), length);
        self.waits_for_room = found == Room::Wait;
        match found {
            Room::Take => self.coming = Some(Coming { ticket, length }),
            Room::Wait => {}
            Room::Refuse => {
                self.wire.decoder().refuse();
                return Ok(Some(Request::NoRoom { ticket, length }));
            }
        }
        Ok(None)
    }

    /// Answers the client's hello once it is complete. Returns whether it was complete.
    fn greet(&mut self) -> Result<bool, ConnectionError> {
        if let Some(frame) = self.wire.decoder().next().map_err(|error| identify_protocol(&error))? {
            let hello = client_hello(&frame)?;
            self.welcome(hello);
            return Ok(true);
        }
        match self.wire.announced() {
            Some(_) => Err(ConnectionError::NotAClient),
            None => Ok(false),
        }
    }

    fn welcome(&mut self, hello: ClientHello) {
        self.state = ConnectionState::Open { client: hello.name };
        self.files.agree(hello.capabilities);
        self.capabilities = hello.capabilities;
        let welcome = ToClient::Welcome {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: hello.capabilities,
            payload_max: self.payload_max as u64,
        };
        self.send(&welcome, &Bytes::new()).expect("a Welcome fits into a header");
    }

    fn end_because_of(&mut self, error: &ConnectionError) {
        match error {
            ConnectionError::Http | ConnectionError::NotAClient => self.close_after_flush(),
            ConnectionError::Version(_) => self.goodbye(OutcomeCode::Unsupported, &error.to_string()),
            ConnectionError::Violation { .. } => self.goodbye(OutcomeCode::BadRequest, &error.to_string()),
            ConnectionError::Io(_) => self.abandon(),
        }
    }

    fn abandon(&mut self) {
        self.wire.discard_unsent();
        self.close_after_flush();
    }
}

pub(super) fn violation(reason: impl fmt::Display) -> ConnectionError {
    ConnectionError::Violation { reason: reason.to_string() }
}
