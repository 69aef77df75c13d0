//! A program that can never start: this is reported at once, in every place where somebody may look.

use serde_json::Value;
use std::process::Stdio;
use tests::harness::{Daemon, PATIENCE, Ran, command, private_folder, program, until};

fn hopeless() -> Vec<(String, &'static str)> {
    let faultworker = program("faultworker").display().to_string();
    vec![
        ("/no/such/program".to_owned(), "No such file"),
        (format!("{faultworker} boot:exit1"), "exit code 1"),
        (format!("{faultworker} boot:exit64"), "exit code 64"),
        ("/bin/false".to_owned(), "exit code 1"),
    ]
}

#[test]
fn a_supervisor_is_degraded_with_the_reason_from_its_first_failed_start_on() {
    for (worker, reason) in hopeless() {
        // No start after the first one: nothing is said only because it has failed often.
        let arguments = ["--workers", "1", "--worker", &worker, "--backoff-min", "1h", "--backoff-max", "1h"];
        let daemon = Daemon::launch(&arguments);
        let status =
            until("degraded", || Some(daemon.status()).filter(|status| status["state"] == "degraded"));
        assert!(status["reason"].as_str().unwrap().contains(reason), "{status}");
        let word = worker.split(' ').next().unwrap().rsplit('/').next().unwrap();
        let line = daemon.stderr.find(|line| line.contains("program `"), PATIENCE).expect("a line");
        assert!(line.contains(reason) && line.contains(word), "{line}");
        let text = daemon.run(&["status"]).ok().text();
        assert!(text.contains("degraded") && text.contains(reason), "{text}");
    }
}

#[test]
fn each_program_has_a_state_and_a_reason_of_its_own() {
    let daemon = Daemon::launch(&["--workers", "2", "--worker", "builtin", "--worker", "/no/such/program"]);
    let status = until("both", || {
        let status = daemon.status();
        (status["state"] == "degraded" && status["workers"]["ready"] == 1).then_some(status)
    });
    let (good, bad) = (&status["programs"][0], &status["programs"][1]);
    assert_eq!(bad["program"], "/no/such/program");
    assert_eq!((&bad["state"], &bad["refuses"]), (&"degraded".into(), &true.into()), "{status}");
    assert!(bad["reason"].as_str().unwrap().contains("No such file"), "{status}");
    assert_eq!((&good["state"], &good["reason"]), (&"ready".into(), &Value::Null), "{status}");
    assert_eq!(daemon.run(&["submit", "echo", "x"]).ok().text(), "x\n");
}

fn fail_fast(arguments: &[&str]) -> Ran {
    let folder = private_folder();
    let mut serve = command(&["serve", "--fail-fast", "--socket"]);
    serve.arg(folder.path().join("o.sock")).args(arguments).stdin(Stdio::null());
    tests::harness::run(&mut serve, b"")
}

#[test]
fn with_fail_fast_it_ends_the_supervisor_with_the_reason() {
    for (worker, reason) in hopeless() {
        let ran = fail_fast(&["--workers", "2", "--worker", "builtin", "--worker", &worker]).code(4);
        assert!(ran.stderr.contains(reason) && ran.stderr.contains("--fail-fast"), "{}", ran.stderr);
    }
    let ran = fail_fast(&["--json", "--worker", "/no/such/program"]).code(4);
    let last = ran.json_lines().pop().expect("a document");
    assert_eq!(last["error"]["code"], "unavailable", "{last}");
}

#[test]
fn with_fail_fast_a_program_that_has_started_once_is_tried_again_as_usual() {
    let daemon = Daemon::start(&["--workers", "1", "--fail-fast", "--allow-faults"]);
    assert_eq!(daemon.submit(&["fault", r#"{"act":"abort"}"#])["outcome"], "poison");
    assert_eq!(daemon.run(&["submit", "echo", "x"]).ok().text(), "x\n");
}
