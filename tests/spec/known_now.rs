//! What users are told of jobs that wait is what is known now, and not what was known when they were accepted.

use bytes::Bytes;
use offload_protocol::messages::ToClient;
use offload_supervisor::client::Client;
use serde_json::Value;
use tests::harness::{Daemon, until};

/// Submits so many jobs that sleep for so long, and returns the name of the last one.
fn submit_sleeps(client: &mut Client, count: usize, millis: &'static str) -> String {
    let tickets: Vec<u64> =
        (0..count).map(|_| client.submit("sleep", &Bytes::from(millis)).unwrap()).collect();
    let (ToClient::Accepted { job, .. }, _) = client.answer_to(tickets[count - 1]).unwrap() else {
        panic!("not accepted")
    };
    job.into_owned()
}

fn explained(daemon: &Daemon, job: &str) -> Value {
    daemon.run(&["explain", "--json", job]).ok().json()
}

fn wait_for_ends(daemon: &Daemon, count: u64) {
    until("jobs that have ended", || daemon.status()["jobs"]["ok"].as_u64().filter(|ended| *ended >= count));
}

#[test]
fn what_a_burst_has_to_wait_is_known_when_the_first_of_it_has_ended() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = daemon.client();
    let last = submit_sleeps(&mut client, 100, "1000");
    wait_for_ends(&daemon, 1);
    let expected = daemon.status()["wait_estimate"]["now_us"].as_u64().unwrap();
    assert!(expected > 30_000_000, "each of them takes a second: {expected} us");
    let told = explained(&daemon, &last)["expected_wait_us"].as_u64();
    assert!(told > Some(30_000_000), "{told:?}");
}

#[test]
fn a_backlog_that_was_taken_for_short_jobs_is_known_as_long_when_some_of_it_have_run() {
    let daemon = Daemon::start(&["--workers", "2"]);
    for _ in 0..30 {
        daemon.submit(&["sleep", "0"]);
    }
    let mut client = daemon.client();
    let last = submit_sleeps(&mut client, 60, "700");
    wait_for_ends(&daemon, 30 + 4);
    assert_eq!(explained(&daemon, &last)["class"], "long");
}
