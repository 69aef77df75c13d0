//! What is kept of a job after its end, and for how long, while other clients have as much kept as they can.

use bytes::Bytes;
use offload_protocol::messages::ToSupervisor;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tests::harness::{Daemon, Gate, Ran, run, signal, until};
use tests::raw_client::{Heard, RawClient};

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
fn a_key_that_is_used_after_its_time_gives_a_new_job_and_the_old_result_is_said_to_be_forgotten() {
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

fn is_kept(daemon: &Daemon, job: &str) -> bool {
    explain(daemon, job)["reasons"].to_string().contains("its result is kept for another")
}

#[test]
fn a_result_is_collected_when_its_last_byte_is_written_and_not_when_somebody_began_to_read_it() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let (file, length) = (daemon.folder().join("large"), 8 << 20);
    std::fs::write(&file, vec![b'x'; length]).unwrap();
    let job = detach(&daemon, &["echo", &format!("@{}", file.display())]);
    wait_until_it_has_ended(&daemon, &job);

    let mut raw = RawClient::connect(&daemon.socket).unwrap();
    raw.greet("");
    raw.queue(&ToSupervisor::Result { ticket: 1, job: &job }, &Bytes::new());
    let (deadline, mut pieces) = (Instant::now() + Duration::from_secs(30), 0);
    while raw.unsent() > 0 || pieces < 4 {
        raw.write(usize::MAX).unwrap();
        pieces += usize::from(matches!(raw.read(deadline), Heard::Messages(_)));
        assert!(Instant::now() < deadline, "the result does not come");
    }
    assert!(is_kept(&daemon, &job), "most of it is not written");
    drop(raw);
    assert!(is_kept(&daemon, &job), "who asked for it has hung up");

    assert_eq!(daemon.run(&["result", &job]).ok().stdout.len(), length + 1);
    until("the end of the promise", || (!is_kept(&daemon, &job)).then_some(()));
}

#[test]
fn a_process_without_a_name_whose_results_fill_its_share_leaves_room_for_others_without_a_name() {
    let daemon = Daemon::start(&["--workers", "1", "--max-kept-bytes", "64KiB"]);
    let half = "x".repeat(40 << 10);
    let first = detach(&daemon, &["echo", &half]);
    wait_until_it_has_ended(&daemon, &first);
    let second = detach(&daemon, &["echo", "another process"]);
    wait_until_it_has_ended(&daemon, &second);
    assert_eq!(pay(&daemon, &[], "bill")["output"], "paid");
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

/// Somebody else may have submitted it, too, and wait for it.
#[test]
fn who_is_interrupted_leaves_a_job_with_a_key_to_others() {
    let gate = Gate::closed();
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    let words = ["submit", "--json", "--idempotency-key", "shared", "gate"];
    let mut impatient = daemon.command(&words);
    let impatient = impatient.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.worker_running("gate");
    signal(impatient.id(), Signal::INT);
    let ended = impatient.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.signal(), Some(2), "{said}");
    assert!(said.contains("has an idempotency key and goes on"), "{said}");
    gate.open();
    let job = daemon.run(&words).ok().json();
    assert_eq!((&job["outcome"], &job["attempts"]), (&json!("ok"), &json!(1)));
}
