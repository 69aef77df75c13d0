//! Back-pressure on clients: what this process holds in memory for each connection is reported to the service, and a
//! client is not read while there is no room for what it sends.
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
//! Announced bytes that have not arrived take no room, so a client that announces much and sends little delays nobody.
//! Only one payload at a time can wait in its middle, and its wait is limited, so two partial payloads never wait for
//! each other.
//!
//! Connections that wait for room form a queue. When memory is released, and once a second, the queue is read from its
//! front and as many connections as there is room for are taken out. If there is too little room for every one of
//! them, none is checked.

use super::Front;
use super::client::Client;
use super::pace::Verdict;
use crate::front::Request;
use offload_protocol::limits::READ_CHUNK;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Interval between checks of all clients.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a client stands with regard to memory.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// The number of the payload that is coming in. A payload with a smaller number was accepted earlier.
    payload: u64,
    /// Nothing is read: in the middle of a payload there is no room for more, or the client has to take its answers
    /// first.
    pub(super) is_paused: bool,
    is_in_line: bool,
}

/// Clients that wait for room, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct RoomLine {
    ids: VecDeque<u64>,
    /// At most this is what the client with the smallest need waits for, in bytes.
    least: u64,
    /// The service will call when bytes are released.
    is_listening: bool,
}

/// What a client that waits for room needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    bytes: u64,
    /// The bytes are within the share of this client.
    has_room: bool,
}

impl RoomLine {
    fn join(&mut self, id: u64, bytes: u64) {
        self.least = if self.ids.is_empty() { bytes } else { self.least.min(bytes) };
        self.ids.push_back(id);
    }

    /// Takes out, in order, the clients that no longer wait and as many others as `free` bytes are enough for.
    fn let_in(&mut self, mut free: u64, need: impl Fn(u64) -> Option<Need>) -> Vec<u64> {
        if free < self.least {
            return Vec::new();
        }
        let mut out = Vec::new();
        for id in std::mem::take(&mut self.ids) {
            match need(id) {
                Some(need) if need.bytes > free || !need.has_room => self.join(id, need.bytes),
                need => {
                    free -= need.map_or(0, |need| need.bytes);
                    out.push(id);
                }
            }
        }
        out
    }
}

impl Front {
    /// Whether the client may be read: whether there is room for more of the payload that is coming in, if there is
    /// one. If not, the client is not read until there is room.
    pub(super) fn may_go_on(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        client.holdings.is_paused = false;
        // A client that has not taken its answers gets no more of them while memory is full.
        if client.connection.unsent() > 0 && self.service.is_full() {
            return self.pause(id);
        }
        let Some(left) = client.connection.coming().map(|length| length - client.connection.arrived()) else {
            return true;
        };
        if client.session.account().has_room(left.min(READ_CHUNK) as u64) {
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
        self.await_room(id);
        self.mark(id);
        false
    }

    /// Counts the received part of a payload after something was read from a client.
    pub(super) fn note_what_came(&mut self, id: u64, is_complete: bool) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.introduce();
        let Client { connection, session, pace, holdings, .. } = client;
        if is_complete {
            pace.delivered();
        }
        if connection.coming().is_some() && (is_complete || session.account().arriving() == 0) {
            self.last_payload += 1;
            holdings.payload = self.last_payload;
        }
        session.account().set_arriving(connection.arrived() as u64);
        let waits = client.waits_for_room();
        self.watch_pace(id);
        if waits {
            self.await_room(id);
        }
    }

    /// Counts the bytes that are to be written to a client.
    pub(super) fn count_outputs(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.introduce();
        let now = client.connection.held() as u64;
        client.session.account().set_outgoing(now);
        // The client has taken all its answers. That was what it had to wait for, unless it is in the middle of a
        // payload.
        if now == 0 && client.holdings.is_paused && client.connection.coming().is_none() {
            client.holdings.is_paused = false;
            client.has_more = true;
            self.mark(id);
        }
        self.watch_pace(id);
    }

    /// Puts the client in the queue for room, and asks the service to call when room is released.
    fn await_room(&mut self, id: u64) {
        let Some(need) = self.need_of(id) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        match std::mem::replace(&mut client.holdings.is_in_line, true) {
            // The client may need less than when it joined the queue.
            true => self.room_line.least = self.room_line.least.min(need.bytes),
            false => self.room_line.join(id, need.bytes),
        }
        self.listen_for_room();
    }

    fn listen_for_room(&mut self) {
        if !self.room_line.ids.is_empty() && !std::mem::replace(&mut self.room_line.is_listening, true) {
            let me = self.me.clone();
            self.service.when_room(move |_| {
                Front::with(&me, |front| {
                    front.room_line.is_listening = false;
                    front.look_for_room();
                });
            });
        }
    }

    /// What a client needs that waits for room. None if the client does not wait for room.
    fn need_of(&self, id: u64) -> Option<Need> {
        let client = self.clients.get(&id).filter(|client| client.waits_for_room())?;
        let connection = &client.connection;
        let bytes = match (connection.announced(), connection.coming()) {
            (Some(length), _) => length,
            (None, Some(length)) => (length - connection.arrived()).min(READ_CHUNK),
            // A client that has not taken its answers waits until memory is no longer full.
            (None, None) => return Some(Need { bytes: 0, has_room: !self.service.is_full() }),
        };
        Some(Need { bytes: bytes as u64, has_room: client.session.account().has_room(bytes as u64) })
    }

    fn look_for_room(&mut self) {
        let free = self.service.free_bytes();
        let mut line = std::mem::take(&mut self.room_line);
        let let_in = line.let_in(free, |id| self.need_of(id));
        self.room_line = line;
        self.listen_for_room();
        for &id in &let_in {
            if let Some(client) = self.clients.get_mut(&id) {
                client.holdings.is_in_line = false;
            }
        }
        let_in.into_iter().for_each(|id| self.line_up(id));
    }

    /// Refuses the payload that is coming in, if there is one. The rest of it is skipped.
    fn refuse_payload(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(Request::NoRoom { ticket, length }) = client.connection.give_up_payload() else { return };
        client.holdings.is_paused = false;
        client.sent_something();
        self.note_what_came(id, true);
        if let Some(client) = self.clients.get(&id) {
            let reply = client.session.refuse_input(length);
            self.reply(id, ticket, reply);
        }
        self.mark(id);
    }

    /// Has clients checked in a second, if this one has to be checked.
    fn watch_pace(&mut self, id: u64) {
        let is_due = self.clients.get(&id).is_some_and(|client| client.pace.is_due(&client.connection));
        if is_due && !std::mem::replace(&mut self.looks_at_paces, true) {
            let me = self.me.clone();
            let timer = self.handle.set_timeout(LOOK_EVERY, move |_| Front::with(&me, Front::look_at_paces));
            self.handle.unref(timer);
        }
    }

    /// Checks whether clients keep up. The check is repeated while any client has to be checked.
    fn look_at_paces(&mut self) {
        self.looks_at_paces = false;
        self.look_for_room();
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
        client.pace.cut_off();
        client.output_at = Instant::now();
        client.cut_off(why);
        self.count_outputs(id);
        if let Some(client) = self.clients.get(&id) {
            let name = client.session.account().name().escape_debug();
            self.service.log().warn(format_args!("client {id} ({name}) is disconnected: {why}"));
        }
        self.mark(id);
    }

    /// A payload has waited for room as long as it may.
    fn end_patience(&mut self, id: u64) {
        let Some(client) = self.clients.get(&id) else { return };
        if client.connection.waits_for_room() {
            // This reads again, which looks for room again. There is no room and the wait is over, so the payload is
            // refused.
            self.receive(id);
            return;
        }
        self.refuse_payload(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A line of a thousand, each of which needs a hundred bytes.
    fn line() -> RoomLine {
        let mut line = RoomLine::default();
        (0..1000).for_each(|id| line.join(id, 100));
        line
    }

    #[test]
    fn nobody_is_looked_at_who_cannot_be_let_in_and_as_many_are_let_in_as_there_is_room_for_together() {
        let (mut line, looks) = (line(), Cell::new(0));
        let need = |_| {
            looks.set(looks.get() + 1);
            Some(Need { bytes: 100, has_room: true })
        };
        assert_eq!((line.let_in(99, need), looks.get()), (Vec::new(), 0));
        assert_eq!(line.let_in(350, need), [0, 1, 2]);
        assert_eq!(line.let_in(100, need), [3]);
        assert_eq!(line.let_in(u64::MAX, need).len(), 996);
    }

    #[test]
    fn who_is_over_its_share_or_needs_too_much_holds_nobody_up_and_keeps_its_place() {
        let mut line = line();
        let need = |id| {
            let bytes = if id == 1 { 1000 } else { 100 };
            Some(Need { bytes, has_room: id != 0 })
        };
        assert_eq!(line.let_in(200, need), [2, 3]);
        assert_eq!(line.ids.iter().take(3).copied().collect::<Vec<_>>(), [0, 1, 4]);
        assert_eq!(
            line.let_in(u64::MAX, |id| (id > 1).then_some(Need { bytes: 1, has_room: id > 5 })).len(),
            996
        );
        assert_eq!(line.ids, [4, 5]);
    }
}
