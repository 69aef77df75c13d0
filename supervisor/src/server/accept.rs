//! Accepts connections, and decides which clients stay if there are too many.
//!
//! ```text
//!   room for one more of this process? ---- yes ------------------------------------------> Ordinary
//!     | no                                                                                      ^   ^
//!     |-- a client has been idle for GIVE_WAY_AFTER: it is disconnected ------------------------'   |
//!     |                                                                                             |
//!     |-- a control connection is free for this process -----> Control: may view, cancel, drain     |
//!     |                                                          and stop; for anything else: ------'
//!     |                                                          Ordinary if there is room by now, or `overloaded`
//!     |-- a control client has been there for CONTROL_TURN: it is disconnected, the new one takes its place
//!     |
//!     '-- Goodbye with the reason
//! ```
//!
//! The number of places is `CONNECTIONS_MAX`, or less if the limit of open files leaves fewer beside the workers
//! (`service/descriptors.rs`). `processes.rs` shares them out among processes; a client never gives way to a process
//! that has more connections than its own. So however many clients there are, a dead worker can be replaced, and an
//! administrator can connect.

use super::Front;
use super::client::ConnectedClient;
use crate::front::{AcceptError, Connection, Peer, Request};
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTS_PER_TURN, CONNECTIONS_MAX, CONTROL_CONNECTIONS_OF_ONE, CONTROL_TURN, GIVE_WAY_AFTER,
};
use offload_event_loop::HandleId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::time::Instant;

/// What a connection may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRole {
    /// All requests.
    Ordinary,
    /// Only requests that look after the supervisor. The connection is one of those beyond the limit of clients.
    Control,
}

impl Front {
    pub(super) fn accept(&mut self) {
        let turned_away =
            |front: &Front| front.listener.as_ref().map_or(0, |(listener, _)| listener.other_users());
        let before = turned_away(self);
        self.accept_some();
        if turned_away(self) > before {
            let log = self.service.log();
            log.warn(format_args!("a client of another user was turned away at the local socket, unread"));
        }
    }

    fn accept_some(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, watcher)) = &self.listener else { return };
            let watcher = *watcher;
            match listener.accept(self.service.max_payload(), &self.files) {
                Ok(Some(connection)) => self.add_connection(connection),
                Ok(None) => return,
                Err(AcceptError::Exhausted(error)) => {
                    self.service.log().warn(format_args!("no descriptor for another client: {error}"));
                    return self.pause_accepting(watcher);
                }
                Err(AcceptError::Io(error)) => {
                    self.service.log().error(format_args!("the local socket failed: {error}"));
                    return self.pause_accepting(watcher);
                }
            }
        }
    }

    fn pause_accepting(&self, watcher: HandleId) {
        // If the listener has been closed by then, neither call has any effect.
        let _ = self.handle.set_interest(watcher, offload_event_loop::Interest::NONE);
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(ACCEPT_PAUSE, move |_| {
            let _ = handle.set_interest(watcher, offload_event_loop::Interest::READ);
        });
        self.handle.unref(timer);
    }

    fn add_connection(&mut self, mut connection: Connection) {
        let session = self.service.open(connection.process(), self.on_reply.clone());
        let peer = session.peer();
        let own = self.processes.connections(peer);
        if self.make_room(peer, own) {
            return self.admit(session, connection, ClientRole::Ordinary);
        }
        let is_free = self.processes.has_room_beyond(peer, self.service.connections().control);
        if is_free || self.disconnect_a_controller(peer, own) {
            return self.admit(session, connection, ClientRole::Control);
        }
        connection.goodbye(OutcomeCode::Overloaded, &self.why_no_place(own));
        // The Goodbye is written only as far as the socket takes it without waiting.
        let _ = connection.flush();
    }

    /// Whether there is room for one more ordinary client of a process that has `own` connections. If necessary, an
    /// idle client is disconnected to make room: among the clients that may be, one of the process with the most
    /// connections, and among these the one that has been idle longest.
    fn make_room(&mut self, peer: Peer, own: usize) -> bool {
        if self.processes.has_room(own, self.clients_max()) {
            return true;
        }
        let now = Instant::now();
        let gives_way = |client: &ConnectedClient| {
            let is_silent = !client.connection.is_greeted() || client.is_idle();
            let is_long = now.saturating_duration_since(client.progress_at()) >= GIVE_WAY_AFTER;
            is_silent && is_long && self.processes.gives_way_to(client.session.peer(), (peer, own))
        };
        let idle = self.clients.iter().filter(|(_, client)| client.role == ClientRole::Ordinary);
        let first = idle.filter(|(_, client)| gives_way(client)).min_by_key(|(_, client)| {
            (std::cmp::Reverse(self.processes.connections(client.session.peer())), client.progress_at())
        });
        let Some(id) = first.map(|(id, _)| *id) else { return false };
        self.disconnect(id, "others need the room, and it asked for nothing");
        true
    }

    /// Disconnects the oldest control client, so that the next one can have its place. A client to which an answer is
    /// promised stays, and so does one that has been connected for less than [`CONTROL_TURN`]. Returns whether a place
    /// is free now.
    fn disconnect_a_controller(&mut self, peer: Peer, own: usize) -> bool {
        if own >= CONTROL_CONNECTIONS_OF_ONE {
            return false;
        }
        let now = Instant::now();
        let is_done = |client: &ConnectedClient| {
            let is_long = now.saturating_duration_since(client.since) >= CONTROL_TURN;
            let is_free =
                client.role == ClientRole::Control && !client.session.awaits_control_answer() && is_long;
            is_free && self.processes.gives_way_to(client.session.peer(), (peer, own))
        };
        let done = self.clients.iter().filter(|(_, client)| is_done(client));
        let Some(id) = done.min_by_key(|(_, client)| client.since).map(|(id, _)| *id) else { return false };
        self.disconnect(id, "others need the room");
        true
    }

    /// The maximum number of ordinary clients.
    pub(super) fn clients_max(&self) -> usize {
        self.service.connections().clients
    }

    pub(super) fn warn_of_few_places(&self) {
        let room = self.clients_max();
        if room < CONNECTIONS_MAX {
            self.service.log().warn(format_args!(
                "descriptors are scarce: there is room for {room} clients instead of {CONNECTIONS_MAX}"
            ));
        }
    }

    fn why_no_place(&self, own: usize) -> String {
        let room = self.clients_max();
        match own {
            0 => format!("{room} clients may be connected, and no room is left"),
            _ => format!(
                "{room} clients may be connected; the last of them are not for this process, which has {own} already"
            ),
        }
    }

    /// Whether the client may make this request. A control client becomes an ordinary client if there is room for it
    /// by now.
    pub(super) fn may_request(&mut self, id: u64, request: &Request) -> bool {
        let Some(client) = self.clients.get(&id) else { return true };
        if client.role == ClientRole::Ordinary || request.is_control() {
            return true;
        }
        let peer = client.session.peer();
        if !self.make_room(peer, self.processes.connections(peer) - 1) {
            return false;
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.role = ClientRole::Ordinary;
            self.processes.remove(peer, ClientRole::Control);
            self.processes.add(peer, ClientRole::Ordinary);
        }
        true
    }

    pub(super) fn refuse_overloaded(&mut self, id: u64, request: &Request) {
        if matches!(request, Request::Submit { .. } | Request::TooLarge { .. } | Request::NoRoom { .. }) {
            self.service.count_refused(OutcomeCode::Overloaded);
        }
        let own =
            self.clients.get(&id).map_or(0, |client| self.processes.connections(client.session.peer()) - 1);
        let message =
            format!("{}; only requests to look after the supervisor are answered", self.why_no_place(own));
        let after = u64::try_from(GIVE_WAY_AFTER.as_millis()).unwrap_or(u64::MAX);
        let error = ErrorDetail {
            retry_after_ms: Some(after),
            ..ErrorDetail::new(OutcomeCode::Overloaded, &message)
        };
        self.refuse(id, request.ticket(), &error);
    }
}
