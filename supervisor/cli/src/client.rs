//! A connection to the supervisor, for verbs that send one request and wait for its answer. Ctrl-C ends the wait.

use super::failure::Failure;
use bytes::Bytes;
use offload_protocol::messages::{ToClient, ToSupervisor};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use offload_supervisor::Finished;
use offload_supervisor::client::{self, Answer, ClientError, ConnectError};
use offload_supervisor::front::owner_of;
use offload_supervisor::signals::EndingSignals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why nothing was received.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The time is up.
    Late,
    /// The number of a signal that ends the process, such as that of Ctrl-C.
    Interrupted(i32),
    /// The connection is gone, and why.
    Lost(String),
}

impl From<ClientError> for ReceiveError {
    fn from(error: ClientError) -> ReceiveError {
        ReceiveError::Lost(error.to_string())
    }
}

/// See the module's documentation.
pub(crate) struct RequestClient {
    client: client::Client,
    socket: PathBuf,
    /// None if signals end the process as usual.
    signals: Option<EndingSignals>,
}

/// Connects as the library does. On failure, the message says which command to try.
pub(crate) fn connect(socket: &Path, name: &str) -> Result<client::Client, Failure> {
    client::Client::connect(socket, name).map_err(|error| match error {
        ConnectError::NoSupervisor { socket } => Failure::NoSupervisor(match owner_of(&socket) {
            Some(pid) => format!(
                "the supervisor that owns {} (pid {pid}) does not listen there now: it is starting or ending; try again",
                socket.display()
            ),
            None => nobody_at(&socket),
        }),
        // There is a supervisor, so this is not the error for a missing one.
        busy @ ConnectError::Busy { .. } => Failure::outcome(OutcomeCode::Overloaded, busy.to_string()),
        ConnectError::Refused(ErrorDetail { code, .. }) => {
            let message = error.to_string();
            Failure::outcome(code, message)
        }
        ConnectError::Io { error, socket } if error.kind() == ErrorKind::PermissionDenied => {
            Failure::NoSupervisor(not_for_us(&socket, &error))
        }
        other @ ConnectError::Io { .. } => Failure::NoSupervisor(other.to_string()),
    })
}

/// What to do where no supervisor answers.
fn nobody_at(socket: &Path) -> String {
    let shown = socket.display();
    match std::fs::metadata(socket) {
        Ok(about) if !about.file_type().is_socket() => {
            let what = if about.is_dir() { "a directory" } else { "a file" };
            format!("{shown} is {what}, not the socket of a supervisor: name that with --socket PATH")
        }
        _ => format!("no supervisor at {shown}; start one with: offload serve --socket {shown}"),
    }
}

/// What to do where another user's supervisor may be.
fn not_for_us(socket: &Path, error: &std::io::Error) -> String {
    let near = [Some(socket), socket.parent()].into_iter().flatten();
    let owner = near.filter_map(|path| path.metadata().ok()).map(|about| about.uid()).next();
    let shown = socket.display();
    match owner {
        Some(owner) => format!(
            "cannot connect to {shown}: {error}; only user {owner} is served there: say `sudo -u '#{owner}' offload ...`, or start one of \
             your own with: offload serve"
        ),
        None => format!("cannot connect to {shown}: {error}; start one of your own with: offload serve"),
    }
}

impl RequestClient {
    /// Connects to the supervisor at `socket` as `name`, and exchanges greetings.
    pub(crate) fn connect(socket: &Path, name: &str) -> Result<RequestClient, Failure> {
        Ok(RequestClient { client: connect(socket, name)?, socket: socket.to_owned(), signals: None })
    }

    /// The longest payload that the supervisor takes, in bytes.
    pub(crate) fn payload_max(&self) -> u64 {
        self.client.payload_max() as u64
    }

    /// The process id of the supervisor as this process sees it; none if it is in another pid namespace, as in a container.
    #[cfg(feature = "top")]
    pub(crate) fn supervisor_process(&self) -> Option<u32> {
        self.client.supervisor_process()
    }

    /// Whether both ends have these capabilities.
    pub(crate) fn has(&self, capability: u64) -> bool {
        self.client.capabilities() & capability == capability
    }

    /// From now on, a signal such as Ctrl-C does not end the process; [`RequestClient::receive`] reports it.
    pub(crate) fn catch_signals(&mut self) -> Result<(), Failure> {
        let signals = EndingSignals::catch();
        self.signals = Some(signals.map_err(|error| Failure::internal("cannot catch signals", error))?);
        Ok(())
    }

    /// Queues a request, which is sent while [`RequestClient::receive`] waits.
    pub(crate) fn send(&mut self, request: &ToSupervisor<'_>, payload: &Bytes) -> Result<(), Failure> {
        self.client.queue(request, payload).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Whether the supervisor takes an input that is a file.
    pub(crate) fn takes_files(&self) -> bool {
        self.client.takes_files()
    }

    /// Queues a job, whose input is a file.
    pub(crate) fn send_with_file(
        &mut self,
        submit: &ToSupervisor<'_>,
        file: (&File, u64),
    ) -> Result<(), Failure> {
        self.client.queue_with_file(submit, file).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Waits for the next answer, at most `timeout`. With `None` there is no limit here, because the job has its own.
    pub(crate) fn receive(&mut self, timeout: Option<Duration>) -> Result<Answer, ReceiveError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(answer) = self.client.receive_until(Instant::now())? {
                return Ok(answer);
            }
            self.wait(deadline)?;
        }
    }

    /// Waits for so long without a request, and connects anew as `name`: a supervisor disconnects those who ask for nothing.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] if a signal has come, or that no supervisor can be reached.
    pub(crate) fn rest(&mut self, pause: Duration, name: &str) -> Result<(), Failure> {
        let end = Instant::now() + pause;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let mut watched: Vec<PollFd<'_>> =
                self.signals.iter().map(|signals| PollFd::new(signals, PollFlags::IN)).collect();
            match poll(&mut watched, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::internal("waiting failed", error)),
            }
            if let Some(signal) = self.interruption() {
                return Err(Failure::Interrupted(signal));
            }
        }
        self.client = connect(&self.socket, name)?;
        Ok(())
    }

    /// Sends a request and waits for the document that answers it.
    pub(crate) fn ask(
        &mut self,
        request: &ToSupervisor<'_>,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Failure> {
        match self.request(request, timeout)? {
            (ToClient::Answer { .. }, document) => Ok(document),
            (other, _) => Err(Failure::internal("unexpected answer", format_args!("{other:?}"))),
        }
    }

    /// Sends a request and waits for the finished job that answers it.
    pub(crate) fn ask_for_a_job(
        &mut self,
        request: &ToSupervisor<'_>,
        timeout: Option<Duration>,
    ) -> Result<Finished, Failure> {
        match self.request(request, timeout)? {
            (ToClient::Finished { report, .. }, output) => Ok(Finished { report, output }),
            (other, _) => Err(Failure::internal("unexpected answer", format_args!("{other:?}"))),
        }
    }

    /// Waits until the supervisor has closed the connection, which it does when it ends.
    pub(crate) fn wait_for_the_end(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while let Ok(_late_answer) = self.receive(Some(deadline.saturating_duration_since(Instant::now()))) {}
    }

    /// Each request has a ticket of its own, whatever its number was: the answer to one that was given up may still come.
    fn request(&mut self, request: &ToSupervisor<'_>, timeout: Option<Duration>) -> Result<Answer, Failure> {
        let ticket = self.client.new_ticket();
        self.send(&request.with_ticket(ticket), &Bytes::new())?;
        match self.answer_to(ticket, timeout) {
            Ok((ToClient::Rejected { code, message, retry_after_ms, .. }, _)) => {
                Err(Failure::Outcome { code, message: message.into_owned(), retry_after_ms })
            }
            Ok(answer) => Ok(answer),
            Err(ReceiveError::Interrupted(signal)) => Err(Failure::Interrupted(signal)),
            Err(ReceiveError::Late) => {
                let message = self.no_answer("it is busy, or stopped");
                Err(Failure::outcome(OutcomeCode::Overloaded, message))
            }
            Err(ReceiveError::Lost(reason)) => Err(Failure::NoSupervisor(self.no_answer(&reason))),
        }
    }

    fn answer_to(&mut self, ticket: u64, timeout: Option<Duration>) -> Result<Answer, ReceiveError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let answer = self.receive(left)?;
            if answer.0.ticket() == Some(ticket) {
                return Ok(answer);
            }
        }
    }

    fn no_answer(&self, reason: &str) -> String {
        format!("no answer from the supervisor at {}: {reason}", self.socket.display())
    }

    /// Until the socket is readable, or writable if there is something to write.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Err(ReceiveError::Late),
            Some(left) => Timespec::try_from(left).ok(),
            None => None,
        };
        let write = if self.client.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
        let mut watched = vec![PollFd::new(&self.client, PollFlags::IN | write)];
        watched.extend(self.signals.iter().map(|signals| PollFd::new(signals, PollFlags::IN)));
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ReceiveError::Lost(format!("waiting failed: {error}"))),
        }
        self.interruption().map_or(Ok(()), |signal| Err(ReceiveError::Interrupted(signal)))
    }

    fn interruption(&mut self) -> Option<i32> {
        self.signals.iter_mut().flat_map(EndingSignals::pending).next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_supervisor::{FakeSupervisor, PAYLOAD_MAX, finished_ok};
    use super::*;
    use offload_protocol::messages::View;
    use std::ops::ControlFlow;

    const SHOW: ToSupervisor<'static> = ToSupervisor::Show { ticket: 1, view: View::Status };
    const PLENTY: Option<Duration> = Some(Duration::from_secs(10));

    fn client_of(supervisor: &FakeSupervisor) -> RequestClient {
        RequestClient::connect(&supervisor.socket(), "test").unwrap()
    }

    #[test]
    fn a_question_is_answered_however_long_the_answer() {
        for length in [0, 10, 40_000, 60_000, 3_000_000] {
            let supervisor = FakeSupervisor::start(move |_, outbox| {
                outbox.push(&ToClient::Answer { ticket: 1 }, &vec![7; length].into()).unwrap();
                ControlFlow::Continue(())
            });
            let mut client = client_of(&supervisor);
            assert_eq!(client.payload_max(), PAYLOAD_MAX);
            assert_eq!(client.ask(&SHOW, PLENTY).unwrap(), vec![7; length]);
        }
    }

    #[test]
    fn a_finished_job_comes_with_its_output() {
        let supervisor = FakeSupervisor::start(|_, outbox| {
            outbox.push(&finished_ok(1), &Bytes::from_static(b"output")).unwrap();
            ControlFlow::Continue(())
        });
        let finished =
            client_of(&supervisor).ask_for_a_job(&ToSupervisor::Wait { ticket: 1, job: "x" }, PLENTY);
        assert_eq!(finished.unwrap().output, "output");
    }

    #[test]
    fn a_rejection_is_a_failure_with_the_code_of_the_rejection() {
        let supervisor = FakeSupervisor::start(|_, outbox| {
            let (code, message) = (OutcomeCode::NoSuchJob, "there is no job x".into());
            outbox
                .push(&ToClient::Rejected { ticket: 1, code, message, retry_after_ms: None }, &Bytes::new())
                .unwrap();
            ControlFlow::Continue(())
        });
        let failure = client_of(&supervisor).ask(&SHOW, PLENTY).unwrap_err();
        assert_eq!(failure.exit_code(), 5);
        assert_eq!(failure.message().unwrap(), "no_such_job: there is no job x");
    }

    #[test]
    fn when_to_try_again_is_told_to_programs() {
        let supervisor = FakeSupervisor::start(|_, outbox| {
            let (code, message) = (OutcomeCode::Overloaded, "try again in about 2 s".into());
            let rejected = ToClient::Rejected { ticket: 1, code, message, retry_after_ms: Some(1900) };
            outbox.push(&rejected, &Bytes::new()).unwrap();
            ControlFlow::Continue(())
        });
        let failure = client_of(&supervisor).ask(&SHOW, PLENTY).unwrap_err();
        assert!(failure.document().unwrap().contains(r#""retry_after_ms":1900"#), "{failure:?}");
    }

    #[test]
    fn silence_is_not_waited_out() {
        let supervisor = FakeSupervisor::start(|_, _| ControlFlow::Continue(()));
        let mut client = client_of(&supervisor);
        assert!(matches!(client.receive(Some(Duration::from_millis(10))), Err(ReceiveError::Late)));
        let failure = client.ask(&SHOW, Some(Duration::from_millis(10))).unwrap_err();
        assert_eq!(failure.exit_code(), 4, "somebody is there");
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_to_a_newer_question() {
        let mut late = None;
        let supervisor = FakeSupervisor::start(move |message, outbox| {
            let &ToSupervisor::Show { ticket, view } = message else { panic!("only this is asked") };
            let Some(first) = late.replace(ticket) else { return ControlFlow::Continue(()) };
            for (ticket, view) in [(first, View::Status), (ticket, view)] {
                outbox.push(&ToClient::Answer { ticket }, &format!("{view:?}").into()).unwrap();
            }
            ControlFlow::Continue(())
        });
        let mut client = client_of(&supervisor);
        assert_eq!(
            client.ask(&SHOW, Some(Duration::from_millis(10))).unwrap_err().exit_code(),
            4,
            "given up"
        );
        let show = ToSupervisor::Show { ticket: 1, view: View::Workers };
        assert_eq!(client.ask(&show, PLENTY).unwrap(), "Workers");
    }

    #[test]
    fn a_supervisor_that_goes_away_says_why() {
        let supervisor = FakeSupervisor::start(|_, outbox| {
            outbox.push(&ToClient::Goodbye { reason: "bedtime".into() }, &Bytes::new()).unwrap();
            ControlFlow::Break(())
        });
        let failure = client_of(&supervisor).ask(&SHOW, PLENTY).unwrap_err();
        assert!(failure.message().unwrap().contains("bedtime"), "{failure:?}");
    }

    #[test]
    fn where_nobody_is_the_way_to_start_somebody_is_told() {
        let failure = RequestClient::connect(Path::new("/nonexistent/socket"), "test").err().unwrap();
        assert_eq!(failure.exit_code(), 3);
        let expected = "no supervisor at /nonexistent/socket; start one with: offload serve --socket /nonexistent/socket";
        assert_eq!(failure.message().unwrap(), expected);
    }
}
