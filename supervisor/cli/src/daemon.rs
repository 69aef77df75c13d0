//! Runs the jobs of a batch in the supervisor at the socket: many jobs in flight over one connection, on the event
//! loop.
//!
//! ```text
//!   open --- submit: queued, written when the socket takes it --- Finished, Rejected: the job's `done` is called
//!     |
//!     |--- connection lost ---> lost: `done` gets `indeterminate` for jobs in flight, `unavailable` for later ones
//!     |
//!     `--- shut_down ---> closing: jobs in flight are cancelled --- every job is answered ---> closed
//!                                     `--- no answer in ANSWER_TIMEOUT: `done` gets `indeterminate` ---^
//! ```

use super::batch_runner::{JobDone, Target, WhenLost};
use super::client::connect;
use super::failure::Failure;
use super::input::{Content, Payload};
use super::render::{refused, rejected};
use crate::limits::{ANSWER_TIMEOUT, FILES_IN_FLIGHT_MAX};
use bytes::Bytes;
use offload_event_loop::{Context, HandleId, Interest, LoopHandle, TimerId};
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use offload_supervisor::client::{Answer, Client, ClientError};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Instant;

/// See the module's documentation.
pub(crate) struct SupervisorTarget {
    handle: LoopHandle,
    task: String,
    options: SubmitOptions,
    client: RefCell<Client>,
    watcher: Cell<Option<HandleId>>,
    /// The jobs in flight, by ticket.
    awaited: RefCell<BTreeMap<u64, JobDone>>,
    /// The accepted ones among them, with their ids.
    accepted: RefCell<BTreeMap<u64, String>>,
    /// Those of them whose inputs are files, which are open here as long.
    files: RefCell<BTreeSet<u64>>,
    lost: RefCell<Option<String>>,
    when_lost: RefCell<Option<WhenLost>>,
    closing: RefCell<Option<Closing>>,
    this: Weak<SupervisorTarget>,
}

/// The jobs in flight are being cancelled.
struct Closing {
    done: Box<dyn FnOnce(&mut Context)>,
    /// When it ends without answers.
    timer: TimerId,
}

impl SupervisorTarget {
    /// Connects and watches the connection. It blocks until the greeting has arrived: the loop does not run yet.
    pub(crate) fn connect(
        socket: &Path,
        name: &str,
        handle: &LoopHandle,
        task: &str,
        options: SubmitOptions,
    ) -> Result<Rc<SupervisorTarget>, Failure> {
        let client = connect(socket, name)?;
        let no_watch =
            |error: &dyn std::fmt::Display| Failure::internal("cannot watch the connection", error);
        let source = client.as_fd().try_clone_to_owned().map_err(|error| no_watch(&error))?;
        let daemon = Rc::new_cyclic(|this| SupervisorTarget {
            handle: handle.clone(),
            task: task.to_owned(),
            options,
            client: RefCell::new(client),
            watcher: Cell::new(None),
            awaited: RefCell::new(BTreeMap::new()),
            accepted: RefCell::new(BTreeMap::new()),
            files: RefCell::new(BTreeSet::new()),
            lost: RefCell::new(None),
            when_lost: RefCell::new(None),
            closing: RefCell::new(None),
            this: this.clone(),
        });
        let watching = Rc::downgrade(&daemon);
        let on_ready = move |cx: &mut Context, _| {
            if let Some(daemon) = watching.upgrade() {
                daemon.on_ready(cx);
            }
        };
        let watcher = handle.watch(source, Interest::READ, on_ready).map_err(|error| no_watch(&error))?;
        daemon.watcher.set(Some(watcher));
        Ok(daemon)
    }

    /// The longest payload that the supervisor takes, in bytes.
    pub(crate) fn payload_max(&self) -> u64 {
        self.client.borrow().payload_max() as u64
    }

    /// Why the supervisor is lost, if so.
    pub(crate) fn is_lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    fn on_ready(&self, cx: &mut Context) {
        loop {
            let answer = self.client.borrow_mut().receive_until(Instant::now());
            match answer {
                Ok(Some(answer)) => self.on_answer(answer, cx),
                Ok(None) => break,
                Err(error) => return self.on_lost(&error, cx),
            }
        }
        self.set_interest();
    }

    fn on_answer(&self, (message, output): Answer, cx: &mut Context) {
        let (ticket, finished) = match message {
            ToClient::Finished { ticket, report } => (ticket, Finished { report, output }),
            ToClient::Rejected { ticket, code, message, retry_after_ms } => {
                (ticket, rejected(&self.task, code, message.into_owned(), retry_after_ms))
            }
            ToClient::Accepted { ticket, job } => {
                if self.closing.borrow().is_some() {
                    self.cancel(&job);
                }
                self.accepted.borrow_mut().insert(ticket, job.into_owned());
                return;
            }
            // The batch submits it again, with the bytes.
            ToClient::SendInput { ticket } => {
                let message = "the supervisor cannot use the file now".to_owned();
                (ticket, refused(&self.task, OutcomeCode::Unsupported, message))
            }
            // A batch asks for no streams.
            ToClient::Part { .. } | ToClient::Answer { .. } => return,
            ToClient::Welcome { .. } | ToClient::Goodbye { .. } => return,
        };
        self.accepted.borrow_mut().remove(&ticket);
        self.files.borrow_mut().remove(&ticket);
        let done = self.awaited.borrow_mut().remove(&ticket);
        if let Some(done) = done {
            done(finished, cx);
            self.close_if_answered(cx);
        }
    }

    fn on_lost(&self, error: &ClientError, cx: &mut Context) {
        self.unwatch();
        let reason = error.to_string();
        let message = format!("{reason}; the job may or may not have run");
        self.lost.replace(Some(reason));
        let when_lost = self.when_lost.take();
        when_lost.into_iter().for_each(|when_lost| when_lost(cx));
        self.answer_all(&message, cx);
    }

    /// Nobody will know how the jobs in flight end.
    fn answer_all(&self, message: &str, cx: &mut Context) {
        for done in self.awaited.take().into_values() {
            done(refused(&self.task, OutcomeCode::Indeterminate, message.to_owned()), cx);
        }
        self.close_if_answered(cx);
    }

    fn cancel(&self, job: &str) {
        let mut client = self.client.borrow_mut();
        let ticket = client.new_ticket();
        // If the connection is lost, the supervisor cannot be told; that is noticed when it is read.
        let _ = client.queue(&ToSupervisor::Cancel { ticket, job }, &Bytes::new());
    }

    fn close_if_answered(&self, cx: &mut Context) {
        if !self.awaited.borrow().is_empty() {
            return;
        }
        let closing = self.closing.take();
        if let Some(Closing { done, timer }) = closing {
            self.handle.clear(timer);
            self.unwatch();
            done(cx);
        }
    }

    fn on_silence(&self, cx: &mut Context) {
        let seconds = ANSWER_TIMEOUT.as_secs();
        let message = format!(
            "the supervisor did not say in {seconds} s whether the job is cancelled; it may or may not have run"
        );
        self.answer_all(&message, cx);
    }

    fn try_submit(&self, payload: &Payload, done: JobDone) -> Result<(), (OutcomeCode, String, JobDone)> {
        if let Some(reason) = &*self.lost.borrow() {
            return Err((OutcomeCode::Unavailable, reason.clone(), done));
        }
        let mut client = self.client.borrow_mut();
        let ticket = client.new_ticket();
        let (task, media_type, options) =
            (self.task.as_str(), payload.media_type.clone(), self.options.clone());
        let submit = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
        let queued = match &payload.content {
            Content::Bytes(bytes) => client.queue(&submit, bytes),
            Content::File(file) => {
                self.files.borrow_mut().insert(ticket);
                self.look_for_answers();
                client.queue_with_file(&submit, (&file.file, file.bytes))
            }
        };
        if queued.is_err() {
            self.files.borrow_mut().remove(&ticket);
        }
        match queued {
            Ok(()) => {
                self.awaited.borrow_mut().insert(ticket, done);
                Ok(())
            }
            Err(error @ ClientError::TooLarge { .. }) => {
                Err((OutcomeCode::TooLarge, error.to_string(), done))
            }
            Err(error @ ClientError::Encode(_)) => Err((OutcomeCode::BadRequest, error.to_string(), done)),
            Err(error) => Err((OutcomeCode::Unavailable, error.to_string(), done)),
        }
    }

    /// Sending a file may read answers, which then are not in the socket any more.
    fn look_for_answers(&self) {
        let this = self.this.clone();
        self.handle.set_immediate(move |cx| {
            this.upgrade().into_iter().for_each(|daemon| daemon.on_ready(cx));
        });
    }

    /// The next poll phase does the writing, so that many small jobs are sent in one write.
    fn set_interest(&self) {
        let write = if self.client.borrow().has_unsent() { Interest::WRITE } else { Interest::NONE };
        if let Some(watcher) = self.watcher.get() {
            // This can fail only for a closed watcher, and closed watchers are not kept.
            let _ = self.handle.set_interest(watcher, Interest::READ | write);
        }
    }

    fn unwatch(&self) {
        if let Some(watcher) = self.watcher.take() {
            let _ = self.handle.close(watcher, |_| {});
        }
    }
}

impl Target for SupervisorTarget {
    fn submit(&self, payload: Payload, done: JobDone) {
        match self.try_submit(&payload, done) {
            Ok(()) => self.set_interest(),
            Err((code, message, done)) => {
                let finished = refused(&self.task, code, message);
                self.handle.set_immediate(move |cx| done(finished, cx));
            }
        }
    }

    /// Each file stays open until its job is answered, and there are only so many descriptors.
    fn takes_files(&self) -> bool {
        let has_place = self.files.borrow().len() < FILES_IN_FLIGHT_MAX;
        has_place && self.client.borrow().takes_files() && self.options.idempotency.is_none()
    }

    fn when_lost(&self, told: WhenLost) {
        self.when_lost.replace(Some(told));
    }

    /// When a client disconnects, the supervisor itself cancels only the queued jobs. So all are cancelled here.
    fn shut_down(&self, done: Box<dyn FnOnce(&mut Context)>) {
        if self.awaited.borrow().is_empty() {
            self.unwatch();
            self.handle.set_immediate(done);
            return;
        }
        let jobs: Vec<String> = self.accepted.borrow().values().cloned().collect();
        jobs.iter().for_each(|job| self.cancel(job));
        let this = self.this.clone();
        let timer = self.handle.set_timeout(ANSWER_TIMEOUT, move |cx| {
            this.upgrade().into_iter().for_each(|daemon| daemon.on_silence(cx));
        });
        self.closing.replace(Some(Closing { done, timer }));
        self.set_interest();
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_supervisor::{FakeSupervisor, PAYLOAD_MAX, finished_ok};
    use super::*;
    use bytes::Bytes;
    use offload_event_loop::EventLoop;
    use offload_protocol::nouns::MediaType;
    use offload_protocol::outbox::Outbox;
    use std::ops::ControlFlow;

    type Ended = Rc<RefCell<Vec<(&'static str, OutcomeCode, Bytes)>>>;

    fn connect_to(supervisor: &FakeSupervisor, event_loop: &EventLoop) -> Rc<SupervisorTarget> {
        let options = SubmitOptions::default();
        SupervisorTarget::connect(&supervisor.socket(), "test", &event_loop.handle(), "echo", options)
            .unwrap()
    }

    /// Submits; when as many have ended as `last` says, the daemon is shut down, so that the loop ends.
    fn submit(daemon: &Rc<SupervisorTarget>, input: &'static str, ended: &Ended, last: usize) {
        let (ended, closing) = (Rc::clone(ended), Rc::clone(daemon));
        let content = Content::Bytes(Bytes::from_static(input.as_bytes()));
        let payload = Payload { content, media_type: MediaType::TEXT };
        let done = move |finished: Finished, _: &mut Context| {
            ended.borrow_mut().push((input, finished.report.outcome, finished.output));
            if ended.borrow().len() == last {
                closing.shut_down(Box::new(|cx| cx.stop()));
            }
        };
        daemon.submit(payload, Box::new(done));
    }

    #[test]
    fn answers_in_another_order_reach_the_jobs_that_they_answer() {
        let mut tickets = Vec::new();
        let supervisor = FakeSupervisor::start(move |message, outbox| {
            if let ToSupervisor::Submit { ticket, .. } = message {
                tickets.push(*ticket);
            }
            if tickets.len() == 3 {
                for ticket in tickets.drain(..).rev() {
                    outbox.push(&finished_ok(ticket), &Bytes::from(ticket.to_string())).unwrap();
                }
            }
            ControlFlow::Continue(())
        });
        let mut event_loop = EventLoop::new().unwrap();
        let daemon = connect_to(&supervisor, &event_loop);
        let ended = Ended::default();
        for input in ["1", "2", "3"] {
            submit(&daemon, input, &ended, 3);
        }
        event_loop.run().unwrap();
        let expected =
            ["3", "2", "1"].map(|input| (input, OutcomeCode::Ok, Bytes::from_static(input.as_bytes())));
        assert_eq!(*ended.borrow(), expected);
    }

    #[test]
    fn when_the_supervisor_is_lost_every_job_is_answered() {
        let supervisor = FakeSupervisor::start(|_, _| ControlFlow::Break(()));
        let mut event_loop = EventLoop::new().unwrap();
        let daemon = connect_to(&supervisor, &event_loop);
        let ended = Ended::default();
        submit(&daemon, "in flight", &ended, 2);
        assert!(daemon.is_lost().is_none());
        let (late, its_end) = (Rc::clone(&daemon), Rc::clone(&ended));
        let look = event_loop.set_interval(std::time::Duration::from_millis(1), move |_| {
            if late.is_lost().is_some() && its_end.borrow().len() == 1 {
                submit(&late, "too late", &its_end, 2);
            }
        });
        event_loop.unref(look);
        let hold = event_loop.hold();
        event_loop.run().unwrap();
        drop(hold);
        let outcomes: Vec<_> = ended.borrow().iter().map(|(input, outcome, _)| (*input, *outcome)).collect();
        assert_eq!(
            outcomes,
            [("in flight", OutcomeCode::Indeterminate), ("too late", OutcomeCode::Unavailable)]
        );
    }

    /// Two jobs, and the target is shut down when both are accepted. Returns how they ended, in that order.
    fn shut_down_with(
        on_cancel: impl Fn(u64, &mut Outbox) -> ControlFlow<()> + Send + 'static,
    ) -> Vec<OutcomeCode> {
        let mut tickets = Vec::new();
        let supervisor = FakeSupervisor::start(move |message, outbox| match message {
            ToSupervisor::Submit { ticket, .. } => {
                let accepted = ToClient::Accepted { ticket: *ticket, job: ticket.to_string().into() };
                outbox.push(&accepted, &Bytes::new()).unwrap();
                tickets.push(*ticket);
                ControlFlow::Continue(())
            }
            ToSupervisor::Cancel { job, .. } => {
                assert!(tickets.contains(&job.parse().unwrap()));
                on_cancel(job.parse().unwrap(), outbox)
            }
            _ => ControlFlow::Continue(()),
        });
        let mut event_loop = EventLoop::new().unwrap();
        let daemon = connect_to(&supervisor, &event_loop);
        let ended = Ended::default();
        for input in ["1", "2"] {
            submit(&daemon, input, &ended, usize::MAX);
        }
        let closing = Rc::clone(&daemon);
        let look = event_loop.set_interval(std::time::Duration::from_millis(1), move |_| {
            if closing.accepted.borrow().len() == 2 && closing.closing.borrow().is_none() {
                closing.shut_down(Box::new(|cx| cx.stop()));
            }
        });
        event_loop.unref(look);
        event_loop.run().unwrap();
        ended.borrow().iter().map(|(_, outcome, _)| *outcome).collect()
    }

    #[test]
    fn at_a_shut_down_jobs_are_cancelled_and_their_answers_are_waited_for() {
        let outcomes = shut_down_with(|ticket, outbox| {
            let cancelled = ToClient::Finished {
                ticket,
                report: refused("echo", OutcomeCode::Cancelled, String::new()).report,
            };
            outbox.push(&cancelled, &Bytes::new()).unwrap();
            ControlFlow::Continue(())
        });
        assert_eq!(outcomes, [OutcomeCode::Cancelled; 2]);
    }

    #[test]
    fn jobs_of_which_nothing_is_heard_at_a_shut_down_are_indeterminate() {
        assert_eq!(shut_down_with(|_, _| ControlFlow::Break(())), [OutcomeCode::Indeterminate; 2]);
    }

    #[test]
    fn an_input_over_the_limit_is_not_even_sent() {
        let supervisor = FakeSupervisor::start(|_, _| ControlFlow::Break(()));
        let mut event_loop = EventLoop::new().unwrap();
        let daemon = connect_to(&supervisor, &event_loop);
        assert_eq!(daemon.payload_max(), PAYLOAD_MAX);
        let ended = Ended::default();
        submit(&daemon, "x".repeat(1001).leak(), &ended, 1);
        assert!(ended.borrow().is_empty(), "the answer must not come from within the call");
        event_loop.run().unwrap();
        assert_eq!(ended.borrow()[0].1, OutcomeCode::TooLarge);
    }
}
