//! `offload worker check`: workers that keep the protocol pass, and each way to break it is found and named.

use serde_json::Value;
use std::path::Path;
use std::sync::Mutex;
use tests::harness::{
    PATIENCE, check_worker, command, offload, private_folder, run_offload, until, wait_for_end, workspace,
};

fn example() -> String {
    std::fs::read_to_string(workspace().join("examples/worker.py")).expect("the example")
}

fn check(command: &str, flags: &[&str]) -> (i32, Value) {
    let ran = run_offload(&[&["worker", "check", command, "--json"], flags].concat());
    (ran.code, serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("no report: {ran:?}")))
}

/// What a worker that breaks it never does, so that all of the time limit passes.
const WAIT_IN_VAIN: [&str; 4] =
    ["ervisor is gone", "supervisor is gone while", "exits with 0 on Drain", "keeps its socket"];

/// What is wrong with the example when one thing in it is changed.
fn wrong(folder: &Path, from: &str, to: &str, only: &str) -> Vec<String> {
    let text = example();
    assert!(text.contains(from), "the example has changed: {from}");
    let file = folder.join(format!("{}.py", only.replace(' ', "-")));
    std::fs::write(&file, text.replace(from, to)).expect("a file");
    let limit = if WAIT_IN_VAIN.contains(&only) { "5s" } else { "60s" };
    let (code, report) = check(&format!("python3 {}", file.display()), &["--only", only, "--timeout", limit]);
    let fails = report["questions"].as_array().expect("rows").iter().filter(|row| row["verdict"] == "fails");
    let fails: Vec<String> = fails.map(|row| format!("{}: {}", row["question"], row["detail"])).collect();
    assert_eq!((code, report["ok"].as_bool()), (1, Some(false)), "{only}: {fails:?}");
    fails
}

#[test]
fn workers_that_keep_the_protocol_pass() {
    let builtin = format!("{} worker", offload().display());
    let example = format!("python3 {}", workspace().join("examples/worker.py").display());
    for command in [builtin, example] {
        let report = check_worker(&[&command]).code(0).json();
        assert_eq!(report["ok"], true, "{report:#}");
        let rows = report["questions"].as_array().expect("rows");
        assert!(
            rows.len() > 20 && rows.iter().filter(|row| row["verdict"] == "kept").count() >= 19,
            "{report:#}"
        );
    }
}

#[test]
fn each_way_to_break_the_protocol_is_found_and_named() {
    let folder = private_folder();
    let holder = "import subprocess; subprocess.Popen(['sleep', '60'])\nchannel = socket";
    let lock = format!(
        "lock = socket.socket(socket.AF_UNIX); lock.bind({:?})\nchannel = socket",
        folder.path().join("lock").display()
    );
    let again = "UNKNOWN, output); send(struct.pack(\"<IQI\", STARTED, job, attempt))";
    let cases: [(&str, &str, &str, &str); 14] = [
        (
            "send(struct.pack(\"<IQI\", STARTED, job, attempt))",
            "pass",
            "example of each task",
            "in place of Started",
        ),
        ("STARTED, job, attempt)", "STARTED, job, 1)", "number of the attempt", "in place of Started"),
        ("UNKNOWN, output)", again, "several jobs that come", "it answered Started of job 1"),
        (
            "output = run(payload)",
            "output = run(payload) if payload else exit(5)",
            "empty input",
            "exit code 5",
        ),
        ("output = run(payload)", "output = payload + b'x'", "longest input", "8388608 are allowed"),
        ("raise SystemExit(0) ", "time.sleep(60) ", "ervisor is gone", "when its socket was closed"),
        ("output = run(payload)", "time.sleep(60)", "supervisor is gone while", "when its socket was closed"),
        ("        break\n", "        continue\n", "exits with 0 on Drain", "had not ended"),
        ("        break\n", "        raise SystemExit(3)\n", "before it exits on Drain", "exit code 3"),
        ("channel = socket", holder, "keeps its socket", "holds its socket"),
        ("channel = socket", &lock, "side by side", "beside others of its kind"),
        ("b\"OFFLOADW\", 3", "b\"OFFLOADW\", 4", "ready in time", "version 4"),
        ("b\"[1, 2]\"", "b\"[1, x]\"", "an example of each", "fails with its own example"),
        (
            "    if number == DRAIN:",
            "    if number == 2: raise KeyError('what is a Cancel?')\n    if number == DRAIN:",
            "comes too late",
            "what is a Cancel?",
        ),
    ];
    // Most of them wait most of the time. All at once would keep each other waiting for longer than that.
    let (cases, folder) = (Mutex::new(cases.into_iter()), folder.path());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let next = || cases.lock().expect("nobody panics with it").next();
                while let Some((from, to, only, expected)) = next() {
                    let found = wrong(folder, from, to, only);
                    assert!(found.iter().any(|line| line.contains(expected)), "{only}: {found:?}");
                }
            });
        }
    });
}

/// The longest input has the time limit for each of its 8 MiB: this worker takes longer than one of them.
#[test]
fn the_longest_input_may_take_its_time_for_each_mebibyte() {
    let folder = private_folder();
    let slow = "time.sleep(6 if len(payload) == 8 << 20 else 0); output = run(payload)";
    let text = example();
    let file = folder.path().join("worker.py");
    std::fs::write(&file, text.replace("output = run(payload)", slow)).expect("a file");
    let flags = ["--only", "longest input", "--timeout", "5s"];
    let (code, report) = check(&format!("python3 {}", file.display()), &flags);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report:#}");
}

/// Python reads no integer of more than 4,300 digits.
#[test]
fn the_longest_input_is_one_that_every_json_parser_reads() {
    let folder = private_folder();
    let text = std::fs::read_to_string(workspace().join("examples/jsonl/worker.py")).expect("the example");
    let file = folder.path().join("worker.py");
    assert!(text.contains(", parse_int=float"), "the example has changed");
    std::fs::write(&file, text.replace(", parse_int=float", "")).expect("a file");
    let flags = ["--jsonl", "--only", "longest input"];
    let (code, report) = check(&format!("python3 {}", file.display()), &flags);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report:#}");
}

#[test]
fn a_worker_that_heeds_nothing_ends_with_the_check() {
    let folder = private_folder();
    let (program, started) = (folder.path().join("worker.py"), folder.path().join("started"));
    let text = "import os, signal, sys, time\nsignal.signal(15, signal.SIG_IGN)\n\
        open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\nos.rename(sys.argv[1] + '.new', sys.argv[1])\ntime.sleep(600)";
    std::fs::write(&program, text).expect("a file");
    let worker = format!("python3 {} {}", program.display(), started.display());
    let mut check = command(&["worker", "check", &worker, "--timeout", "10m"]).spawn().expect("the check");
    let pid = until("the worker runs", || std::fs::read_to_string(&started).ok());
    check.kill().expect("it runs");
    check.wait().expect("our own child");
    assert!(wait_for_end(pid.parse().expect("a number"), PATIENCE));
}

#[test]
fn a_program_that_is_no_worker_is_told_what_it_did() {
    for (command, expected, advice) in [
        ("echo hello", "it ended with exit code 0; it printed \"hello\"", "--exec"),
        ("/nonexistent/program", "`/nonexistent/program` cannot be started", ""),
        ("cat", "it said nothing for", "--exec"),
    ] {
        let (code, report) = check(command, &["--timeout", "1s"]);
        let rows = report["questions"].as_array().expect("rows");
        assert_eq!((code, rows.len()), (1, 1), "{report:#}");
        let detail = rows[0]["detail"].as_str().expect("a sentence");
        assert!(detail.starts_with(expected) && detail.contains(advice), "{report:#}");
    }
}
