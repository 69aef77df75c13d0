//! The access log.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tests::harness::{private_folder, run_offload, until};
use tests::http::HttpDaemon;

fn logging(arguments: &[&str]) -> (HttpDaemon, PathBuf, TempDir) {
    let folder = private_folder();
    let file = folder.path().join("access.log");
    let path = file.to_str().expect("a path of ours").to_owned();
    let http = HttpDaemon::start(&[&["--workers", "1", "--access-log", &path], arguments].concat());
    (http, file, folder)
}

/// The first line that contains this, when it is there.
fn line_with(file: &Path, word: &str) -> String {
    until(word, || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let is_whole = |line: &&str| line.contains(word) && text.contains(&format!("{line}\n"));
        text.lines().find(is_whole).map(str::to_owned)
    })
}

#[test]
fn every_request_has_a_line_that_nobody_can_forge() {
    use std::os::unix::fs::PermissionsExt;
    let (http, file, _folder) = logging(&["--http-trusted-proxy", "127.0.0.1"]);
    let fields = [
        ("User-Agent", "probe \"1\" \\ end"),
        ("Referer", "https://a.example/"),
        ("X-Forwarded-For", "203.0.113.9"),
    ];
    assert_eq!(http.call("echo", &fields, "hello").status, 200);
    let line = line_with(&file, "/v1/tasks/echo");
    assert!(
        line.starts_with("203.0.113.9 - - [")
            && line.contains("+0000] \"POST /v1/tasks/echo HTTP/1.1\" 200 5 "),
        "{line}"
    );
    assert!(line.ends_with("\"https://a.example/\" \"probe \\\"1\\\" \\\\ end\""), "{line}");
    http.ask("GET", "/v1/status?x=1", &[("Authorization", "")], b"");
    let line = line_with(&file, "/v1/status?x=1");
    assert!(line.contains("GET /v1/status?x=1 HTTP/1.1\" 401 "), "{line}");
    http.ask("GET", "/nowhere", &[("User-Agent", "\u{e9}")], b"");
    let line = line_with(&file, "/nowhere");
    assert!(line.contains("\" 404 ") && line.ends_with("\"\\xc3\\xa9\""), "{line}");
    let mut rude = http.connect();
    rude.write(b"GET / HTTP/1.1\r\nno field\r\n\r\n");
    rude.ends();
    let line = line_with(&file, "\"GET / HTTP/1.1\" 400 ");
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    let mut ruder = http.connect();
    ruder.write(b"\x01 / HTTP/1.1\r\n\r\n");
    ruder.ends();
    line_with(&file, "\"-\" 400 ");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_target_that_the_library_for_http_would_refuse_has_a_line_too() {
    let (http, file, _folder) = logging(&[]);
    let mut odd = http.connect();
    odd.write(b"GET /a<b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = odd.answer().expect("an answer");
    assert!(answer.status == 400 && answer.text().contains("%XX"), "{answer:?}");
    assert!(line_with(&file, "\"GET /a<b HTTP/1.1\" 400 ").starts_with("127.0.0.1 - - ["));
}

/// Refused before it is understood, and after that.
#[test]
fn a_head_that_is_refused_has_no_body_and_what_was_read_and_sent_is_logged() {
    let (http, file, _folder) = logging(&["--access-log-format", "json"]);
    let refused = |method: &str, target: &str, fields: &str| {
        let mut client = http.connect();
        client.write(format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n{fields}").as_bytes());
        let answer = String::from_utf8(client.ends()).expect("a text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let status = number(&head[9..12]);
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, number);
        assert_eq!(body.len() as u64, if method == "HEAD" { 0 } else { length }, "{answer}");
        let target = &target[..target.len().min(1024)];
        let line = line_with(&file, &format!("\"status\":{status}"));
        let line: Value = serde_json::from_str(&line).expect("a document");
        assert_eq!((&line["method"], &line["target"]), (&method.into(), &target.into()));
        assert_eq!(line["bytes"], body.len(), "{line}");
        std::fs::write(&file, "").expect("our own file");
        (status, length > 0, line["version"].as_str().unwrap_or_default().to_owned())
    };
    let (long, host) = ("/x".repeat(2000), "Host: localhost\r\n");
    for method in ["HEAD", "GET"] {
        for (target, fields, status) in [
            ("/two-hosts", format!("{host}{host}\r\n"), 400),
            ("/no-field", "Host : localhost\r\n\r\n".to_owned(), 400),
            ("/<", format!("{host}\r\n"), 400),
            (&*long, format!("{host}\r\n"), 414),
            ("/long", format!("X: {}\r\n\r\n", "y".repeat(20_000)), 431),
            ("/nowhere", format!("{host}\r\n"), 401),
        ] {
            let expected = (status, true, "HTTP/1.1".to_owned());
            assert_eq!(refused(method, target, &fields), expected, "{method} {status}");
        }
    }
}

#[test]
fn a_connection_for_which_there_is_no_room_has_a_line_with_what_was_sent() {
    let (http, file, _folder) = logging(&["--http-connections", "1"]);
    let mut only = http.connect();
    only.send("POST", "/v1/tasks/sleep", &[], b"600000");
    http.daemon.worker_running("sleep");
    let answer = http.connect().answer().expect("an answer");
    let line = line_with(&file, "\"-\" 503 ");
    assert!(line.contains(&format!("\"-\" 503 {} ", answer.body.len())), "{line}");
}

#[test]
fn a_client_that_goes_away_is_logged_too_and_json_has_the_job() {
    let (http, file, _folder) = logging(&["--access-log-format", "json"]);
    let answer = http.call("echo", &[], "hello");
    let document: Value = serde_json::from_str(&line_with(&file, "/v1/tasks/echo")).expect("a document");
    assert_eq!(
        (&document["status"], &document["bytes"], &document["method"]),
        (&200.into(), &5.into(), &"POST".into())
    );
    assert_eq!(document["job"].as_str(), answer.field("offload-job"));
    assert!(
        document["took_us"].is_u64() && document["time"].as_str().is_some_and(|time| time.ends_with('Z'))
    );
    let mut waiting = http.connect();
    waiting.send("POST", "/v1/tasks/sleep", &[], b"600000");
    http.daemon.worker_running("sleep");
    drop(waiting);
    let document: Value = serde_json::from_str(&line_with(&file, "/v1/tasks/sleep")).expect("a document");
    assert_eq!((&document["status"], &document["bytes"]), (&499.into(), &0.into()));
}

#[test]
fn a_reload_opens_the_file_again_after_it_was_renamed() {
    let (http, file, folder) = logging(&["--access-log-format", "common"]);
    http.ask("GET", "/healthz?one", &[], b"");
    assert!(line_with(&file, "healthz?one").ends_with("\" 200 3"));
    let old = folder.path().join("access.log.1");
    std::fs::rename(&file, &old).unwrap();
    http.ask("GET", "/healthz?two", &[], b"");
    line_with(&old, "healthz?two");
    http.daemon.run(&["reload"]).ok();
    http.ask("GET", "/healthz?three", &[], b"");
    line_with(&file, "healthz?three");
    assert!(!std::fs::read_to_string(&old).unwrap().contains("three"));
    // What cannot be opened again is said, and the old file is continued.
    std::fs::rename(&file, folder.path().join("access.log.2")).unwrap();
    std::fs::create_dir(&file).unwrap();
    let refused = http.daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("access log"), "{refused:?}");
    http.ask("GET", "/healthz?four", &[], b"");
    line_with(&folder.path().join("access.log.2"), "healthz?four");
}

#[test]
fn a_reload_or_a_start_that_is_refused_leaves_no_new_file() {
    let folder = private_folder();
    let (config, log) = (folder.path().join("offload.toml"), folder.path().join("access.log"));
    let path = config.to_str().expect("a path of ours");
    let pool = |name: &str| format!("[[pool]]\nname = '{name}'\ncommand = ['builtin']\n");
    let write = |pools: &[&str]| {
        let pools: String = pools.iter().copied().map(pool).collect();
        std::fs::write(&config, format!("[http]\naccess_log = '{}'\n{pools}", log.display())).unwrap();
    };
    write(&["one"]);
    let http = HttpDaemon::start(&["--config", path, "--workers", "2"]);
    assert!(log.exists());
    std::fs::rename(&log, folder.path().join("access.log.1")).unwrap();
    // What is wrong with that is seen last.
    write(&["one", "two"]);
    let refused = http.daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("needs a restart"), "{refused:?}");
    assert!(!log.exists(), "it was made for nothing");
    std::fs::write(&log, "").unwrap();
    http.daemon.run(&["reload"]).code(refused.code);
    assert!(log.exists(), "it was there before");
    std::fs::remove_file(&log).unwrap();
    write(&["one"]);
    http.daemon.run(&["reload"]).ok();
    http.ask("GET", "/healthz?two", &[], b"");
    line_with(&log, "healthz?two");
    let other = folder.path().join("other.log");
    let other_path = other.to_str().expect("a path of ours");
    http.daemon.run(&["serve", "--http", "127.0.0.1:0", "--access-log", other_path]).code(75);
    assert!(!other.exists(), "another supervisor is at the socket");
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_and_one_that_is_full_holds_up_nobody() {
    let folder = private_folder();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let path = pipe.to_str().expect("a path of ours");
    let refused = run_offload(&["serve", "--http", "127.0.0.1:0", "--access-log", path]);
    assert!(refused.code == 2 && refused.stderr.contains("access log"), "{refused:?}");
    let reader =
        rustix::fs::open(&pipe, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK, Mode::empty())
            .unwrap();
    let http = HttpDaemon::start(&["--workers", "1", "--access-log", path]);
    // More than the pipe takes, so that the writer is stuck.
    let long = format!("/healthz?{}", "x".repeat(1000));
    let mut connection = http.connect();
    for _ in 0..200 {
        connection.send("GET", &long, &[], b"");
        assert_eq!(connection.answer().expect("an answer").status, 200);
    }
    assert_eq!(http.call("echo", &[], "still here").text(), "still here");
    drop(reader);
}
