//! What is remembered of a job after its end, and for how long: the real binary beside greedy clients.

use serde_json::{Value, json};
use tests::harness::{Daemon, Ran, run, until};

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    let ran = daemon.run(&[&["submit", "--detach"], arguments].concat()).ok();
    ran.text().trim().to_owned()
}

fn explain(daemon: &Daemon, job: &str) -> Value {
    daemon.run(&["explain", "--json", job]).ok().json()
}

fn wait_until_it_has_ended(daemon: &Daemon, job: &str) {
    until("the end of the job", || (explain(daemon, job)["state"] == "ok").then_some(()));
}

fn pay(daemon: &Daemon, client: &[&str], key: &str) -> Value {
    let arguments = ["--idempotency-key", key, "echo", "paid"];
    daemon.submit(&[client, &arguments].concat())
}

#[test]
fn neither_a_key_nor_a_result_is_forgotten_because_of_ten_thousand_jobs_of_another_client() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let paid = pay(&daemon, &["--client", "me"], "bill");
    let left = detach(&daemon, &["--client", "me", "echo", "left behind"]);
    wait_until_it_has_ended(&daemon, &left);

    let lines = "x\n".repeat(10_100);
    let map = ["map", "echo", "--client", "greedy", "--json"];
    let many = run(daemon.command(&map).arg("-").env("OFFLOAD_SOCKET", &daemon.socket), lines.as_bytes());
    assert_eq!(many.ok().text().lines().count(), 10_100);
    assert!(daemon.status()["jobs"]["ok"].as_u64() >= Some(10_102));

    let again = pay(&daemon, &["--client", "me"], "bill");
    assert_eq!((&again["job"], &again["output"]), (&paid["job"], &json!("paid")));
    assert_eq!(daemon.run(&["result", &left]).ok().text(), "left behind\n");
}

#[test]
fn a_key_belongs_to_the_client_that_used_it_and_without_a_name_to_whoever_has_none() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let one = pay(&daemon, &["--client", "team"], "bill/17");
    let other = pay(&daemon, &["--client", "team/bill"], "17");
    assert_ne!(one["job"], other["job"]);
    let first = pay(&daemon, &[], "18");
    assert_eq!(pay(&daemon, &[], "18")["job"], first["job"], "another process, and the same key");
}

#[test]
fn who_uses_a_key_again_after_its_time_is_told_of_the_job_before() {
    let daemon = Daemon::start(&["--workers", "1", "--keep-keys", "1ms", "--keep-results", "1ms"]);
    let first = pay(&daemon, &[], "bill");
    let second = until("the end of the key's time", || {
        let again = pay(&daemon, &[], "bill");
        (again["job"] != first["job"]).then_some(again)
    });
    assert_eq!(second["outcome"], "ok");
    let id = first["job"].as_str().unwrap();
    let ran = daemon.run(&["result", id]).code(5);
    assert!(ran.stderr.contains("kept as long as results are kept, and is forgotten"), "{}", ran.stderr);
}

#[test]
fn a_client_whose_results_fill_its_share_is_refused_until_it_collects_one_and_others_are_not() {
    let daemon = Daemon::start(&["--workers", "1", "--max-kept-bytes", "6KiB"]);
    let submit = |input: &str| -> Ran {
        daemon.run(&["submit", "--detach", "--json", "--client", "me", "echo", input])
    };
    let kept: Vec<String> = (0..2)
        .map(|number| submit(&number.to_string()).ok().json()["job"].as_str().unwrap().to_owned())
        .collect();
    kept.iter().for_each(|job| wait_until_it_has_ended(&daemon, job));
    assert_eq!(daemon.status()["kept"]["jobs"], 2);

    let refused = submit("too much").code(4).json();
    assert_eq!(refused["outcome"], "quota", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("client me hold") && message.contains("try again in about 60 min"), "{message}");
    detach(&daemon, &["--client", "you", "echo", "fine"]);
    assert_eq!(daemon.submit(&["--client", "me", "echo", "at once"])["output"], "at once");

    assert_eq!(daemon.run(&["result", &kept[0]]).ok().text(), "0\n");
    submit("now there is room").ok();
    assert_eq!(daemon.run(&["result", &kept[1]]).ok().text(), "1\n", "this one was never in danger");
}

#[test]
fn jobs_that_are_gone_jobs_of_another_supervisor_and_jobs_that_never_were_are_told_apart() {
    let [daemon, other] = [0, 1].map(|_| Daemon::start(&["--workers", "1"]));
    let (id, mine) = (detach(&other, &["echo", "x"]), detach(&daemon, &["echo", "x"]));
    let never = format!("{}ZZZZ", &mine[..22]);
    for (name, expected) in [
        (never.as_str(), "and never was"),
        (
            id.as_str(),
            "it was given its id by another supervisor, or by this one before it was started again",
        ),
        ("nonsense", "this is not the id of a job"),
    ] {
        let ran = daemon.run(&["result", name]).code(5);
        assert!(ran.stderr.contains("no job") && ran.stderr.contains(expected), "{}", ran.stderr);
    }
}
