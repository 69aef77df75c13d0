//! Answers that are given before the body of their request was read, over HTTP/2: the client has to see them.

use super::tls::Secure;
use std::process::Command;
use tests::harness::{private_folder, run};
use tests::http::HttpDaemon;

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

const ROUTE: [&str; 4] = ["--workers", "1", "--http-route", "POST /images echo accepts=image/*"];

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
