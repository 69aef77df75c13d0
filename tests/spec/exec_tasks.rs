//! Tasks that are programs: those of a configuration file, with their limits, and commands with places for the input.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tests::harness::{
    Daemon, command, private_folder, processes_with, run, run_offload, until, workspace, write_executable,
};

/// A supervisor with this configuration, and the folder of its file.
fn supervisor(text: &str) -> (Daemon, tempfile::TempDir) {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, text.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
    (Daemon::start(&["--workers", "2", "--config", file.to_str().unwrap()]), folder)
}

fn said(job: &Value) -> (&str, &str) {
    (job["outcome"].as_str().unwrap(), job["error"]["message"].as_str().unwrap_or_default())
}

const TASKS: &str = r#"
[task.upper]
exec = ["tr", "a-z", "A-Z"]
accepts = ["text/*"]
produces = "text/markdown"
idempotent = true

[task.soft]
exec = "sh -c 'echo soft; exit 1'"
success = [0, 1]

[task.slow]
exec = "sh -c 'trap : TERM; sleep 1000 & while :; do wait; done'"
timeout = "200ms"

[task.hungry]
exec = ["tail", "/dev/zero"]
memory = "64MiB"

[task.shared]
exec = ["python3", "-c", """
import mmap, signal
shared = mmap.mmap(-1, 100 << 20)
for _ in range(100): shared.write(bytes(1 << 20))
signal.pause()
"""]
memory = "64MiB"
timeout = "60s"

[task.where]
exec = "pwd"
dir = "FOLDER"

[task.variable]
exec = ["printenv", "A"]
env = { A = "b c" }

[task.large]
exec = ["dd", "if=/dev/zero", "of=FOLDER/large", "bs=1M", "count=2"]
file_size = "1MiB"

[task.named]
exec = ["echo", "{}", "{/}"]
"#;

#[test]
fn a_file_makes_programs_tasks_beside_the_built_in_ones() {
    let (daemon, folder) = supervisor(TASKS);
    assert_eq!(daemon.submit(&["upper", "shout"])["output_base64"], Value::Null);
    let job = daemon.submit(&["upper", "shout"]);
    assert_eq!((&job["output"], &job["content_type"]), (&"SHOUT".into(), &"text/markdown".into()));
    assert_eq!(daemon.submit(&["soft"])["output"], "soft\n");
    assert_eq!(daemon.submit(&["variable"])["output"], "b c\n");
    let place = daemon.submit(&["where"])["output"].as_str().unwrap().trim().to_owned();
    assert_eq!(Path::new(&place), folder.path().canonicalize().unwrap());
    assert_eq!(daemon.submit(&["sha256", "abc"])["outcome"], "ok", "a built-in task");
    let tasks = daemon.run(&["tasks", "--json"]).ok().json();
    let upper = tasks.as_array().unwrap().iter().find(|task| task["task"] == "upper").unwrap();
    assert_eq!((&upper["idempotent"], &upper["program"]), (&true.into(), &"exec".into()));
    assert_eq!(upper["accepts"], serde_json::json!(["text/*"]));
}

/// Each limit is tried between two jobs that are fine, in the same adapter.
#[test]
fn a_limit_ends_the_program_and_not_its_worker() {
    let (daemon, folder) = supervisor(TASKS);
    let mut worker = daemon.submit(&["soft"])["receipt"]["worker_pid"].clone();
    for (task, outcome, message) in [
        ("slow", "timeout", "ran longer than 200 ms, the limit of its task"),
        ("hungry", "worker_oom", "it used more than 67108864 bytes of memory, the limit of its task"),
        ("shared", "worker_oom", "it used more than 67108864 bytes of memory, the limit of its task"),
        ("large", "app_error", "signal 25 (SIGXFSZ)"),
    ] {
        let job = daemon.submit(&[task]);
        let (ended, why) = said(&job);
        assert!(ended == outcome && why.starts_with(message), "{task}: {job}");
        let next = daemon.submit(&["soft"]);
        assert_eq!(
            (&next["outcome"], &next["receipt"]["worker_pid"]),
            (&"ok".into(), &worker),
            "after {task}"
        );
        worker = next["receipt"]["worker_pid"].clone();
    }
    assert!(std::fs::metadata(folder.path().join("large")).unwrap().len() <= 1 << 20);
    assert_eq!(daemon.status()["workers"]["restarts"], 0);
    assert_eq!(daemon.status()["ledger"]["balanced"], true);
}

/// Somebody else's input never becomes an option of the program.
#[test]
fn an_input_in_a_command_is_one_word_and_no_option() {
    let (daemon, _folder) = supervisor(TASKS);
    let job = daemon.submit(&["named", "a b/$(id)"]);
    assert_eq!(job["output"], "a b/$(id) $(id)\n");
    for input in ["-n", "x/-n"] {
        assert!(said(&daemon.submit(&["named", "--", input])).1.contains("take it for an option"), "{input}");
    }
}

/// Where the machine has no time for it within the grace, another worker takes over, as ever; so it is tried a few times.
#[test]
fn a_cancelled_program_ends_and_its_worker_lives_on() {
    let programs = private_folder();
    let program = programs.path().join("program");
    write_executable(&program, b"#!/bin/sh\nsleep 1000 &\nsleep 1000\n");
    let word = program.to_str().unwrap();
    let (daemon, _folder) =
        supervisor(&format!("[task.wait]\nexec = {word:?}\n[task.fine]\nexec = \"echo fine\"\n"));
    let worker = || daemon.submit(&["fine"])["receipt"]["worker_pid"].clone();
    let lived_on = (0..20).any(|_| {
        let before = worker();
        let job = daemon.run(&["submit", "--detach", "wait"]).ok().text().trim().to_owned();
        until("the program runs", || (!processes_with(word).is_empty()).then_some(()));
        daemon.run(&["cancel", &job]).ok();
        until("the program is gone", || processes_with(word).is_empty().then_some(()));
        worker() == before
    });
    assert!(lived_on, "each cancellation has cost a worker");
}

/// Where the machine has no time for it within the grace, another worker takes over, as ever; so it is tried a few times.
#[test]
fn the_time_limit_of_a_job_ends_its_program_and_not_its_worker() {
    let (daemon, _folder) =
        supervisor("[task.wait]\nexec = \"sleep 1000\"\n[task.fine]\nexec = \"echo fine\"\n");
    let worker = || daemon.submit(&["fine"])["receipt"]["worker_pid"].clone();
    let lived_on = (0..20).any(|_| {
        let before = worker();
        let job = daemon.submit(&["wait", "--timeout", "100ms"]);
        assert_eq!(said(&job), ("timeout", "ran longer than 100 ms"), "{job}");
        worker() == before
    });
    assert!(lived_on, "each time limit has cost a worker");
}

#[test]
fn a_reload_takes_the_new_program_of_a_task() {
    let (daemon, folder) = supervisor("[task.word]\nexec = \"echo old\"\n");
    assert_eq!(daemon.submit(&["word"])["output"], "old\n");
    std::fs::write(folder.path().join("offload.toml"), "[task.word]\nexec = \"echo new\"\n").unwrap();
    daemon.run(&["reload"]).ok();
    assert_eq!(daemon.submit(&["word"])["output"], "new\n");
    std::fs::write(folder.path().join("offload.toml"), "[task.word]\nexec = \"no-such-program\"\n").unwrap();
    let refused = daemon.run(&["reload"]);
    assert!(refused.code != 0 && refused.stderr.contains("no `no-such-program` in PATH"), "{refused:?}");
    assert_eq!(daemon.submit(&["word"])["output"], "new\n");
}

#[test]
fn a_task_that_could_not_run_keeps_serve_from_starting() {
    let folder = private_folder();
    let socket = folder.path().join("o.sock");
    for (task, why) in [
        ("a -- no-such-program", "task a: cannot start `no-such-program`"),
        ("a dir=/no/such/folder -- true", "the folder /no/such/folder is not there"),
        ("a -- {}", "the program itself cannot be the input"),
        ("gzip -- gzip -c", "there is a built-in task of this name"),
    ] {
        let ran = run_offload(&["serve", "--socket", socket.to_str().unwrap(), "--exec-task", task]).code(2);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[test]
fn a_task_of_the_command_line_needs_no_file() {
    let words = ["run", "--exec-task", "upper produces=text/plain -- tr a-z A-Z", "upper", "a", "b"];
    assert_eq!(run_offload(&words).ok().text(), "A\nB\n");
    let tasks = run_offload(&["tasks", "--exec-task", "upper -- tr a-z A-Z", "--json"]).ok().json();
    assert!(tasks.as_array().unwrap().iter().any(|task| task["task"] == "upper"), "{tasks}");
}

#[test]
fn a_command_has_places_for_the_input() {
    let folder = private_folder();
    let file = folder.path().join("a b.tar.gz");
    std::fs::write(&file, "content").unwrap();
    let words = ["run", "--exec", "echo {/} {.} x{}y {#}", &format!("@{}", file.display()), "lit eral"];
    let (path, stem) = (file.display(), file.display().to_string().replace(".gz", ""));
    let expected = format!("a b.tar.gz {stem} x{path}y 1\nlit eral lit eral xlit eraly 2\n");
    assert_eq!(run_offload(&words).ok().text(), expected);
    let ran = run(&mut command(&["run", "--exec", "cat {} -", "@/dev/null", "-"]), b"/dev/null");
    assert_eq!(ran.ok().text(), "\n\n", "standard input is empty then, and its text may be an input");
    let zero = run(&mut command(&["map", "--exec", "echo {}"]), b"a\0b\nc\n").code(1).json_lines();
    assert_eq!(
        (said(&zero[0]).1, &zero[1]["output"]),
        ("the input has a zero byte, so it cannot be a part of a command", &"c\n".into())
    );
}

#[test]
fn names_of_files_in_a_command_say_what_the_command_says() {
    let sources = workspace().join("worker/src");
    let files = run(Command::new("find").arg(&sources).args(["-name", "*.rs"]), b"").ok();
    let direct = run(Command::new("xargs").arg("sha256sum"), &files.stdout).ok().text();
    let mapped =
        run(&mut command(&["map", "--exec", "sha256sum {}", "--files"]), &files.stdout).ok().json_lines();
    let mapped: String = mapped.iter().map(|job| job["output"].as_str().unwrap()).collect();
    assert_eq!(mapped, direct);
}

#[test]
fn a_file_whose_name_begins_with_a_dash_is_a_file() {
    let folder = private_folder();
    std::fs::write(folder.path().join("-n"), "content").unwrap();
    let mut map = command(&["map", "--exec", "cat {}", "--files"]);
    let jobs = run(map.current_dir(folder.path()), b"-n\n").ok().json_lines();
    assert_eq!(jobs[0]["output"], "content");
}

#[test]
fn the_number_in_a_command_is_that_of_the_line() {
    let list: String = (0..500).map(|number| format!("{number}\n")).collect();
    let jobs = run(&mut command(&["map", "--exec", "echo {} {#}"]), list.as_bytes()).ok().json_lines();
    for (index, job) in jobs.iter().enumerate() {
        assert_eq!(job["output"], format!("{index} {}\n", index + 1));
    }
    assert_eq!(jobs.len(), 500);
}
