//! Clients that wait for jobs, and what happens to a job when no client waits for it any more.

use bytes::Bytes;
use offload_protocol::messages::{DeadLetterAction, ToClient, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::client::Client;
use offload_supervisor::limits::{CONNECTIONS_MAX, LATE_ANSWERS_MAX, REPEATED_WAITS_MAX};
use serde_json::{Value, json};
use tests::harness::{Daemon, program, until};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

/// One worker, which is busy for ever.
fn busy() -> Daemon {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["submit", "--detach", "sleep", FOR_EVER]).ok();
    daemon.worker_running("sleep");
    daemon
}

fn submit(client: &mut Client, task: &str, input: &'static str) -> (u64, String) {
    let ticket = client.submit(task, &Bytes::from(input)).unwrap();
    let (ToClient::Accepted { job, .. }, _) = client.answer_to(ticket).unwrap() else {
        panic!("not accepted")
    };
    (ticket, job.into_owned())
}

fn wait(client: &mut Client, job: &str) -> u64 {
    let ticket = client.new_ticket();
    client.send(&ToSupervisor::Wait { ticket, job }, &Bytes::new()).unwrap();
    ticket
}

fn outcome(client: &mut Client, ticket: u64) -> OutcomeCode {
    match client.answer_to(ticket).unwrap().0 {
        ToClient::Finished { report, .. } => report.outcome,
        ToClient::Rejected { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn queued(daemon: &Daemon) -> Value {
    daemon.status()["queue"]["jobs"].clone()
}

#[test]
fn one_client_that_waits_for_a_job_very_often_keeps_nobody_else_from_waiting_for_it() {
    let daemon = busy();
    let mut owner = daemon.client();
    let (submitted, job) = submit(&mut owner, "echo", "x");
    let mut greedy = daemon.client();
    let tickets: Vec<u64> = (0..1100).map(|_| wait(&mut greedy, &job)).collect();
    for ticket in &tickets[REPEATED_WAITS_MAX..] {
        assert_eq!(outcome(&mut greedy, *ticket), OutcomeCode::Overloaded);
    }
    let mut other = daemon.client();
    let waited = wait(&mut other, &job);
    daemon.run(&["cancel", &job]).ok();
    assert_eq!(outcome(&mut other, waited), OutcomeCode::Cancelled);
    assert_eq!(outcome(&mut owner, submitted), OutcomeCode::Cancelled);
    for ticket in &tickets[..REPEATED_WAITS_MAX] {
        assert_eq!(outcome(&mut greedy, *ticket), OutcomeCode::Cancelled, "each time is answered");
    }
}

#[test]
fn a_job_that_waits_is_cancelled_when_the_last_one_has_gone_who_waited_for_it() {
    let daemon = busy();
    let mut owner = daemon.client();
    let (_, job) = submit(&mut owner, "echo", "x");
    let mut other = daemon.client();
    wait(&mut other, &job);
    submit(&mut other, "echo", "y");
    // Who came and went is not waited for.
    let mut gone = daemon.client();
    wait(&mut gone, &job);
    drop(gone);
    drop(owner);
    assert_eq!(queued(&daemon), 2, "somebody else waits");
    drop(other);
    until("the jobs to be cancelled", || (queued(&daemon) == 0).then_some(()));
    assert_eq!(daemon.status()["jobs"]["cancelled"], 2);
}

#[test]
fn thousands_of_jobs_of_one_who_has_gone_are_cancelled() {
    let daemon = busy();
    let mut client = daemon.client();
    let tickets: Vec<u64> = (0..2000).map(|_| client.submit("echo", &Bytes::new()).unwrap()).collect();
    for ticket in tickets {
        assert!(matches!(client.answer_to(ticket).unwrap().0, ToClient::Accepted { .. }));
    }
    assert_eq!(queued(&daemon), 2000);
    drop(client);
    until("all of them to be cancelled", || (queued(&daemon) == 0).then_some(()));
    assert_eq!(daemon.status()["jobs"]["cancelled"], 2000);
}

#[test]
fn those_who_asked_for_the_end_and_have_gone_keep_nobody_from_being_told_of_it() {
    let mut daemon = busy();
    for _ in 0..=CONNECTIONS_MAX / LATE_ANSWERS_MAX {
        let mut client = daemon.client();
        for _ in 0..LATE_ANSWERS_MAX {
            let ticket = client.new_ticket();
            client.send(&ToSupervisor::Drain { ticket }, &Bytes::new()).unwrap();
        }
        // One that is answered at once comes after those.
        let ticket = client.new_ticket();
        client.send(&ToSupervisor::Drain { ticket }, &Bytes::new()).unwrap();
        assert_eq!(outcome(&mut client, ticket), OutcomeCode::Overloaded);
    }
    let mut last = daemon.client();
    let ticket = last.new_ticket();
    last.send(&ToSupervisor::Drain { ticket }, &Bytes::new()).unwrap();
    daemon.run(&["stop"]).ok();
    assert!(matches!(last.answer_to(ticket).unwrap().0, ToClient::Answer { .. }));
    daemon.wait();
}

#[test]
fn a_dead_letter_is_tried_again_as_a_job_of_whoever_asks_for_it() {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    assert_eq!(daemon.submit(&["--client", "first", "act", "exit7"])["outcome"], "poison");
    let letter = daemon.run(&["dead", "list", "--json"]).ok().json()[0]["job"].clone();
    let job = letter.as_str().unwrap();
    let mut client = daemon.client();
    let retry = |ticket| ToSupervisor::Dead { ticket, action: DeadLetterAction::Retry, job };
    assert!(matches!(client.request(retry).unwrap().0, ToClient::Answer { .. }));
    let jobs = daemon.run(&["jobs", "--json"]).ok().json();
    let clients: Vec<&Value> = jobs.as_array().unwrap().iter().map(|job| &job["client"]).collect();
    assert!(clients.contains(&&json!("test")) && clients.contains(&&json!("first")), "{jobs}");
}
