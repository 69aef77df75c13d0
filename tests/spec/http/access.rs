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
    assert_eq!(http.call("echo", &[("Origin", &own), ("Sec-Fetch-Site", "cross-site")], "x").status, 403);
    // A name that an attacker's server of names lets point to this machine.
    let mut connection = http.connect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n");
    connection.write(request.as_bytes());
    assert_eq!(connection.answer().expect("an answer").problem(), (403, "forbidden".to_owned()));
}

/// Each name comes with the right token: it is the name alone that is refused.
#[test]
fn only_a_loopback_address_or_localhost_is_a_name_of_this_server() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let port = http.address.rsplit_once(':').expect("a port").1;
    let ask = |host: &str| {
        let mut connection = http.connect();
        let token = format!("Authorization: Bearer {}", http.token);
        connection.write(format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\n{token}\r\n\r\n").as_bytes());
        connection.answer().expect("an answer")
    };
    for name in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "[::1]"] {
        for host in [name.to_owned(), format!("{name}:{port}")] {
            assert_eq!(ask(&host).status, 200, "{host}");
        }
    }
    for name in [
        "localhost.",
        "localhost6",
        "localhost.localdomain",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "192.0.2.1",
        "0.0.0.0",
        "[2001:db8::1]",
        "[::]",
    ] {
        for host in [name.to_owned(), format!("{name}:{port}")] {
            assert_eq!(ask(&host).problem(), (403, "forbidden".to_owned()), "{host}");
        }
    }
}

/// The status that it has to have, its method, and its fields.
type RequestOfPage = (u16, &'static str, Vec<(&'static str, String)>);

/// What a page can make a browser send without asking first, and what it cannot: each with a mark by which it is known, or without.
fn requests_of_pages(host: &str, token: &str) -> Vec<RequestOfPage> {
    let kinds = [
        ("GET", "no-cors", "image", None),
        ("GET", "navigate", "document", None),
        ("GET", "no-cors", "script", None),
        ("POST", "navigate", "document", Some("application/x-www-form-urlencoded")),
        ("POST", "navigate", "iframe", Some("multipart/form-data; boundary=x")),
        ("POST", "no-cors", "empty", Some("text/plain")),
        ("POST", "cors", "empty", Some("application/json")),
        ("DELETE", "cors", "empty", None),
    ];
    let marks: [(u16, &[(&str, &str)]); 6] = [
        (403, &[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")]),
        (403, &[("Origin", "http://evil.example")]),
        (403, &[("Origin", "null"), ("Sec-Fetch-Site", "cross-site")]),
        (403, &[("Sec-Fetch-Site", "cross-site")]),
        (403, &[("Sec-Fetch-Site", "same-site")]),
        // An old browser that says nothing, or a page of our own: it has to show the token, which no page can make a browser do.
        (401, &[]),
    ];
    let mut requests = Vec::new();
    for (method, mode, destination, media_type) in kinds {
        for (status, mark) in marks {
            let mut fields: Vec<(&str, String)> =
                mark.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            fields.push(("Host", host.to_owned()));
            fields.push(("Sec-Fetch-Mode", mode.to_owned()));
            fields.push(("Sec-Fetch-Dest", destination.to_owned()));
            fields.push(("Cookie", format!("token={token}")));
            fields.extend(media_type.map(|it| ("Content-Type", it.to_owned())));
            if status == 403 {
                fields.push(("Authorization", format!("Bearer {token}")));
            }
            requests.push((status, method, fields));
        }
    }
    requests
}

#[test]
fn nothing_that_a_page_can_send_has_an_effect_or_an_answer_that_it_may_read() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let requests = requests_of_pages(&http.address, &http.token);
    assert!(requests.len() >= 30, "{}", requests.len());
    for (status, method, fields) in requests {
        for path in ["/v1/tasks/echo", "/v1/jobs/x", "/v1/status"] {
            let mut connection = http.connect();
            let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            connection
                .write(format!("{method} {path} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n").as_bytes());
            let answer = connection.answer().expect("an answer");
            assert_eq!(answer.problem().0, status, "{method} {path} {fields:?}");
            assert_eq!(answer.field("access-control-allow-origin"), None);
        }
    }
    assert_eq!(http.daemon.status()["jobs"]["accepted"], 0);
}

#[test]
fn no_protocol_is_switched_to() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    for (protocol, origin, status) in [
        ("websocket", "http://evil.example".to_owned(), 403),
        ("websocket", format!("http://{}", http.address), 200),
        ("h2c", format!("http://{}", http.address), 200),
    ] {
        let fields = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", protocol),
            ("Origin", &origin),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ];
        let mut connection = http.connect();
        connection.send("GET", "/v1/status", &fields, b"");
        let answer = connection.answer().expect("an answer");
        assert_eq!((answer.status, answer.field("upgrade")), (status, None), "{protocol} {origin}");
        connection.send("GET", "/healthz", &[], b"");
        assert_eq!(connection.answer().expect("it still speaks HTTP/1.1").status, 200);
    }
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
fn a_key_belongs_to_all_who_have_shown_the_token_over_whatever_socket() {
    let folder = tests::harness::private_folder();
    let socket = folder.path().join("h.sock");
    let http = HttpDaemon::start(&["--workers", "1", "--http", &format!("unix:{}", socket.display())]);
    let by_tcp = http.call("echo", &[("Idempotency-Key", "k"), ("Content-Type", "text/plain")], "hello");
    let by_socket = |fields: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%header{offload-job}"]);
        curl.args(["-H", "Idempotency-Key: k", "-H", "Content-Type: text/plain", "-d", "hello"]);
        curl.arg("--unix-socket").arg(&socket).args(fields).arg("http://here/v1/tasks/echo");
        run(&mut curl, b"").ok().text()
    };
    let token = format!("Authorization: Bearer {}", http.token);
    assert_eq!(Some(&*by_socket(&["-H", &token])), by_tcp.field("offload-job"));

    let nameless = by_socket(&[]);
    assert_ne!(Some(&*nameless), by_tcp.field("offload-job"), "whoever has shown none has keys of its own");
    assert_eq!(by_socket(&["-H", "Authorization: Bearer wrong-0123456789"]), nameless);
    let words = ["--detach", "--idempotency-key", "k", "--content-type", "text/plain", "echo", "hello"];
    let by_command = http.daemon.run(&[&["submit"][..], &words].concat()).ok().text();
    assert_eq!(by_command.trim(), nameless, "they are those of the user's own programs");
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
