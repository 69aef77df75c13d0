//! Which sessions wait for which jobs. A session is one subscriber of a job, however often it waits for it. Each wait
//! is a ticket, which is kept here, and the report goes to all tickets.
//!
//! ```text
//!   submit, not detached ---.
//!   wait -------------------+--> a ticket, and the session listens ---- the job ends ----> a report for each ticket
//!   submit a stream --------'                                                              (a stream: after its parts)
//!                                               |
//!                                               '---- the session is dropped: it leaves all its jobs, some a turn
//! ```
//!
//! A client that is gone waits for nothing. So its waits no longer count against the limits, and a job is recognized
//! as abandoned when nobody waits for it any more.

use super::reply::{Collection, Reply};
use super::session::OpenSession;
use super::{Found, Service};
use crate::hub::{OutputCharge, Subscriber};
use crate::job::{Finished, Job};
use crate::limits::{LEAVES_PER_TURN, REPEATED_WAITS_MAX, SUBSCRIBERS_MAX, WAITS_IN_ANY_CASE, WAITS_MAX};
use bytes::Bytes;
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::btree_map::IntoIter;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// The waits of one session.
#[derive(Debug, Default)]
pub(super) struct Waits {
    tickets: BTreeMap<JobId, Vec<JobWait>>,
    /// The client under whose name they count, once there was one.
    client: Option<Arc<str>>,
}

/// One wait of a session for the end of a job.
#[derive(Clone, Copy, Debug)]
struct JobWait {
    ticket: u64,
    answer: WaitAnswer,
    /// Whether this wait counts against the limits. The wait of the client that submitted the job does not, because
    /// the job itself counts.
    counts: bool,
}

/// What a session is given at the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitAnswer {
    /// The report and the output.
    Whole,
    /// The report alone: the output is a stream, which another ticket reads.
    Outcome,
    /// The end of the stream that this ticket reads, behind its parts: see `streams.rs`.
    EndOfStream,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    fn of(&self, job: JobId) -> usize {
        self.tickets.get(&job).map_or(0, Vec::len)
    }

    fn add(&mut self, job: JobId, wait: JobWait) {
        self.tickets.entry(job).or_default().push(wait);
    }

    /// Takes out the waits for this job that are of this kind.
    fn take(&mut self, job: JobId, is_of_the_kind: impl Fn(&JobWait) -> bool) -> Vec<JobWait> {
        let tickets = self.tickets.remove(&job).unwrap_or_default();
        let (taken, others): (Vec<_>, Vec<_>) = tickets.into_iter().partition(is_of_the_kind);
        if !others.is_empty() {
            self.tickets.insert(job, others);
        }
        taken
    }
}

/// The waits of all sessions together.
#[derive(Default)]
pub(super) struct AllWaits {
    counted: usize,
    /// Of each client that has any: over HTTP each of its requests is a session.
    of_clients: BTreeMap<Arc<str>, WaitsOfClient>,
    /// Dropped sessions that have not left all their jobs.
    leaving: VecDeque<Leaving>,
    /// Whether the next jobs will be left at the end of this turn.
    will_leave: bool,
}

/// Those that count.
#[derive(Debug, Default)]
struct WaitsOfClient {
    in_all: usize,
    jobs: BTreeMap<JobId, usize>,
}

struct Leaving {
    session: u64,
    client: Arc<str>,
    jobs: IntoIter<JobId, Vec<JobWait>>,
}

fn counted(waits: &[JobWait]) -> usize {
    waits.iter().filter(|wait| wait.counts).count()
}

impl OpenSession {
    /// Submits a job of this session, and waits for it unless it is detached.
    pub(super) fn submit(
        self: &Rc<OpenSession>,
        ticket: u64,
        job: Job,
        detach: bool,
    ) -> Result<JobId, ErrorDetail> {
        let subscriber = (!detach).then(|| self.subscriber());
        let submitted = self.service.hub().borrow_mut().submit(job, detach, subscriber);
        let accepted = submitted.map_err(|refused| refused.error)?;
        if !detach {
            self.await_submitted(ticket, accepted.job, accepted.is_known)?;
        }
        Ok(accepted.job)
    }

    pub(super) fn wait(self: &Rc<OpenSession>, ticket: u64, name: &str) -> Option<Reply> {
        let job = match self.service.find(name) {
            Ok(Found::Live(job)) => job,
            Ok(Found::Ended(_)) => return Some(self.service.result(name, &self.account)),
            Err(error) => return Some(Reply::Refusal(error)),
        };
        let answer = match self.service.hub().borrow().is_streamed(job) {
            true => WaitAnswer::Outcome,
            false => WaitAnswer::Whole,
        };
        match self.may_wait(job).and_then(|()| self.subscribe(job)) {
            Ok(()) => {
                self.add(job, JobWait { ticket, answer, counts: true });
                None
            }
            Err(error) => Some(Reply::Refusal(error)),
        }
    }

    /// A subscriber that reports the end of a job to this session.
    fn subscriber(self: &Rc<OpenSession>) -> Subscriber {
        let me = Rc::downgrade(self);
        Subscriber::of_connection(self.id, move |finished, mut held, _cx| {
            if let Some(open) = me.upgrade() {
                open.report(finished, &mut held);
            }
        })
    }

    fn subscribe(self: &Rc<OpenSession>, job: JobId) -> Result<(), ErrorDetail> {
        let listens = self.service.hub().borrow_mut().subscribe(job, self.subscriber());
        listens.map_err(|_| ErrorDetail::new(OutcomeCode::Overloaded, "too many wait for this job"))
    }

    fn report(&self, finished: Box<Finished>, held: &mut OutputCharge) {
        let Some(job) = self.service.hub().borrow().find(&finished.report.job) else { return };
        let waits = self.waits.borrow_mut().take(job, |wait| wait.answer != WaitAnswer::EndOfStream);
        let client = self.waits.borrow().client.clone().unwrap_or_default();
        self.service.0.sessions.borrow_mut().waits.remove(&client, job, counted(&waits));
        let is_kept = self.service.hub().borrow().keeps_result_of(job);
        if held.is_none() {
            // It had ended before.
            *held = self.account.hold_output(job, finished.output.len());
        }
        let mut reply = |wait: &JobWait, mut finished: Box<Finished>| {
            let collection = is_kept.then(|| Collection::new(self.service.clone(), job));
            if wait.answer == WaitAnswer::Outcome {
                finished.output = Bytes::new();
            }
            self.reply(wait.ticket, Reply::report(finished, collection, held.share()));
        };
        // The last one takes it as it is; nearly always there is one.
        if let Some((last, others)) = waits.split_last() {
            others.iter().for_each(|wait| reply(wait, finished.clone()));
            reply(last, finished);
        }
    }

    /// A job that this session submitted is accepted (its key may have been known), and the session listens. If the
    /// session waits for too much already, it stops listening and the error is returned.
    fn await_submitted(&self, ticket: u64, job: JobId, is_known: bool) -> Result<(), ErrorDetail> {
        if is_known && let Err(error) = self.may_wait(job) {
            if self.waits.borrow().of(job) == 0 {
                let left = self.service.hub().borrow_mut().leave(job, self.id);
                drop(left);
            }
            return Err(error);
        }
        self.add(job, JobWait { ticket, answer: WaitAnswer::Whole, counts: is_known });
        Ok(())
    }

    /// The session reads the output of a job that it submitted, and leaves the job when it is dropped before the end.
    pub(super) fn await_stream(&self, ticket: u64, job: JobId) {
        self.add(job, JobWait { ticket, answer: WaitAnswer::EndOfStream, counts: false });
    }

    /// The session has been given the end of the stream.
    pub(super) fn end_stream(&self, job: JobId) {
        self.waits.borrow_mut().take(job, |wait| wait.answer == WaitAnswer::EndOfStream);
    }

    fn add(&self, job: JobId, wait: JobWait) {
        let mut waits = self.waits.borrow_mut();
        waits.add(job, wait);
        if wait.counts {
            let client = waits.client.get_or_insert_with(|| self.account.shared_name());
            self.service.0.sessions.borrow_mut().waits.add(client, job);
        }
    }

    /// Checks whether the session may wait once more, for this job.
    fn may_wait(&self, job: JobId) -> Result<(), ErrorDetail> {
        let overloaded = |message: &str| Err(ErrorDetail::new(OutcomeCode::Overloaded, message));
        if self.waits.borrow().of(job) >= REPEATED_WAITS_MAX {
            return overloaded(&format!(
                "this connection waits for this job {REPEATED_WAITS_MAX} times already"
            ));
        }
        let sessions = self.service.0.sessions.borrow();
        let (own, own_for_job) = sessions.waits.of(&self.account.shared_name(), job);
        let beyond = |own: usize, taken: usize, most: usize| {
            (own >= WAITS_IN_ANY_CASE.max(most.saturating_sub(taken))).then(|| {
                format!("{most} is the limit for all clients together: one may have as many as are left free")
            })
        };
        if let Some(limit) = beyond(own, sessions.waits.counted, WAITS_MAX) {
            return overloaded(&format!("this client waits {own} times for jobs, and {limit}"));
        }
        let subscribers = self.service.hub().borrow().subscribers(job);
        match beyond(own_for_job, subscribers, SUBSCRIBERS_MAX) {
            Some(limit) => {
                overloaded(&format!("this client waits {own_for_job} times for this job, and {limit}"))
            }
            None => Ok(()),
        }
    }
}

impl Service {
    /// A session is dropped: it leaves all jobs that it waited for, some in each turn.
    pub(super) fn leave_all(&self, session: u64, waits: Waits) {
        if waits.is_empty() {
            return;
        }
        let (client, jobs) = (waits.client.unwrap_or_default(), waits.tickets.into_iter());
        self.0.sessions.borrow_mut().waits.leaving.push_back(Leaving { session, client, jobs });
        self.leave_at_the_end_of_the_turn();
    }

    fn leave_at_the_end_of_the_turn(&self) {
        let mut sessions = self.0.sessions.borrow_mut();
        if !sessions.waits.leaving.is_empty() && !std::mem::replace(&mut sessions.waits.will_leave, true) {
            let me = self.weak();
            self.0.handle.set_immediate(move |_| Service::with(&me, Service::leave_some_jobs));
        }
    }

    /// Has dropped sessions leave some of their jobs.
    fn leave_some_jobs(&self) {
        self.0.sessions.borrow_mut().waits.will_leave = false;
        for _ in 0..LEAVES_PER_TURN {
            let Some(next) = self.0.sessions.borrow_mut().waits.next_to_leave() else { return };
            if let Some((job, session)) = next {
                let left = self.hub().borrow_mut().leave(job, session);
                drop(left);
            }
        }
        self.leave_at_the_end_of_the_turn();
    }
}

impl AllWaits {
    /// The next job to be left, and the session that leaves it. The inner value is None if a session has left its last
    /// job; the outer one if all sessions have.
    fn next_to_leave(&mut self) -> Option<Option<(JobId, u64)>> {
        let leaving = self.leaving.front_mut()?;
        let Some((job, waits)) = leaving.jobs.next() else {
            self.leaving.pop_front();
            return Some(None);
        };
        let (session, client) = (leaving.session, Arc::clone(&leaving.client));
        self.remove(&client, job, counted(&waits));
        Some(Some((job, session)))
    }

    /// How often this client waits for jobs, and for this one.
    fn of(&self, client: &Arc<str>, job: JobId) -> (usize, usize) {
        let its = self.of_clients.get(client);
        its.map_or((0, 0), |its| (its.in_all, its.jobs.get(&job).copied().unwrap_or(0)))
    }

    fn add(&mut self, client: &Arc<str>, job: JobId) {
        self.counted += 1;
        let its = self.of_clients.entry(Arc::clone(client)).or_default();
        its.in_all += 1;
        *its.jobs.entry(job).or_default() += 1;
    }

    fn remove(&mut self, client: &Arc<str>, job: JobId, count: usize) {
        let Some(its) = self.of_clients.get_mut(client).filter(|_| count > 0) else { return };
        self.counted -= count;
        its.in_all -= count;
        if let Some(for_job) = its.jobs.get_mut(&job) {
            *for_job -= count;
            if *for_job == 0 {
                its.jobs.remove(&job);
            }
        }
        if its.in_all == 0 {
            self.of_clients.remove(client);
        }
    }
}
