//! Jobs that have failed are tried again: by `retry` if their inputs are kept, and otherwise the reason is told; by `submit --retry`
//! if their tasks return errors.

use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use tests::harness::{Daemon, PATIENCE, private_folder, run_offload, signal, until, wait_for_end};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

/// A program whose task `copy` ends it as long as the file in its first argument is not there.
const PROGRAM: &str = "\
import json, os, sys
jobs, answers = open(3), open(4, 'w', buffering=1)
answers.write(json.dumps({'hello': {'tasks': [{'name': 'copy', 'idempotent': True}]}}) + '\\n')
for line in jobs:
    job = json.loads(line)
    os.path.exists(sys.argv[1]) or os._exit(7)
    answers.write(json.dumps({'job': job['job'], 'output': job['input']}) + '\\n')
";

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    daemon.run(&[&["submit", "--detach"], arguments].concat()).ok().text().trim().to_owned()
}

fn end(id: &str) -> &str {
    &id[id.len() - 4..]
}

fn letters(daemon: &Daemon) -> Vec<Value> {
    daemon.run(&["dead", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

#[test]
fn jobs_that_killed_their_workers_are_done_once_the_program_is_mended_whatever_else_is_asked_for() {
    let folder = private_folder();
    let [program, mended] = ["program.py", "mended"].map(|name| folder.path().join(name));
    std::fs::write(&program, PROGRAM).unwrap();
    let worker = format!("python3 {} {}", program.display(), mended.display());
    let daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker-jsonl", &worker]);
    let died: Vec<String> = ["1", "2", "3"]
        .map(|input| detach(&daemon, &["--attempts", "2", "--label", "night", "copy", input]))
        .into_iter()
        .inspect(|job| drop(daemon.run(&["wait", job]).code(125)))
        .collect();
    let good = detach(&daemon, &["echo", "x"]);
    let failed = detach(&daemon, &["primes", "none"]);
    daemon.run(&["wait", &good, &failed]).code(1);
    let running = detach(&daemon, &["sleep", FOR_EVER]);
    std::fs::write(&mended, "").unwrap();

    let asked = ["retry", &good, end(&died[0]), &failed, &running, &died[1]];
    let retried = daemon.run(&asked).code(5);
    for (job, reason) in [
        (&good, "it has ended well"),
        (&failed, "it has ended as app_error, and the input is kept only of jobs"),
        (&running, "it has not ended"),
    ] {
        let line = retried.stderr.lines().find(|line| line.contains(job.as_str())).expect(&retried.stderr);
        assert!(line.contains(reason), "{line}");
    }
    let printed = retried.text();
    let new: Vec<&str> = printed.lines().collect();
    assert!(new.len() == 2 && !new.iter().any(|job| died.iter().any(|died| died == job)), "{new:?}");
    let done = daemon.run(&["wait", "--json", new[0], new[1]]).ok().json_lines();
    for (done, output) in done.iter().zip([1, 2]) {
        assert_eq!((&done["output"], &done["labels"]), (&json!(output), &json!(["night"])), "{done}");
    }

    // The same verb, where the dead letters are.
    let left = letters(&daemon);
    assert_eq!((left.len(), &left[0]["job"]), (1, &json!(died[2])));
    let answer = daemon.run(&["dead", "retry", "--json", end(&died[2])]).ok().json();
    assert_eq!(answer["dead"], json!(died[2]));
    assert_eq!(daemon.run(&["wait", answer["job"].as_str().unwrap()]).ok().text(), "3\n");
    let again = daemon.run(&["retry", &died[2]]).code(5);
    assert!(again.stderr.contains("it was retried"), "{}", again.stderr);
    assert!(letters(&daemon).is_empty());
}

#[test]
fn an_id_that_can_be_several_jobs_or_none_is_refused_and_nothing_is_retried() {
    let daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
    let kill = ["submit", "--json", "--attempts", "2", "fault", r#"{"act":"kill"}"#];
    let died = [(); 2].map(|()| daemon.run(&kill).code(125).json()["job"].as_str().unwrap().to_owned());
    let ambiguous = daemon.run(&["retry", &died[0], &died[1][..8]]).code(2);
    assert!(died.iter().all(|job| ambiguous.stderr.contains(job)), "{}", ambiguous.stderr);
    let unknown = daemon.run(&["retry", "01J00000000000000000000000"]).code(5);
    assert!(unknown.stderr.contains("no dead letter"), "{}", unknown.stderr);
    daemon.run(&["retry"]).code(2);
    assert_eq!(letters(&daemon).len(), 2);
}

/// A supervisor whose task `flaky` fails so often for each input, as a file counts, and then prints it.
fn flaky(failures: u32) -> (Daemon, tempfile::TempDir) {
    let folder = private_folder();
    let script = folder.path().join("flaky.sh");
    let count = folder.path().join("tries").display().to_string();
    let text = format!(
        "input=$(cat); echo >> {count}.$input; test $(wc -l < {count}.$input) -gt {failures} || exit 9; echo done $input"
    );
    std::fs::write(&script, text).unwrap();
    let task = format!("flaky -- sh {}", script.display());
    (Daemon::start(&["--workers", "2", "--allow-faults", "--exec-task", &task]), folder)
}

#[test]
fn a_submitted_job_is_tried_again_while_its_task_returns_errors_and_each_attempt_is_in_the_result() {
    let (daemon, folder) = flaky(2);
    let retry = |most, input| {
        daemon.run(&[
            "submit",
            "--json",
            "--retry",
            most,
            "--backoff",
            "5ms",
            "--label",
            "night",
            "flaky",
            input,
        ])
    };
    let done = retry("3", "a").ok().json();
    assert_eq!(
        (&done["outcome"], &done["attempts"], &done["output"]),
        (&json!("ok"), &json!(3), &json!("done a\n"))
    );
    let earlier = done["earlier_attempts"].as_array().unwrap();
    assert_eq!(earlier.len(), 2, "{done}");
    assert!(
        earlier.iter().all(|attempt| attempt["error"]["exit_code"] == 9 && attempt["job"] != done["job"])
    );

    let failed = retry("1", "b").code(1).json();
    assert_eq!((&failed["outcome"], &failed["attempts"]), (&json!("app_error"), &json!(2)));
    assert_eq!(failed["earlier_attempts"].as_array().map(Vec::len), Some(1));
    // The input is a file, of which each attempt has the content.
    std::fs::write(folder.path().join("input"), "c").unwrap();
    let file = format!("@{}", folder.path().join("input").display());
    assert_eq!(
        daemon.run(&["submit", "--retry", "2", "--backoff", "0s", "flaky", &file]).ok().text(),
        "done c\n"
    );

    // What is not the task's doing is not tried again, nor is what ends well.
    let crashed = ["submit", "--json", "--retry", "3", "--backoff", "1h", "--attempts", "1"];
    let crashed = daemon.run(&[&crashed[..], &["fault", r#"{"act":"kill"}"#]].concat()).code(125).json();
    assert_eq!((&crashed["attempts"], &crashed["earlier_attempts"]), (&json!(1), &Value::Null));
    daemon.run(&["submit", "--retry", "3", "--backoff", "1h", "nonsense", "x"]).code(4);
    assert_eq!(daemon.run(&["submit", "--retry", "3", "--backoff", "1h", "echo", "x"]).ok().text(), "x\n");
    let listed = daemon.run(&["jobs", "--json", "--label", "night"]).ok().json();
    assert_eq!(listed.as_array().map(Vec::len), Some(5));
}

#[test]
fn a_job_cannot_be_tried_again_that_nobody_waits_for_or_whose_output_is_printed_or_whose_key_is_taken() {
    for other in [&["--detach"][..], &["--stream"], &["--idempotency-key", "bill-17"]] {
        let words = [&["submit", "--retry", "1"], other, &["echo", "x"]].concat();
        let refused = run_offload(&words).code(2);
        assert!(refused.stderr.contains("--retry"), "{}", refused.stderr);
    }
}

/// Starts a submission that is tried again once.
fn begin(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut submit = daemon.command(&[&["submit", "--json", "--retry", "1"], arguments].concat());
    submit.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn who_is_interrupted_before_the_next_attempt_ends_by_the_signal_and_leaves_no_job() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut submit = begin(&daemon, &["--backoff", "1h", "primes", "none"]);
    until("the first attempt to fail", || (daemon.status()["jobs"]["app_error"] == 1).then_some(()));
    signal(submit.id(), Signal::INT);
    assert!(wait_for_end(submit.id(), PATIENCE));
    assert_eq!(submit.wait().unwrap().signal(), Some(2));
    let status = daemon.status();
    assert_eq!((&status["jobs"]["accepted"], &status["queue"]["jobs"]), (&json!(1), &json!(0)));
}

#[test]
fn if_the_supervisor_has_gone_before_the_next_attempt_the_result_is_that_of_the_last_one() {
    let folder = private_folder();
    let gate = folder.path().join("gate").display().to_string();
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let task = format!("gated -- sh -c 'cat {gate}; exit 9'");
    let mut daemon = Daemon::start(&["--workers", "2", "--exec-task", &task]);
    let submit = begin(&daemon, &["--backoff", "1ms", "gated", "x"]);
    daemon.worker_running("gated");
    // It learns of the end of its job when the supervisor is gone.
    signal(submit.id(), Signal::STOP);
    std::fs::write(&gate, "").unwrap();
    until("the first attempt to fail", || (daemon.status()["jobs"]["app_error"] == 1).then_some(()));
    daemon.run(&["stop"]).ok();
    daemon.wait();
    signal(submit.id(), Signal::CONT);
    let ended = submit.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("the job is not tried again: no supervisor at"), "{said}");
    let result: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&result["outcome"], &result["attempts"]), (&json!("app_error"), &json!(1)));
}
