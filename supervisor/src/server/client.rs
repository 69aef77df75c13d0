//! One connection of a client on the event loop.

use super::accept::ClientRole;
use super::back_pressure::BackPressure;
use super::intake::Intake;
use super::pace::ClientPace;
use crate::end_of_turn::{Watched, Writable};
use crate::front::{Connection, Flushed, Request};
use crate::limits::{ANSWER_BACKLOG_MAX, CONNECTION_BACKLOG_MAX, STREAM_AHEAD_MAX};
use crate::service::{Collection, Session, StreamPart};
use bytes::Bytes;
use offload_event_loop::{HandleId, LoopHandle};
use offload_protocol::messages::ToClient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// What is known of the requests that a client still sends.
///
/// ```text
///   Quiet -- a read stopped at its limit, or was paused --> More -- a read found no more --> Quiet
///     |                                                      |
///     '-------- the client closed its sending side ----------'--> Ended: it stays so
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestInput {
    /// There is nothing to read until the socket is readable.
    Quiet,
    /// There may be more requests: the connection's buffer holds some, or a read stopped at the limit for one call.
    More,
    /// The client has closed its sending side. It may still receive.
    Ended,
}

/// One connected client. See the module's documentation.
pub(super) struct ConnectedClient {
    pub(super) connection: Connection,
    /// The service's side of this connection.
    pub(super) session: Session,
    watched: Watched,
    /// A request with a long answer, which waits for its turn. Until then nothing more is read from this client.
    pub(super) asked: Option<Request>,
    /// The client waits in the turn queue to be read or answered. Until then its socket is not watched. A client can be
    /// in the turn queue, the serve queue and the room queue at the same time, so each has a flag of its own.
    pub(super) is_in_turn_queue: bool,
    /// The client waits in the serve queue to be written to and checked at the end of the turn.
    pub(super) is_in_serve_queue: bool,
    /// Bytes of answers that are held for this client.
    pub(super) answers: usize,
    pub(super) role: ClientRole,
    pub(super) input: RequestInput,
    pub(super) since: Instant,
    /// When bytes were last received, or when waiting for them began.
    pub(super) input_at: Instant,
    /// What the client takes of its output.
    pub(super) intake: Intake,
    /// Whether the client reads and writes fast enough.
    pub(super) pace: ClientPace,
    /// Number of bytes that were written to the client.
    written: u64,
    /// The requests of this client whose streams have something to take, each once, in the order of their turns.
    streams: VecDeque<u64>,
    /// Kept outputs that are being sent to the client, each with the value of `written` at which the client has all of
    /// it.
    collecting: VecDeque<(u64, Collection)>,
    /// How this client stands with regard to memory.
    pub(super) back_pressure: BackPressure,
}

impl ConnectedClient {
    pub(super) fn new(
        connection: Connection,
        session: Session,
        watcher: HandleId,
        role: ClientRole,
    ) -> ConnectedClient {
        let now = Instant::now();
        ConnectedClient {
            connection,
            session,
            watched: Watched::for_input(watcher),
            asked: None,
            is_in_turn_queue: false,
            is_in_serve_queue: false,
            answers: 0,
            role,
            input: RequestInput::Quiet,
            since: now,
            input_at: now,
            intake: Intake::new(now),
            pace: ClientPace::default(),
            written: 0,
            streams: VecDeque::new(),
            collecting: VecDeque::new(),
            back_pressure: BackPressure::default(),
        }
    }

    /// Appends a message.
    ///
    /// # Panics
    /// If the message does not fit into a frame. That is a mistake in this program: texts are cut where messages are
    /// made.
    pub(super) fn send(&mut self, message: &ToClient<'_>, payload: &Bytes) {
        if self.connection.unsent() == 0 {
            self.intake.begin(Instant::now());
        }
        self.connection
            .send(message, payload)
            .expect("texts are cut so that every message fits into a header");
    }

    /// Whether requests of this client may be read. They may not while the client does not take its answers, or while
    /// one of its requests waits for its turn.
    pub(super) fn may_be_read(&self) -> bool {
        !self.has_ended() && self.asked.is_none() && self.connection.unsent() <= CONNECTION_BACKLOG_MAX
    }

    /// The unsent bytes are dropped. What the client had sent before is still carried out.
    fn reads_no_more(&mut self) {
        self.collecting.clear();
        self.streams.clear();
        self.asked = None;
        match self.has_ended() {
            true => self.connection.close_after_flush(),
            false => self.expect_more(),
        }
    }

    /// Whether a long answer may be made for this client. It may not until the client has taken most of the earlier
    /// answers.
    pub(super) fn may_be_answered(&self) -> bool {
        self.asked.is_some() && self.connection.unsent() <= ANSWER_BACKLOG_MAX
    }

    /// Whether an answer to this client is due, now or later.
    pub(super) fn is_awaiting(&self) -> bool {
        self.asked.is_some() || self.session.is_waiting()
    }

    /// Whether this client has nothing outstanding: no request, no answer, and no unsent bytes.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_awaiting()
            && !self.is_in_turn_queue
            && self.connection.unsent() == 0
            && !self.is_mid_request()
    }

    /// Whether the client has sent part of a message and may still send the rest.
    pub(super) fn is_mid_request(&self) -> bool {
        self.connection.is_mid_frame() && !self.has_ended()
    }

    /// Whether the client has closed its sending side.
    pub(super) fn has_ended(&self) -> bool {
        self.input == RequestInput::Ended
    }

    /// Whether requests may be left in the connection's buffer or in the socket.
    pub(super) fn has_more(&self) -> bool {
        self.input == RequestInput::More
    }

    /// The client is read again after a pause. What came meanwhile is in the socket.
    pub(super) fn expect_more(&mut self) {
        if !self.has_ended() {
            self.input = RequestInput::More;
        }
    }

    /// Whether the socket should be watched for input. It should not while there is no room for input or while the
    /// client is in the turn queue.
    pub(super) fn wants_to_be_read(&self) -> bool {
        self.may_be_read() && !self.is_in_turn_queue && !self.waits_for_room()
    }

    /// Whether the client is not read because there is no room in memory.
    pub(super) fn waits_for_room(&self) -> bool {
        self.back_pressure.is_paused() || self.connection.waits_for_room()
    }

    /// Whether the client has closed both directions, not only its sending side.
    pub(super) fn is_gone(&self) -> bool {
        if !self.has_ended() {
            return false;
        }
        let socket = self.connection.socket();
        let mut watched = [PollFd::new(&*socket, PollFlags::empty())];
        let polled = poll(&mut watched, Some(&Timespec::default()));
        matches!(polled, Ok(1)) && watched[0].revents().contains(PollFlags::HUP)
    }

    /// Bytes came in, or the payload that was coming in is no longer wanted.
    pub(super) fn reset_input_clock(&mut self) {
        self.input_at = Instant::now();
    }

    /// When bytes were last received, or there was last something to take.
    pub(super) fn progress_at(&self) -> Instant {
        self.input_at.max(self.intake.at())
    }

    /// Finds out what the client has taken.
    pub(super) fn look_at_intake(&mut self) {
        let unread = self.connection.unread();
        let taken = self.intake.look(Instant::now(), self.written, unread);
        self.pace.count_taken(taken);
    }

    /// There is something to take from the stream of this request.
    pub(super) fn has_news(&mut self, ticket: u64) {
        self.streams.push_back(ticket);
    }

    /// Whether the client may be sent the next part of a stream.
    pub(super) fn may_be_sent_parts(&self) -> bool {
        !self.streams.is_empty() && self.connection.unsent() <= STREAM_AHEAD_MAX
    }

    /// The next part of the streams that this client reads, which take turns, if the client may be sent one.
    pub(super) fn next_part(&mut self) -> Option<(u64, StreamPart)> {
        let ticket = self.streams.pop_front_if(|_| self.connection.unsent() <= STREAM_AHEAD_MAX)?;
        let part = self.session.next_part(ticket);
        if let StreamPart::Part(_) = part {
            self.streams.push_back(ticket);
        }
        Some((ticket, part))
    }

    /// The message that was appended last is a kept output. The output counts as collected when its last byte is
    /// written.
    pub(super) fn collects(&mut self, collection: Collection) {
        self.collecting.push_back((self.written + self.connection.unsent() as u64, collection));
    }

    /// Completes the collection of outputs whose last byte is written by now.
    fn complete_collections(&mut self) {
        while let Some((_, collection)) = self.collecting.pop_front_if(|(at, _)| *at <= self.written) {
            collection.complete();
        }
    }

    /// Appends a Goodbye with the reason. Unsent messages are dropped, except the one that is partly written.
    pub(super) fn cut_off(&mut self, why: &str) {
        let last = self.written + self.connection.cut_off(why) as u64;
        self.collecting.retain(|(at, _)| *at <= last);
    }

    pub(super) fn close_after_flush(&mut self) {
        self.connection.close_after_flush();
    }

    /// The client is gone. All that was held for it is dropped.
    pub(super) fn unwatch(self, handle: &LoopHandle) {
        self.watched.unwatch(handle);
    }

    /// Tells the service the name of the client, once the client has sent its hello.
    pub(super) fn introduce(&self) {
        if self.connection.is_greeted() {
            self.session.introduce(self.connection.client());
        }
    }
}

impl Writable for ConnectedClient {
    fn write_once(&mut self) -> io::Result<Flushed> {
        let before = self.connection.unsent();
        let flushed = self.connection.flush();
        let after = self.connection.unsent();
        match &flushed {
            Ok(Flushed::Closed) | Err(_) => self.reads_no_more(),
            Ok(_) => self.written += before.saturating_sub(after) as u64,
        }
        self.complete_collections();
        flushed
    }

    fn has_unsent(&self) -> bool {
        self.connection.unsent() > 0
    }

    fn wants_input(&self) -> bool {
        self.wants_to_be_read()
    }

    fn watched(&mut self) -> Option<&mut Watched> {
        Some(&mut self.watched)
    }

    /// While the client was not read, it could not make any progress, so the clock for input starts anew.
    fn is_heard_again(&mut self) {
        self.reset_input_clock();
    }
}
