//! One connection on the loop, with the jobs that its client waits for.

use crate::core::ids::JobId;
use crate::event_loop::{HandleId, Interest, LoopHandle};
use crate::front::{Connection, Flushed};
use crate::limits::{CONNECTION_BACKLOG_MAX, GREETING_TIMEOUT, STALL_TIMEOUT};
use bytes::Bytes;
use offload_protocol::messages::ToClient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Client {
    pub(super) connection: Connection,
    watcher: HandleId,
    interest: Interest,
    /// Jobs whose end this client is to be told, by itself.
    pub(super) jobs: BTreeSet<JobId>,
    /// Jobs, its own or not, that it asked to be told about later.
    pub(super) waits: usize,
    /// Requests are in the connection's buffer, or it takes no more of them for now.
    pub(super) has_more: bool,
    has_ended: bool,
    pub(super) is_marked: bool,
    since: Instant,
    /// When bytes last went in or out.
    progress_at: Instant,
}

impl Client {
    pub(super) fn new(connection: Connection, watcher: HandleId) -> Client {
        let now = Instant::now();
        Client {
            connection,
            watcher,
            interest: Interest::READ,
            jobs: BTreeSet::new(),
            waits: 0,
            has_more: false,
            has_ended: false,
            is_marked: false,
            since: now,
            progress_at: now,
        }
    }

    /// Appends a message. A message that cannot travel is our own mistake; its text is cut where it is made.
    pub(super) fn send(&mut self, message: &ToClient<'_>, payload: &Bytes) {
        self.connection
            .send(message, payload)
            .expect("texts are cut so that every message fits into a header");
    }

    /// Whether its requests may be read: not while it does not take its answers.
    pub(super) fn may_be_read(&self) -> bool {
        !self.has_ended && self.connection.unsent() <= CONNECTION_BACKLOG_MAX
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

    pub(super) fn progressed(&mut self) {
        self.progress_at = Instant::now();
    }

    /// Writes once. True if there is more that could be written at once.
    pub(super) fn flush(&mut self) -> bool {
        let before = self.connection.unsent();
        let flushed = self.connection.flush();
        if self.connection.unsent() != before {
            self.progressed();
        }
        // A socket that fails has finished the connection, which is looked at next.
        matches!(flushed, Ok(Flushed::More))
    }

    /// Looks for what can go on.
    pub(super) fn set_interest(&mut self, handle: &LoopHandle) {
        let wants_read = self.may_be_read();
        let wants_write = self.connection.unsent() > 0;
        let interest = match (wants_read, wants_write) {
            (true, true) => Interest::READ | Interest::WRITE,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        };
        if interest != self.interest && handle.set_interest(self.watcher, interest).is_ok() {
            self.interest = interest;
        }
    }

    pub(super) fn close_after_flush(&mut self) {
        self.connection.close_after_flush();
    }

    /// Why it is to be disconnected, if it takes too long over something.
    pub(super) fn is_too_slow(&self, now: Instant) -> Option<&'static str> {
        if !self.connection.is_greeted() {
            return (now - self.since >= GREETING_TIMEOUT).then_some("it did not introduce itself");
        }
        let is_due = self.connection.unsent() > 0 || (self.connection.is_mid_frame() && self.may_be_read());
        let is_stalled = is_due && now - self.progress_at >= STALL_TIMEOUT;
        is_stalled.then_some("it stopped in the middle of a message")
    }

    pub(super) fn unwatch(self, handle: &LoopHandle) {
        // Closing a watcher fails only if it is closed.
        let _ = handle.close(self.watcher, |_| ());
    }
}
