//! A supervisor that was stopped for a while does not blame its clients for that.

use std::time::{Duration, Instant};
use tests::harness::until;
use tests::http::{HttpConnection, HttpDaemon};

/// Longer than a client may take for anything.
const PAUSE: Duration = Duration::from_millis(11_500);

/// More than sockets hold.
const MUCH: usize = 30 << 20;

fn pause(http: &HttpDaemon) {
    // What was sent before this is read.
    http.ask("GET", "/healthz", &[], b"");
    http.daemon.signal(rustix::process::Signal::STOP);
    let stopped = Instant::now();
    until("longer than any limit", || (stopped.elapsed() >= PAUSE).then_some(()));
    http.daemon.signal(rustix::process::Signal::CONT);
    // It runs again, and looks after those that took too long before it does anything else.
    for _ in 0..20 {
        http.ask("GET", "/healthz", &[], b"");
    }
}

fn half_a_head(http: &HttpDaemon) -> HttpConnection {
    let mut connection = http.connect();
    connection.write(&connection.head("GET", "/v1/tasks", &[]).as_bytes()[..20]);
    connection
}

#[test]
fn slow_clients_do_not_pay_for_a_stopped_supervisor() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let mut head = half_a_head(&http);
    let mut silent = http.connect();
    let mut body = http.connect();
    body.write(body.head("POST", "/v1/tasks/echo", &[("Content-Length", "4")]).as_bytes());
    body.write(b"sl");
    let mut reader = http.connect();
    reader.send("POST", "/v1/tasks/echo", &[], &vec![b'x'; MUCH]);
    assert_eq!(reader.head_of_answer().expect("an answer").0, 200);
    let mut waits = http.connect();
    waits.send("POST", "/v1/tasks/sleep", &[("Prefer", "wait=10")], b"12500");
    http.daemon.worker_running("sleep");
    pause(&http);
    // It had most of its time before the pause, and on a busy machine the others need some of what is left.
    let (output, is_broken) = reader.body_of(MUCH);
    assert!(!is_broken, "{} bytes came", output.len());
    let rest = head.head("GET", "/v1/tasks", &[])[20..].to_owned();
    head.write(rest.as_bytes());
    assert_eq!(head.answer().expect("an answer").status, 200);
    silent.send("GET", "/v1/tasks", &[], b"");
    assert_eq!(silent.answer().expect("an answer").status, 200);
    body.write(b"ow");
    assert_eq!(body.answer().expect("an answer").text(), "slow");
    let waited = waits.answer().expect("an answer");
    let job = waited.field("offload-job").expect("its id");
    let told = http.daemon.run(&["explain", job, "--json"]);
    assert_eq!(waited.status, 200, "the pause did not count: {told:?}");
}

#[test]
fn after_a_pause_a_slow_client_has_what_was_left_of_its_time() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut head = half_a_head(&http);
    pause(&http);
    assert_eq!(head.answer().expect("an answer").problem().0, 408);
}
