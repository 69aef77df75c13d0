//! One connection of a client on the event loop.

use super::accept::Standing;
use super::holdings::Holdings;
use super::pace::Pace;
use crate::end_of_turn::{Watched, Writable};
use crate::front::{Connection, Flushed, Request};
use crate::limits::{ANSWER_BACKLOG_MAX, CONNECTION_BACKLOG_MAX};
use crate::service::{Collection, Session};
use bytes::Bytes;
use offload_event_loop::{HandleId, LoopHandle};
use offload_protocol::messages::ToClient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Client {
    pub(super) connection: Connection,
    /// What the service holds for it.
    pub(super) session: Session,
    watched: Watched,
    /// A request with a long answer, for which it has to wait for its turn. Until then nothing more is read.
    pub(super) asked: Option<Request>,
    /// It waits for its turn, to be heard or to be answered. Until then it is not watched.
    pub(super) is_in_line: bool,
    /// Bytes of answers that are held for it.
    pub(super) answers: usize,
    pub(super) standing: Standing,
    /// Requests are in the connection's buffer, or it takes no more of them for now.
    pub(super) has_more: bool,
    has_ended: bool,
    pub(super) is_marked: bool,
    pub(super) since: Instant,
    /// When bytes last came in, or began to be waited for.
    pub(super) input_at: Instant,
    /// When bytes last went out, or began to wait for that.
    pub(super) output_at: Instant,
    /// Whether it keeps up.
    pub(super) pace: Pace,
    /// Bytes that were written to it.
    written: u64,
    /// Outputs that are kept for it and on their way, each with what has to be written until it has all of it.
    collecting: VecDeque<(u64, Collection)>,
    /// What this process holds for it.
    pub(super) holdings: Holdings,
}

impl Client {
    pub(super) fn new(
        connection: Connection,
        session: Session,
        watcher: HandleId,
        standing: Standing,
    ) -> Client {
        let now = Instant::now();
        Client {
            connection,
            session,
            watched: Watched::for_input(watcher),
            asked: None,
            is_in_line: false,
            answers: 0,
            standing,
            has_more: false,
            has_ended: false,
            is_marked: false,
            since: now,
            input_at: now,
            output_at: now,
            pace: Pace::default(),
            written: 0,
            collecting: VecDeque::new(),
            holdings: Holdings::default(),
        }
    }

    /// Appends a message. A message that cannot travel is our own mistake; its text is cut where it is made.
    pub(super) fn send(&mut self, message: &ToClient<'_>, payload: &Bytes) {
        if self.connection.unsent() == 0 {
            self.output_at = Instant::now();
        }
        self.connection
            .send(message, payload)
            .expect("texts are cut so that every message fits into a header");
    }

    /// Whether its requests may be read: not while it does not take its answers, or one of them waits for its turn.
    pub(super) fn may_be_read(&self) -> bool {
        !self.has_ended && self.asked.is_none() && self.connection.unsent() <= CONNECTION_BACKLOG_MAX
    }

    /// Whether a long answer may be made for it: not before it has taken those before.
    pub(super) fn may_be_answered(&self) -> bool {
        self.asked.is_some() && self.connection.unsent() <= ANSWER_BACKLOG_MAX
    }

    /// Whether an answer to it is due, now or when something is over.
    pub(super) fn is_awaiting(&self) -> bool {
        self.asked.is_some() || self.session.is_waiting()
    }

    /// Whether it asks for nothing and waits for nothing.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_awaiting() && !self.is_in_line && self.connection.unsent() == 0 && !self.is_mid_request()
    }

    /// Whether the rest of something that it has begun to send may come.
    pub(super) fn is_mid_request(&self) -> bool {
        self.connection.is_mid_frame() && !self.has_ended
    }

    /// Whether it sends no more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether it is to be read when there is something: not while there is no room for it, or others have their turn.
    pub(super) fn wants_to_be_read(&self) -> bool {
        self.may_be_read() && !self.is_in_line && !self.waits_for_room()
    }

    /// Whether nothing is read because there is no room for it.
    pub(super) fn waits_for_room(&self) -> bool {
        self.holdings.is_paused || self.connection.waits_for_room()
    }

    /// It sends no more, but may still listen.
    pub(super) fn ended(&mut self) {
        self.has_ended = true;
    }

    /// Whether nobody is at the other end any more, which is more than that it sends no more.
    pub(super) fn is_gone(&self) -> bool {
        if !self.has_ended {
            return false;
        }
        let socket = self.connection.socket();
        let mut watched = [PollFd::new(&*socket, PollFlags::empty())];
        let polled = poll(&mut watched, Some(&Timespec::default()));
        matches!(polled, Ok(1)) && watched[0].revents().contains(PollFlags::HUP)
    }

    /// Bytes came in, or what was on its way in is not taken.
    pub(super) fn sent_something(&mut self) {
        self.input_at = Instant::now();
    }

    /// When bytes last came in or went out.
    pub(super) fn progress_at(&self) -> Instant {
        self.input_at.max(self.output_at)
    }

    /// The last message that it was sent is an output that is kept for it: it is collected when that is written.
    pub(super) fn collects(&mut self, collection: Collection) {
        self.collecting.push_back((self.written + self.connection.unsent() as u64, collection));
    }

    /// Completes the collection of outputs of which it has the last byte by now.
    fn complete_collections(&mut self) {
        while let Some((_, collection)) = self.collecting.pop_front_if(|(at, _)| *at <= self.written) {
            collection.complete();
        }
    }

    /// It is told why it is parted from. What it has not taken is dropped, but for the message that is under way.
    pub(super) fn cut_off(&mut self, why: &str) {
        let last = self.written + self.connection.cut_off(why) as u64;
        self.collecting.retain(|(at, _)| *at <= last);
    }

    pub(super) fn close_after_flush(&mut self) {
        self.connection.close_after_flush();
    }

    /// It is gone, and with it all that was held for it.
    pub(super) fn unwatch(self, handle: &LoopHandle) {
        self.watched.unwatch(handle);
    }

    /// Tells the service its name, once that is known.
    pub(super) fn introduce(&self) {
        if self.connection.is_greeted() {
            self.session.introduce(self.connection.client());
        }
    }
}

impl Writable for Client {
    fn write_once(&mut self) -> io::Result<Flushed> {
        let before = self.connection.unsent();
        let flushed = self.connection.flush();
        let after = self.connection.unsent();
        if after != before {
            self.output_at = Instant::now();
            self.pace.took(before.saturating_sub(after));
        }
        match &flushed {
            // What was to be written is dropped.
            Ok(Flushed::Closed) | Err(_) => self.collecting.clear(),
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

    /// While it was not read it could not make any progress.
    fn is_heard_again(&mut self) {
        self.sent_something();
    }
}
