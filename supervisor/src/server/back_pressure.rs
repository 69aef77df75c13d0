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
//! them, none is checked. A connection that may not be read, because too many of its answers are unsent, keeps its place. It is looked at
//! again when memory is released, which happens when its answers are taken.

use super::Front;
use super::client::ConnectedClient;
use super::pace::PaceAction;
use crate::front::Request;
use offload_protocol::limits::READ_CHUNK;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Interval between checks of all clients.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How a client stands with regard to memory.
#[derive(Debug, Default)]
pub(super) struct BackPressure {
    /// The number of the payload that is coming in. A payload with a smaller number was accepted earlier.
    payload: u64,
    pause: Pause,
    /// The client is in the room queue. It may have been there before a pause, or be there after one.
    is_in_room_queue: bool,
}

/// Whether a client is read, as far as the memory of this process is concerned.
///
/// ```text
///   No -- in a payload: no room for more, or answers not taken -------> InPayload -- room, or it is refused --> No
///    '--- between payloads: memory is full, and answers not taken ---> ForAnswers -- room, or all are taken --> No
/// ```
///
/// A payload whose beginning waits for room is no pause: the [`Connection`](crate::front::Connection) leaves it in the
/// socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pause {
    /// The client is read.
    #[default]
    No,
    /// Nothing is read in the middle of a payload.
    InPayload,
    /// Nothing is read until the client has taken its answers.
    ForAnswers,
}

impl BackPressure {
    /// Whether nothing is read from the client.
    pub(super) fn is_paused(&self) -> bool {
        self.pause != Pause::No
    }
}

/// Clients that wait for room, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct RoomQueue {
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
    /// The bytes are within the share of this client, and it would be read.
    may_be_let_in: bool,
}

impl RoomQueue {
    fn join(&mut self, id: u64, bytes: u64) {
        self.least = if self.ids.is_empty() { bytes } else { self.least.min(bytes) };
        self.ids.push_back(id);
    }

    /// Takes out, in order, the clients that no longer wait and as many others as `free` bytes are enough for.
    fn take_out(&mut self, mut free: u64, need: impl Fn(u64) -> Option<Need>) -> Vec<u64> {
        if free < self.least {
            return Vec::new();
        }
        let mut out = Vec::new();
        for id in std::mem::take(&mut self.ids) {
            match need(id) {
                Some(need) if need.bytes > free || !need.may_be_let_in => self.join(id, need.bytes),
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
    pub(super) fn may_receive(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        client.back_pressure.pause = Pause::No;
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
        let mine = client.back_pressure.payload;
        let is_halfway = |client: &ConnectedClient| client.back_pressure.pause == Pause::InPayload;
        let other = self.clients.iter().find(|(_, client)| is_halfway(client));
        if let Some((&other, client)) = other {
            let younger = if client.back_pressure.payload > mine { other } else { id };
            self.refuse_payload(younger);
            if younger == id {
                return true;
            }
        }
        self.pause(id)
    }

    fn pause(&mut self, id: u64) -> bool {
        if let Some(client) = self.clients.get_mut(&id) {
            client.back_pressure.pause = match client.connection.coming() {
                Some(_) => Pause::InPayload,
                None => Pause::ForAnswers,
            };
        }
        self.queue_for_room(id);
        self.mark(id);
        false
    }

    /// Counts the received part of a payload after something was read from a client.
    pub(super) fn count_received(&mut self, id: u64, is_complete: bool) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.introduce();
        let ConnectedClient { connection, session, pace, back_pressure, .. } = client;
        if is_complete {
            pace.complete();
        }
        if connection.coming().is_some() && (is_complete || session.account().arriving() == 0) {
            self.last_payload += 1;
            back_pressure.payload = self.last_payload;
        }
        session.account().set_arriving(connection.arrived() as u64);
        let waits = client.waits_for_room();
        self.schedule_pace_check(id);
        if waits {
            self.queue_for_room(id);
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
        if now == 0 && client.back_pressure.pause == Pause::ForAnswers {
            client.back_pressure.pause = Pause::No;
            client.expect_more();
            self.mark(id);
        }
        self.schedule_pace_check(id);
    }

    /// Puts the client in the queue for room, and asks the service to call when room is released.
    pub(super) fn queue_for_room(&mut self, id: u64) {
        let Some(need) = self.room_needed(id) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        match std::mem::replace(&mut client.back_pressure.is_in_room_queue, true) {
            // The client may need less than when it joined the queue.
            true => self.room_queue.least = self.room_queue.least.min(need.bytes),
            false => self.room_queue.join(id, need.bytes),
        }
        self.listen_for_room();
    }

    fn listen_for_room(&mut self) {
        if !self.room_queue.ids.is_empty() && !std::mem::replace(&mut self.room_queue.is_listening, true) {
            let me = self.me.clone();
            self.service.when_room(move |_| {
                Front::with(&me, |front| {
                    front.room_queue.is_listening = false;
                    front.read_clients_with_room();
                });
            });
        }
    }

    /// What a client needs that waits for room. None if the client does not wait for room.
    fn room_needed(&self, id: u64) -> Option<Need> {
        let client = self.clients.get(&id).filter(|client| client.waits_for_room())?;
        let connection = &client.connection;
        let bytes = match (connection.announced(), connection.coming()) {
            (Some(length), _) => length,
            (None, Some(length)) => (length - connection.arrived()).min(READ_CHUNK),
            // A client that has not taken its answers waits until memory is no longer full.
            (None, None) => return Some(Need { bytes: 0, may_be_let_in: !self.service.is_full() }),
        };
        // If it is not read for another reason, it would leave the queue in vain. In the middle of a payload it is watched again when
        // that reason is gone.
        let is_read = match connection.announced() {
            Some(_) => client.may_be_read(),
            None => client.asked.is_none(),
        };
        let may_be_let_in = is_read && client.session.account().has_room(bytes as u64);
        Some(Need { bytes: bytes as u64, may_be_let_in })
    }

    fn read_clients_with_room(&mut self) {
        let free = self.service.free_bytes();
        let mut queue = std::mem::take(&mut self.room_queue);
        let taken_out = queue.take_out(free, |id| self.room_needed(id));
        self.room_queue = queue;
        self.listen_for_room();
        for &id in &taken_out {
            if let Some(client) = self.clients.get_mut(&id) {
                client.back_pressure.is_in_room_queue = false;
            }
        }
        taken_out.into_iter().for_each(|id| self.queue_for_turn(id));
    }

    /// Refuses the payload that is coming in, if there is one. The rest of it is skipped.
    fn refuse_payload(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(Request::NoRoom { ticket, length }) = client.connection.give_up_payload() else { return };
        client.back_pressure.pause = Pause::No;
        client.reset_input_clock();
        self.count_received(id, true);
        if let Some(client) = self.clients.get(&id) {
            let reply = client.session.refuse_input(length);
            self.reply(id, ticket, reply);
        }
        self.mark(id);
    }

    /// Has clients checked in a second, if this one has to be checked.
    fn schedule_pace_check(&mut self, id: u64) {
        let is_due = self.clients.get(&id).is_some_and(|client| client.pace.is_due(&client.connection));
        if is_due && !std::mem::replace(&mut self.is_pace_check_scheduled, true) {
            let me = self.me.clone();
            let timer =
                self.handle.set_timeout(CHECK_INTERVAL, move |_| Front::with(&me, Front::check_paces));
            self.handle.unref(timer);
        }
    }

    /// Checks whether clients keep up. The check is repeated while any client has to be checked.
    fn check_paces(&mut self) {
        self.is_pace_check_scheduled = false;
        self.read_clients_with_room();
        let look = |(id, client): (&u64, &mut ConnectedClient)| {
            let waits = client.waits_for_room();
            if client.connection.unsent() > 0 {
                client.look_at_intake();
            }
            (*id, client.pace.check(&client.connection, waits))
        };
        let verdicts: Vec<(u64, PaceAction)> = self.clients.iter_mut().map(look).collect();
        for (id, verdict) in verdicts {
            match verdict {
                PaceAction::KeepsUp => {}
                PaceAction::CutOff(why) => self.cut_off(id, &why),
                PaceAction::RefusePayload => self.refuse_waiting_payload(id),
                PaceAction::Gone => self.drop_client(id),
            }
            self.schedule_pace_check(id);
        }
    }

    fn cut_off(&mut self, id: u64, why: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.pace.cut_off();
        client.intake.begin(Instant::now());
        client.cut_off(why);
        self.count_outputs(id);
        if let Some(client) = self.clients.get(&id) {
            let name = client.session.account().name().escape_debug();
            self.service.log().warn(format_args!("client {id} ({name}) is disconnected: {why}"));
        }
        self.mark(id);
    }

    /// A payload has waited for room as long as it may.
    fn refuse_waiting_payload(&mut self, id: u64) {
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

    /// A queue of a thousand, each of which needs a hundred bytes.
    fn queue() -> RoomQueue {
        let mut queue = RoomQueue::default();
        (0..1000).for_each(|id| queue.join(id, 100));
        queue
    }

    #[test]
    fn nobody_is_looked_at_who_cannot_be_let_in_and_as_many_are_let_in_as_there_is_room_for_together() {
        let (mut queue, looks) = (queue(), Cell::new(0));
        let need = |_| {
            looks.set(looks.get() + 1);
            Some(Need { bytes: 100, may_be_let_in: true })
        };
        assert_eq!((queue.take_out(99, need), looks.get()), (Vec::new(), 0));
        assert_eq!(queue.take_out(350, need), [0, 1, 2]);
        assert_eq!(queue.take_out(100, need), [3]);
        assert_eq!(queue.take_out(u64::MAX, need).len(), 996);
    }

    #[test]
    fn who_is_over_its_share_or_needs_too_much_holds_nobody_up_and_keeps_its_place() {
        let mut queue = queue();
        let need = |id| {
            let bytes = if id == 1 { 1000 } else { 100 };
            Some(Need { bytes, may_be_let_in: id != 0 })
        };
        assert_eq!(queue.take_out(200, need), [2, 3]);
        assert_eq!(queue.ids.iter().take(3).copied().collect::<Vec<_>>(), [0, 1, 4]);
        assert_eq!(
            queue.take_out(u64::MAX, |id| (id > 1).then_some(Need { bytes: 1, may_be_let_in: id > 5 })).len(),
            996
        );
        assert_eq!(queue.ids, [4, 5]);
    }
}
