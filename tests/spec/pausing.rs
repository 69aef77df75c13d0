//! Pauses: nothing new of a paused task starts, and everything else goes on.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::harness::{Daemon, Gate, private_folder, program, signal, until};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    daemon.run(&[&["submit", "--detach"], arguments].concat()).ok().text().trim().to_owned()
}

fn explain(daemon: &Daemon, job: &str) -> Value {
    daemon.run(&["explain", "--json", job]).ok().json()
}

fn is_said_to_be_paused(explanation: &Value) -> bool {
    explanation["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .any(|reason| reason.as_str().unwrap().starts_with("it is paused"))
}

/// Other jobs of the same client come later and are done: so those of the paused task would have been, too.
#[test]
fn jobs_of_a_paused_task_wait_until_it_is_resumed_and_all_others_are_done() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let paused = daemon.run(&["pause", "--json", "echo"]).ok().json();
    assert_eq!(paused, json!({ "paused": { "all": false, "tasks": ["echo"] } }));
    let waiting: Vec<String> = (0..20).map(|_| detach(&daemon, &["echo", "x"])).collect();
    for _ in 0..20 {
        daemon.run(&["submit", "sha256", "x"]).ok();
    }
    let explained = explain(&daemon, &waiting[0]);
    assert_eq!((&explained["state"], &explained["attempts"]), (&json!("paused"), &json!(0)));
    assert!(is_said_to_be_paused(&explained), "{explained}");
    let listed = |state| daemon.run(&["jobs", "--json", "--outcome", state]).ok().json();
    assert_eq!(listed("paused").as_array().unwrap().len(), 20);
    assert_eq!(listed("queued"), json!([]));
    assert_eq!(daemon.status()["queue"]["jobs"], 20);
    assert!(daemon.run(&["status"]).ok().text().contains("the task echo is paused"));
    assert_eq!(daemon.run(&["resume", "echo"]).ok().text(), "nothing is paused\n");
    let ids: Vec<&str> = waiting.iter().map(String::as_str).collect();
    assert_eq!(daemon.run(&[&["wait"], &ids[..]].concat()).ok().text(), "x\n".repeat(20));
}

#[test]
fn what_runs_goes_on_and_does_not_run_again_until_the_end_of_the_pause() {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    let gate = Gate::closed();
    let programs = ["--worker", "builtin", "--worker", &worker, "--exec-task", &gate.task()];
    let daemon = Daemon::start(&[&["--workers", "3"], &programs[..]].concat());
    let running = detach(&daemon, &["gate"]);
    daemon.worker_running("gate");
    daemon.run(&["pause"]).ok();
    assert!(daemon.run(&["status", "--json"]).ok().json()["paused"]["all"] == true);
    gate.open();
    daemon.run(&["wait", &running]).ok();

    daemon.run(&["resume"]).ok();
    let killed = detach(&daemon, &["sleep", FOR_EVER]);
    let pid = daemon.worker_running("sleep")["pid"].as_u64().unwrap();
    daemon.run(&["pause", "sleep"]).ok();
    signal(u32::try_from(pid).unwrap(), Signal::KILL);
    let waits = until("the job to wait for its second attempt", || {
        Some(explain(&daemon, &killed)).filter(|job| job["state"] == "paused")
    });
    assert_eq!(waits["attempts"], 1);
    assert!(is_said_to_be_paused(&waits), "{waits}");
    // A worker is there for it, and one of another program crashes meanwhile.
    daemon.run(&["submit", "--attempts", "1", "act", "exit7"]).code(125);
    daemon.run(&["submit", "echo", "x"]).ok();
    assert_eq!(explain(&daemon, &killed)["attempts"], 1);
    daemon.run(&["resume", "sleep"]).ok();
    until("the second attempt", || (explain(&daemon, &killed)["attempts"] == 2).then_some(()));
}

#[test]
fn a_job_that_is_paused_has_its_deadline_and_can_be_cancelled() {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["pause", "echo"]).ok();
    let late = daemon.run(&["submit", "--json", "--deadline", "50ms", "echo", "x"]).code(124).json();
    assert_eq!((&late["outcome"], &late["attempts"]), (&json!("timeout"), &json!(0)));
    let job = detach(&daemon, &["echo", "x"]);
    daemon.run(&["cancel", &job]).ok();
    daemon.run(&["wait", &job]).code(126);
}

/// One client floods the paused task up to its bound; the queue of everybody else works.
#[test]
fn what_waits_for_the_end_of_a_pause_counts_within_the_bounds_of_the_queue() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "20", "--max-jobs-per-client", "5"]);
    daemon.run(&["pause", "echo"]).ok();
    for _ in 0..5 {
        detach(&daemon, &["--client", "greedy", "echo", "x"]);
    }
    let refused = daemon.run(&["submit", "--client", "greedy", "echo", "x"]).code(4);
    assert!(refused.stderr.contains("quota"), "{}", refused.stderr);
    daemon.run(&["submit", "--client", "polite", "sha256", "x"]).ok();
}

#[test]
fn a_pause_outlives_a_reload_and_a_drain_waits_for_its_end() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["pause", "echo"]).ok();
    let job = detach(&daemon, &["echo", "kept"]);
    daemon.run(&["reload"]).ok();
    assert!(is_said_to_be_paused(&explain(&daemon, &job)));
    let cut_short = daemon.run(&["drain", "--timeout", "50ms", "--json"]).code(1).json();
    assert_eq!(cut_short["cancelled"], 1);
    daemon.wait();
}

/// Nothing could start it any more, also not the end of the pause.
#[test]
fn a_job_that_is_paused_ends_when_its_task_is_gone_and_others_of_the_pause_wait_on() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let offer = |tasks: &[&str]| {
        let text: String = tasks.iter().map(|task| format!("[task.{task}]\nexec = [\"cat\"]\n")).collect();
        std::fs::write(&file, text).unwrap();
    };
    offer(&["gone", "stays"]);
    let daemon = Daemon::start(&["--config", file.to_str().unwrap(), "--workers", "2"]);
    daemon.run(&["pause"]).ok();
    let [gone, stays] = ["gone", "stays"].map(|task| detach(&daemon, &[task, "x"]));
    offer(&["stays"]);
    daemon.run(&["reload"]).ok();
    let ran = daemon.run(&["wait", "--json", &gone]);
    let job = ran.json();
    assert_eq!((&job["outcome"], &job["attempts"]), (&json!("unavailable"), &json!(0)), "{job}");
    assert!(job["error"]["message"].as_str().unwrap().contains("no worker offers 'gone' any more"), "{job}");
    assert_eq!(explain(&daemon, &stays)["state"], "paused");
    daemon.run(&["resume"]).ok();
    assert_eq!(daemon.run(&["wait", &stays]).ok().text(), "x\n");
}

#[test]
fn a_task_that_nobody_offers_cannot_be_paused_nor_one_resumed_while_all_are_paused() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let unknown = daemon.run(&["pause", "ehco"]).code(4);
    assert!(
        unknown.stderr.contains("unknown_task") && unknown.stderr.contains("'ehco'"),
        "{}",
        unknown.stderr
    );
    daemon.run(&["pause"]).ok();
    let refused = daemon.run(&["resume", "echo"]).code(4);
    assert!(refused.stderr.contains("all tasks are paused"), "{}", refused.stderr);
    assert_eq!(daemon.run(&["resume"]).ok().text(), "nothing is paused\n");
}
