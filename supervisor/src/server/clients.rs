//! Turns requests of clients into calls of the service, and replies into messages.

use super::Front;
use super::accept::ClientRole;
use super::client::{ConnectedClient, RequestInput};
use crate::end_of_turn::{Written, write_and_watch};
use crate::front::{Connection, ConnectionError, Received, Request, Room, RowWriter, SubmittedFile, to_json};
use crate::job::{Finished, Job};
use crate::service::{Reply, Report, Session, StreamPart, Submission};
use crate::views::JsonPage;
use bytes::Bytes;
use offload_event_loop::{HandleId, Interest, Readiness};
use offload_protocol::limits::{INLINE_PAYLOAD_MAX, MESSAGE_MAX};
use offload_protocol::messages::{ToClient, View};
use offload_protocol::nouns::{self, ErrorDetail, cut};

impl Front {
    pub(super) fn admit(&mut self, session: Session, connection: Connection, role: ClientRole) {
        let id = session.id();
        match self.watch_client(id, &connection) {
            Ok(watcher) => {
                self.processes.add(session.peer(), role);
                self.clients.insert(id, ConnectedClient::new(connection, session, watcher, role));
                self.watch_patience(id);
            }
            Err(error) => self.service.log().warn(format_args!("a client was turned away: {error}")),
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
            self.queue_for_turn(id);
        }
        self.mark(id);
    }

    /// Reads once and handles the requests that arrived. A request with a long answer is put off. Returns the number
    /// of requests that arrived.
    pub(super) fn receive(&mut self, id: u64) -> usize {
        if !self.may_receive(id) {
            return 0;
        }
        let Some(client) = self.clients.get_mut(&id) else { return 0 };
        if !client.may_be_read() {
            if client.waits_for_room() {
                self.queue_for_room(id);
            }
            return 0;
        }
        let (session, may_wait) = (&client.session, client.pace.may_wait());
        let mut find_room = |name: &str, length: usize| {
            session.introduce(name);
            match session.account().has_room(length as u64) {
                true => Room::Take,
                false if may_wait => Room::Wait,
                false => Room::Refuse,
            }
        };
        let mut requests = Vec::new();
        let received = client.connection.receive(&mut find_room, &mut |request| requests.push(request));
        client.input = match received {
            Ok(Received::More) => RequestInput::More,
            Ok(Received::Ended) => RequestInput::Ended,
            Ok(Received::Messages | Received::NoRoom | Received::WouldBlock) | Err(_) => RequestInput::Quiet,
        };
        match received {
            Ok(Received::Messages | Received::More | Received::NoRoom) => client.reset_input_clock(),
            Ok(Received::WouldBlock | Received::Ended) => {}
            Err(error) => self.note_error(id, &error),
        }
        let handled = requests.len();
        self.count_received(id, handled > 0);
        for request in requests {
            match self.clients.get_mut(&id) {
                Some(client) if request.is_costly() => client.asked = Some(request),
                _ => self.handle_request(id, request),
            }
        }
        self.queue_if_due(id);
        self.mark(id);
        if self.clients.get(&id).is_some_and(ConnectedClient::is_gone) {
            self.drop_client(id);
        }
        handled
    }

    fn note_error(&self, id: u64, error: &ConnectionError) {
        self.service.log().warn(format_args!("client {id} is disconnected: {error}"));
    }

    pub(super) fn handle_request(&mut self, id: u64, request: Request) {
        if !self.may_request(id, &request) {
            return self.refuse_overloaded(id, &request);
        }
        let Some(client) = self.clients.get(&id) else { return };
        let session = &client.session;
        let ticket = request.ticket();
        let reply = match request {
            Request::Submit { file: Some(SubmittedFile::Unusable), .. } => Some(Reply::SendInput),
            Request::Submit { task, media_type, detach, options, payload, file, .. } => {
                let is_let_in = payload.len() > INLINE_PAYLOAD_MAX;
                let job = Job::new(task).media_type(media_type).options(options);
                let job = match file {
                    Some(SubmittedFile::Open(file)) => job.input_file(file),
                    Some(SubmittedFile::Unusable) | None => job.input(payload),
                };
                Some(session.submit(ticket, Submission { job, detach, is_let_in }))
            }
            Request::Wait { job, .. } => session.wait(ticket, &job),
            Request::Result { job, .. } => Some(self.service.result(&job, client.session.account())),
            Request::Cancel { job, .. } => Some(self.service.cancel(&job)),
            Request::Show { view, .. } => return self.show(id, ticket, view),
            Request::Page { view, after, limit, label, .. } => {
                let most = usize::try_from(limit).unwrap_or(usize::MAX);
                return self
                    .answer_with_page(id, ticket, (view, &label, &after, most), |page| to_json(&page));
            }
            Request::Drain { limit, .. } => session.drain(ticket, limit),
            Request::Stop { .. } => session.stop(ticket),
            Request::Explain { job, .. } => Some(self.service.explain(&job)),
            Request::Dead { action, job, .. } => Some(session.dead_letter(action, &job)),
            Request::Reload { .. } => session.reload(ticket),
            Request::Operate { operation, .. } => return self.operate(id, ticket, &operation),
            Request::TooLarge { length, .. } => Some(self.service.refuse_too_large(length)),
            Request::NoRoom { length, .. } => Some(session.refuse_input(length)),
        };
        reply.into_iter().for_each(|reply| self.reply(id, ticket, reply));
    }

    /// Turns a reply into a message.
    pub(super) fn reply(&mut self, id: u64, ticket: u64, reply: Reply) {
        match reply {
            Reply::Accepted { job } => {
                self.send(id, &ToClient::Accepted { ticket, job: job.into() }, &Bytes::new());
            }
            Reply::Report(report) => self.deliver(id, ticket, *report),
            Reply::News => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.has_news(ticket);
                }
                self.mark(id);
            }
            Reply::Document(document) => self.answer(id, ticket, document.to_json()),
            Reply::SendInput => self.send(id, &ToClient::SendInput { ticket }, &Bytes::new()),
            Reply::Refusal(error) => self.refuse(id, ticket, &error),
        }
    }

    /// Shows the status, or the first page of a list without saying where the next page begins.
    fn show(&mut self, id: u64, ticket: u64, view: View) {
        match view {
            View::Status => self.reply(id, ticket, self.service.status()),
            View::Tasks | View::Workers | View::Jobs | View::Dead => {
                self.answer_with_page(id, ticket, (view, "", "", usize::MAX), |page| to_json(&page.rows));
            }
        }
    }

    /// Makes a page of a list and sends it as `to_bytes` writes it.
    fn answer_with_page(
        &mut self,
        id: u64,
        ticket: u64,
        (view, label, after, most): (View, &str, &str, usize),
        to_bytes: impl FnOnce(JsonPage) -> Vec<u8>,
    ) {
        let mut writer = RowWriter::default();
        match self.service.page(view, label, after, most, |row| writer.write(&row)) {
            Ok(page) => self.answer(id, ticket, to_bytes(page)),
            Err(error) => self.refuse(id, ticket, &error),
        }
    }

    /// Tells a client how a job ended. A kept output counts as collected when its last byte is written, and not if the
    /// client disconnects before.
    fn deliver(&mut self, id: u64, ticket: u64, report: Report) {
        let unsent = |front: &Front| front.clients.get(&id).map_or(0, |client| client.connection.unsent());
        let before = unsent(self);
        // What remains of `report` charges the output to the job's account, until the output is charged to this
        // client's account.
        let Report { finished, collection, .. } = report;
        let Finished { report: about, output } = *finished;
        self.send(id, &ToClient::Finished { ticket, report: presentable(about) }, &output);
        // Small outputs are counted at the end of the turn.
        if output.len() > INLINE_PAYLOAD_MAX {
            self.count_outputs(id);
        }
        let is_sent = unsent(self) > before;
        if let Some(client) = self.clients.get_mut(&id).filter(|_| is_sent)
            && let Some(collection) = collection
        {
            client.collects(collection);
        }
    }

    pub(super) fn answer(&mut self, id: u64, ticket: u64, document: Vec<u8>) {
        self.send(id, &ToClient::Answer { ticket }, &Bytes::from(document));
    }

    /// Refuses a request. The error may say when to try again.
    pub(super) fn refuse(&mut self, id: u64, ticket: u64, error: &ErrorDetail) {
        let message = cut(&error.message, MESSAGE_MAX).into();
        let (code, retry_after_ms) = (error.code, error.retry_after_ms);
        self.send(id, &ToClient::Rejected { ticket, code, message, retry_after_ms }, &Bytes::new());
    }

    pub(super) fn send(&mut self, id: u64, message: &ToClient<'_>, payload: &Bytes) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let before = client.connection.held();
        client.send(message, payload);
        // Outputs have limits of their own.
        if !matches!(message, ToClient::Finished { .. } | ToClient::Part { .. }) {
            let more = client.connection.held().saturating_sub(before);
            self.count_answers(id, more);
        }
        self.mark(id);
    }

    /// Has the client served at the end of the turn.
    pub(super) fn mark(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !std::mem::replace(&mut client.is_in_serve_queue, true) {
            self.serve_queue.push(client.session.peer(), id);
        }
        self.end_turn_later();
    }

    pub(super) fn end_turn_later(&mut self) {
        let me = self.me.clone();
        self.turn.ask(&self.handle, move || Front::with(&me, Front::end_turn));
    }

    /// Once a turn: reads and answers the clients that have their turn, then writes to the clients that have unsent
    /// bytes.
    fn end_turn(&mut self) {
        self.turn.begin();
        self.take_turns();
        self.serve_all();
        self.finish_closing();
    }

    pub(super) fn serve(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.is_in_serve_queue = false;
        self.send_parts(id);
        let Some(client) = self.clients.get_mut(&id) else { return };
        // A write that fails finishes the connection, which is checked next.
        let written = write_and_watch(client, &self.handle);
        // A client that has closed its sending side is dropped when it has all its answers.
        let is_done = client.has_ended() && client.is_idle();
        if client.connection.is_finished() || is_done {
            return self.drop_client(id);
        }
        let goes_on = matches!(written, Written::More | Written::Refused) || client.may_be_sent_parts();
        self.count_answers(id, 0);
        self.count_outputs(id);
        if goes_on {
            self.mark(id);
        }
        self.queue_if_due(id);
        self.watch_patience(id);
    }

    /// Sends parts of the streams that the client reads, as much as it takes now.
    fn send_parts(&mut self, id: u64) {
        while let Some((ticket, part)) = self.clients.get_mut(&id).and_then(ConnectedClient::next_part) {
            match part {
                StreamPart::Nothing => {}
                // The part is charged to the job's account until it is charged to this client's account.
                StreamPart::Part(part) => {
                    self.send(id, &ToClient::Part { ticket }, &part.bytes);
                    self.count_outputs(id);
                }
                StreamPart::End(report) => self.deliver(id, ticket, *report),
            }
        }
    }

    /// A client is gone. Jobs that nobody else waits for are cancelled if they are queued, and may finish if they run.
    /// Detached jobs and jobs with a key go on, because the client may come back for them.
    pub(super) fn drop_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.remove_from_queues(id, &client);
        client.unwatch(&self.handle);
    }
}

/// Returns the report with its message cut, so that all its texts fit into one header.
fn presentable(mut report: nouns::Report) -> nouns::Report {
    if let Some(error) = &mut report.error {
        error.message = cut(&error.message, MESSAGE_MAX).to_owned();
    }
    report
}
