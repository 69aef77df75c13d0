//! Answers that are given before the body of their request was read: over HTTP/2 the client has to see them, and over HTTP/1 to know
//! whether it may go on.

use super::tls::Secure;
use offload_http::limits::LINGER_TIME;
use std::net::Shutdown;
use std::process::Command;
use std::time::Instant;
use tests::harness::{private_folder, run, until};
use tests::http::{HttpConnection, HttpDaemon};

/// How often each refusal is tried: without a rule about the rest of a body, up to two of three are lost.
const TRIES: usize = 40;

/// A refusal: what curl is told, and the status and the code that it has to show.
type Refusal<'a> = (Vec<&'a str>, &'a str, (u16, &'a str));

/// Asks curl for it again and again.
fn refuse(curl_arguments: &[&str], base: &str, (arguments, path, expected): &Refusal<'_>, tries: usize) {
    for number in 0..tries {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "-w", "\n%{http_code} %{http_version}"]);
        curl.args(curl_arguments).args(arguments).arg(format!("{base}{path}"));
        let ran = run(&mut curl, b"");
        let (said, what) = (ran.text(), format!("try {number} of {arguments:?} at {path}"));
        let (body, status) = said.rsplit_once('\n').unwrap_or_else(|| panic!("{what}: {ran:?}"));
        assert_eq!(status, format!("{} 2", expected.0), "{what}: {ran:?}");
        let problem: serde_json::Value = serde_json::from_str(body).expect("a problem document");
        assert_eq!(problem["code"], expected.1, "{what}");
    }
}

fn refusals(token: &str) -> Vec<Refusal<'_>> {
    vec![
        (vec!["-d", "1000"], "/v1/tasks/primes", (401, "unauthenticated")),
        (vec!["-H", token, "-H", "Offload-Timeout: x", "-d", "1"], "/v1/tasks/primes", (400, "bad_request")),
        (vec!["-H", token, "-d", "1000"], "/images", (415, "unsupported")),
        (vec!["-H", token, "-d", "1000"], "/nowhere", (404, "not_found")),
        (vec!["-H", token, "-d", "1000"], "/v1/tasks/nothing", (404, "unknown_task")),
        (
            vec!["-H", token, "-H", "Origin: http://evil.example", "-d", "1"],
            "/v1/tasks/echo",
            (403, "forbidden"),
        ),
    ]
}

const ROUTE: [&str; 6] = [
    "--workers",
    "1",
    "--http-route",
    "POST /images echo accepts=image/*",
    "--http-route",
    "POST /small echo max_body=4B",
];

#[test]
fn curl_shows_a_refusal_that_came_before_its_body_was_read() {
    let http = HttpDaemon::start(&ROUTE);
    let (token, base) = (format!("Authorization: Bearer {}", http.token), format!("http://{}", http.address));
    for refusal in &refusals(&token) {
        refuse(&["--http2-prior-knowledge"], &base, refusal, TRIES);
    }
    let folder = private_folder();
    let large = folder.path().join("large");
    std::fs::write(&large, vec![b'x'; 20_000_000]).expect("a file of our own");
    let data = format!("@{}", large.display());
    for refusal in [
        (vec!["--data-binary", &data], "/v1/tasks/sha256", (401, "unauthenticated")),
        (vec!["-H", &token, "--data-binary", &data], "/v1/tasks/nothing", (404, "unknown_task")),
    ] {
        refuse(&["--http2-prior-knowledge"], &base, &refusal, TRIES / 4);
    }
    let jobs = http.daemon.status()["jobs"].clone();
    assert!(jobs["accepted"] == 0, "{jobs}");
}

#[test]
fn curl_shows_it_over_tls_too() {
    let server = Secure::start(&ROUTE);
    let token = format!("Authorization: Bearer {}", server.http.token);
    let (base, certificate) = (format!("https://{}", server.http.address), server.path("first.pem"));
    for refusal in &refusals(&token) {
        refuse(&["--http2", "--cacert", &certificate.display().to_string()], &base, refusal, TRIES / 4);
    }
}

/// Heads of refused requests, without their last empty line, and the status of the answer.
fn refused(length: usize) -> [(String, u16); 6] {
    let head = |path: &str, field: &str| format!("{path} HTTP/1.1\r\n{field}Content-Length: {length}\r\n");
    [
        (head("POST /v1/tasks/nothing", ""), 404),
        (head("POST /v1/tasks/echo", "Offload-Timeout: x\r\n"), 400),
        (head("POST /v1/tasks/echo", "Content-Encoding: gzip\r\n"), 415),
        (head("POST /images", ""), 415),
        (head("POST /nowhere", ""), 404),
        (head("POST /small", ""), 413),
    ]
}

fn send_head(connection: &mut HttpConnection, http: &HttpDaemon, head: &str) {
    let fields = format!("Host: localhost\r\nAuthorization: Bearer {}\r\n\r\n", http.token);
    connection.write(format!("{head}{fields}").as_bytes());
}

#[test]
fn a_client_whose_request_was_refused_goes_on_over_the_same_connection() {
    let http = HttpDaemon::start(&ROUTE);
    let mut connection = http.connect();
    for length in [5, 256 << 10] {
        for (head, status) in refused(length) {
            send_head(&mut connection, &http, &head);
            let answer = connection.answer().expect("an answer before the body");
            assert_eq!((answer.status, answer.field("connection")), (status, None), "{head}");
            connection.write(&vec![b'x'; length]);
            connection.send("POST", "/v1/tasks/echo", &[], b"hello");
            let next = connection.answer().unwrap_or_else(|| panic!("the connection goes on: {head}"));
            assert_eq!((next.status, next.text()), (200, "hello".to_owned()), "{head}");
        }
        let chunked = "POST /v1/tasks/nothing HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
        send_head(&mut connection, &http, chunked);
        assert_eq!(connection.answer().expect("an answer").status, 404);
        connection.write(b"3\r\nabc\r\n0\r\n\r\n");
    }
    assert_eq!(http.connections(), 2, "it is one connection, beside the one of this question");
}

#[test]
fn an_answer_says_so_if_the_connection_ends_because_the_body_is_not_read() {
    let http = HttpDaemon::start(&ROUTE);
    let get = ("GET /v1/status HTTP/1.1\r\nContent-Length: 5\r\n".to_owned(), 200);
    let waits = refused(5).into_iter().chain([get]);
    let waits = waits.map(|(head, status)| (format!("{head}Expect: 100-continue\r\n"), status));
    for (head, status) in waits.chain(refused((256 << 10) + 1)) {
        let mut connection = http.connect();
        send_head(&mut connection, &http, &head);
        let first = connection.line().expect("an answer");
        assert!(
            first.starts_with(&format!("HTTP/1.1 {status} ")),
            "the body is not asked for: {first} {head}"
        );
        let mut fields = std::iter::from_fn(|| connection.line().filter(|line| !line.is_empty()));
        assert!(fields.any(|field| field.eq_ignore_ascii_case("connection: close")), "{head}");
        while connection.line().is_some() {}
    }
}

/// Its request, whose body does not come.
fn says_close(http: &HttpDaemon, head: &str) -> HttpConnection {
    let mut connection = http.connect();
    send_head(&mut connection, http, head);
    let answer = connection.answer().expect("an answer");
    assert_eq!(answer.field("connection"), Some("close"), "{} {head}", answer.status);
    connection
}

#[test]
fn if_the_connection_ends_anyway_the_rest_of_a_body_is_not_waited_for() {
    let http = HttpDaemon::start(&ROUTE);
    for head in [
        "POST /nowhere HTTP/1.0\r\nContent-Length: 5\r\n",
        "POST /nowhere HTTP/1.1\r\nContent-Length: 5\r\nConnection: x, Close\r\n",
        "POST /nowhere HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n",
    ] {
        says_close(&http, head).ends();
    }
}

#[test]
fn who_does_not_send_the_rest_of_a_body_holds_its_place_for_one_time() {
    let http = HttpDaemon::start(&ROUTE);
    let mut connection = http.connect();
    send_head(&mut connection, &http, "POST /nowhere HTTP/1.1\r\nContent-Length: 5\r\n");
    let sent = Instant::now();
    assert_eq!(connection.answer().expect("an answer").field("connection"), None, "the rest may come");
    until("it is gone", || (http.connections() == 1).then_some(()));
    assert!(sent.elapsed() < 2 * LINGER_TIME, "{:?}", sent.elapsed());
}

#[test]
fn the_answer_to_a_body_that_is_not_sound_says_that_the_connection_ends() {
    let http = HttpDaemon::start(&ROUTE);
    let fields = "A: b\r\n".repeat(9);
    for body in ["zz\r\n\r\n", "1\r\nx\r\n0\r\nA: \x01\r\n\r\n", &format!("1\r\nx\r\n0\r\n{fields}\r\n")] {
        let mut connection = http.connect();
        send_head(&mut connection, &http, "POST /v1/tasks/echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
        connection.write(body.as_bytes());
        let answer = connection.answer().expect("an answer");
        assert_eq!((answer.status, answer.field("connection")), (400, Some("close")), "{body:?}");
        assert_eq!(connection.ends(), b"", "{body:?}");
    }
    let mut cut = http.connect();
    send_head(&mut cut, &http, "POST /v1/tasks/echo HTTP/1.1\r\nContent-Length: 5\r\n");
    cut.write(b"abc");
    cut.socket().shutdown(Shutdown::Write).expect("a socket");
    let answer = cut.answer().expect("an answer");
    assert_eq!((answer.status, answer.field("connection")), (400, Some("close")));
}
