//! Counts the connections of each client process, and shares them out among processes when they become scarce.
//!
//! ```text
//!   ordinary connections   |------------ free for everybody -----------|-- LAST_CONNECTIONS --|
//!   control connections                                                  |-- CONTROL_CONNECTIONS --|
//! ```
//!
//! While there is enough room no process is limited. The last connections are shared out like memory
//! ([`core::ledger`]): a process gets one more only while it has fewer than are left. A process with a thousand
//! connections gets none of them, one that takes all it can get has half of them, and one that has none yet always
//! gets some. The control connections are beyond the limit of ordinary ones. A process gets one of them only while it has
//! fewer connections, ordinary and control, than are left of them, and fewer than [`CONTROL_CONNECTIONS_OF_ONE`].
//!
//! Connections are counted by process and not by the name of the client, because a client can choose its name.
//!
//! [`core::ledger`]: offload_core::ledger

use super::accept::ClientRole;
use crate::front::Peer;
use crate::limits::{CONTROL_CONNECTIONS_OF_ONE, LAST_CONNECTIONS, PROCESS_ANSWERS_MAX};
use std::collections::BTreeMap;

/// What one process has, or all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProcessHoldings {
    ordinary: usize,
    control: usize,
    /// Bytes of answers that are held for the process.
    answers: usize,
}

impl ProcessHoldings {
    fn of(&mut self, role: ClientRole) -> &mut usize {
        match role {
            ClientRole::Ordinary => &mut self.ordinary,
            ClientRole::Control => &mut self.control,
        }
    }
}

/// The connections of all client processes. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ClientProcesses {
    each: BTreeMap<Peer, ProcessHoldings>,
    all: ProcessHoldings,
}

impl ClientProcesses {
    /// Counts one more connection of the process.
    pub(super) fn add(&mut self, peer: Peer, role: ClientRole) {
        *self.each.entry(peer).or_default().of(role) += 1;
        *self.all.of(role) += 1;
    }

    /// Counts one connection less of the process.
    pub(super) fn remove(&mut self, peer: Peer, role: ClientRole) {
        *self.all.of(role) -= 1;
        let Some(has) = self.each.get_mut(&peer) else { return };
        *has.of(role) -= 1;
        if *has == ProcessHoldings::default() {
            self.each.remove(&peer);
        }
    }

    /// How many connections the process has, ordinary and control.
    pub(super) fn connections(&self, peer: Peer) -> usize {
        self.each.get(&peer).map_or(0, |has| has.ordinary + has.control)
    }

    /// Whether a process that has `own` connections may have one more ordinary connection, where `room` is the maximum
    /// of all processes together.
    pub(super) fn has_room(&self, own: usize, room: usize) -> bool {
        let free = room.saturating_sub(self.all.ordinary);
        free > LAST_CONNECTIONS.min(room / 4) || own < free
    }

    /// Whether the process may have one more control connection, where `reserve` is the maximum of all processes
    /// together.
    pub(super) fn has_room_beyond(&self, peer: Peer, reserve: usize) -> bool {
        let free = reserve.saturating_sub(self.all.control);
        self.connections(peer) < free.min(CONTROL_CONNECTIONS_OF_ONE)
    }

    /// Whether a connection of `one` may be closed so that `other`, which has `own` connections, can have one more. It
    /// may not if `one` would then have fewer connections than `other`.
    pub(super) fn gives_way_to(&self, one: Peer, (other, own): (Peer, usize)) -> bool {
        one == other || self.connections(one) > own
    }

    /// The bytes of answers that are held for the process have changed.
    pub(super) fn change_answers(&mut self, peer: Peer, before: usize, now: usize) {
        if let Some(has) = self.each.get_mut(&peer) {
            has.answers = (has.answers + now).saturating_sub(before);
        }
    }

    /// Whether the process has to take some of its answers before it gets more.
    pub(super) fn must_read(&self, peer: Peer) -> bool {
        self.each.get(&peer).is_some_and(|has| has.answers > PROCESS_ANSWERS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CONTROL_CONNECTIONS;

    const ROOM: usize = 256;
    const HOG: Peer = Peer::Process(1);

    /// Takes all connections that it can get. Returns how many of each kind it has then.
    fn take_all(processes: &mut ClientProcesses, peer: Peer) -> (usize, usize) {
        loop {
            let role = match processes.has_room(processes.connections(peer), ROOM) {
                true => ClientRole::Ordinary,
                false if processes.has_room_beyond(peer, CONTROL_CONNECTIONS) => ClientRole::Control,
                false => break,
            };
            processes.add(peer, role);
        }
        let has = processes.each.get(&peer).copied().unwrap_or_default();
        (has.ordinary, has.control)
    }

    #[test]
    fn who_has_many_connections_gets_none_of_the_last_ones() {
        let mut processes = ClientProcesses::default();
        assert_eq!(take_all(&mut processes, HOG), (ROOM - LAST_CONNECTIONS, 0));
    }

    #[test]
    fn who_comes_late_gets_in_however_many_others_take_all_that_they_can() {
        let mut processes = ClientProcesses::default();
        take_all(&mut processes, HOG);
        let ordinary = [(32, 0), (16, 0), (8, 0), (4, 0)];
        // A process with few ordinary connections gets some beyond the limit; those are shared out in the same way.
        let beyond = [(2, 2), (1, 3), (1, 3), (0, 4), (0, 2), (0, 1)];
        for (number, expected) in (2..).zip(ordinary.into_iter().chain(beyond)) {
            assert_eq!(take_all(&mut processes, Peer::Process(number)), expected, "process {number}");
        }
        assert!(processes.has_room_beyond(Peer::Process(100), CONTROL_CONNECTIONS));
        assert!(!processes.has_room_beyond(HOG, CONTROL_CONNECTIONS));
    }

    #[test]
    fn nobody_gives_way_to_a_process_that_has_more_than_its_own() {
        let mut processes = ClientProcesses::default();
        take_all(&mut processes, HOG);
        let (polite, newcomer) = (Peer::Process(2), Peer::Process(3));
        processes.add(polite, ClientRole::Ordinary);
        let own = processes.connections(HOG);
        assert!(!processes.gives_way_to(polite, (HOG, own)));
        assert!(processes.gives_way_to(HOG, (HOG, own)), "its own make room for it");
        assert!(processes.gives_way_to(HOG, (newcomer, 0)) && processes.gives_way_to(polite, (newcomer, 0)));
    }

    #[test]
    fn a_process_has_to_read_once_much_is_held_for_all_of_its_connections() {
        let mut processes = ClientProcesses::default();
        for _ in 0..100 {
            processes.add(HOG, ClientRole::Ordinary);
            processes.change_answers(HOG, 0, PROCESS_ANSWERS_MAX / 100 + 1);
        }
        assert!(processes.must_read(HOG) && !processes.must_read(Peer::Process(2)));
        processes.change_answers(HOG, PROCESS_ANSWERS_MAX / 100 + 1, 0);
        assert!(!processes.must_read(HOG));
    }

    #[test]
    fn a_process_without_connections_is_forgotten() {
        let mut processes = ClientProcesses::default();
        processes.add(HOG, ClientRole::Ordinary);
        processes.add(HOG, ClientRole::Control);
        processes.remove(HOG, ClientRole::Ordinary);
        processes.remove(HOG, ClientRole::Control);
        assert!(processes.each.is_empty() && processes.all == ProcessHoldings::default());
    }
}
