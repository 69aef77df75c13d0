//! What two programs could read as different requests is read by none here.

use offload_http::limits::IDLE_TIME;
use std::time::Instant;
use tests::http::HttpDaemon;

/// What is put behind the first line of a request for `/v1/tasks/echo`, with the body.
const AMBIGUOUS: &[&str] = &[
    "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "Content-Length: 5, 5\r\n\r\nhello",
    "Content-Length: +5\r\n\r\nhello",
    "Content-Length: -5\r\n\r\nhello",
    "Content-Length: 0x5\r\n\r\nhello",
    "Content-Length: 5 5\r\n\r\nhello",
    "Content-Length: five\r\n\r\nhello",
    "Content-Length:\r\n\r\nhello",
    "Content-Length: 99999999999999999999\r\n\r\nhello",
    "Content-Length : 5\r\n\r\nhello",
    " Content-Length: 5\r\n\r\nhello",
    "X: y\r\n Content-Length: 5\r\n\r\nhello",
    "X: y\r\n\tfolded\r\n\r\n",
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: identity\r\n\r\nhello",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding:\u{b}chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\ng\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
    "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0\r\nX\r\n\r\n",
    "X: a\0b\r\n\r\n",
    "X: a\rb\r\n\r\n",
    "X: a\nb\r\n\r\n",
    "X: a\nContent-Length: 5\r\n\r\nhello",
    "X: a\r\r\n\r\n",
    "X\r\n\r\n",
    ": x\r\n\r\n",
    "X Y: z\r\n\r\n",
    "X(: z\r\n\r\n",
    "Host: other\r\n\r\n",
    "\rX: y\r\n\r\n",
];

const FIRST_LINES: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a<b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}", 400),
    ("{\"json\":1}\n", 400),
];

/// Behind each ambiguous request comes a second one, which must not be answered: whoever sees it has read the first one in a way
/// of its own.
const SMUGGLED: &str = "POST /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nsmuggled";

#[test]
fn an_ambiguous_request_is_answered_with_400_and_the_connection_ends() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for rest in AMBIGUOUS {
        let mut connection = http.connect();
        let head = connection.head("POST", "/v1/tasks/echo", &[]);
        let request = format!("{}{rest}{SMUGGLED}", head.strip_suffix("\r\n").expect("an empty line"));
        connection.write(request.as_bytes());
        let answer = connection.answer().unwrap_or_else(|| panic!("no answer to {rest:?}"));
        assert_eq!(answer.problem(), (400, "bad_request".to_owned()), "{rest:?}");
        assert_eq!(connection.ends(), b"", "nothing more is answered after {rest:?}");
    }
    for (request, status) in FIRST_LINES {
        let mut connection = http.connect();
        connection.write(request.as_bytes());
        let answer = connection.answer().unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!(answer.problem().0, *status, "{request:?}");
        assert_eq!(connection.ends(), b"", "nothing more is answered after {request:?}");
    }
    let jobs = http.daemon.status()["jobs"].clone();
    assert_eq!(jobs["ok"], 0, "no part of any of them was taken for a job: {jobs}");
}

#[test]
fn what_came_before_is_answered_all_the_same() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/sleep", &[], b"100");
    connection.write(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
    assert_eq!(connection.answer().expect("an answer").text(), "null");
    assert_eq!(connection.answer().expect("an answer").problem().0, 400);
    assert_eq!(connection.ends(), b"");
}

/// All of it is there at once, and a small and a large answer come before the refusal.
#[test]
fn a_refusal_comes_at_once_behind_answers_of_any_size() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    let heads = ["/healthz", "/metrics", "/healthz"].map(|path| connection.head("GET", path, &[]));
    let began = Instant::now();
    connection.write(format!("{}GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", heads.concat()).as_bytes());
    let lengths: Vec<usize> =
        (0..3).filter_map(|_| connection.answer()).map(|answer| answer.body.len()).collect();
    assert!(lengths.len() == 3 && lengths[0] < 1024 && lengths[1] > 4096 && lengths[2] < 1024, "{lengths:?}");
    assert_eq!(connection.answer().expect("an answer").problem().0, 400);
    assert_eq!(connection.ends(), b"");
    assert!(began.elapsed() < IDLE_TIME, "it does not wait for the client's next request");
}

#[test]
fn heads_have_bounds() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let long = "x".repeat(16 << 10);
    for (request, status) in [
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", &long[..2048]), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(64)), 431),
        (long.clone(), 431),
    ] {
        let mut connection = http.connect();
        connection.write(request.as_bytes());
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.problem(), (status, "too_large".to_owned()));
        assert_eq!(connection.ends(), b"");
    }
}
