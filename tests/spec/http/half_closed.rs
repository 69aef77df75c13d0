//! Clients that send no more and wait for their answers, and those that look the same and are gone.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tests::harness::{Gate, PATIENCE, until};
use tests::http::{HttpConnection, HttpDaemon};

fn send_no_more(connection: &HttpConnection) {
    connection.socket().shutdown(Shutdown::Write).expect("a socket");
}

/// A client that has sent this request and sends no more. Its job runs.
fn waiting(http: &HttpDaemon, task: &str, input: &str) -> HttpConnection {
    let mut connection = http.connect();
    connection.send("POST", &format!("/v1/tasks/{task}"), &[], input.as_bytes());
    send_no_more(&connection);
    http.daemon.worker_running(task);
    connection
}

fn is_cancelled(http: &HttpDaemon, count: u64) {
    until("it is cancelled", || (http.daemon.status()["jobs"]["cancelled"] == count).then_some(()));
}

#[test]
fn who_shuts_down_its_writing_side_gets_its_answer() {
    let gate = Gate::closed();
    let http = HttpDaemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    for path in ["/healthz", "/v1/status"] {
        let mut quick = http.connect();
        quick.send("GET", path, &[], b"");
        send_no_more(&quick);
        assert_eq!(quick.answer().expect("an answer").status, 200);
        assert_eq!(quick.ends(), b"");
    }
    let mut slow = waiting(&http, "gate", "x");
    gate.open();
    assert_eq!(slow.answer().expect("an answer").text(), "x");
    assert_eq!(slow.ends(), b"", "nothing more can come");

    let mut large = http.connect();
    let body = vec![b'x'; 20 << 20];
    large.send("POST", "/v1/tasks/echo", &[], &body);
    send_no_more(&large);
    let answer = large.answer().expect("an answer");
    assert!(!answer.is_broken && answer.body == body, "{}", answer.body.len());
    assert_eq!(http.daemon.status()["jobs"]["cancelled"], 0);
}

#[test]
fn all_that_was_asked_before_is_answered() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    for ms in ["300", "1", "200"] {
        connection.send("POST", "/v1/tasks/sleep", &[], ms.as_bytes());
    }
    connection.write(connection.head("GET", "/healthz", &[]).repeat(300).as_bytes());
    connection.write(b"GET /healthz HT");
    send_no_more(&connection);
    for _ in 0..3 {
        assert_eq!(connection.answer().expect("an answer").text(), "null");
    }
    for _ in 0..300 {
        assert_eq!(connection.answer().expect("an answer").status, 200);
    }
    assert!(connection.answer().is_none(), "half a head is no request");
}

#[test]
fn a_stream_whose_client_sends_no_more_comes_to_its_end_or_breaks_off() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/count", &[("Offload-Stream", "true")], b"5");
    send_no_more(&connection);
    let answer = connection.answer();
    let is_told = answer.as_ref().is_none_or(|answer| answer.status == 200);
    assert!(is_told, "{answer:?}");
    until("nothing is left", || {
        let jobs = &http.daemon.status()["jobs"];
        (jobs["running"] == 0 && jobs["queued"] == 0).then_some(())
    });
}

#[test]
fn who_is_gone_after_that_cancels_its_job() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let aborted = waiting(&http, "sleep", "600000");
    set_socket_linger(aborted.socket(), Some(Duration::ZERO)).expect("a socket");
    drop(aborted);
    is_cancelled(&http, 1);
}

#[test]
fn over_a_unix_socket_the_end_shows_at_once() {
    let folder = tests::harness::private_folder();
    let file = folder.path().join("http.sock");
    let address = format!("unix:{}", file.display());
    let http = HttpDaemon::start(&["--workers", "1", "--http", &address]);
    let send = |ms: &str| {
        let mut stream = UnixStream::connect(&file).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let length = ms.len();
        write!(stream, "POST /v1/tasks/sleep HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{ms}")
            .unwrap();
        stream.shutdown(Shutdown::Write).expect("a socket");
        stream
    };
    let mut answer = String::new();
    send("300").read_to_string(&mut answer).expect("it ends");
    let final_one = answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(final_one.starts_with("HTTP/1.1 200 ") && final_one.ends_with("null"), "{answer:?}");
    let gone = send("600000");
    http.daemon.worker_running("sleep");
    drop(gone);
    is_cancelled(&http, 1);
}

#[test]
fn who_cannot_be_asked_counts_as_gone() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut old = http.connect();
    let head =
        old.head("POST", "/v1/tasks/sleep", &[("Content-Length", "6")]).replace("HTTP/1.1", "HTTP/1.0");
    old.write(head.as_bytes());
    old.write(b"600000");
    send_no_more(&old);
    is_cancelled(&http, 1);
    assert_eq!(old.ends(), b"");
}

/// hyper reads nothing more of such a request, so it does not see the end of its client either.
#[test]
fn who_is_gone_is_noticed_behind_a_body_that_nobody_reads() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let job = http.call("sleep", &[("prefer", "respond-async")], "3600000").json();
    let path = format!("/v1/jobs/{}?wait=3600", job["job"].as_str().expect("its id"));
    until("the earlier ones are gone", || (http.connections() == 1).then_some(()));
    for (length, sent) in [(100, 3), (10_000_000, 3), (10_000_000, 300_000)] {
        let mut connection = http.connect();
        connection
            .write(connection.head("GET", &path, &[("content-length", &length.to_string())]).as_bytes());
        until("it waits", || (http.connections() > 1).then_some(()));
        connection.write(&vec![b'x'; sent]);
        drop(connection);
        until("it is gone", || (http.connections() == 1).then_some(()));
    }
}
