//! One client's connection: frames become requests, answers become frames.
//!
//! ```text
//!             Hello, answered
//!             with Welcome           close_after_flush()
//!  Greeting -----------------> Open ---------------------> Closing ---> is_finished()
//!     |                          |    or goodbye()            ^   all is written
//!     |                          `-- breaks the protocol -----|
//!     |-- Hello of another version, or a bad one -------------|   a Goodbye says why
//!     |                                                       |
//!     `-- HTTP or anything else that is no Hello of ours -----'   without a word, for it would not be understood
//!
//!  in any state: an I/O error drops what was to be written, and it is finished at once
//! ```
//!
//! A payload that is too long, or for which there is no room, does not end the connection: the request is refused when
//! the payload is announced, and its bytes are skipped as they come. If there may soon be room, the payload stays in
//! the socket until then.

use super::greeting::{client_named_in, what_speaks_like};
use super::peer::process_of;
use super::request::{Request, ticket_of};
use crate::limits::REQUESTS_PER_CALL_MAX;
use crate::wire::{Arrived, Flushed, Wire};
use bytes::Bytes;
use offload_protocol::codec::EncodeError;
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::messages::{CLIENT_MAGIC, ToClient, VERSION_MAJOR, VERSION_MINOR};
use offload_protocol::nouns::cut;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What one call of [`Connection::receive`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// All that was read is handed over. The socket is readable if there is more.
    Messages,
    /// As many requests as one call may hand over, or one whose answer may be long, and perhaps more are in the buffer.
    /// Call again in the next turn: the socket need not become readable for them.
    More,
    /// There was nothing to read.
    WouldBlock,
    /// A payload is announced that there is no room for yet. Call again when there may be some.
    NoRoom,
    /// The client sends no more (a frame that has begun, see [`Connection::is_mid_frame`], stays unfinished), or the
    /// connection is closing. It may still read: answers go out as before. Stop watching for input.
    Ended,
}

/// What is to be done with a payload that is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room: it is read.
    Take,
    /// There may be room soon: nothing is read until this is asked again, at the next call of
    /// [`Connection::receive`].
    Wait,
    /// There is no room: the request is refused, and the payload skipped as it comes.
    Refuse,
}

/// How much of a payload of so many bytes may come for the client of this name.
pub type FindRoom<'a> = dyn FnMut(&str, usize) -> Room + 'a;

/// Why a connection ends. It is closing already when this is returned.
#[derive(Debug)]
pub enum ConnectionError {
    /// The peer speaks HTTP: it has the wrong address, or somebody tricks a browser into talking to us.
    Http,
    /// The peer speaks something else.
    NotAClient,
    /// A client of another major version.
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
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
            ConnectionError::Version { major, minor } => write!(
                formatter,
                "the client speaks version {major}.{minor} of the protocol, \
                 this supervisor version {VERSION_MAJOR}.{VERSION_MINOR}"
            ),
            ConnectionError::Violation { reason } => write!(formatter, "protocol violation: {reason}"),
            ConnectionError::Io(error) => write!(formatter, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// One client; see the module's documentation.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    process: Option<u32>,
    payload_max: usize,
    coming: Option<Coming>,
    waits_for_room: bool,
    state: State,
}

/// A large payload that is on its way in.
#[derive(Clone, Copy, Debug)]
struct Coming {
    ticket: u64,
    length: usize,
}

#[derive(Debug)]
enum State {
    Greeting,
    Open {
        client: String,
    },
    /// Requests that were read before may still be handled, and are that client's.
    Closing {
        client: String,
    },
}

impl Connection {
    /// A connection over a non-blocking socket that takes payloads of up to `payload_max` bytes.
    pub(super) fn new(socket: UnixStream, payload_max: usize) -> Connection {
        Connection {
            process: process_of(&socket),
            // The decoder enforces no limit of its own: a payload over ours is answered, not a violation.
            wire: Wire::new(socket, usize::MAX),
            payload_max,
            coming: None,
            waits_for_room: false,
            state: State::Greeting,
        }
    }

    /// What to watch.
    pub fn socket(&self) -> Arc<UnixStream> {
        self.wire.socket()
    }

    /// The process at the other end, as the kernel knows it; none if it is not to be seen from here.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// What the client calls itself, at most [`LABEL_MAX`](offload_protocol::limits::LABEL_MAX) bytes without
    /// control characters. Empty until it has introduced itself, and if it has no name.
    pub fn client(&self) -> &str {
        match &self.state {
            State::Open { client } | State::Closing { client } => client,
            State::Greeting => "",
        }
    }

    /// Whether a client has introduced itself properly, or no longer needs to.
    pub fn is_greeted(&self) -> bool {
        !matches!(self.state, State::Greeting)
    }

    /// Whether a frame has begun and is not complete: a client that stops now is stuck or gone.
    pub fn is_mid_frame(&self) -> bool {
        self.wire.is_mid_frame()
    }

    /// Length of a large payload that is on its way in, from the moment when there was room for it until its `Submit` is
    /// handed over.
    pub fn coming(&self) -> Option<usize> {
        self.coming.map(|coming| coming.length)
    }

    /// Bytes of it that have come and are held.
    pub fn arrived(&self) -> usize {
        self.wire.arrived()
    }

    /// Whether a payload is announced that there was no room for yet.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Length of the payload that it waits for room for, if it does.
    pub fn announced(&self) -> Option<usize> {
        self.wire.announced().filter(|_| self.waits_for_room)
    }

    /// Takes no more of the payload that is on its way in, and lets go of what has come. Returns the request that is
    /// refused by that; none if nothing is on its way.
    pub fn give_up_payload(&mut self) -> Option<Request> {
        let Coming { ticket, length } = self.coming.take()?;
        self.wire.decoder().give_up();
        Some(Request::NoRoom { ticket, length })
    }

    /// Bytes to be written. How many there may be is for the caller to say.
    pub fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    /// Bytes in memory that are to be written; a payload counts in full until its last byte is written.
    pub fn held(&self) -> usize {
        self.wire.held()
    }

    /// Whether nothing is left to do but to drop it.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Closing { .. }) && self.wire.unsent() == 0
    }

    /// Reads once, at most [`READ_CHUNK`](offload_protocol::limits::READ_CHUNK) bytes, and hands at most
    /// [`REQUESTS_PER_CALL_MAX`] requests to `sink`, none after one whose answer may be long
    /// ([`Request::is_costly`]). The greeting is answered here and not handed over.
    ///
    /// `room` is asked before a payload of more than
    /// [`INLINE_PAYLOAD_MAX`](offload_protocol::limits::INLINE_PAYLOAD_MAX) is read.
    ///
    /// # Errors
    /// [`ConnectionError`] if the connection ends; flush it while it is not finished, a Goodbye may be on its way.
    pub fn receive(
        &mut self,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<Received, ConnectionError> {
        if matches!(self.state, State::Closing { .. }) {
            return Ok(Received::Ended);
        }
        let result = self.read_and_hand_over(room, sink);
        if let Err(error) = &result {
            self.end_because_of(error);
        }
        result
    }

    /// Appends a message to what is to be written. Once the connection is closing nothing is appended any more.
    ///
    /// # Errors
    /// [`EncodeError`] if the message is longer than the wire allows; nothing was appended.
    pub fn send(&mut self, message: &ToClient<'_>, payload: &Bytes) -> Result<(), EncodeError> {
        match self.state {
            State::Closing { .. } => Ok(()),
            State::Greeting | State::Open { .. } => self.wire.push(message, payload),
        }
    }

    /// Writes until all is written, the socket takes no more, or [`FLUSH_MAX`](super::FLUSH_MAX) bytes are written. If
    /// nobody reads any more, the connection is finished.
    ///
    /// # Errors
    /// The socket failed; the connection is finished.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        let flushed = self.wire.flush();
        if matches!(flushed, Ok(Flushed::Closed) | Err(_)) {
            self.close_after_flush();
        }
        Ok(flushed?)
    }

    /// Reads no more, and is finished when what is to be written is written.
    pub fn close_after_flush(&mut self) {
        self.state = State::Closing { client: self.client().to_owned() };
    }

    /// Drops what is to be written, but for the rest of the message that is under way, and then as
    /// [`Connection::goodbye`]: for a client that does not take its answers. Returns how many bytes that rest has.
    pub fn cut_off(&mut self, reason: &str) -> usize {
        self.wire.cut();
        let rest = self.wire.unsent();
        self.goodbye(reason);
        rest
    }

    /// Tells the client why, then as [`Connection::close_after_flush`]. A long reason is cut.
    pub fn goodbye(&mut self, reason: &str) {
        let goodbye = ToClient::Goodbye { reason: cut(reason, MESSAGE_MAX).into() };
        self.send(&goodbye, &Bytes::new()).expect("a reason of MESSAGE_MAX bytes fits into a header");
        self.close_after_flush();
    }

    fn read_and_hand_over(
        &mut self,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<Received, ConnectionError> {
        let mut left = REQUESTS_PER_CALL_MAX;
        // What the last call left in the buffer comes first: there must be no complete frame when more is read.
        if !self.hand_over(&mut left, room, sink)? {
            return Ok(Received::More);
        }
        if self.waits_for_room {
            return Ok(Received::NoRoom);
        }
        match self.wire.read() {
            Ok(Arrived::End) => Ok(Received::Ended),
            Ok(Arrived::Bytes) => {
                let is_all = self.hand_over(&mut left, room, sink)?;
                Ok(match is_all {
                    _ if self.waits_for_room => Received::NoRoom,
                    true => Received::Messages,
                    false => Received::More,
                })
            }
            Ok(Arrived::Nothing) => Ok(Received::WouldBlock),
            Err(error) => Err(ConnectionError::Io(error.into())),
        }
    }

    /// Hands over up to `left` requests. Returns whether these were all that are complete.
    fn hand_over(
        &mut self,
        left: &mut usize,
        room: &mut FindRoom<'_>,
        sink: &mut dyn FnMut(Request),
    ) -> Result<bool, ConnectionError> {
        if matches!(self.state, State::Greeting) && !self.greet()? {
            return Ok(true);
        }
        while *left > 0 {
            let Some(request) = self.next_request(room)? else { return Ok(true) };
            *left = if request.is_costly() { 0 } else { *left - 1 };
            sink(request);
        }
        Ok(false)
    }

    /// The next complete request, or the refusal of one whose payload is announced.
    fn next_request(&mut self, room: &mut FindRoom<'_>) -> Result<Option<Request>, ConnectionError> {
        loop {
            // Asking the decoder for the next frame takes the payload that is announced.
            if let Some(refused) = self.look_at_announced(room)? {
                return Ok(Some(refused));
            }
            if self.waits_for_room {
                return Ok(None);
            }
            if let Some(frame) = self.wire.decoder().next().map_err(violation)? {
                // Frames come one after another: if a payload is on its way, this is the one.
                self.coming = None;
                return Request::from_frame(frame, self.payload_max).map(Some).map_err(violation);
            }
            if self.wire.announced().is_none() {
                return Ok(None);
            }
        }
    }

    /// Decides about a payload that is announced, if one is; returns the request if it is refused.
    fn look_at_announced(&mut self, room: &mut FindRoom<'_>) -> Result<Option<Request>, ConnectionError> {
        let Some(announced) = self.wire.decoder().announced() else { return Ok(None) };
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

    /// Takes the greeting if it is complete, and answers it. Returns whether it was.
    fn greet(&mut self) -> Result<bool, ConnectionError> {
        if let Some(frame) = self.wire.decoder().next().map_err(|error| what_speaks_like(&error))? {
            let client = client_named_in(&frame)?;
            self.welcome(client);
            return Ok(true);
        }
        match self.wire.announced() {
            Some(_) => Err(ConnectionError::NotAClient),
            None => Ok(false),
        }
    }

    fn welcome(&mut self, client: String) {
        self.state = State::Open { client };
        let welcome = ToClient::Welcome {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            payload_max: self.payload_max as u64,
        };
        self.send(&welcome, &Bytes::new()).expect("a Welcome fits into a header");
    }

    fn end_because_of(&mut self, error: &ConnectionError) {
        match error {
            ConnectionError::Http | ConnectionError::NotAClient => self.close_after_flush(),
            ConnectionError::Version { .. } | ConnectionError::Violation { .. } => {
                self.goodbye(&error.to_string());
            }
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
