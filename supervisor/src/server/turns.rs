//! Long answers are made one after another: of each client one at a time, in the order in which the clients asked, and
//! in one turn of the loop for no longer than [`TIME_PER_TURN`]. So whoever asks much waits longer himself and holds
//! up nobody else, and what is made for him is bounded: the next answer is not begun before he has taken the last ones.
//!
//! ```text
//!            a request with a long answer was read
//!   Reading --------------------------------------> Asked: nothing more is read of this client
//!      ^                                              |  enough of what was said before is written
//!      |                                              v
//!      '------- its answer is made <--------------- in the row of those who have a turn
//! ```

use super::Front;
use crate::limits::LATE_ANSWERS_MAX;
use bytes::Bytes;
use offload_protocol::messages::{ToClient, View};
use offload_protocol::nouns::OutcomeCode;
use std::time::{Duration, Instant};

/// Once this is over no other long answer is begun in a turn.
const TIME_PER_TURN: Duration = Duration::from_millis(1);

impl Front {
    /// Has the client wait for its turn, if it has asked for something and has taken what it was told before.
    pub(super) fn give_a_turn(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.may_be_answered()) else {
            return;
        };
        if !std::mem::replace(&mut client.has_a_turn, true) {
            self.turns.push_back(id);
        }
    }

    /// Answers those who have a turn, for a while.
    pub(super) fn take_turns(&mut self) {
        let began = Instant::now();
        for _ in 0..self.turns.len() {
            let Some(id) = self.turns.pop_front() else { break };
            self.answer_next(id);
            if began.elapsed() >= TIME_PER_TURN {
                break;
            }
        }
        if !self.turns.is_empty() {
            self.end_turn_later();
        }
    }

    fn answer_next(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.has_a_turn = false;
        // Something else may have been said to it meanwhile: then it gets another turn when that is written.
        if client.may_be_answered()
            && let Some(request) = client.asked.take()
        {
            self.handle_request(id, request);
        }
        self.mark(id);
    }

    /// Some rows of a list.
    pub(super) fn show_page(&mut self, id: u64, ticket: u64, view: View, after: &str, limit: u32) {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let page = self.hub.borrow().page(view, after, most);
        match page {
            Some(page) => self.answer_json(id, ticket, page.into_document()),
            None => {
                let message = "there is no such list, or no such row in it from which it could go on";
                self.reject(id, ticket, OutcomeCode::BadRequest, message);
            }
        }
    }

    /// As much of a list as fits into a page.
    pub(super) fn show_list(&mut self, id: u64, ticket: u64, view: View) {
        let page = self.hub.borrow().page(view, "", usize::MAX);
        let rows = page.map_or_else(|| b"[]".to_vec(), |page| page.rows);
        self.answer_json(id, ticket, rows);
    }

    /// Sends a document that is JSON already.
    pub(super) fn answer_json(&mut self, id: u64, ticket: u64, document: Vec<u8>) {
        self.settle(id, ticket);
        self.send(id, &ToClient::Answer { ticket }, &Bytes::from(document));
    }

    /// Takes note that the client waits for an answer that comes when something is over. False if it waits for too many
    /// already, and was told so.
    pub(super) fn owe(&mut self, id: u64, ticket: u64) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        if client.owed.len() >= LATE_ANSWERS_MAX {
            let message = format!("this client waits for {LATE_ANSWERS_MAX} answers, which is the limit");
            self.reject(id, ticket, OutcomeCode::Overloaded, &message);
            return false;
        }
        client.owed.insert(ticket);
        true
    }

    /// The same for an answer that is given when all is over.
    pub(super) fn owe_farewell(&mut self, id: u64, ticket: u64) -> bool {
        let is_owed = self.owe(id, ticket);
        if is_owed {
            self.farewells.insert((id, ticket));
        }
        is_owed
    }

    /// Takes note that this request is answered.
    pub(super) fn settle(&mut self, id: u64, ticket: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.owed.remove(&ticket);
        }
    }
}
