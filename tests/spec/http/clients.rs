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
    let http = HttpDaemon::start(&["--workers", "1"]);
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
