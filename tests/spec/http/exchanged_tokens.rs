//! A token that is taken away while requests wait, or receive a stream, by it.

use super::version2::peer::*;
use offload_http::limits::READ_TIME;
use rustix::process::Signal;
use std::time::Instant;
use tests::harness::{Gate, private_folder, until};
use tests::http::{HttpConnection, HttpDaemon};

const NEW: &str = "a-new-token-of-28-characters";

/// The supervisor takes these in place of its token. It is not waited for that its workers are exchanged, because they are at work.
fn exchange(http: &mut HttpDaemon, tokens: &[&str]) {
    let file = http.daemon.folder().join("http.token");
    std::fs::write(file, tokens.join("\n")).expect("our own file");
    http.daemon.signal(Signal::HUP);
    let old = std::mem::replace(&mut http.token, tokens[0].to_owned());
    let status = |token: &str| {
        let shown = format!("Bearer {token}");
        http.ask("GET", "/v1/status", &[("Authorization", &shown)], b"").status
    };
    let others = if tokens.contains(&&*old) { 200 } else { 401 };
    until("they count", || (status(tokens[0]) == 200 && status(&old) == others).then_some(()));
}

fn start(gate: &Gate) -> HttpDaemon {
    let route = ["--http-route", "POST /open gate auth=none"];
    HttpDaemon::start(&[&["--workers", "4", "--exec-task", &gate.task()], &route[..]].concat())
}

/// A stream that has begun.
fn stream(http: &HttpDaemon, method: &str, path: &str, fields: &[(&str, &str)]) -> HttpConnection {
    let mut connection = http.connect();
    connection.send(method, path, fields, b"");
    let (status, _) = connection.head_of_answer().expect("an answer");
    assert_eq!(status, 200, "{path}");
    connection
}

#[test]
fn what_waits_or_streams_by_a_token_ends_with_it() {
    let gate = Gate::closed();
    let mut http = start(&gate);
    let job = http.call("gate", &[("Prefer", "respond-async")], "x");
    let place = job.field("location").expect("where it is").to_owned();
    http.daemon.worker_running("gate");
    let mut streams = vec![
        stream(&http, "GET", "/v1/events", &[]),
        stream(&http, "GET", &format!("{place}/events"), &[]),
        stream(&http, "POST", "/v1/tasks/gate", &[("Accept", "text/event-stream")]),
    ];
    let mut waiting: Vec<_> = [("POST", "/v1/tasks/gate"), ("GET", &*format!("{place}?wait=60"))]
        .into_iter()
        .map(|(method, path)| {
            let mut connection = http.connect();
            connection.send(method, path, &[], b"");
            connection
        })
        .collect();
    let mut open = http.connect();
    open.send("POST", "/open", &[("Authorization", "")], b"");
    let cancelled = |http: &HttpDaemon| http.daemon.status()["jobs"]["cancelled"].clone();
    until("all are there", || (http.daemon.status()["jobs"]["accepted"] == 4).then_some(()));
    let old = http.token.clone();
    exchange(&mut http, &[NEW, &old]);
    assert_eq!(cancelled(&http), 0, "the old one still counts");
    exchange(&mut http, &[NEW, "another-token-of-31-characters!"]);
    for connection in &mut waiting {
        assert_eq!(connection.answer().expect("an answer").problem(), (401, "unauthenticated".to_owned()));
    }
    for connection in &mut streams {
        while connection.line().is_some() {}
    }
    until("their jobs are cancelled", || (cancelled(&http) == 2).then_some(()));
    gate.open();
    assert_eq!(open.answer().expect("an answer").status, 200, "it needs no token");
    assert_eq!(http.ask("GET", &format!("{place}?wait=60"), &[], b"").json()["state"], "ok", "nobody waited");
}

#[test]
fn over_http2_only_the_requests_of_that_token_end() {
    let gate = Gate::closed();
    let mut http = start(&gate);
    let old = http.token.clone();
    exchange(&mut http, &[NEW, &old]);
    let mut peer = Peer::greeted(&http);
    let with_old = |peer: &Peer, method: &str, path: &str| {
        let authorization = format!("Bearer {old}");
        let all = [(":method", method), (":scheme", "http"), (":path", path), (":authority", &*peer.host)];
        fields(&[&all[..], &[("authorization", &authorization)]].concat())
    };
    for (stream, block) in [
        (1, with_old(&peer, "POST", "/v1/tasks/gate")),
        (3, with_old(&peer, "GET", "/v1/events")),
        (5, peer.request("POST", "/v1/tasks/gate", &[])),
    ] {
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
    }
    assert_eq!(peer.hear(), Heard::Response(3), "the stream has begun");
    until("both are there", || (http.daemon.status()["jobs"]["accepted"] == 2).then_some(()));
    exchange(&mut http, &[NEW, "another-token-of-31-characters!"]);
    let mut ended = [peer.hear(), peer.hear()];
    ended.sort_by_key(|heard| matches!(heard, Heard::Reset(..)));
    assert!(matches!(ended, [Heard::Response(1), Heard::Reset(3, _)]), "{ended:?}");
    gate.open();
    assert_eq!((peer.hear(), peer.block), (Heard::Response(5), OK), "another one goes on");
}

/// Whatever is wrong in it: what is read last is checked before anything is exchanged.
#[test]
fn a_reload_that_is_refused_exchanges_nothing() {
    let gate = Gate::closed();
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let task = gate.task();
    let command: Vec<&str> = task.split(' ').skip_while(|word| *word != "--").skip(1).collect();
    let write = |more: &str| {
        let text = format!("[task.gate]\nexec = {command:?}\n{more}");
        std::fs::write(&file, text).expect("our own file");
    };
    write("[[route]]\nmethod = \"POST\"\npath = \"/old\"\ntask = \"echo\"");
    let http = HttpDaemon::start(&["--config", file.to_str().expect("text"), "--workers", "2"]);
    let mut waiting = http.connect();
    waiting.send("POST", "/v1/tasks/gate", &[], b"x");
    http.daemon.worker_running("gate");
    std::fs::write(http.daemon.folder().join("http.token"), NEW).expect("our own file");
    for bad in [
        "[task.t]\nexec = [\"/nonexistent/program\"]",
        "[[route]]\nmethod = \"POST\"\npath = \"/v1/x\"\ntask = \"echo\"",
        "[[pool]]\ncommand = [\"builtin\"]\n[[pool]]\ncommand = [\"builtin\"]",
    ] {
        write(bad);
        let said = http.daemon.run(&["reload"]).code(4).stderr;
        assert!(said.contains("nothing changes, the old configuration stays"), "{bad}: {said}");
        assert_eq!(http.call("echo", &[], "x").status, 200, "{bad}: the old token counts");
        assert_eq!(http.ask("POST", "/old", &[], b"x").status, 200, "{bad}: the old route is there");
    }
    gate.open();
    assert_eq!(waiting.answer().expect("an answer").status, 200, "it went on");
}

#[test]
fn whose_job_goes_on_without_its_token_is_told_which_one_that_is() {
    let gate = Gate::closed();
    let kept = "POST /kept gate cancel_on_disconnect=false";
    let mut http = HttpDaemon::start(&["--workers", "5", "--exec-task", &gate.task(), "--http-route", kept]);
    let requests = [
        ("/v1/tasks/gate", ("X", "x"), false, false),
        ("/v1/tasks/gate", ("Idempotency-Key", "k"), true, false),
        ("/kept", ("X", "x"), true, false),
        ("/v1/tasks/gate", ("Prefer", "wait=60"), true, true),
    ];
    let waiting: Vec<_> = requests
        .into_iter()
        .map(|(path, field, goes_on, has_place)| {
            let mut connection = http.connect();
            connection.send("POST", path, &[field], b"");
            (connection, goes_on, has_place)
        })
        .collect();
    until("all are there", || (http.daemon.status()["jobs"]["accepted"] == 4).then_some(()));
    exchange(&mut http, &[NEW]);
    let mut jobs = Vec::new();
    for (mut connection, goes_on, has_place) in waiting {
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.problem(), (401, "unauthenticated".to_owned()));
        let job = answer.field("offload-job").map(str::to_owned);
        assert_eq!((job.is_some(), answer.json()["job"].as_str()), (goes_on, job.as_deref()), "{answer:?}");
        let place = job.as_deref().filter(|_| has_place).map(|job| format!("/v1/jobs/{job}"));
        assert_eq!(answer.field("location"), place.as_deref(), "{answer:?}");
        jobs.extend(job);
    }
    gate.open();
    for job in jobs {
        assert_eq!(http.ask("GET", &format!("/v1/jobs/{job}?wait=60"), &[], b"").json()["state"], "ok");
    }
}

/// Nobody asks for more of a stream for which there is no room.
#[test]
fn over_http2_a_stream_ends_with_its_token_though_its_client_makes_no_room() {
    let mut http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    let no_window = [0, 4, 0, 0, 0, 0];
    peer.write(&frame(SETTINGS, 0, 0, &no_window));
    let begun = Instant::now();
    let request = peer.request("GET", "/v1/events", &[]);
    peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &request));
    assert_eq!(peer.hear(), Heard::Response(1), "the stream has begun");
    exchange(&mut http, &[NEW]);
    assert!(matches!(peer.hear(), Heard::Reset(1, _)));
    assert!(begun.elapsed() < READ_TIME, "it is not its slowness that has ended it");
}
