//! Runs the jobs of a batch in the supervisor at the socket: many jobs in flight over one connection, on the event
//! loop.
//!
//! ```text
//!   open --- submit: queued, written when the socket takes it --- Finished, Rejected: the job's `done` is called
//!     |
//!     `--- connection lost ---> lost: `done` gets `indeterminate` for jobs in flight, `unavailable` for later ones
//! ```

use super::batch_runner::{JobDone, Target};
use super::client::connect;
use super::failure::Failure;
use super::input::Payload;
use super::render::{refused, rejected};
use bytes::Bytes;
use offload_event_loop::{Context, HandleId, Interest, LoopHandle};
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use offload_supervisor::client::{Answer, Client, ClientError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
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
    lost: RefCell<Option<String>>,
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
        let daemon = Rc::new(SupervisorTarget {
            handle: handle.clone(),
            task: task.to_owned(),
            options,
            client: RefCell::new(client),
            watcher: Cell::new(None),
            awaited: RefCell::new(BTreeMap::new()),
            accepted: RefCell::new(BTreeMap::new()),
            lost: RefCell::new(None),
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
                self.accepted.borrow_mut().insert(ticket, job.into_owned());
                return;
            }
            ToClient::Answer { .. } | ToClient::Welcome { .. } | ToClient::Goodbye { .. } => return,
        };
        self.accepted.borrow_mut().remove(&ticket);
        let done = self.awaited.borrow_mut().remove(&ticket);
        if let Some(done) = done {
            done(finished, cx);
        }
    }

    fn on_lost(&self, error: &ClientError, cx: &mut Context) {
        self.unwatch();
        let reason = error.to_string();
        let message = format!("{reason}; the job may or may not have run");
        self.lost.replace(Some(reason));
        for done in self.awaited.take().into_values() {
            done(refused(&self.task, OutcomeCode::Indeterminate, message.clone()), cx);
        }
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
        match client.queue(&submit, &payload.bytes) {
            Ok(()) => {
                self.awaited.borrow_mut().insert(ticket, done);
                Ok(())
            }
            Err(error @ ClientError::TooLarge { .. }) => {
                Err((OutcomeCode::TooLarge, error.to_string(), done))
            }
            Err(error) => Err((OutcomeCode::BadRequest, error.to_string(), done)),
        }
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

    fn is_lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// Cancels all jobs in flight. When a client disconnects, the supervisor itself cancels only the queued ones.
    fn shut_down(&self, done: Box<dyn FnOnce(&mut Context)>) {
        self.unwatch();
        let mut client = self.client.borrow_mut();
        for job in self.accepted.take().into_values() {
            let ticket = client.new_ticket();
            // If the connection is lost, the supervisor cannot be told.
            let _ = client.queue(&ToSupervisor::Cancel { ticket, job: &job }, &Bytes::new());
        }
        let _ = client.receive_until(Instant::now());
        drop(client);
        self.handle.set_immediate(done);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_supervisor::{FakeSupervisor, PAYLOAD_MAX, finished_ok};
    use super::*;
    use bytes::Bytes;
    use offload_event_loop::EventLoop;
    use offload_protocol::nouns::MediaType;
    use std::ops::ControlFlow;

    type VerbResult = Rc<RefCell<Vec<(&'static str, OutcomeCode, Bytes)>>>;

    fn connect_to(supervisor: &FakeSupervisor, event_loop: &EventLoop) -> Rc<SupervisorTarget> {
        let options = SubmitOptions::default();
        SupervisorTarget::connect(&supervisor.socket(), "test", &event_loop.handle(), "echo", options)
            .unwrap()
    }

    /// Submits; when as many have ended as `last` says, the daemon is shut down, so that the loop ends.
    fn submit(daemon: &Rc<SupervisorTarget>, input: &'static str, ended: &VerbResult, last: usize) {
        let (ended, closing) = (Rc::clone(ended), Rc::clone(daemon));
        let payload = Payload { bytes: Bytes::from_static(input.as_bytes()), media_type: MediaType::TEXT };
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
        let ended = VerbResult::default();
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
        let ended = VerbResult::default();
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

    #[test]
    fn an_input_over_the_limit_is_not_even_sent() {
        let supervisor = FakeSupervisor::start(|_, _| ControlFlow::Break(()));
        let mut event_loop = EventLoop::new().unwrap();
        let daemon = connect_to(&supervisor, &event_loop);
        assert_eq!(daemon.payload_max(), PAYLOAD_MAX);
        let ended = VerbResult::default();
        submit(&daemon, "x".repeat(1001).leak(), &ended, 1);
        assert!(ended.borrow().is_empty(), "the answer must not come from within the call");
        event_loop.run().unwrap();
        assert_eq!(ended.borrow()[0].1, OutcomeCode::TooLarge);
    }
}
