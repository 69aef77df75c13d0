//! Who may ask.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tests::harness::{Daemon, run};
use tests::http::HttpDaemon;

#[test]
fn without_the_token_nothing_is_told_and_nothing_runs() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for shown in ["", "Bearer", "Bearer wrong-wrong-wrong-wrong", "Basic dXNlcjpwYXNz"] {
        for path in ["/v1/tasks/echo", "/v1/jobs/x", "/v1/nothing"] {
            let answer = http.ask("POST", path, &[("Authorization", shown)], b"x");
            assert_eq!(answer.problem(), (401, "unauthenticated".to_owned()), "{shown:?} {path}");
            assert_eq!(answer.field("www-authenticate"), Some("Bearer"));
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http.ask("GET", path, &[("Authorization", "")], b"").status, 200, "{path}");
    }
    assert_eq!(http.daemon.status()["jobs"]["accepted"], 0);
}

#[test]
fn a_page_of_another_site_reaches_nothing() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let port = http.address.rsplit_once(':').expect("a port").1.to_owned();
    let own = format!("http://localhost:{port}");
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", own.as_str()),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let answer = http.call("echo", &[(name, value)], "x");
        assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{name}: {value}");
        assert_eq!(answer.field("access-control-allow-origin"), None);
    }
    let own = format!("http://{}", http.address);
    assert_eq!(http.call("echo", &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")], "x").status, 200);
    // A name that an attacker's server of names lets point to this machine.
    let mut connection = http.connect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n");
    connection.write(request.as_bytes());
    assert_eq!(connection.answer().expect("an answer").problem(), (403, "forbidden".to_owned()));
}

#[test]
fn a_unix_socket_is_for_its_owner_and_needs_no_token() {
    let folder = tests::harness::private_folder();
    let socket = folder.path().join("h.sock");
    let daemon = Daemon::start(&["--workers", "1", "--http", &format!("unix:{}", socket.display())]);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "30", "--unix-socket"]).arg(&socket);
    curl.args(["-d", "1000", "http://anything/v1/tasks/primes"]);
    assert_eq!(run(&mut curl, b"").ok().text(), r#"{"count":168,"largest":997}"#);
    drop(daemon);
}

#[test]
fn the_token_is_exchanged_by_a_reload() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let file = http.daemon.folder().join("http.token");
    let (old, new) = (http.token.clone(), "0123456789abcdef0123456789abcdef");
    let status =
        |token: &str| http.call("echo", &[("Authorization", &format!("Bearer {token}"))], "x").status;
    std::fs::write(&file, format!("{old}\n{new}\n")).unwrap();
    assert_eq!((status(&old), status(new)), (200, 401), "it is read when it is told to be");
    http.daemon.run(&["reload"]).ok();
    assert_eq!((status(&old), status(new)), (200, 200), "two at a time");
    std::fs::write(&file, new).unwrap();
    http.daemon.run(&["reload"]).ok();
    assert_eq!((status(&old), status(new)), (401, 200));
}

#[test]
fn other_machines_are_let_in_only_by_a_second_word() {
    let refused = tests::harness::run_offload(&["serve", "--http", "0.0.0.0:0"]);
    assert!(refused.code == 2 && refused.stderr.contains("--http-public"), "{refused:?}");
    let named = tests::harness::run_offload(&["serve", "--http", "example.com:80"]);
    assert!(named.code == 2 && named.stderr.contains("127.0.0.1:8080"), "{named:?}");
    HttpDaemon::of(Daemon::start(&["--workers", "1", "--http", "0.0.0.0:0", "--http-public"]));
}
