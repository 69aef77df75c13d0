//! Clients that go away, workers that die, a supervisor that ends.

use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use serde_json::Value;
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;
use tests::harness::{signal, until};
use tests::http::HttpDaemon;

fn counts(http: &HttpDaemon) -> Value {
    http.daemon.status()["jobs"].clone()
}

#[test]
fn a_client_that_is_gone_cancels_its_job_whether_it_runs_or_waits() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connections = Vec::new();
    for _ in 0..3 {
        let mut connection = http.connect();
        connection.send("POST", "/v1/tasks/sleep", &[], b"3600000");
        connections.push(connection);
    }
    until("one runs and two wait", || {
        let jobs = counts(&http);
        (jobs["running"] == 1 && jobs["queued"] == 2).then_some(())
    });
    drop(connections);
    until("all are cancelled", || (counts(&http)["cancelled"] == 3).then_some(()));
    let jobs = http.ask("GET", "/v1/jobs", &[], b"").text();
    let why = "its client is gone, and nobody waits for it";
    assert_eq!((jobs.matches(why).count(), jobs.contains("on request")), (3, false), "{jobs}");
    assert_eq!(http.call("echo", &[], "x").status, 200, "the worker is free again");
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn a_job_with_a_key_goes_on_without_its_client() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/sleep", &[("Idempotency-Key", "k")], b"100");
    until("it runs", || (counts(&http)["running"] == 1).then_some(()));
    drop(connection);
    assert_eq!(http.call("sleep", &[("Idempotency-Key", "k")], "100").status, 200);
    assert_eq!(counts(&http)["accepted"], 1);
}

#[test]
fn storms_of_clients_that_go_away_leave_nothing_behind() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    http.daemon.wait_until_whole();
    let before = tests::harness::descriptors_of(http.daemon.pid());
    std::thread::scope(|scope| {
        for client in 0..8 {
            let http = &http;
            scope.spawn(move || {
                for number in 0..200 {
                    let mut connection = http.connect();
                    let body = vec![b'x'; 1 << (number % 17)];
                    let head = connection.head(
                        "POST",
                        "/v1/tasks/echo",
                        &[("Content-Length", &body.len().to_string())],
                    );
                    // Gone in the head, in the body, before the answer, or in the middle of it.
                    let request = [head.as_bytes(), &body].concat();
                    let sent = (client * 131 + number * 977) % (request.len() + 1);
                    let _ = connection.try_write(&request[..sent]);
                    match number % 3 {
                        0 => drop(connection.socket().shutdown(Shutdown::Both)),
                        // With a reset, perhaps before the connection was accepted.
                        1 => set_socket_linger(connection.socket(), Some(Duration::ZERO)).expect("a socket"),
                        _ => {}
                    }
                }
            });
        }
    });
    until("nothing is left of them", || {
        // Before the connection that asks for the status.
        let descriptors = tests::harness::descriptors_of(http.daemon.pid());
        let status = http.daemon.status();
        let jobs = &status["jobs"];
        let is_over = jobs["running"] == 0 && jobs["queued"] == 0 && status["queue"]["bytes"] == 0;
        (is_over && descriptors <= before).then_some(())
    });
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn when_workers_are_killed_only_the_requests_that_they_ran_fail_and_say_so() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let (answered, answers) = mpsc::channel::<()>();
    let (ok, crashed, kills) = std::thread::scope(|scope| {
        // After each kill it waits for four answers: the jobs get on however fast it is.
        let http = &http;
        let killer = scope.spawn(move || {
            let mut kills = 0;
            loop {
                let busy = http.daemon.workers().into_iter().find(|worker| worker["state"] == "busy");
                let pid = busy.and_then(|worker| u32::try_from(worker["pid"].as_u64()?).ok());
                pid.into_iter().for_each(|pid| signal(pid, Signal::KILL));
                kills += u64::from(pid.is_some());
                for _ in 0..4 {
                    if answers.recv().is_err() {
                        return kills;
                    }
                }
            }
        });
        let client = |attempts: &'static str| {
            let answered = answered.clone();
            move || {
                let (mut ok, mut crashed) = (0, 0);
                let mut connection = http.connect();
                for _ in 0..60 {
                    connection.send("POST", "/v1/tasks/sleep", &[("Offload-Attempts", attempts)], b"5");
                    let answer = connection.answer().expect("every request is answered");
                    answered.send(()).expect("the killer listens");
                    match answer.status {
                        200 => ok += 1,
                        502 => {
                            assert_eq!(answer.problem().1, "worker_crashed");
                            assert_eq!(answer.json()["signal"], 9, "{}", answer.text());
                            crashed += 1;
                        }
                        _ => panic!("{answer:?}"),
                    }
                }
                (ok, crashed)
            }
        };
        let once: Vec<_> = (0..3).map(|_| scope.spawn(client("1"))).collect();
        let idempotent: Vec<_> = (0..3).map(|_| scope.spawn(client("100"))).collect();
        let join = |clients: Vec<std::thread::ScopedJoinHandle<'_, (u64, u64)>>| {
            let ended = clients.into_iter().map(|client| client.join().expect("a client"));
            ended.fold((0, 0), |(ok, crashed), (more, also)| (ok + more, crashed + also))
        };
        drop(answered);
        let ((ok, crashed), ended_idempotent) = (join(once), join(idempotent));
        assert_eq!(ended_idempotent, (180, 0), "a job that may run again is not lost with its worker");
        (ok, crashed, killer.join().expect("the killer"))
    });
    assert_eq!(ok + crashed, 180);
    assert!(kills > 0, "nothing was killed");
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn a_supervisor_that_ends_says_that_it_is_not_ready_and_answers_what_it_has_accepted() {
    let mut http = HttpDaemon::start(&["--workers", "1", "--drain-timeout", "60s"]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/sleep", &[], b"1500");
    until("it runs", || (counts(&http)["running"] == 1).then_some(()));
    http.daemon.signal(Signal::TERM);
    let not_ready = until("it is not ready", || {
        let answer = http.ask("GET", "/readyz", &[], b"");
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(not_ready.problem(), (503, "unavailable".to_owned()));
    assert_eq!(not_ready.json()["detail"], "the supervisor is draining");
    assert_eq!(not_ready.field("retry-after"), Some("1"));
    assert_eq!(http.call("echo", &[], "x").problem(), (503, "unavailable".to_owned()));
    assert_eq!(connection.answer().expect("it was accepted").text(), "null");
    assert_eq!(connection.ends(), b"", "the connection ends with it");
    assert_eq!(http.daemon.wait(), 0);
}
