//! The client against the real listener and connection, and against sockets that are no supervisor.

use super::*;
use crate::front::Listener;
use crate::front::client::{Client, ClientError, ConnectError};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Receipt, Report};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;
use tempfile::TempDir;

/// A supervisor of one client on a thread of its own, which answers each request as `answer` says and ends when the
/// client is gone or the connection is finished.
struct Supervisor {
    thread: JoinHandle<()>,
    path: PathBuf,
    _folder: TempDir,
}

impl Supervisor {
    fn start(answer: impl FnMut(&mut Connection, Request) + Send + 'static) -> Supervisor {
        let folder = private_folder();
        let path = folder.path().join("offload.sock");
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn({
            let path = path.clone();
            move || {
                let listener = Listener::bind(&path).unwrap();
                ready.send(()).unwrap();
                wait(&*listener.socket(), PollFlags::IN);
                serve(listener.accept(PAYLOAD_MAX, &FilePlaces::new(1)).unwrap().unwrap(), answer);
            }
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        Supervisor { thread, path, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path, "tester").unwrap()
    }

    fn has_ended(self) {
        self.thread.join().unwrap();
    }
}

const PAYLOAD_MAX: usize = 4 << 20;

fn serve(mut connection: Connection, mut answer: impl FnMut(&mut Connection, Request)) {
    let mut requests = Vec::new();
    while !connection.is_finished() {
        let interest = if connection.unsent() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        wait(connection.socket(), interest);
        loop {
            let received = connection.receive(&mut |_, _| Room::Take, &mut |request| requests.push(request));
            for request in requests.drain(..) {
                answer(&mut connection, request);
            }
            match received {
                Ok(Received::More) => continue,
                Ok(Received::Messages | Received::WouldBlock | Received::NoRoom) | Err(_) => break,
                Ok(Received::Ended) => {
                    connection.close_after_flush();
                    break;
                }
            }
        }
        let _ = connection.flush();
    }
}

fn echo(connection: &mut Connection, request: Request) {
    let Request::Submit { ticket, task, payload, media_type, options, .. } = request else {
        panic!("{request:?}")
    };
    let job = format!("job-{ticket}");
    connection.send(&ToClient::Accepted { ticket, job: job.as_str().into() }, &Bytes::new()).unwrap();
    let outcome = OutcomeCode::Ok;
    let receipt = Receipt::default();
    let offload_protocol::messages::SubmitOptions { metadata, labels, .. } = options;
    let report =
        Report { job, task, outcome, error: None, attempts: 1, receipt, media_type, metadata, labels };
    connection.send(&ToClient::Finished { ticket, report }, &payload).unwrap();
}

#[test]
fn a_job_is_submitted_and_its_output_comes_back() {
    let supervisor = Supervisor::start(echo);
    let mut client = supervisor.client();
    assert_eq!(client.payload_max(), PAYLOAD_MAX);
    let ticket = client.submit("echo", &Bytes::from_static(b"hello")).unwrap();
    let (accepted, _) = client.answer_to(ticket).unwrap();
    assert_eq!(accepted, ToClient::Accepted { ticket, job: "job-1".into() });
    let (finished, output) = client.answer_to(ticket).unwrap();
    assert!(matches!(finished, ToClient::Finished { report, .. } if report.outcome == OutcomeCode::Ok));
    assert_eq!(output, "hello");
    drop(client);
    supervisor.has_ended();
}

#[test]
fn answers_may_be_asked_for_in_any_order() {
    let supervisor = Supervisor::start(echo);
    let mut client = supervisor.client();
    let submit = |number: u64| client.submit("echo", &number.to_string().into()).unwrap();
    let tickets: Vec<u64> = (0..1000).map(submit).collect();
    for (number, ticket) in tickets.iter().enumerate().rev() {
        let (accepted, _) = client.answer_to(*ticket).unwrap();
        assert!(matches!(accepted, ToClient::Accepted { .. }));
        let (_, output) = client.answer_to(*ticket).unwrap();
        assert_eq!(output, number.to_string());
    }
}

#[test]
fn a_client_that_sends_much_before_it_reads_gets_all_its_answers() {
    let supervisor = Supervisor::start(echo);
    let mut client = supervisor.client();
    let payload = Bytes::from(vec![5; 1 << 20]);
    for _ in 0..20 {
        client.submit("echo", &payload).unwrap();
    }
    let mut outputs = 0;
    while outputs < 20 {
        match client.receive().unwrap() {
            (ToClient::Finished { .. }, output) => {
                assert_eq!(output, payload);
                outputs += 1;
            }
            (message, _) => assert!(matches!(message, ToClient::Accepted { .. })),
        }
    }
}

#[test]
fn a_request_without_payload_is_one_call() {
    let supervisor = Supervisor::start(|connection, request| {
        assert_eq!(request, Request::Show { ticket: 1, view: View::Jobs });
        connection.send(&ToClient::Answer { ticket: 1 }, &Bytes::from_static(b"[]")).unwrap();
    });
    let mut client = supervisor.client();
    let (message, document) =
        client.request(|ticket| ToSupervisor::Show { ticket, view: View::Jobs }).unwrap();
    assert_eq!((message, document), (ToClient::Answer { ticket: 1 }, Bytes::from_static(b"[]")));
}

#[test]
fn waiting_ends_at_the_deadline_and_can_go_on_later() {
    let supervisor = Supervisor::start(|connection, request| {
        // The first request stays without an answer until the second one comes.
        if let Request::Drain { .. } = request {
            connection.send(&ToClient::Answer { ticket: 1 }, &Bytes::new()).unwrap();
        }
    });
    let mut client = supervisor.client();
    let ticket = client.new_ticket();
    client.send(&show(ticket), &Bytes::new()).unwrap();
    assert!(client.receive_until(Instant::now() + Duration::from_millis(5)).unwrap().is_none());
    client.send(&ToSupervisor::Drain { ticket: 2 }, &Bytes::new()).unwrap();
    let answer = client.receive_until(Instant::now() + PATIENCE).unwrap();
    assert_eq!(answer, Some((ToClient::Answer { ticket }, Bytes::new())));
}

#[test]
fn a_payload_over_the_limit_is_not_sent_and_the_connection_goes_on() {
    let supervisor = Supervisor::start(echo);
    let mut client = supervisor.client();
    let error = client.submit("echo", &Bytes::from(vec![0; PAYLOAD_MAX + 1])).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { max: PAYLOAD_MAX, .. }), "{error}");
    let ticket = client.submit("echo", &Bytes::new()).unwrap();
    assert!(client.answer_to(ticket).is_ok());
}

#[test]
fn nobody_there_is_told_from_other_failures() {
    let folder = private_folder();
    let missing = folder.path().join("missing.sock");
    let dead = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    for path in [&missing, &dead] {
        let error = Client::connect(path, "tester").unwrap_err();
        assert!(matches!(&error, ConnectError::NoSupervisor { socket } if socket == path), "{error}");
    }
    for unusable in ["x".repeat(200), String::new(), "\0abstract".to_owned()] {
        let error = Client::connect(Path::new(&unusable), "tester").unwrap_err();
        assert!(matches!(error, ConnectError::Io { .. }), "{error}");
    }
}

#[test]
fn a_supervisor_that_refuses_says_why() {
    for (code, why) in [(OutcomeCode::Overloaded, "too many clients"), (OutcomeCode::Unsupported, "too new")]
    {
        let folder = private_folder();
        let path = folder.path().join("offload.sock");
        let listener = Listener::bind(&path).unwrap();
        let connecting = std::thread::spawn(move || Client::connect(&path, "tester").unwrap_err());
        wait(&*listener.socket(), PollFlags::IN);
        let mut connection = listener.accept(PAYLOAD_MAX, &FilePlaces::new(1)).unwrap().unwrap();
        connection.goodbye(code, why);
        assert_eq!(connection.flush().unwrap(), crate::front::Flushed::Done);
        drop(connection);
        let error = connecting.join().unwrap();
        let expected = ErrorDetail::new(code, why);
        assert!(matches!(&error, ConnectError::Refused(reason) if *reason == expected), "{error}");
    }
}

/// Only the start of its welcome has the same form in every version.
#[test]
fn a_supervisor_of_another_version_is_refused_with_both_versions_and_what_to_do() {
    let (older, newer) = (VERSION_MAJOR - 1, VERSION_MAJOR + 1);
    for (major, advice) in
        [(older, "restart the supervisor"), (newer, "use the `offload` of this supervisor")]
    {
        let folder = private_folder();
        let path = folder.path().join("offload.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connecting = std::thread::spawn(move || Client::connect(&path, "tester").unwrap_err());
        let (mut socket, _) = listener.accept().unwrap();
        let start =
            [&0_u32.to_le_bytes()[..], &CLIENT_MAGIC, &major.to_le_bytes(), &7_u16.to_le_bytes()].concat();
        let frame = [&(start.len() as u32).to_le_bytes()[..], &0_u32.to_le_bytes(), &start].concat();
        std::io::Write::write_all(&mut socket, &frame).unwrap();
        let error = connecting.join().unwrap();
        let ConnectError::Refused(reason) = &error else { panic!("{error}") };
        assert_eq!(reason.code, OutcomeCode::Unsupported);
        let versions = format!("protocol {major}.7, this client {VERSION_MAJOR}.{VERSION_MINOR}: {advice}");
        assert!(reason.message.contains(&versions), "{error}");
    }
}

#[test]
fn the_reason_of_a_goodbye_arrives_even_if_the_client_was_writing() {
    let supervisor = Supervisor::start(|connection, _| connection.goodbye(OutcomeCode::Overloaded, "enough"));
    let mut client = supervisor.client();
    let payload = Bytes::from(vec![0; 1 << 20]);
    let error = loop {
        if let Err(error) = client.submit("echo", &payload) {
            break error;
        }
    };
    assert!(
        matches!(&error, ClientError::Closed { reason: Some(reason) } if reason.message == "enough"),
        "{error}"
    );
}

#[test]
fn a_supervisor_that_dies_is_noticed() {
    let supervisor = Supervisor::start(|connection, _| connection.close_after_flush());
    let mut client = supervisor.client();
    client.submit("echo", &Bytes::new()).unwrap();
    assert!(matches!(client.receive(), Err(ClientError::Closed { reason: None })));
}
