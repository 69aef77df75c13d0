//! What is held in memory for each connection, told to the hub as it changes; and what is done where there is too
//! little room.
//!
//! ```text
//!   a payload is announced ---- room for all of it ----> it is read, and counted as it comes
//!             |                                              |
//!             | no room yet                                  | no room for more of it
//!             v                                              v
//!        left in the socket                             left in the socket, one connection at a time:
//!             |  '-- in vain for ROOM_PATIENCE --.           |  of two, the one that was let in later is refused
//!             '-- room: it is read               v           '-- room: it is read on
//!                                             refused
//! ```
//!
//! What is announced and has not come takes nobody's room, so whoever announces much and sends little holds nothing up.
//! And since only one payload can wait in its middle, and that not for ever, two halves never wait for each other.

use super::Front;
use super::client::Client;
use super::pace::Verdict;
use crate::core::ledger::Holding;
use crate::front::{Connection, Peer, Request, Room};
use crate::job::account_name;
use crate::supervisor::Hub;
use offload_protocol::limits::READ_CHUNK;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::sync::Arc;
use std::time::Duration;

/// How often clients are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the hub was told.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// On whose account it is, once that is known.
    account: Option<Arc<str>>,
    /// Of a payload that comes in.
    arriving: u64,
    /// Of what is to be written.
    outgoing: u64,
    /// Which payload it is that comes in: a smaller number was let in earlier.
    payload: u64,
    /// In the middle of a payload nothing more is read, for want of room.
    pub(super) is_paused: bool,
}

impl Holdings {
    fn account_of(&mut self, connection: &Connection, peer: Peer) -> Option<Arc<str>> {
        if self.account.is_none() && connection.is_greeted() {
            self.account = Some(account_name(connection.client(), Some(peer)).into());
        }
        self.account.clone()
    }
}

/// What is to be done with a payload that is announced by the client of this name and process.
pub(super) fn find_room(hub: &Hub, (name, peer): (&str, Peer), length: usize, may_wait: bool) -> Room {
    match hub.room_for(&account_name(name, Some(peer)), length as u64) {
        Ok(()) => Room::Take,
        Err(_) if may_wait => Room::Wait,
        Err(_) => Room::Refuse,
    }
}

impl Front {
    /// Whether there is room for more of the payload that comes in, if one does. If not, nothing is read until there is.
    pub(super) fn may_go_on(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        client.holdings.is_paused = false;
        // Whoever has not taken its answers gets no more of them while there is no room for anything.
        if client.connection.unsent() > 0 && self.hub.borrow().is_full() {
            return self.pause(id);
        }
        let Some(left) = client.connection.coming().map(|length| length - client.connection.arrived()) else {
            return true;
        };
        let Some(account) = client.holdings.account_of(&client.connection, client.peer) else { return true };
        if self.hub.borrow().room_for(&account, left.min(READ_CHUNK) as u64).is_ok() {
            return true;
        }
        let mine = client.holdings.payload;
        let is_halfway = |client: &Client| client.holdings.is_paused && client.connection.coming().is_some();
        let other = self.clients.iter().find(|(_, client)| is_halfway(client));
        if let Some((&other, client)) = other {
            let younger = if client.holdings.payload > mine { other } else { id };
            self.refuse_payload(younger);
            if younger == id {
                return true;
            }
        }
        self.pause(id)
    }

    fn pause(&mut self, id: u64) -> bool {
        if let Some(client) = self.clients.get_mut(&id) {
            client.holdings.is_paused = true;
        }
        self.await_room();
        self.mark(id);
        false
    }

    /// Something was read from a client: what has come of a payload is counted.
    pub(super) fn note_what_came(&mut self, id: u64, is_complete: bool) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Client { connection, peer, pace, holdings, .. } = client;
        if is_complete {
            pace.delivered();
        }
        if connection.coming().is_some() && (is_complete || holdings.arriving == 0) {
            self.last_payload += 1;
            holdings.payload = self.last_payload;
        }
        let account = holdings.account_of(connection, *peer);
        let before = std::mem::replace(&mut holdings.arriving, connection.arrived() as u64);
        let (now, waits) = (holdings.arriving, client.waits_for_room());
        if let Some(account) = account {
            self.change(&account, Holding::Arriving, before, now);
        }
        self.watch_pace(id);
        if waits {
            self.await_room();
        }
    }

    /// What is to be written to a client is counted.
    pub(super) fn count_outputs(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(account) = client.holdings.account_of(&client.connection, client.peer) else { return };
        let now = client.connection.held() as u64;
        let before = std::mem::replace(&mut client.holdings.outgoing, now);
        // It has taken its answers: that was what it had to wait for, unless it is in the middle of a payload.
        if now == 0 && client.holdings.is_paused && client.connection.coming().is_none() {
            client.holdings.is_paused = false;
            client.has_more = true;
            self.mark(id);
        }
        self.change(&account, Holding::Outgoing, before, now);
        self.watch_pace(id);
    }

    /// A client is gone.
    pub(super) fn release_all(&mut self, holdings: &Holdings) {
        if let Some(account) = &holdings.account {
            self.change(account, Holding::Arriving, holdings.arriving, 0);
            self.change(account, Holding::Outgoing, holdings.outgoing, 0);
        }
    }

    fn change(&mut self, account: &Arc<str>, what: Holding, before: u64, now: u64) {
        let mut hub = self.hub.borrow_mut();
        match now > before {
            true => hub.hold(account, what, now - before),
            false => hub.release(account, what, before - now),
        }
    }

    /// Has those who wait for room looked after when there may be some.
    fn await_room(&mut self) {
        if !std::mem::replace(&mut self.awaits_room, true) {
            let me = self.me.clone();
            self.hub.borrow_mut().when_room(Box::new(move |_| Front::with(&me, Front::look_for_room)));
        }
    }

    fn look_for_room(&mut self) {
        self.awaits_room = false;
        let waits = |(id, client): (&u64, &Client)| client.waits_for_room().then_some(*id);
        let waiting: Vec<u64> = self.clients.iter().filter_map(waits).collect();
        waiting.into_iter().for_each(|id| self.line_up(id));
    }

    /// The payload that comes in, if one does, is not taken.
    fn refuse_payload(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(Request::NoRoom { ticket, length }) = client.connection.give_up_payload() else { return };
        client.holdings.is_paused = false;
        client.progressed();
        self.note_what_came(id, true);
        self.hub.borrow_mut().refused();
        self.refuse_input(id, ticket, length);
        self.mark(id);
    }

    pub(super) fn refuse_input(&mut self, id: u64, ticket: u64, length: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let account = client.holdings.account_of(&client.connection, client.peer).unwrap_or_default();
        let why = self.hub.borrow().room_for(&account, length as u64).err();
        let error = why.unwrap_or_else(|| ErrorDetail {
            retry_after_ms: Some(100),
            ..ErrorDetail::new(
                OutcomeCode::Overloaded,
                format!("there was no room in time for {length} bytes of input; try again in about 100 ms"),
            )
        });
        self.refuse(id, ticket, &error);
    }

    /// Has this client looked at a second from now if it must be.
    fn watch_pace(&mut self, id: u64) {
        let is_due = self.clients.get(&id).is_some_and(|client| client.pace.is_due(&client.connection));
        if is_due && !std::mem::replace(&mut self.looks_at_paces, true) {
            let me = self.me.clone();
            let timer = self.handle.set_timeout(LOOK_EVERY, move |_| Front::with(&me, Front::look_at_paces));
            self.handle.unref(timer);
        }
    }

    /// Looks whether clients keep up, for as long as there are any that need not.
    fn look_at_paces(&mut self) {
        self.looks_at_paces = false;
        let look = |(id, client): (&u64, &mut Client)| {
            let waits = client.waits_for_room();
            (*id, client.pace.look(&client.connection, waits))
        };
        let verdicts: Vec<(u64, Verdict)> = self.clients.iter_mut().map(look).collect();
        for (id, verdict) in verdicts {
            match verdict {
                Verdict::KeepsUp => {}
                Verdict::CutOff(why) => self.cut_off(id, &why),
                Verdict::OutOfPatience => self.end_patience(id),
                Verdict::Gone => self.drop_client(id),
            }
            self.watch_pace(id);
        }
    }

    fn cut_off(&mut self, id: u64, why: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let account = client.holdings.account_of(&client.connection, client.peer).unwrap_or_default();
        client.pace.cut_off();
        client.progressed();
        client.connection.cut_off(why);
        self.count_outputs(id);
        let name = account.escape_debug();
        self.hub.borrow().log().warn(format_args!("client {id} ({name}) is disconnected: {why}"));
        self.mark(id);
    }

    /// What waits for room has waited for as long as it may.
    fn end_patience(&mut self, id: u64) {
        let Some(client) = self.clients.get(&id) else { return };
        if client.connection.waits_for_room() {
            // It is refused when room for it is looked for the next time, which is now.
            self.receive(id);
            return;
        }
        self.refuse_payload(id);
    }
}
