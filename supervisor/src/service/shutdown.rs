//! The end of the supervisor: drain, stop, and the last answers. [`Stage`] says which step comes next.
//!
//! ```text
//!   drain, stop, signal ---> hub ends jobs and workers ---> closing: clients that asked for the
//!       |                      ^                               |   end are answered, fronts are told
//!       '--- in_flight.rs -----'                               |
//!              the loop stops <--- every front has written its last answers, or the time to drain is over and
//!                                  LAST_ANSWERS_TIMEOUT, too
//! ```
//!
//! A drain waits for requests that were let in before it, and lets their jobs in.

use super::reply::{Document, Reply};
pub(super) use super::stage::EndRequester;
use super::{Inner, Service, Stage};
use crate::limits::LAST_ANSWERS_TIMEOUT;
use offload_core::outcome::human;
use offload_event_loop::{Hold, LoopHandle, OnGone};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// All jobs were finished.
    Done,
    /// The server was told to end at once; jobs were cancelled.
    Stopped {
        /// How many jobs were cancelled.
        cancelled: u64,
    },
    /// The server drained, but the time for that was up before all jobs had ended.
    CutShort {
        /// How many jobs were cancelled.
        cancelled: u64,
    },
    /// Another supervisor owns the socket now.
    Replaced {
        /// The reason, for a user.
        reason: String,
    },
    /// The first worker of a program could not be started, and the server was configured to end in that case.
    Unavailable {
        /// The reason, for a user.
        reason: String,
    },
}

/// How far the supervisor is on the way to its end, and which fronts are to be told.
pub(super) struct Shutdown {
    stage: Stage,
    /// Why the supervisor ends, if nobody asked for the end.
    because: Option<ServerEnd>,
    fronts: Vec<Box<dyn FnOnce(LastAnswers)>>,
    /// When the time to drain is up, if it is limited.
    drained_by: Option<Instant>,
    /// Keeps the event loop running until it is dropped.
    hold: Option<Hold>,
}

/// A front with last answers to write holds this value until they are written. The event loop stops when no front
/// holds one any more, or when the time to drain is over, but not before a second has passed. After a stop it is a second; after a drain
/// without a limit it is the configured time to drain.
#[must_use = "dropping it says that the last answers are written"]
pub struct LastAnswers(#[expect(dead_code, reason = "it is there to be dropped")] Rc<LoopStop>);

struct LoopStop(Weak<Inner>);

impl Drop for LoopStop {
    fn drop(&mut self) {
        Service::with(&self.0, Service::stop_loop);
    }
}

impl Shutdown {
    pub(super) fn new(hold: Hold) -> Shutdown {
        Shutdown {
            stage: Stage::Serving,
            because: None,
            fronts: Vec::new(),
            drained_by: None,
            hold: Some(hold),
        }
    }
}

impl Service {
    /// Calls `front` once, when jobs and workers are gone: after the replies to those who asked for the end, and
    /// before the event loop stops. The front then accepts no more clients, writes its unsent answers, and drops the
    /// [`LastAnswers`]. It is dropped with the loop.
    pub fn on_end(&self, front: impl FnOnce(LastAnswers) + 'static) {
        self.0.shutdown.borrow_mut().fronts.push(Box::new(front));
        if self.0.handle.is_gone() {
            self.drop_fronts();
        }
    }

    /// After the loop nobody tells the fronts anything, and they may own the service, which would live for ever.
    pub(super) fn drop_fronts_with_loop(me: &Weak<Inner>, handle: &LoopHandle) -> OnGone {
        let me = Weak::clone(me);
        handle.on_gone(move || Service::with(&me, Service::drop_fronts))
    }

    /// What is dropped may come back to the service, so that is not borrowed then.
    fn drop_fronts(&self) {
        let fronts = std::mem::take(&mut self.0.shutdown.borrow_mut().fronts);
        drop(fronts);
    }

    /// How far the supervisor is on the way to its end.
    pub fn stage(&self) -> Stage {
        self.0.shutdown.borrow().stage
    }

    /// Graceful shutdown: accepts no more jobs, except those of [requests in flight](Service::begin_request), finishes them and
    /// the accepted ones, then ends. Jobs that have not ended after `limit` are cancelled. If this is called several times, the earliest
    /// end counts.
    pub fn drain(&self, limit: Option<Duration>) {
        self.drain_for(limit, EndRequester::Caller);
    }

    /// Immediate shutdown: cancels all jobs, then ends.
    pub fn stop(&self) {
        let is_news = self.0.shutdown.borrow_mut().stage.stop();
        if is_news {
            let me = self.weak();
            let then = Box::new(move |_: &mut _| Service::with(&me, Service::begin_closing));
            return self.hub().borrow_mut().stop(then);
        }
        self.answer_late_shutdown_requests();
    }

    /// Handles a signal such as SIGTERM: the first one starts a drain within the configured time, the second one a
    /// stop.
    pub fn on_ending_signal(&self) {
        if self.stage().was_signalled() {
            self.log().warn(format_args!("second signal: ending now"));
            return self.stop();
        }
        let limit = self.drain_timeout();
        let most = human(limit);
        self.log().tell(format_args!("draining for at most {most}; another signal ends at once"));
        self.drain_for(Some(limit), EndRequester::Signal);
    }

    /// Drains within the configured time for a reason that no client and no signal gave, such as the loss of the front's
    /// socket. [`Service::end`] returns that reason.
    pub fn drain_because(&self, end: ServerEnd) {
        self.0.shutdown.borrow_mut().because = Some(end);
        self.drain(Some(self.drain_timeout()));
    }

    /// Stops the supervisor if the first worker of a program cannot be started. To be called at the start.
    pub fn stop_if_no_worker_starts(&self) {
        let me = self.weak();
        self.hub().borrow_mut().when_no_worker_starts(Box::new(move |reason, _| {
            Service::with(&me, |service| {
                service.log().error(format_args!("{reason}; ending, because of --fail-fast"));
                service.0.shutdown.borrow_mut().because = Some(ServerEnd::Unavailable { reason });
                service.stop();
            });
        }));
    }

    /// How the supervisor ended, if it has ended.
    pub fn end(&self) -> ServerEnd {
        let cancelled = self.hub().borrow().cut_short();
        let shutdown = self.0.shutdown.borrow();
        match &shutdown.because {
            Some(end) => end.clone(),
            None if cancelled == 0 => ServerEnd::Done,
            None if shutdown.stage.was_stopped() => ServerEnd::Stopped { cancelled },
            None => ServerEnd::CutShort { cancelled },
        }
    }

    pub(super) fn drain_for(&self, limit: Option<Duration>, requester: EndRequester) {
        let is_news = {
            let mut shutdown = self.0.shutdown.borrow_mut();
            let ends_at = limit.and_then(|limit| Instant::now().checked_add(limit));
            shutdown.drained_by = shutdown.drained_by.into_iter().chain(ends_at).min();
            shutdown.stage.drain(requester)
        };
        if is_news {
            if self.0.requests.end_begins() {
                self.hub().borrow_mut().set_requests_in_flight(true);
            }
            let me = self.weak();
            let then = Box::new(move |_: &mut _| Service::with(&me, Service::begin_closing));
            return self.hub().borrow_mut().drain(limit, then);
        }
        limit.into_iter().for_each(|limit| self.hub().borrow_mut().limit_drain(limit));
        self.answer_late_shutdown_requests();
    }

    /// The last request that was begun before the drain is answered.
    pub(super) fn requests_are_answered(&self) {
        self.hub().borrow_mut().set_requests_in_flight(false);
    }

    fn drain_timeout(&self) -> Duration {
        self.hub().borrow().config().drain_timeout
    }

    /// Answers those who ask for the end when jobs and workers are gone already. The event loop does it soon, and not
    /// this call, because the calling front may be borrowed.
    fn answer_late_shutdown_requests(&self) {
        if self.stage().is_closing() {
            let me = self.weak();
            self.0.handle.set_pending(move |_| Service::with(&me, Service::begin_closing));
        }
    }

    /// Jobs and workers are gone. May be called more than once.
    fn begin_closing(&self) {
        self.answer_shutdown_requests();
        let is_news = self.0.shutdown.borrow_mut().stage.close();
        if !is_news {
            return;
        }
        self.log_the_end();
        let me = self.weak();
        self.0
            .handle
            .set_timeout(self.time_for_last_answers(), move |_| Service::with(&me, Service::stop_loop));
        let loop_stop = Rc::new(LoopStop(self.weak()));
        let fronts = std::mem::take(&mut self.0.shutdown.borrow_mut().fronts);
        fronts.into_iter().for_each(|front| front(LastAnswers(Rc::clone(&loop_stop))));
    }

    fn time_for_last_answers(&self) -> Duration {
        let shutdown = self.0.shutdown.borrow();
        let left = match shutdown.drained_by {
            _ if shutdown.stage.was_stopped() => Duration::ZERO,
            Some(by) => by.saturating_duration_since(Instant::now()),
            None => self.drain_timeout(),
        };
        left.max(LAST_ANSWERS_TIMEOUT)
    }

    fn answer_shutdown_requests(&self) {
        let (cancelled, uncollected) = {
            let hub = self.hub().borrow();
            (hub.cut_short(), hub.uncollected())
        };
        for ticket in self.take_shutdown_tickets() {
            let ended = Document::Ended { state: "stopped", cancelled, uncollected };
            self.answer_later(ticket, Reply::document(ended));
        }
    }

    fn log_the_end(&self) {
        let (hub, log) = (self.hub().borrow(), self.log());
        match hub.uncollected() {
            0 => {}
            kept => log.warn(format_args!("kept results lost that nobody had collected: {kept}")),
        }
        match self.0.requests.under_way() {
            0 => {}
            cut => log.warn(format_args!("requests that were not answered in time: {cut}")),
        }
        match (self.stage().was_stopped(), hub.cut_short()) {
            (_, 0) => log.info(format_args!("ended: no job was cancelled")),
            (true, jobs) => {
                log.warn(format_args!("ended: jobs cancelled because it was to end at once: {jobs}"));
            }
            (false, jobs) => {
                let why = "jobs cancelled because they were not done in time";
                log.error(format_args!("ended: {why}: {jobs}"));
            }
        }
    }

    fn stop_loop(&self) {
        let hold = self.0.shutdown.borrow_mut().hold.take();
        if hold.is_some() {
            self.0.handle.stop();
        }
    }
}
