//! Requests to the service, and its replies to the clients, as messages.

use super::Front;
use super::accept::Standing;
use super::client::Client;
use super::holdings::find_room;
use super::reload::Asker;
use super::stage::Wisher;
use crate::front::{Connection, ConnectionError, Peer, Received, Request};
use crate::job::{Finished, Job};
use crate::service::Reply;
use bytes::Bytes;
use offload_core::ids::JobId;
use offload_event_loop::{HandleId, Interest, Readiness};
use offload_protocol::limits::{INLINE_PAYLOAD_MAX, MESSAGE_MAX};
use offload_protocol::messages::{ToClient, View};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Report, cut};
use serde::Serialize;
use std::rc::Rc;

impl Front {
    pub(super) fn admit(&mut self, id: u64, peer: Peer, connection: Connection, standing: Standing) {
        match self.watch_client(id, &connection) {
            Ok(watcher) => {
                self.clients.insert(id, Client::new(connection, peer, watcher, standing));
                self.processes.add(peer, standing);
                self.watch_patience(id);
            }
            Err(error) => self.hub.borrow().log().warn(format_args!("a client was turned away: {error}")),
        }
    }

    fn watch_client(
        &self,
        id: u64,
        connection: &Connection,
    ) -> Result<HandleId, offload_event_loop::LoopError> {
        let me = self.me.clone();
        self.handle.watch(connection.socket(), Interest::READ, move |_, readiness| {
            Front::with(&me, |front| front.on_client(id, readiness));
        })
    }

    fn on_client(&mut self, id: u64, readiness: Readiness) {
        if readiness.is_readable() {
            self.line_up(id);
        }
        self.mark(id);
    }

    /// Reads once and handles what came; a request with a long answer is put off. Returns how many were handled.
    pub(super) fn receive(&mut self, id: u64) -> usize {
        if !self.may_go_on(id) {
            return 0;
        }
        let hub = Rc::clone(&self.hub);
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.may_be_read()) else { return 0 };
        let (peer, may_wait) = (client.peer, client.pace.may_wait());
        let mut requests = Vec::new();
        let received = client.connection.receive(
            &mut |name, length| find_room(&hub.borrow(), (name, peer), length, may_wait),
            &mut |request| requests.push(request),
        );
        client.has_more = matches!(received, Ok(Received::More));
        match received {
            Ok(Received::Messages | Received::More | Received::NoRoom) => client.sent_something(),
            Ok(Received::WouldBlock) => {}
            Ok(Received::Ended) => client.ended(),
            Err(error) => self.note_error(id, &error),
        }
        let handled = requests.len();
        self.note_what_came(id, handled > 0);
        for request in requests {
            match self.clients.get_mut(&id) {
                Some(client) if request.is_costly() => client.asked = Some(request),
                _ => self.handle_request(id, request),
            }
        }
        self.give_a_turn(id);
        self.mark(id);
        if self.clients.get(&id).is_some_and(Client::is_gone) {
            self.drop_client(id);
        }
        handled
    }

    fn note_error(&self, id: u64, error: &ConnectionError) {
        self.hub.borrow().log().warn(format_args!("client {id} is disconnected: {error}"));
    }

    pub(super) fn handle_request(&mut self, id: u64, request: Request) {
        if !self.may_ask(id, &request) {
            return self.refuse_for_want_of_room(id, &request);
        }
        match request {
            Request::Submit { ticket, task, content, detach, options, payload } => {
                let Some(client) = self.clients.get(&id) else { return };
                let (name, peer) = (client.connection.client(), Some(client.peer));
                let job = Job::new(task).input(payload).content(content).options(options).client(name);
                let has_room = job.input.len() > INLINE_PAYLOAD_MAX;
                let job = Job { peer, has_room, ..job };
                self.submit(id, ticket, job, detach);
            }
            Request::Wait { ticket, job } => self.wait(id, ticket, &job),
            Request::Result { ticket, job } => self.reply(id, ticket, self.service.result(&job)),
            Request::Cancel { ticket, job } => self.reply(id, ticket, self.service.cancel(&job)),
            Request::Show { ticket, view } => self.show(id, ticket, view),
            Request::Page { ticket, view, after, limit } => self.show_page(id, ticket, view, &after, limit),
            Request::Drain { ticket, limit } if self.owe_farewell(id, ticket) => {
                self.drain(limit, Wisher::Somebody);
            }
            Request::Stop { ticket } if self.owe_farewell(id, ticket) => self.stop(),
            Request::Explain { ticket, job } => self.reply(id, ticket, self.service.explain(&job)),
            Request::Dead { ticket, deed, job } => {
                let Some(client) = self.clients.get(&id) else { return };
                let reply = self.service.dead(deed, &job, (client.connection.client(), client.peer));
                self.reply(id, ticket, reply);
            }
            Request::Reload { ticket } if self.owe(id, ticket) => {
                self.reload(Asker::Client { id, ticket });
            }
            Request::Drain { .. } | Request::Stop { .. } | Request::Reload { .. } => {}
            Request::TooLarge { ticket, length } => {
                self.hub.borrow_mut().refused();
                let limit = self.hub.borrow().config().max_payload;
                let message = format!("input of {length} bytes, the limit is {limit} bytes");
                self.reject(id, ticket, OutcomeCode::TooLarge, &message);
            }
            Request::NoRoom { ticket, length } => {
                self.hub.borrow_mut().refused();
                self.refuse_input(id, ticket, length);
            }
        }
    }

    fn submit(&mut self, id: u64, ticket: u64, job: Job, detach: bool) {
        let listener = (!detach).then(|| self.listener_for(id));
        let taken = self.service.submit(job, listener).and_then(|taken| match detach {
            true => Ok(taken.job),
            false => self.await_submitted(id, ticket, taken).map(|()| taken.job),
        });
        match taken {
            Ok(job) => {
                let name = self.service.name(job);
                self.send(id, &ToClient::Accepted { ticket, job: name.into() }, &Bytes::new());
            }
            Err(error) => self.refuse(id, ticket, &error),
        }
    }

    pub(super) fn deliver(&mut self, id: u64, ticket: u64, finished: Finished) {
        let Finished { report, output } = finished;
        self.send(id, &ToClient::Finished { ticket, report: presentable(report) }, &output);
        // Whatever is small is counted at the end of the turn.
        if output.len() > INLINE_PAYLOAD_MAX {
            self.count_outputs(id);
        }
    }

    /// Turns a reply into a message.
    pub(super) fn reply(&mut self, id: u64, ticket: u64, reply: Reply) {
        match reply {
            Reply::Report { job, finished } => self.deliver_to_collector(id, ticket, job, *finished),
            Reply::Page(page) => self.answer_json(id, ticket, page.into_document()),
            Reply::Document(document) => self.answer_json(id, ticket, document.to_json()),
            Reply::Refusal(error) => self.refuse(id, ticket, &error),
        }
    }

    /// A list is shown without the place where it goes on: as much of it as fits into a page.
    fn show(&mut self, id: u64, ticket: u64, view: View) {
        match self.service.show(view) {
            Reply::Page(page) => self.answer_json(id, ticket, page.rows),
            reply => self.reply(id, ticket, reply),
        }
    }

    /// Gives a client the output that it asked for. It is collected when the last byte is written, and not if the client
    /// is gone before.
    pub(super) fn deliver_to_collector(&mut self, id: u64, ticket: u64, job: JobId, finished: Finished) {
        let unsent = |front: &Front| front.clients.get(&id).map_or(0, |client| client.connection.unsent());
        let before = unsent(self);
        self.deliver(id, ticket, finished);
        let is_sent = unsent(self) > before;
        if let Some(client) = self.clients.get_mut(&id).filter(|_| is_sent) {
            client.collects(job);
        }
    }

    pub(super) fn answer(&mut self, id: u64, ticket: u64, document: &impl Serialize) {
        let bytes = serde_json::to_vec(document).expect("views have string keys and no numbers out of range");
        self.answer_json(id, ticket, bytes);
    }

    pub(super) fn reject(&mut self, id: u64, ticket: u64, code: OutcomeCode, message: &str) {
        self.refuse(id, ticket, &ErrorDetail::new(code, message));
    }

    /// Refuses a request, if need be with the time after which it may be made again.
    pub(super) fn refuse(&mut self, id: u64, ticket: u64, error: &ErrorDetail) {
        self.settle(id, ticket);
        let message = cut(&error.message, MESSAGE_MAX).into();
        let (code, retry_after_ms) = (error.code, error.retry_after_ms);
        self.send(id, &ToClient::Rejected { ticket, code, message, retry_after_ms }, &Bytes::new());
    }

    pub(super) fn send(&mut self, id: u64, message: &ToClient<'_>, payload: &Bytes) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let before = client.connection.held();
        client.send(message, payload);
        // Outputs have limits of their own.
        if !matches!(message, ToClient::Finished { .. }) {
            let more = client.connection.held().saturating_sub(before);
            self.count_answers(id, more);
        }
        self.mark(id);
    }

    pub(super) fn send_farewells(&mut self) {
        let (cancelled, uncollected) = {
            let hub = self.hub.borrow();
            (hub.cut_short(), hub.uncollected())
        };
        let answer =
            serde_json::json!({ "state": "stopped", "cancelled": cancelled, "uncollected": uncollected });
        for (id, ticket) in std::mem::take(&mut self.farewells) {
            self.answer(id, ticket, &answer);
        }
    }

    /// Has the client looked after at the end of the turn.
    pub(super) fn mark(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !std::mem::replace(&mut client.is_marked, true) {
            self.to_serve.push(client.peer, id);
        }
        self.end_turn_later();
    }

    pub(super) fn end_turn_later(&mut self) {
        if !std::mem::replace(&mut self.turn_ends, true) {
            let me = self.me.clone();
            self.handle.set_immediate(move |_| Front::with(&me, Front::end_turn));
        }
    }

    /// Once a turn: some of those who are gone leave their jobs, some clients are heard and answered, and those to whom there
    /// is something to write are written to.
    fn end_turn(&mut self) {
        self.turn_ends = false;
        self.let_them_leave();
        self.take_turns();
        self.serve_all();
        self.let_go_if_all_are_gone();
    }

    pub(super) fn serve(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.is_marked = false;
        let has_more_to_write = client.flush();
        for job in client.collected() {
            self.hub.borrow_mut().collected(job);
        }
        // One that sends no more is let go when it has all that it asked for.
        let is_done = client.has_ended() && client.is_idle();
        if client.connection.is_finished() || is_done {
            return self.drop_client(id);
        }
        client.set_interest(&self.handle);
        self.count_answers(id, 0);
        self.count_outputs(id);
        if has_more_to_write {
            self.mark(id);
        }
        self.give_a_turn(id);
        self.watch_patience(id);
    }

    /// A client is gone. Jobs for which nobody else waits are cancelled if they wait, and let finish if they run, unless
    /// they are detached or have a key, by which the client may come back.
    pub(super) fn drop_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.forget_process_of(id, &client);
        self.release_all(&client.holdings);
        for ticket in &client.owed {
            self.farewells.remove(&(id, *ticket));
        }
        let waits = client.unwatch(&self.handle);
        self.leave_all(id, waits);
    }
}

/// A report whose texts fit into a header together.
fn presentable(mut report: Report) -> Report {
    if let Some(error) = &mut report.error {
        error.message = cut(&error.message, MESSAGE_MAX).to_owned();
    }
    report
}
