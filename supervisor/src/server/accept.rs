//! Who is let in.
//!
//! ```text
//!   room for one more? ---- yes ------------------------------------------------------------> Ordinary
//!     | no                                                                                      ^   ^
//!     |-- somebody has been idle for GIVE_WAY_AFTER: he is sent away -------------------------'   |
//!     |                                                                                             |
//!     |-- fewer than are kept for that beyond the limit ------> Control: may look, cancel, drain     |
//!     |                                                          and stop; anything else: ----------'
//!     |                                                          if there is room by now, or overloaded
//!     |-- one of those has been there for CONTROL_TURN: the next one has its place
//!     |
//!     '-- Goodbye, which says why
//! ```
//!
//! How much room there is: `CONNECTIONS_MAX`, or as many descriptors as the supervision of workers leaves
//! (`descriptors.rs`). So clients, however many, neither keep a dead worker from being replaced nor lock out those who
//! look after the supervisor.

use super::Front;
use super::client::Client;
use super::descriptors::Connections;
use crate::event_loop::HandleId;
use crate::front::{AcceptError, Connection, Request};
use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, CONTROL_TURN, GIVE_WAY_AFTER};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::time::Instant;

/// Clients that are let in at a time, in one turn.
const ACCEPTS_PER_TURN: usize = 64;

/// What a connection may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Everything.
    Ordinary,
    /// It is one beyond the limit: looking after the supervisor.
    Control,
}

impl Front {
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, watcher)) = &self.listener else { return };
            let watcher = *watcher;
            let payload_max = usize::try_from(self.hub.borrow().config().max_payload).unwrap_or(usize::MAX);
            match listener.accept(payload_max) {
                Ok(Some(connection)) => self.let_in(connection),
                Ok(None) => return,
                Err(AcceptError::Exhausted(error)) => {
                    self.hub.borrow().log().warn(format_args!("no descriptor for another client: {error}"));
                    return self.pause_accepting(watcher);
                }
                Err(AcceptError::Io(error)) => {
                    self.hub.borrow().log().error(format_args!("the local socket failed: {error}"));
                    return self.pause_accepting(watcher);
                }
            }
        }
    }

    fn pause_accepting(&self, watcher: HandleId) {
        // The listener is closed when it ends, and then neither call has any effect.
        let _ = self.handle.set_interest(watcher, crate::event_loop::Interest::NONE);
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(ACCEPT_PAUSE, move |_| {
            let _ = handle.set_interest(watcher, crate::event_loop::Interest::READ);
        });
        self.handle.unref(timer);
    }

    fn let_in(&mut self, mut connection: Connection) {
        if self.make_room() {
            return self.admit(connection, Standing::Ordinary);
        }
        let is_free = self.clients_of(Standing::Control) < self.connections().control;
        if is_free || self.send_away_a_controller() {
            return self.admit(connection, Standing::Control);
        }
        connection.goodbye(&self.too_many());
        // It is told if that takes no waiting.
        let _ = connection.flush();
    }

    /// Whether there is room for one more ordinary client; if need be one that is idle gives way.
    fn make_room(&mut self) -> bool {
        let room = self.room();
        if self.clients.len() < room || self.clients_of(Standing::Ordinary) < room {
            return true;
        }
        let now = Instant::now();
        let gives_way = |client: &Client| {
            let is_silent = !client.connection.is_greeted() || client.is_idle();
            is_silent && now.saturating_duration_since(client.progress_at) >= GIVE_WAY_AFTER
        };
        let idle = self.clients.iter().filter(|(_, client)| client.standing == Standing::Ordinary);
        let longest =
            idle.filter(|(_, client)| gives_way(client)).min_by_key(|(_, client)| client.progress_at);
        let Some(id) = longest.map(|(id, _)| *id) else { return false };
        self.send_away(id, "others need the room, and it asked for nothing");
        true
    }

    /// Whoever has looked after the supervisor for a while gives way to the next one, unless it is promised an answer.
    fn send_away_a_controller(&mut self) -> bool {
        let now = Instant::now();
        let is_done = |client: &Client| {
            let age = now.saturating_duration_since(client.since);
            client.standing == Standing::Control && client.owed.is_empty() && age >= CONTROL_TURN
        };
        let done = self.clients.iter().filter(|(_, client)| is_done(client));
        let Some(id) = done.min_by_key(|(_, client)| client.since).map(|(id, _)| *id) else { return false };
        self.send_away(id, "others need the room");
        true
    }

    /// How many ordinary clients there may be.
    pub(super) fn room(&self) -> usize {
        self.connections().clients
    }

    fn connections(&self) -> Connections {
        self.descriptors.connections_beside(self.hub.borrow().processes_max())
    }

    pub(super) fn warn_of_little_room(&self) {
        let room = self.room();
        if room < CONNECTIONS_MAX {
            self.hub.borrow().log().warn(format_args!(
                "descriptors are scarce: there is room for {room} clients instead of {CONNECTIONS_MAX}"
            ));
        }
    }

    fn clients_of(&self, standing: Standing) -> usize {
        self.clients.values().filter(|client| client.standing == standing).count()
    }

    fn too_many(&self) -> String {
        format!("{} clients are connected, which is the limit", self.room())
    }

    /// Whether the client may ask for this. One beyond the limit becomes a client like any other once there is room.
    pub(super) fn may_ask(&mut self, id: u64, request: &Request) -> bool {
        let is_beyond = self.clients.get(&id).is_some_and(|client| client.standing == Standing::Control);
        if !is_beyond || request.is_control() {
            return true;
        }
        if !self.make_room() {
            return false;
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.standing = Standing::Ordinary;
        }
        true
    }

    pub(super) fn refuse_for_want_of_room(&mut self, id: u64, request: &Request) {
        if matches!(request, Request::Submit { .. } | Request::TooLarge { .. } | Request::NoRoom { .. }) {
            self.hub.borrow_mut().refused();
        }
        let message = format!("{}; only requests to look after the supervisor are answered", self.too_many());
        let after = u64::try_from(GIVE_WAY_AFTER.as_millis()).unwrap_or(u64::MAX);
        let error = ErrorDetail {
            retry_after_ms: Some(after),
            ..ErrorDetail::new(OutcomeCode::Overloaded, &message)
        };
        self.refuse(id, request.ticket(), &error);
    }
}
