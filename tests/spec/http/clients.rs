//! Clients that people use.

use std::process::Command;
use tests::harness::{private_folder, run};
use tests::http::HttpDaemon;

fn curl(http: &HttpDaemon, arguments: &[&str]) -> tests::harness::Ran {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60", "-H", &format!("Authorization: Bearer {}", http.token)])
        .args(arguments);
    run(&mut curl, b"")
}

#[test]
fn curl_is_answered_over_both_versions() {
    // The program as it is for tests may be larger than what is accepted by default.
    let http = HttpDaemon::start(&["--workers", "1", "--max-payload", "256MiB"]);
    let url = |path: &str| format!("http://{}{path}", http.address);
    let folder = private_folder();
    let file = folder.path().join("large");
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&file, &bytes).expect("a file of our own");
    for version in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        let primes = curl(&http, &[version, "-d", "1000", &url("/v1/tasks/primes")]);
        assert_eq!(primes.ok().text(), r#"{"count":168,"largest":997}"#, "{version}");
        let data = format!("@{}", file.display());
        let digest = curl(&http, &[version, "--data-binary", &data, &url("/v1/tasks/sha256")]).ok();
        assert_eq!(digest.text().len(), 64, "{version}: of {} bytes", bytes.len());
        let events =
            curl(&http, &[version, "-d", "3", "-H", "Accept: text/event-stream", &url("/v1/tasks/count")]);
        assert!(events.ok().text().contains("event: end"), "{version}");
        let missing = curl(&http, &[version, "-o", "/dev/null", "-w", "%{http_code}", &url("/nowhere")]);
        assert_eq!(missing.ok().text(), "404", "{version}");
    }
}

/// curl ends with an error if bytes come behind the head of such an answer.
#[test]
fn the_answer_to_a_head_has_no_content() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let kept = http.call("echo", &[("Prefer", "respond-async")], vec![b'x'; 70_000]);
    let place = kept.field("location").expect("where it is").to_owned();
    assert_eq!(http.ask("GET", &format!("{place}?wait=60"), &[], b"").status, 200);
    let output = format!("{place}/output");
    let events = format!("{place}/events");
    for version in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        for (path, length) in [
            ("/healthz", Some("3")),
            ("/v1/tasks", None),
            ("/metrics", None),
            ("/openapi.json", None),
            ("/nowhere", None),
            (&output, Some("70000")),
            (&events, None),
            ("/v1/events", None),
        ] {
            let head = curl(&http, &["-I", version, &format!("http://{}{path}", http.address)]).ok().text();
            let said = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            let is_stream = path.ends_with("events");
            assert_eq!(said.is_some(), !is_stream, "{version} {path}: {head}");
            assert!(length.is_none() || said.as_deref() == length, "{version} {path}: {head}");
        }
    }
    assert_eq!(http.ask("GET", &output, &[], b"").body.len(), 70_000, "nothing was collected");
}

#[test]
fn many_streams_of_one_connection_run_beside_each_other() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let folder = tests::harness::private_folder();
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'x'; 70_000]).unwrap();
    let mut load = Command::new("h2load");
    load.args(["-n", "600", "-c", "2", "-m", "50", "-T", "60", "-N", "60", "-d"]).arg(&body);
    load.arg("-H").arg(format!("Authorization: Bearer {}", http.token));
    load.arg(format!("http://{}/v1/tasks/echo", http.address));
    let text = run(&mut load, b"").ok().text();
    assert!(text.contains("600 succeeded, 0 failed") && text.contains("600 2xx"), "{text}");
    assert_eq!(http.daemon.status()["jobs"]["ok"], 600);
}

#[test]
fn the_library_of_python_is_answered() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let script = r#"
import json, sys, urllib.request, urllib.error
base, token = sys.argv[1:]
def ask(path, data=None, **headers):
    headers["Authorization"] = "Bearer " + token
    return urllib.request.urlopen(urllib.request.Request(base + path, data, headers), timeout=60)
assert json.load(ask("/v1/tasks/primes", b"1000"))["count"] == 168
job = json.load(ask("/v1/tasks/sleep", b"10", Prefer="respond-async"))["location"]
assert json.load(ask(job + "?wait=60"))["outcome"] == "ok"
try:
    ask("/v1/tasks/primes", b"x")
    raise SystemExit("it was not refused")
except urllib.error.HTTPError as error:
    assert error.code == 422 and json.load(error)["code"] == "app_error"
print("fine")
"#;
    let mut python = Command::new("python3");
    python.args(["-c", script, &format!("http://{}", http.address), &http.token]);
    assert_eq!(run(&mut python, b"").ok().text().trim(), "fine");
}

/// The Python that has `requests`: the first on the path, or the system's, for which `tests/all` installs it.
fn python_with_requests() -> &'static str {
    let has_it = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import requests"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_it).expect("the Debian package python3-requests")
}

#[test]
fn requests_of_python_is_answered_on_one_connection() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let script = r#"
import sys, requests
base, token = sys.argv[1:]
with requests.Session() as session:
    session.headers["Authorization"] = "Bearer " + token
    for number in range(20):
        answer = session.post(base + "/v1/tasks/echo", json={"number": number}, timeout=60)
        assert answer.json() == {"number": number} and "queue;dur=" in answer.headers["Server-Timing"], answer.headers
    def pieces():
        for _ in range(100):
            yield b"x" * 1000
    assert session.post(base + "/v1/tasks/sha256", data=pieces(), timeout=60).status_code == 200
    accepted = session.post(base + "/v1/tasks/sleep", data="10", headers={"Prefer": "respond-async"}, timeout=60)
    ended = session.get(base + accepted.headers["Location"], params={"wait": 60}, timeout=60).json()
    assert accepted.status_code == 202 and ended["outcome"] == "ok", ended
    stream = session.post(base + "/v1/tasks/count", data='{"to":50,"every_ms":1}', headers={"Offload-Stream": "true"},
                          stream=True, timeout=60)
    assert [int(line) for line in stream.iter_lines()] == list(range(1, 51))
    refused = session.post(base + "/v1/tasks/nothing", timeout=60)
    assert refused.status_code == 404 and refused.headers["Content-Type"] == "application/problem+json"
assert requests.get(base + "/v1/tasks", timeout=60).status_code == 401
print("fine")
"#;
    let mut python = Command::new(python_with_requests());
    python.args(["-c", script, &format!("http://{}", http.address), &http.token]);
    assert_eq!(run(&mut python, b"").ok().text().trim(), "fine");
}
