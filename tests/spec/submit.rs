//! `offload submit`, `wait`, `result` and `cancel`: one job for a running supervisor.

use serde_json::{Value, json};
use std::time::Duration;
use tests::harness::{Daemon, Gate, offload, run};

#[test]
fn the_output_is_printed_as_it_is() {
    let daemon = Daemon::start(&["--workers", "1"]);
    assert_eq!(daemon.run(&["submit", "echo", "hello"]).ok().text(), "hello\n");
    let bytes = [0u8, 255, 10, 13];
    let ran = run(&mut daemon.command(&["submit", "echo", "-"]), &bytes).ok();
    assert_eq!(ran.stdout, bytes);
}

#[test]
fn bytes_that_are_no_text_travel_as_base64_in_json() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let ran = run(&mut daemon.command(&["submit", "--json", "echo", "-"]), &[0, 255]).ok();
    assert_eq!(ran.json()["output_base64"], "AP8=");
    assert_eq!(daemon.submit(&["echo", "text"])["output"], "text");
    assert_eq!(daemon.submit(&["average", "3"])["output"], json!(2.0));
}

#[test]
fn the_output_can_go_to_a_file() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let file = daemon.folder().join("out");
    daemon.run(&["submit", "--output", file.to_str().unwrap(), "echo", "kept"]).ok();
    assert_eq!(std::fs::read_to_string(file).unwrap().trim_end(), "kept");
}

#[test]
fn with_json_the_file_is_that_of_a_job_that_is_ok_and_a_failure_is_printed() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let file = daemon.folder().join("out");
    std::fs::write(&file, "from before").unwrap();
    let flags = ["--json", "--output", file.to_str().unwrap()];
    for (task, outcome, code) in [("primes", "app_error", 1), ("no_such_task", "unknown_task", 4)] {
        let failed = daemon.run(&[&["submit", task, "no number"], &flags[..]].concat()).code(code).json();
        assert_eq!(failed["outcome"], outcome);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "from before");
    assert_eq!(daemon.run(&[&["submit", "echo", "newer"], &flags[..]].concat()).ok().text(), "");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((&document["outcome"], &document["output"]), (&json!("ok"), &json!("newer")));
}

#[test]
fn a_detached_job_is_waited_for_later_and_its_result_stays() {
    let gate = Gate::closed();
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    let id = daemon.run(&["submit", "--detach", "gate", "null"]).ok().text().trim().to_owned();
    assert_eq!(id.len(), 26);
    let early = daemon.run(&["result", &id]);
    assert_ne!(early.code, 0, "it has not ended: {early:?}");
    gate.open();
    for _ in 0..2 {
        assert_eq!(daemon.run(&["wait", &id]).ok().text(), "null\n");
        assert_eq!(daemon.run(&["result", &id]).ok().text(), "null\n");
    }
    let jobs = daemon.run(&["jobs", "--json"]).ok().json();
    assert_eq!((&jobs[0]["job"], &jobs[0]["state"]), (&json!(id), &json!("ok")));
}

#[test]
fn an_unknown_job_has_an_exit_code_of_its_own() {
    let daemon = Daemon::start(&["--workers", "1"]);
    for verb in ["wait", "result", "cancel"] {
        let ran = daemon.run(&[verb, "01J00000000000000000000000"]).code(5);
        assert!(ran.stderr.contains("no job"), "{}", ran.stderr);
    }
}

#[test]
fn a_running_job_can_be_cancelled_and_so_can_one_that_waits() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let running = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
    let waiting = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
    daemon.worker_running("sleep");
    for id in [&waiting, &running] {
        daemon.run(&["cancel", id]).ok();
        daemon.run(&["wait", id]).code(126);
    }
    assert_eq!(daemon.run(&["submit", "echo", "next"]).ok().text(), "next\n");
}

#[test]
fn time_limits_have_their_own_exit_code_and_say_what_was_exceeded() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let ran = daemon.run(&["submit", "--timeout", "100ms", "sleep", "3600000"]).code(124);
    assert!(ran.stderr.contains("timeout: ran longer than 100 ms"), "{}", ran.stderr);
    daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok();
    let ran = daemon.run(&["submit", "--deadline", "100ms", "echo", "late"]).code(124);
    assert!(ran.stderr.contains("before it was started"), "{}", ran.stderr);
}

#[test]
fn the_tables_tell_which_job_a_worker_is_on() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let id = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
    let worker = daemon.worker_running("sleep");
    assert_eq!(worker["job"], Value::String(id.clone()));
    assert_eq!(worker["state"], "busy");
    assert!(worker["running_us"].is_u64() && worker["rss_bytes"].as_u64() > Some(100_000), "{worker}");
    let table = daemon.run(&["workers"]).ok().text();
    assert!(table.contains(&id) && table.contains("sleep"), "{table}");
    let tasks = daemon.run(&["tasks", "--json"]).ok().json();
    let names: Vec<_> = tasks.as_array().unwrap().iter().map(|task| task["task"].as_str().unwrap()).collect();
    for name in [
        "average",
        "echo",
        "gunzip",
        "gzip",
        "json",
        "mandelbrot",
        "pbkdf2",
        "primes",
        "regex",
        "sha256",
        "sleep",
        "sort",
        "thumbnail",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"fault"), "only with --allow-faults");
    daemon.run(&["status"]).ok();
}

#[test]
fn submit_takes_a_client_name_and_a_number_of_attempts() {
    let daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
    let failed = daemon.submit(&["--attempts", "1", "--client", "me", "fault", r#"{"act":"kill"}"#]);
    assert_eq!((&failed["outcome"], &failed["attempts"]), (&json!("worker_crashed"), &json!(1)));
    let jobs = daemon.run(&["jobs", "--json"]).ok().json();
    assert_eq!(jobs[0]["client"], "me");
    let ran = daemon.run(&["submit", "--receipt", "echo", "x"]).ok();
    assert!(ran.stderr.contains("queued") && ran.stderr.contains("ran"), "{}", ran.stderr);
}

#[test]
fn a_job_whose_client_goes_away_while_it_waits_is_not_run() {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok();
    let mut waiting = daemon.command(&["submit", "echo", "x"]).spawn().unwrap();
    let queued = |daemon: &Daemon| daemon.status()["queue"]["jobs"].as_u64();
    tests::harness::until("the job to wait", || (queued(&daemon) == Some(1)).then_some(()));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    tests::harness::until("the job to be cancelled", || (queued(&daemon) == Some(0)).then_some(()));
    assert_eq!(daemon.status()["jobs"]["cancelled"], 1);
}

#[test]
fn status_answers_at_once_while_a_large_document_is_worked_on() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let document = daemon.folder().join("big.json");
    let number = "[1,2,3],".repeat(1_000_000);
    std::fs::write(&document, format!("[{number}0]")).unwrap();
    let at = format!("@{}", document.display());
    let mut job = daemon.command(&["submit", "json", &at]);
    let job = std::thread::spawn(move || run(&mut job, b""));
    while !job.is_finished() {
        let status = daemon.run(&["status", "--json"]).ok();
        assert!(status.took < Duration::from_secs(5));
    }
    let ran = job.join().unwrap().ok();
    assert_eq!(ran.json()["values"], 4_000_002);
}

#[test]
fn the_status_counts_what_was_rejected_by_the_reason() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "1"]);
    for _ in 0..2 {
        daemon.run(&["submit", "no-such-task", "x"]).code(4);
    }
    let sleep = ["submit", "--detach", "sleep", "600000"];
    daemon.run(&sleep).ok();
    daemon.worker_running("sleep");
    daemon.run(&sleep).ok();
    daemon.run(&sleep).code(4);
    let status = daemon.status();
    assert_eq!(status["jobs"]["rejected"], 3);
    assert_eq!(status["rejections"], json!({ "overloaded": 1, "unknown_task": 2 }));
    let text = daemon.run(&["status"]).ok().text();
    assert!(text.contains("3 rejected (1 overloaded, 2 unknown_task)"), "{text}");
}

/// A shell goes on writing to the same open file.
#[test]
fn an_output_that_names_a_stream_is_written_behind_what_is_there() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let out = daemon.folder().join("out");
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/2", "/dev/stderr"] {
        let file = std::fs::File::create(&out).unwrap();
        let script = format!("echo before; \"$0\" --socket \"$1\" submit echo x --output {name}; echo after");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(offload()).arg(&daemon.socket);
        let status = shell.stderr(file.try_clone().unwrap()).stdout(file).status().unwrap();
        assert!(status.success(), "{name}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "before\nx\nafter\n", "{name}");
    }
}
