//! A session: one client of one front, with everything that is held for the client. Dropping it gives all of that up.
//!
//! ```text
//!   open ---> introduced: it has a name, and an account ---> requests ---> dropped
//!                                                                            |-- it waits for no job any more
//!                                                                            |-- it is owed no answer any more
//!                                                                            '-- its bytes are released
//! ```

use super::reply::{Document, Reply, StreamPart};
use super::shutdown::EndRequester;
use super::streams::Streams;
use super::waits::{AllWaits, Waits};
use super::{Account, Asker, Service};
use crate::job::Job;
use crate::limits::LATE_ANSWERS_MAX;
use crate::peer::Peer;
use offload_protocol::messages::DeadLetterAction;
use offload_protocol::nouns::OutcomeCode;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Called with answers that come later. It is called on the event loop, and never from inside a method of the service.
pub type OnReply = Rc<dyn Fn(Ticket, Reply)>;

/// Identifies one request: its session, and the number that the front gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The [`Session::id`].
    pub session: u64,
    /// The number that the front chose.
    pub number: u64,
}

/// A job as a client submits it.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The job to run. The service fills in the client's name.
    pub job: Job,
    /// The client does not wait for the end: no report is sent, and the output is kept until a client asks for it.
    pub detach: bool,
    /// There was room for the input when it was announced, and it was counted as it arrived, so it is not refused for
    /// lack of room any more.
    pub is_let_in: bool,
}

/// A session. See the module's documentation.
#[must_use = "dropping it closes the session, which gives up what waits"]
pub struct Session {
    open: Rc<OpenSession>,
}

/// What the service knows of an open session.
pub(super) struct OpenSession {
    pub(super) service: Service,
    pub(super) id: u64,
    peer: Peer,
    asker: OnceCell<Asker>,
    pub(super) account: Account,
    on_reply: OnReply,
    pub(super) waits: RefCell<Waits>,
    pub(super) streams: RefCell<Streams>,
    pending_answers: RefCell<PendingAnswers>,
}

/// Requests that will be answered later.
#[derive(Default)]
struct PendingAnswers {
    all: BTreeSet<u64>,
    /// Those of them that are answered when the supervisor has ended all jobs.
    shutdown_requests: BTreeSet<u64>,
}

/// All open sessions.
#[derive(Default)]
pub(super) struct Sessions {
    last: u64,
    open: BTreeMap<u64, Weak<OpenSession>>,
    pub(super) waits: AllWaits,
}

impl Sessions {
    /// A number that no session and no asker has had.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Service {
    /// Opens a session for a client that has connected. `process` is the process of the client, if the kernel can
    /// tell: clients without a name share the limits of their process. Answers that come later go to `on_reply`.
    pub fn open(&self, process: Option<u32>, on_reply: OnReply) -> Session {
        let mut sessions = self.0.sessions.borrow_mut();
        let id = sessions.next_number();
        let open = Rc::new(OpenSession {
            service: self.clone(),
            id,
            peer: process.map_or(Peer::Connection(id), Peer::Process),
            asker: OnceCell::new(),
            account: Account::new(self.hub().clone()),
            on_reply,
            waits: RefCell::default(),
            streams: RefCell::default(),
            pending_answers: RefCell::default(),
        });
        sessions.open.insert(id, Rc::downgrade(&open));
        Session { open }
    }

    /// Whether this session is open.
    pub(super) fn has_session(&self, id: u64) -> bool {
        self.0.sessions.borrow().open.contains_key(&id)
    }

    /// Sends an answer to an earlier request, if its session is still open.
    pub(super) fn answer_later(&self, ticket: Ticket, reply: Reply) {
        let open = self.0.sessions.borrow().open.get(&ticket.session).and_then(Weak::upgrade);
        if let Some(open) = open {
            open.pending_answers.borrow_mut().all.remove(&ticket.number);
            open.reply(ticket.number, reply);
        }
    }

    /// Takes out the tickets of all requests for the end of the supervisor, in the order of sessions and tickets.
    pub(super) fn take_shutdown_tickets(&self) -> Vec<Ticket> {
        let open: Vec<_> = self.0.sessions.borrow().open.values().filter_map(Weak::upgrade).collect();
        let of_one = |open: Rc<OpenSession>| {
            let shutdown_requests = std::mem::take(&mut open.pending_answers.borrow_mut().shutdown_requests);
            shutdown_requests.into_iter().map(move |number| Ticket { session: open.id, number })
        };
        open.into_iter().flat_map(of_one).collect()
    }
}

impl OpenSession {
    pub(super) fn reply(&self, number: u64, reply: Reply) {
        (self.on_reply)(Ticket { session: self.id, number }, reply);
    }
}

impl Session {
    /// The number of this session. It is unique among the sessions of all fronts.
    pub fn id(&self) -> u64 {
        self.open.id
    }

    /// The peer of this session.
    pub fn peer(&self) -> Peer {
        self.open.peer
    }

    /// Sets the client's name, which may be empty. The client is charged by its name, or else by its process. Only the
    /// first call counts. A name that [`is_client_name`](super::is_client_name) does not accept counts as empty.
    pub fn introduce(&self, name: &str) {
        let asker = self.open.asker.get_or_init(|| Asker::new(name, self.open.peer));
        self.open.account.open(asker);
    }

    /// The same for a client that is known already, also one that has shown nothing but its address.
    pub fn introduce_as(&self, asker: &Asker) {
        let asker = self.open.asker.get_or_init(|| asker.clone());
        self.open.account.open(asker);
    }

    /// The account of the memory that is held for this client.
    pub fn account(&self) -> &Account {
        &self.open.account
    }

    /// Submits a job, which is accepted or refused at once. Unless it is detached, its report comes later, under this
    /// ticket.
    pub fn submit(&self, ticket: u64, submission: Submission) -> Reply {
        let Submission { job, detach, is_let_in } = submission;
        let has_file = job.has_file();
        let job = match self.open.asker.get() {
            Some(asker) => asker.asks(job, is_let_in),
            None => Asker::new("", self.open.peer).asks(job, is_let_in),
        };
        let submitted = match job.options.stream {
            true => self.open.submit_stream(ticket, job, detach),
            false => self.open.submit(ticket, job, detach),
        };
        match submitted {
            Ok(job) => Reply::Accepted { job: self.open.service.hub().borrow().name(job) },
            Err(error) if has_file && error.code == OutcomeCode::Unsupported => Reply::SendInput,
            Err(error) => Reply::Refusal(error),
        }
    }

    /// Takes what comes next in the stream of a request: a job that was submitted with `stream`. What is taken counts as
    /// delivered.
    pub fn next_part(&self, ticket: u64) -> StreamPart {
        self.open.next_part(ticket)
    }

    /// Waits for the end of a job: the report comes later, or at once if the job has ended.
    pub fn wait(&self, ticket: u64, name: &str) -> Option<Reply> {
        self.open.wait(ticket, name)
    }

    /// Shows, deletes or retries a dead letter: a job that was given up because it killed its workers. A retry is a
    /// new job of this client.
    pub fn dead_letter(&self, action: DeadLetterAction, name: &str) -> Reply {
        let hub = self.open.service.hub();
        let letter = {
            let hub = hub.borrow();
            hub.find(name).and_then(|job| Some((job, hub.dead_letter(job)?)))
        };
        let Some((job, letter)) = letter else {
            return Reply::refusal(OutcomeCode::NoSuchJob, hub.borrow().why_no_letter(name));
        };
        match action {
            DeadLetterAction::Show => Reply::document(Document::Letter(letter)),
            DeadLetterAction::Drop => {
                hub.borrow_mut().drop_dead_letter(job);
                Reply::document(Document::Dropped { job: name.to_owned(), dropped: true })
            }
            DeadLetterAction::Retry => {
                let retried = hub.borrow_mut().retry_dead_letter(job, (self.name(), self.open.peer));
                match retried {
                    Some(Ok(accepted)) => {
                        let job = hub.borrow().name(accepted.job);
                        Reply::document(Document::Retried { dead: name.to_owned(), job })
                    }
                    Some(Err(refused)) => Reply::Refusal(refused.error),
                    None => Reply::refusal(OutcomeCode::NoSuchJob, hub.borrow().why_unknown(name)),
                }
            }
        }
    }

    /// Graceful shutdown: accepts no more jobs, finishes the accepted ones, and ends the supervisor. Jobs that have
    /// not ended after `limit` are cancelled. The answer, [`Document::Ended`], comes when all jobs have ended.
    pub fn drain(&self, ticket: u64, limit: Option<Duration>) -> Option<Reply> {
        let refused = self.add_pending_shutdown(ticket);
        if refused.is_none() {
            self.open.service.drain_for(limit, EndRequester::Caller);
        }
        refused
    }

    /// Cancels all jobs and ends the supervisor. The answer comes when all jobs have ended.
    pub fn stop(&self, ticket: u64) -> Option<Reply> {
        let refused = self.add_pending_shutdown(ticket);
        if refused.is_none() {
            self.open.service.stop();
        }
        refused
    }

    /// Reads the configuration again and replaces the workers. The answer, [`Document::Reloaded`] or a refusal, comes
    /// when that is done.
    pub fn reload(&self, ticket: u64) -> Option<Reply> {
        let refused = self.add_pending_answer(ticket);
        if refused.is_none() {
            self.open.service.reload_for(Some(Ticket { session: self.id(), number: ticket }));
        }
        refused
    }

    /// Counts a job as refused because there is no room for its body of `length` bytes, and returns the answer.
    pub fn refuse_input(&self, length: usize) -> Reply {
        self.open.service.refuse_input(&self.open.account, length)
    }

    /// Whether an answer will come later: to a wait for a job, or to a drain, a stop or a reload.
    pub fn is_waiting(&self) -> bool {
        !self.open.waits.borrow().is_empty() || self.awaits_control_answer()
    }

    /// Whether the answer to a drain, a stop or a reload is still to come.
    pub fn awaits_control_answer(&self) -> bool {
        !self.open.pending_answers.borrow().all.is_empty()
    }

    fn name(&self) -> &str {
        self.open.asker.get().map_or("", Asker::name)
    }

    /// Notes that this request will be answered later. Returns a refusal if too many requests of this session are
    /// waiting already.
    fn add_pending_answer(&self, ticket: u64) -> Option<Reply> {
        let mut pending_answers = self.open.pending_answers.borrow_mut();
        if pending_answers.all.len() >= LATE_ANSWERS_MAX {
            let message = format!("this client waits for {LATE_ANSWERS_MAX} answers, which is the limit");
            return Some(Reply::refusal(OutcomeCode::Overloaded, message));
        }
        pending_answers.all.insert(ticket);
        None
    }

    fn add_pending_shutdown(&self, ticket: u64) -> Option<Reply> {
        let refused = self.add_pending_answer(ticket);
        if refused.is_none() {
            self.open.pending_answers.borrow_mut().shutdown_requests.insert(ticket);
        }
        refused
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let service = &self.open.service;
        service.0.sessions.borrow_mut().open.remove(&self.open.id);
        service.leave_all(self.open.id, self.open.waits.take());
    }
}
