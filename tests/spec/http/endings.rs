//! Clients that go away, workers that die, a supervisor that ends.

use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;
use tests::harness::{Gate, signal, until};
use tests::http::{Answer, HttpDaemon};

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
    let gate = Gate::closed();
    let http = HttpDaemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/gate", &[("Idempotency-Key", "k")], b"x");
    until("it runs", || (counts(&http)["running"] == 1).then_some(()));
    drop(connection);
    until("its client is known to be gone", || (http.connections() == 1).then_some(()));
    gate.open();
    assert_eq!(http.call("gate", &[("Idempotency-Key", "k")], "x").status, 200);
    assert_eq!(counts(&http)["accepted"], 1);
}

/// Eight times two hundred clients that go away: in the head, in the body, or once they have asked.
fn storm(http: &HttpDaemon) {
    std::thread::scope(|scope| {
        for client in 0..8 {
            scope.spawn(move || {
                for number in 0..200 {
                    let mut connection = http.connect();
                    let body = vec![b'x'; 1 << (number % 17)];
                    let length = body.len().to_string();
                    let head = connection.head("POST", "/v1/tasks/echo", &[("Content-Length", &length)]);
                    let request = [head.as_bytes(), &body].concat();
                    let is_whole = number % 5 < 2;
                    let part = (client * 131 + number * 977) % request.len();
                    let _ = connection.try_write(&request[..if is_whole { request.len() } else { part }]);
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
}

/// So many of those clients send all of their request.
const WHOLE: u64 = 8 * 80;

/// The milliseconds of a job that does not end by itself.
const HOUR: &str = "3600000";

/// Waits until no job waits, so many run, and there are no more than so many descriptors. Returns how many jobs there were, and how
/// many of them were cancelled. The others returned, or still run.
fn settled(http: &HttpDaemon, running: u64, descriptors: usize) -> (u64, u64) {
    // Connections are accepted in their order: those of the storm before this one.
    assert_eq!(http.ask("GET", "/healthz", &[], b"").status, 200);
    let status = until("nothing is left of them", || {
        // Before the connection that asks for the status.
        let open = tests::harness::descriptors_of(http.daemon.pid());
        let status = http.daemon.status();
        let (jobs, queue) = (&status["jobs"], &status["queue"]);
        // Inputs count until their jobs have ended.
        let held = running * HOUR.len() as u64;
        let is_over = jobs["running"] == running && jobs["queued"] == 0 && queue["bytes"] == held;
        (is_over && open <= descriptors).then_some(status)
    });
    assert_eq!(status["ledger"]["balanced"], true);
    let number = |name: &str| status["jobs"][name].as_u64().expect("a number");
    for (name, count) in status["jobs"].as_object().expect("counts") {
        let is_counted = ["accepted", "ok", "cancelled", "running"].contains(&&**name);
        assert!(is_counted || *count == 0, "{name} {}", status["jobs"]);
    }
    let (accepted, cancelled) = (number("accepted"), number("cancelled"));
    assert_eq!(accepted, number("ok") + cancelled + running, "{}", status["jobs"]);
    (accepted, cancelled)
}

#[test]
fn storms_of_clients_that_go_away_leave_nothing_behind() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    http.daemon.wait_until_whole();
    let before = tests::harness::descriptors_of(http.daemon.pid());
    // While both workers are busy no job of the storm starts, so each that was accepted is cancelled.
    let mut held: Vec<_> = (0..2).map(|_| http.connect()).collect();
    held.iter_mut().for_each(|connection| connection.send("POST", "/v1/tasks/sleep", &[], HOUR.as_bytes()));
    until("both run", || (counts(&http)["running"] == 2).then_some(()));
    storm(&http);
    let (accepted, cancelled) = settled(&http, 2, before + held.len());
    assert!((2..=2 + WHOLE).contains(&accepted), "part of a request is no job: {accepted}");
    assert!(cancelled > 0 && cancelled == accepted - 2, "{cancelled} of {accepted}");
    drop(held);
    assert_eq!(settled(&http, 0, before), (accepted, accepted));
    // Now their jobs may start, and some are faster than the news that nobody waits.
    storm(&http);
    let (all, _) = settled(&http, 0, before);
    assert!((accepted + 1..=accepted + WHOLE).contains(&all), "{accepted}, then {all}");
}

#[test]
fn when_workers_are_killed_only_the_requests_that_they_ran_fail_and_say_so() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let (answered, answers) = mpsc::channel::<()>();
    let (ok, victims, killed) = std::thread::scope(|scope| {
        // After each kill it waits for four answers: the jobs get on however fast it is.
        let http = &http;
        let killer = scope.spawn(move || {
            let mut killed = Vec::new();
            loop {
                let busy = http.daemon.workers().into_iter().find(|worker| worker["state"] == "busy");
                let pid = busy.and_then(|worker| u32::try_from(worker["pid"].as_u64()?).ok());
                pid.into_iter().for_each(|pid| signal(pid, Signal::KILL));
                killed.extend(pid);
                for _ in 0..4 {
                    if answers.recv().is_err() {
                        return killed;
                    }
                }
            }
        });
        let client = |attempts: &'static str| {
            let answered = answered.clone();
            move || {
                let (mut ok, mut victims) = (0, Vec::new());
                let mut connection = http.connect();
                for _ in 0..60 {
                    connection.send("POST", "/v1/tasks/sleep", &[("Offload-Attempts", attempts)], b"5");
                    let answer = connection.answer().expect("every request is answered");
                    match answer.status {
                        200 => ok += 1,
                        _ => victims.push(killed_worker_of(http, &answer)),
                    }
                    answered.send(()).expect("the killer listens");
                }
                (ok, victims)
            }
        };
        let once: Vec<_> = (0..3).map(|_| scope.spawn(client("1"))).collect();
        let retried: Vec<_> = (0..3).map(|_| scope.spawn(client("100"))).collect();
        let join = |clients: Vec<std::thread::ScopedJoinHandle<'_, (u64, Vec<u32>)>>| {
            let ended = clients.into_iter().map(|client| client.join().expect("a client"));
            ended.fold((0, Vec::new()), |(ok, victims), (more, also)| (ok + more, [victims, also].concat()))
        };
        drop(answered);
        let ((ok, victims), ended_retried) = (join(once), join(retried));
        assert_eq!(ended_retried, (180, vec![]), "a job that may run again is not lost with its worker");
        (ok, victims, killer.join().expect("the killer"))
    });
    assert_eq!(ok + victims.len() as u64, 180);
    assert!(!killed.is_empty(), "nothing was killed");
    // A worker runs one job at a time, so each kill has one victim at most.
    let distinct: BTreeSet<&u32> = victims.iter().collect();
    assert_eq!(distinct.len(), victims.len(), "two requests failed by one kill: {victims:?}");
    let others: Vec<_> = victims.iter().filter(|pid| !killed.contains(pid)).collect();
    assert!(others.is_empty(), "{others:?} failed, and were not killed: {killed:?}");
    assert!(victims.len() <= killed.len(), "{victims:?} {killed:?}");
    assert_eq!(counts(&http)["worker_crashed"], victims.len(), "nothing else has failed");
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

/// The worker that was killed while it ran the request with this answer, which says so.
fn killed_worker_of(http: &HttpDaemon, answer: &Answer) -> u32 {
    assert_eq!(answer.problem(), (502, "worker_crashed".to_owned()));
    let problem = answer.json();
    assert_eq!((&problem["signal"], &problem["attempts"]), (&9.into(), &1.into()), "{problem}");
    assert_eq!(problem["detail"], "signal 9 (SIGKILL) in attempt 1 of 1");
    let job = answer.field("offload-job").expect("its id");
    let job = http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").json();
    let pid = job["lost"][0]["worker_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.unwrap_or_else(|| panic!("no attempt was lost: {job}"))
}

#[test]
fn of_two_requests_that_run_the_one_whose_worker_is_killed_fails_unless_it_may_run_again() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let begin = |task: &str, fields: &[(&str, &str)], body: &str| {
        let mut connection = http.connect();
        connection.send("POST", &format!("/v1/tasks/{task}"), fields, body.as_bytes());
        (connection, running(&http, task))
    };
    let once = ("Offload-Attempts", "1");
    let (_connection, bystander) = begin("count", &[once], r#"{"to":2,"every_ms":3600000}"#);
    let (mut victim, killed) = begin("sleep", &[once], "3600000");
    assert_ne!(killed, bystander);
    signal(killed, Signal::KILL);
    assert_eq!(killed_worker_of(&http, &victim.answer().expect("an answer")), killed);
    // The task is idempotent: by itself, with a key, and if it is said.
    for fields in [&[][..], &[("Idempotency-Key", "k")], &[("Offload-Attempts", "2")]] {
        let (mut victim, killed) = begin("sleep", fields, "3600000");
        signal(killed, Signal::KILL);
        let row = until("it runs again", || {
            let row = http.ask("GET", "/v1/jobs?limit=1", &[], b"").json()["rows"][0].clone();
            (row["attempts"] == 2 && running(&http, "sleep") != killed).then_some(row)
        });
        let job = row["job"].as_str().expect("its id");
        assert_eq!(http.ask("DELETE", &format!("/v1/jobs/{job}"), &[], b"").json()["cancelled"], true);
        assert_eq!(
            victim.answer().expect("an answer").problem(),
            (499, "cancelled".to_owned()),
            "{fields:?}"
        );
    }
    assert_eq!(running(&http, "count"), bystander, "it was not disturbed");
    let jobs = counts(&http);
    let (crashed, cancelled, running) = (&jobs["worker_crashed"], &jobs["cancelled"], &jobs["running"]);
    assert_eq!((crashed, cancelled, running), (&1.into(), &3.into(), &1.into()), "{jobs}");
}

/// The worker that runs this task.
fn running(http: &HttpDaemon, task: &str) -> u32 {
    let pid = http.daemon.worker_running(task)["pid"].as_u64();
    pid.and_then(|pid| u32::try_from(pid).ok()).expect("a process")
}

#[test]
fn a_supervisor_that_ends_says_that_it_is_not_ready_and_answers_what_it_has_accepted() {
    let gate = Gate::closed();
    let mut http =
        HttpDaemon::start(&["--workers", "2", "--drain-timeout", "60s", "--exec-task", &gate.task()]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/gate", &[], b"x");
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
    gate.open();
    assert_eq!(connection.answer().expect("it was accepted").text(), "x");
    assert_eq!(connection.ends(), b"", "the connection ends with it");
    assert_eq!(http.daemon.wait(), 0);
}
