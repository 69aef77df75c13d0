//! One process with many connections: it counts as one client, has one turn, and does not lock others out.

use super::connections::{Raw, frame, hello, raise_own_limit, run_jobs, show, submit};
use bytes::Bytes;
use offload_protocol::messages::{ToClient, ToSupervisor, View};
use offload_supervisor::client::Client;
use offload_supervisor::limits::{
    CONNECTIONS_MAX, LAST_CONNECTIONS, PAGE_BYTES_MAX, PROCESS_ANSWERS_MAX, REQUESTS_PER_TURN,
};
use serde_json::Value;
use std::io::Write;
use tests::chaos::flood::Flood;
use tests::harness::{Daemon, until};

/// As many connections of this process as are let in; all wait for the job.
fn take_all(daemon: &Daemon, job: &str) -> Vec<Raw> {
    let wait = frame(&ToSupervisor::Wait { ticket: 1, job }, b"");
    let connect = || {
        let mut raw = Raw::connect(daemon);
        // One that is refused may be closed before it has said anything; the goodbye is still there to be heard.
        let _ = raw.socket.write_all(&frame(&hello(), b""));
        let is_in = matches!(raw.hear(), Some((ToClient::Welcome { .. }, _)));
        is_in.then(|| raw.say(&wait)).map(|()| raw)
    };
    std::iter::from_fn(connect).take(CONNECTIONS_MAX + 1).collect()
}

#[test]
fn a_process_with_as_many_connections_as_it_gets_locks_nobody_out() {
    if raise_own_limit() < CONNECTIONS_MAX + 200 {
        println!("skipped: this machine allows too few descriptors for {CONNECTIONS_MAX} clients");
        return;
    }
    let daemon = Daemon::start(&["--workers", "1"]);
    // These wait for a job, so none of them gives way.
    let mut busy = Raw::greeted(&daemon);
    busy.say(&[frame(&submit(1, "sleep"), b"600000"), frame(&submit(2, "sleep"), b"600000")].concat());
    let job = daemon.worker_running("sleep")["job"].as_str().unwrap().to_owned();
    let clients = take_all(&daemon, &job);
    assert_eq!(clients.len() + 1, CONNECTIONS_MAX - LAST_CONNECTIONS);
    for _ in 0..3 {
        daemon.run(&["status"]).ok();
        daemon.run(&["submit", "--detach", "sleep", "1"]).ok();
        assert!(daemon.run(&["workers"]).ok().text().contains("busy"));
    }
    // The last ones are shared out; when they are gone too, somebody new may look after the supervisor.
    let others: Vec<Flood> = (0..8).map(|_| Flood::start(&daemon.socket, 100, Some(&job))).collect();
    assert_eq!(daemon.run(&["status", "--json"]).ok().json()["state"], "running");
    let refused = daemon.run(&["submit", "--json", "echo", "x"]).code(4);
    assert_eq!(refused.json()["error"]["code"], "overloaded", "{refused:?}");
    assert!(refused.json()["error"]["retry_after_ms"].as_u64().unwrap() > 0);
    // One that waits for nothing any more gives way.
    daemon.run(&["cancel", &job]).ok();
    until("a client gives way", || {
        (daemon.run(&["submit", "--detach", "sleep", "1"]).code == 0).then_some(())
    });
    drop(others);
    daemon.run(&["stop"]).ok();
}

#[test]
fn a_flood_over_many_connections_of_one_process_holds_up_nobody_else() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let flood = Flood::start(&daemon.socket, 300, None);
    let rejected = |status: &Value| status["jobs"]["rejected"].as_u64().unwrap();
    until("a flood", || (rejected(&daemon.status()) > 5000).then_some(()));
    let mut polite = Raw::greeted(&daemon);
    polite.say(&(0..50).flat_map(|ticket| show(ticket, View::Status)).collect::<Vec<u8>>());
    let counts: Vec<u64> =
        (0..50).map(|_| rejected(&serde_json::from_slice(&polite.hear().unwrap().1).unwrap())).collect();
    // Two questions that were asked at once: in between, the flood had no more than its turn.
    let between = counts.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(between.max().unwrap() <= REQUESTS_PER_TURN as u64, "{counts:?}");
    assert!(counts[0] < counts[49], "the flood had its turns, too: {counts:?}");
    assert_eq!(daemon.run(&["submit", "echo", "x"]).ok().text().trim(), "x");
    daemon.run(&["drain"]).ok();
    assert!(flood.end() > 0);
}

#[test]
fn the_views_of_one_process_take_a_fixed_amount_however_many_connections_it_has() {
    let daemon = Daemon::start(&["--workers", "1", "--max-bytes", "8MiB", "--max-payload", "1MiB"]);
    run_jobs(&daemon, 1000);
    let mut greedy: Vec<Raw> = (0..150).map(|_| Raw::greeted(&daemon)).collect();
    let questions: Vec<u8> = (0..50).flat_map(|ticket| show(ticket, View::Jobs)).collect();
    greedy.iter_mut().for_each(|raw| raw.say(&questions));
    let held = || daemon.status()["queue"]["bytes"].as_u64().unwrap();
    until("that much is held", || (held() > PROCESS_ANSWERS_MAX as u64 / 2).then_some(()));
    for _ in 0..10 {
        assert!(held() <= (PROCESS_ANSWERS_MAX + 2 * PAGE_BYTES_MAX) as u64, "{} bytes are held", held());
        assert_eq!(daemon.run(&["submit", "echo", "x"]).ok().text().trim(), "x");
    }
    // Once the others are gone, the one that reads gets all that it asked for.
    greedy.truncate(1);
    for expected in 0..50 {
        assert_eq!(greedy[0].hear().unwrap().0, ToClient::Answer { ticket: expected });
    }
}

#[test]
fn clients_without_a_name_are_told_apart_by_their_process_and_nobody_takes_such_a_name() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut clients = [0, 1].map(|_| Client::connect(&daemon.socket, "").unwrap());
    for client in &mut clients {
        let ticket = client.submit("sleep", &Bytes::from_static(b"600000")).unwrap();
        assert!(matches!(client.answer_to(ticket).unwrap().0, ToClient::Accepted { .. }));
    }
    let ours = format!("process {}", std::process::id());
    let status = daemon.status();
    assert_eq!(status["clients"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["clients"][0]["client"], ours.as_str());
    let job = daemon.worker_running("sleep")["job"].as_str().unwrap().to_owned();
    assert_eq!(daemon.run(&["explain", "--json", &job]).ok().json()["client"], ours.as_str());
    let forged = daemon.run(&["submit", "--client", &ours, "echo", "x"]);
    assert_ne!(forged.code, 0, "{forged:?}");
}
