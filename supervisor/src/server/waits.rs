//! Who waits for which jobs. A connection is one listener of a job, however often it has asked for its end: each time
//! is a ticket, which is kept here, and the answer goes to all of them.
//!
//! ```text
//!   submit, not detached ---.
//!   wait -------------------+--> a ticket, and the connection listens ---- the job ends ----> Finished, to each ticket
//!                                               |
//!                                               '---- the connection is gone: it leaves all its jobs, some a turn
//! ```
//!
//! Whoever is gone waits for nothing, so nobody else is kept from waiting by those who were here before, and a job for
//! which nobody waits any more is known for that.

use super::Front;
use crate::hub::Listener;
use crate::job::Finished;
use crate::limits::{CONNECTIONS_MAX, CONTROL_CONNECTIONS, LISTENERS_MAX};
use crate::limits::{REPEATED_WAITS_MAX, WAITS_IN_ANY_CASE, WAITS_MAX};
use crate::service::{Found, Taken};
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::btree_map::IntoKeys;
use std::collections::{BTreeMap, VecDeque};

/// So many jobs are left by those who are gone in one turn of the loop: each may have to be cancelled.
const LEAVES_A_TURN: usize = 64;

const _: () = assert!(LISTENERS_MAX >= CONNECTIONS_MAX + CONTROL_CONNECTIONS, "each may wait for any job");

/// What one connection waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    tickets: BTreeMap<JobId, Vec<Ticket>>,
    /// How many of them count.
    counted: usize,
}

/// One time that it asked for the end of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    /// Whether it counts: there is one that does not for each job, that of whoever submitted it.
    pub(super) counts: bool,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    fn of(&self, job: JobId) -> usize {
        self.tickets.get(&job).map_or(0, Vec::len)
    }

    fn add(&mut self, job: JobId, ticket: Ticket) {
        self.tickets.entry(job).or_default().push(ticket);
        self.counted += usize::from(ticket.counts);
    }

    fn take(&mut self, job: JobId) -> Vec<Ticket> {
        let tickets = self.tickets.remove(&job).unwrap_or_default();
        self.counted -= tickets.iter().filter(|ticket| ticket.counts).count();
        tickets
    }
}

/// All of them together.
#[derive(Default)]
pub(super) struct AllWaits {
    counted: usize,
    /// Those who are gone and have jobs to leave.
    leaving: VecDeque<Leaving>,
}

struct Leaving {
    connection: u64,
    jobs: IntoKeys<JobId, Vec<Ticket>>,
    counted: usize,
}

impl Front {
    /// Tells this client how the job ended, whatever it may be.
    pub(super) fn listener_for(&self, id: u64) -> Listener {
        let me = self.me.clone();
        Listener::of_connection(id, move |finished, _held, _cx| {
            Front::with(&me, |front| front.tell_the_end(id, &finished));
        })
    }

    fn tell_the_end(&mut self, id: u64, finished: &Finished) {
        let Some(job) = self.hub.borrow().find(&finished.report.job) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        let tickets = client.waits.take(job);
        self.waits.counted -= tickets.iter().filter(|ticket| ticket.counts).count();
        let is_kept = self.hub.borrow().keeps_result_of(job);
        for ticket in tickets {
            match is_kept {
                true => self.deliver_to_collector(id, ticket.number, job, finished.clone()),
                false => self.deliver(id, ticket.number, finished.clone()),
            }
        }
    }

    pub(super) fn wait(&mut self, id: u64, ticket: u64, name: &str) {
        let job = match self.service.find(name) {
            Ok(Found::Live(job)) => job,
            Ok(Found::Ended(_)) => return self.reply(id, ticket, self.service.result(name)),
            Err(error) => return self.refuse(id, ticket, &error),
        };
        let listens = self.may_wait(id, job).and_then(|()| self.service.wait(job, self.listener_for(id)));
        match listens {
            Ok(()) => self.add_ticket(id, job, Ticket { number: ticket, counts: true }),
            Err(error) => self.refuse(id, ticket, &error),
        }
    }

    /// A job that this client submitted, under a key that was known or not, has been taken, and the client listens.
    ///
    /// # Errors
    /// It waits for too much: then it does not listen.
    pub(super) fn await_submitted(
        &mut self,
        id: u64,
        number: u64,
        Taken { job, is_known }: Taken,
    ) -> Result<(), ErrorDetail> {
        if is_known && let Err(error) = self.may_wait(id, job) {
            let listens = self.clients.get(&id).is_some_and(|client| client.waits.of(job) > 0);
            if !listens {
                self.service.leave(job, id);
            }
            return Err(error);
        }
        self.add_ticket(id, job, Ticket { number, counts: is_known });
        Ok(())
    }

    fn add_ticket(&mut self, id: u64, job: JobId, ticket: Ticket) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.waits.add(job, ticket);
            self.waits.counted += usize::from(ticket.counts);
        }
    }

    /// Whether the client may wait once more, for this job.
    fn may_wait(&self, id: u64, job: JobId) -> Result<(), ErrorDetail> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let overloaded = |message: &str| Err(ErrorDetail::new(OutcomeCode::Overloaded, message));
        if client.waits.of(job) >= REPEATED_WAITS_MAX {
            return overloaded(&format!("this client waits for this job {REPEATED_WAITS_MAX} times already"));
        }
        let own = client.waits.counted;
        let free = WAITS_MAX.saturating_sub(self.waits.counted);
        if own >= WAITS_IN_ANY_CASE.max(free) {
            return overloaded(&format!(
                "this client waits for {own} jobs, and {WAITS_MAX} is the limit for all together: one may have as \
                 many as are left free"
            ));
        }
        Ok(())
    }

    /// A client is gone: it waits for nothing any more.
    pub(super) fn leave_all(&mut self, connection: u64, waits: Waits) {
        if waits.is_empty() {
            return;
        }
        let (jobs, counted) = (waits.tickets.into_keys(), waits.counted);
        self.waits.leaving.push_back(Leaving { connection, jobs, counted });
        self.end_turn_later();
    }

    /// Takes some of those who are gone out of the jobs that they waited for.
    pub(super) fn let_them_leave(&mut self) {
        for _ in 0..LEAVES_A_TURN {
            let Some(leaving) = self.waits.leaving.front_mut() else { return };
            match leaving.jobs.next() {
                Some(job) => self.service.leave(job, leaving.connection),
                None => {
                    self.waits.counted -= leaving.counted;
                    self.waits.leaving.pop_front();
                }
            }
        }
        if !self.waits.leaving.is_empty() {
            self.end_turn_later();
        }
    }
}
