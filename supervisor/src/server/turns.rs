//! Clients are read and answered in turns: process after process, and within a process connection after connection. A
//! client with many connections or many requests waits longer itself and delays nobody else.
//!
//! ```text
//!               its socket is readable,
//!               or its long answer can be made
//!   watched -----------------------------------------> in the queue: not watched
//!      ^                                                  |  its turn: at most REQUESTS_PER_CALL_MAX requests are
//!      |                                                  |  handled, or the request that was put off is answered
//!      '-- nothing more is there <------------------------'--> more is there: queued again, behind the others
//! ```
//!
//! Each turn of the event loop has an allowance of requests and of time for all clients together. Clients that get no
//! turn wait for the next turn of the loop, which begins without a delay.
//!
//! A long answer is made only when the client has taken most of the answers before. A process for which more than
//! [`PROCESS_ANSWERS_MAX`](crate::limits::PROCESS_ANSWERS_MAX) bytes of answers are held is skipped until it has taken
//! some of them.

use super::Front;
use super::client::ConnectedClient;
use crate::front::Peer;
use crate::limits::REQUESTS_PER_TURN;
use crate::limits::TIME_PER_TURN;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// Connections that wait for their turn, in order.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    /// Processes that have a connection in the queue and are not held back, each once.
    processes: VecDeque<Peer>,
    /// Processes that are skipped for now.
    held_back: BTreeSet<Peer>,
    /// The connections in the queue, of all processes in the two fields above.
    connections: BTreeMap<Peer, VecDeque<u64>>,
    length: usize,
}

impl TurnQueue {
    /// Adds a connection behind the others of its process. The connection must not be in the queue already.
    pub(super) fn push(&mut self, peer: Peer, id: u64) {
        let processes = &mut self.processes;
        let own = self.connections.entry(peer).or_insert_with(|| {
            processes.push_back(peer);
            VecDeque::new()
        });
        own.push_back(id);
        self.length += 1;
    }

    /// Takes out the next connection, and moves its process to the end. A process that has to be held back is skipped
    /// from now on, until [`TurnQueue::release_process`].
    pub(super) fn pop(&mut self, is_held_back: impl Fn(Peer) -> bool) -> Option<u64> {
        while let Some(peer) = self.processes.pop_front() {
            if is_held_back(peer) {
                self.held_back.insert(peer);
                continue;
            }
            let own = self.connections.get_mut(&peer)?;
            let id = own.pop_front()?;
            self.length -= 1;
            match own.is_empty() {
                true => drop(self.connections.remove(&peer)),
                false => self.processes.push_back(peer),
            }
            return Some(id);
        }
        None
    }

    /// Stops skipping a process. Returns whether the process was skipped.
    pub(super) fn release_process(&mut self, peer: Peer) -> bool {
        let was_held_back = self.held_back.remove(&peer);
        if was_held_back {
            self.processes.push_back(peer);
        }
        was_held_back
    }

    /// Removes a connection that is gone, and its process if that was its last connection in the queue, so that no
    /// turn is given to a process without connections.
    pub(super) fn remove(&mut self, peer: Peer, id: u64) {
        let Some(own) = self.connections.get_mut(&peer) else { return };
        let before = own.len();
        own.retain(|&other| other != id);
        self.length -= before - own.len();
        if own.is_empty() {
            self.connections.remove(&peer);
            self.held_back.remove(&peer);
            self.processes.retain(|&other| other != peer);
        }
    }

    /// The number of connections in the queue.
    fn len(&self) -> usize {
        self.length
    }

    /// Whether any connection has its turn.
    pub(super) fn is_due(&self) -> bool {
        !self.processes.is_empty()
    }
}

/// What may be done in one turn of the loop.
struct TurnAllowance {
    began: Instant,
    requests: usize,
}

impl TurnAllowance {
    fn of_a_turn() -> TurnAllowance {
        TurnAllowance { began: Instant::now(), requests: REQUESTS_PER_TURN }
    }

    /// Each call counts as at least one request.
    fn spend(&mut self, requests: usize) {
        self.requests = self.requests.saturating_sub(requests.max(1));
    }

    fn is_used_up(&self) -> bool {
        self.requests == 0 || self.began.elapsed() >= TIME_PER_TURN
    }
}

impl Front {
    /// Puts the client in the turn queue.
    pub(super) fn queue_for_turn(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !std::mem::replace(&mut client.is_in_turn_queue, true) {
            self.turn_queue.push(client.session.peer(), id);
        }
        self.end_turn_later();
    }

    /// Puts the client in the turn queue if its long answer can be made, or if the client has sent more than was
    /// handled.
    pub(super) fn queue_if_due(&mut self, id: u64) {
        let is_due = |client: &ConnectedClient| {
            client.may_be_answered() || (client.has_more() && client.wants_to_be_read())
        };
        if self.clients.get(&id).is_some_and(is_due) {
            self.queue_for_turn(id);
        }
    }

    /// Reads and answers clients in order, until the allowance of this turn of the loop is used up.
    pub(super) fn take_turns(&mut self) {
        let mut allowance = TurnAllowance::of_a_turn();
        while !allowance.is_used_up() {
            let processes = &self.processes;
            let Some(id) = self.turn_queue.pop(|peer| processes.must_read(peer)) else { break };
            allowance.spend(self.take_turn(id));
        }
    }

    /// Gives one client its turn. Returns how many requests were handled.
    fn take_turn(&mut self, id: u64) -> usize {
        let Some(client) = self.clients.get_mut(&id) else { return 0 };
        client.is_in_turn_queue = false;
        let mut handled = 0;
        if client.asked.is_none() {
            handled = self.receive(id);
        }
        self.answer_next(id);
        self.queue_if_due(id);
        self.mark(id);
        handled
    }

    fn answer_next(&mut self, id: u64) {
        // Another message may have been sent to the client meanwhile. Then the client gets another turn when that
        // message is written.
        if let Some(client) = self.clients.get_mut(&id)
            && client.may_be_answered()
            && let Some(request) = client.asked.take()
        {
            self.handle_request(id, request);
        }
    }

    /// Serves the clients that are marked: writes to them and checks their state, until the time of this turn is used
    /// up.
    pub(super) fn serve_all(&mut self) {
        let began = Instant::now();
        for _ in 0..self.serve_queue.len() {
            let Some(id) = self.serve_queue.pop(|_| false) else { break };
            self.serve(id);
            if began.elapsed() >= TIME_PER_TURN {
                break;
            }
        }
        if self.turn_queue.is_due() || self.serve_queue.is_due() {
            self.end_turn_later();
        }
    }

    /// Updates how many of the bytes that are held for a client are answers. `more` answer bytes were just added.
    pub(super) fn count_answers(&mut self, id: u64, more: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let before = client.answers;
        // Which of the bytes were written is not known, but answers cannot exceed all that is held.
        client.answers = (before + more).min(client.connection.held());
        self.processes.change_answers(client.session.peer(), before, client.answers);
        let peer = client.session.peer();
        self.release_process(peer);
    }

    /// Stops skipping a process that has taken enough of its answers.
    pub(super) fn release_process(&mut self, peer: Peer) {
        if !self.processes.must_read(peer) && self.turn_queue.release_process(peer) {
            self.end_turn_later();
        }
    }

    /// Removes a client that is gone from the lines and the counts.
    pub(super) fn remove_from_queues(&mut self, id: u64, client: &ConnectedClient) {
        let peer = client.session.peer();
        if client.is_in_turn_queue {
            self.turn_queue.remove(peer, id);
        }
        if client.is_in_serve_queue {
            self.serve_queue.remove(peer, id);
        }
        self.processes.change_answers(peer, client.answers, 0);
        self.processes.remove(peer, client.role);
        self.release_process(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REQUESTS_PER_CALL_MAX;

    const HOG: Peer = Peer::Process(1);
    const POLITE: Peer = Peer::Process(2);
    const ITS_CONNECTION: u64 = 1_000_000;

    fn ready(_: Peer) -> bool {
        false
    }

    /// One process has `connections` connections, each of which always has more requests. Another client joins the
    /// queue behind all of them. Returns how many requests are handled before that client is read, and in how many turns
    /// of the event loop.
    fn requests_before(connections: u64) -> (usize, usize) {
        let mut queue = TurnQueue::default();
        (0..connections).for_each(|id| queue.push(HOG, id));
        queue.push(POLITE, ITS_CONNECTION);
        let (mut handled, mut turns) = (0, 1);
        let mut left = REQUESTS_PER_TURN;
        while let Some(id) = queue.pop(ready) {
            if id == ITS_CONNECTION {
                break;
            }
            handled += REQUESTS_PER_CALL_MAX;
            queue.push(HOG, id);
            left = left.saturating_sub(REQUESTS_PER_CALL_MAX);
            if left == 0 {
                (turns, left) = (turns + 1, REQUESTS_PER_TURN);
            }
        }
        (handled, turns)
    }

    #[test]
    fn however_many_connections_a_process_has_another_waits_for_one_of_them_only() {
        for connections in [1, 150, 900] {
            assert_eq!(requests_before(connections), (REQUESTS_PER_CALL_MAX, 1), "{connections} connections");
        }
    }

    #[test]
    fn the_connections_of_a_process_take_turns() {
        let mut queue = TurnQueue::default();
        for id in 0..3 {
            queue.push(HOG, id);
        }
        let mut order = Vec::new();
        for _ in 0..7 {
            let id = queue.pop(ready).unwrap();
            order.push(id);
            queue.push(HOG, id);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn who_is_held_back_is_passed_over_until_it_is_let_on() {
        let mut queue = TurnQueue::default();
        queue.push(HOG, 1);
        queue.push(POLITE, 2);
        assert_eq!(queue.pop(|peer| peer == HOG), Some(2));
        queue.push(HOG, 3);
        assert!(!queue.is_due() && queue.pop(ready).is_none());
        queue.remove(HOG, 1);
        assert!(queue.release_process(HOG) && !queue.release_process(HOG) && queue.is_due());
        assert_eq!((queue.pop(ready), queue.pop(ready)), (Some(3), None));
    }

    #[test]
    fn a_process_whose_connections_are_gone_holds_nobody_up() {
        let mut queue = TurnQueue::default();
        queue.push(HOG, 0);
        queue.remove(HOG, 0);
        assert!(!queue.is_due(), "or the loop would go around for nobody");
        queue.push(HOG, 1);
        queue.push(POLITE, 2);
        queue.remove(HOG, 1);
        assert_eq!((queue.pop(ready), queue.pop(ready)), (Some(2), None));
        queue.push(HOG, 3);
        assert_eq!((queue.pop(ready), queue.pop(ready)), (Some(3), None));
        assert!(queue.connections.is_empty() && queue.processes.is_empty() && queue.len() == 0);
    }
}
