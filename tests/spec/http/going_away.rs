//! Clients that go away while they wait.

use tests::harness::{Gate, until};
use tests::http::HttpDaemon;

const ROUTES: [&str; 4] = [
    "--http-route",
    "POST /kept gate cancel_on_disconnect=false",
    "--http-route",
    "POST /dropped gate cancel_on_disconnect=true",
];

fn start(gate: &Gate, arguments: &[&str]) -> HttpDaemon {
    let tasks = ["--workers", "2", "--exec-task", &gate.task()];
    HttpDaemon::start(&[&tasks, arguments, &ROUTES[..]].concat())
}

/// Asks for a job at this path and goes away when it runs, as the supervisor knows at the end.
fn go_away(http: &HttpDaemon, path: &str) {
    let mut client = http.connect();
    client.send("POST", path, &[], b"x");
    http.daemon.worker_running("gate");
    drop(client);
    until("it is known to be gone", || (http.connections() == 1).then_some(()));
}

fn ended(http: &HttpDaemon, outcome: &str) -> bool {
    http.daemon.status()["jobs"][outcome] == 1
}

#[test]
fn who_goes_away_cancels_its_job_or_not_as_the_server_and_the_route_say() {
    for (flags, path, goes_on) in [
        (&[][..], "/v1/tasks/gate", false),
        (&[], "/kept", true),
        (&["--http-cancel-on-disconnect=false"], "/v1/tasks/gate", true),
        (&["--http-cancel-on-disconnect=false"], "/dropped", false),
    ] {
        let gate = Gate::closed();
        let http = start(&gate, flags);
        go_away(&http, path);
        if goes_on {
            gate.open();
        }
        let outcome = if goes_on { "ok" } else { "cancelled" };
        until(outcome, || ended(&http, outcome).then_some(()));
        assert_eq!(http.daemon.status()["ledger"]["balanced"], true, "{path}");
    }
}

#[test]
fn a_job_that_would_go_on_is_answered_like_any_other_and_leaves_nothing_behind() {
    let http = start(&Gate::closed(), &["--http-cancel-on-disconnect=false"]);
    for _ in 0..3 {
        let answer = http.call("echo", &[], "hello");
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    }
    let failed = http.call("primes", &[], "no number");
    assert_eq!(failed.problem(), (422, "app_error".to_owned()));
    assert_eq!(http.daemon.status()["kept"]["jobs"], 0, "who has waited for it has it");
}

#[test]
fn an_output_that_nobody_asked_to_keep_takes_no_room_from_others_while_its_client_reads_or_after_it_went() {
    let flags = ["--workers", "1", "--http-cancel-on-disconnect=false", "--max-kept-bytes", "8MiB"];
    let http = HttpDaemon::start(&flags);
    let mut greedy = http.connect();
    greedy.send("POST", "/v1/tasks/echo", &[], &vec![b'x'; 30 << 20]);
    let (status, fields) = greedy.head_of_answer().expect("an answer");
    assert_eq!(status, 200);
    let job = fields.iter().find(|(name, _)| name == "offload-job").expect("its id").1.clone();
    for is_gone in [false, true] {
        if is_gone {
            greedy.socket().shutdown(std::net::Shutdown::Both).expect("a socket");
        }
        assert_eq!(http.daemon.status()["kept"]["jobs"], 0);
        let innocent = http.call("echo", &[("Offload-Client", "innocent")], "hello");
        assert_eq!((innocent.status, innocent.text().as_str()), (200, "hello"));
    }
    let again = http.ask("GET", &format!("/v1/jobs/{job}/output"), &[], b"");
    assert_eq!(again.status, 404, "it is not kept");
}

#[test]
fn an_output_whose_client_left_while_it_was_sent_is_there_for_whoever_asks_again() {
    let http = start(&Gate::closed(), &["--http-cancel-on-disconnect=false"]);
    let body = vec![b'x'; 30 << 20];
    let whole = http.call("echo", &[], &body);
    assert!(whole.status == 200 && whole.body == body);
    until("who has all of it keeps nothing", || (http.daemon.status()["kept"]["jobs"] == 0).then_some(()));
    let mut leaving = http.connect();
    leaving.send("POST", "/v1/tasks/echo", &[], &body);
    let (status, fields) = leaving.head_of_answer().expect("an answer");
    assert_eq!(status, 200);
    let job = fields.iter().find(|(name, _)| name == "offload-job").expect("its id").1.clone();
    let kept = || http.daemon.status()["kept"]["jobs"].clone();
    assert_eq!(kept(), 1, "it does not have all of it");
    drop(leaving);
    let place = format!("/v1/jobs/{job}");
    let again = http.ask("GET", &format!("{place}/output"), &[], b"");
    assert!(again.status == 200 && again.body == body, "{} {}", again.status, again.body.len());
    assert_eq!(kept(), 1, "a GET collects nothing");
    assert_eq!(http.ask("DELETE", &place, &[], b"").status, 200);
    assert_eq!(kept(), 0);
}
