//! What every answer says, whatever it answers.

use tests::http::{Answer, HttpDaemon};

fn protections(answer: &Answer) -> [Option<&str>; 3] {
    ["x-content-type-options", "cross-origin-resource-policy", "cache-control"].map(|name| answer.field(name))
}

const PROTECTED: [Option<&str>; 3] = [Some("nosniff"), Some("same-origin"), Some("no-store")];

#[test]
fn every_answer_says_to_browsers_and_caches_what_they_may_make_of_it() {
    let http = HttpDaemon::start(&[
        "--workers",
        "1",
        "--http-page",
        "--http-cors",
        "https://app.example",
        "--http-route",
        "POST /cached echo 'headers=cache-control: max-age=60'",
    ]);
    let page = ("Origin", "https://app.example");
    for (method, path, field, status) in [
        ("GET", "/", page, 200),
        ("GET", "/healthz", page, 200),
        ("HEAD", "/readyz", page, 200),
        ("GET", "/metrics", page, 200),
        ("GET", "/openapi.json", page, 200),
        ("GET", "/v1/status", page, 200),
        ("POST", "/v1/tasks/echo", page, 200),
        ("POST", "/v1/tasks/echo", ("Prefer", "respond-async"), 202),
        ("POST", "/v1/tasks/primes", page, 422),
        ("POST", "/v1/tasks/nothing", page, 404),
        ("POST", "/v1/tasks/echo", ("Content-Encoding", "gzip"), 415),
        ("OPTIONS", "/v1/status", ("Access-Control-Request-Method", "GET"), 204),
        ("GET", "/nowhere", page, 404),
        ("PATCH", "/v1/status", page, 405),
        ("GET", "/v1/status", ("Authorization", "Bearer wrong"), 401),
        ("GET", "/v1/status", ("Origin", "https://evil.example"), 403),
        ("GET", "/v1/status", ("Host", "second"), 400),
        ("TRACE", "/v1/status", page, 501),
    ] {
        let mut connection = http.connect();
        connection.send(method, path, &[field], b"");
        let (found, fields) = connection.head_of_answer().expect("an answer");
        let answer = Answer { status: found, fields, body: Vec::new(), is_broken: false };
        assert_eq!((answer.status, protections(&answer)), (status, PROTECTED), "{method} {path} {field:?}");
    }
    let own = http.ask("POST", "/cached", &[], b"x");
    assert_eq!(protections(&own), [Some("nosniff"), Some("same-origin"), Some("max-age=60")]);
    let mut events = http.connect();
    events.send("GET", "/v1/events", &[], b"");
    let (status, fields) = events.head_of_answer().expect("an answer");
    let answer = Answer { status, fields, body: Vec::new(), is_broken: false };
    assert_eq!((status, protections(&answer)), (200, PROTECTED));
}

#[test]
fn a_path_that_is_not_there_and_a_method_that_it_does_not_have_have_codes_of_their_own() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    assert_eq!(http.ask("GET", "/v2/jobs", &[], b"").problem(), (404, "not_found".to_owned()));
    assert_eq!(http.ask("PUT", "/v1/jobs", &[], b"").problem(), (405, "method_not_allowed".to_owned()));
    let asked = http.ask("OPTIONS", "/v1/jobs/x", &[], b"");
    assert_eq!((asked.status, asked.field("allow")), (204, Some("GET, HEAD, DELETE, OPTIONS")));
    assert_eq!(http.ask("OPTIONS", "*", &[], b"").status, 204);
    let codes = http.ask("GET", "/openapi.json", &[], b"").json()["components"]["schemas"]["Code"].clone();
    for code in ["not_found", "method_not_allowed", "ok"] {
        assert!(codes["enum"].as_array().expect("a list").contains(&code.into()), "{code}: {codes}");
    }
}

#[test]
fn a_status_that_is_not_registered_has_words_all_the_same() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let later = http.call("sleep", &[("Prefer", "respond-async")], "3600000");
    let place = later.field("location").expect("its place").to_owned();
    assert_eq!(http.ask("DELETE", &place, &[], b"").status, 200);
    http.ask("GET", &format!("{place}?wait=60"), &[], b"");
    let mut connection = http.connect();
    connection.send("GET", &format!("{place}/output"), &[], b"");
    assert_eq!(connection.line().expect("an answer"), "HTTP/1.1 499 Client Closed Request");
}

#[test]
fn a_body_that_is_encoded_is_refused_and_says_so() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for coding in ["gzip", "GZIP", "deflate", "br", "gzip, identity", "x"] {
        let answer = http.call("sha256", &[("Content-Encoding", coding)], "packed");
        assert_eq!(answer.problem(), (415, "unsupported".to_owned()), "{coding}");
        assert_eq!(answer.field("accept-encoding"), Some("identity"));
        assert!(answer.text().contains("Content-Encoding"), "{answer:?}");
    }
    for coding in ["identity", "Identity"] {
        assert_eq!(http.call("echo", &[("Content-Encoding", coding)], "plain").text(), "plain", "{coding}");
    }
    let jobs = http.daemon.status()["jobs"].clone();
    assert_eq!((&jobs["ok"], &jobs["rejected"]), (&2.into(), &6.into()), "{jobs}");
}
