//! `offload run`: no supervisor, no configuration, nothing left behind.

use rustix::io::ioctl_fionread;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use tests::harness::{command, private_folder, run, run_offload, until};

#[test]
fn three_jobs_are_answered_in_their_order_with_a_summary_in_one_line() {
    let ran = run_offload(&["run", "primes", "1000000", "2000000", "3000000"]).ok();
    let outputs = ran.json_lines();
    let counts: Vec<_> = outputs.iter().map(|output| output["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [78498, 148933, 216816]);
    assert_eq!(outputs[0]["largest"], 999983);
    let summary = ran.stderr.trim_end();
    assert_eq!(summary.lines().count(), 1, "{summary}");
    for word in ["3", "worker", "CPU", "speed-up"] {
        assert!(summary.contains(word), "{summary}");
    }
}

#[test]
fn nothing_is_left_behind() {
    let home = private_folder();
    let mut run_in_home = command(&["run", "echo", "a", "b"]);
    run_in_home.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path()).current_dir(home.path());
    run(&mut run_in_home, b"").ok();
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whoever shares standard input can make it non-blocking.
#[test]
fn standard_input_that_does_not_block_is_waited_for() {
    for arguments in [&["run", "echo"][..], &["run", "echo", "-"], &["map", "--raw", "echo"]] {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        rustix::io::write(&writer, b"first ").unwrap();
        let mut child = command(arguments)
            .stdin(reader.try_clone().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("what is there is read", || (ioctl_fionread(&reader) == Ok(0)).then_some(()));
        // Its next read, which comes soon, finds nothing.
        until("it waits", || (status_of(child.id()).starts_with('S')).then_some(()));
        rustix::io::write(&writer, b"second").unwrap();
        drop((reader, writer));
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(
            said.trim_end(),
            "first second",
            "{arguments:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}

/// The state of a process, as `/proc` has it.
fn status_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_job_reads_its_input_from_the_words_a_file_or_standard_input() {
    let folder = private_folder();
    let file = folder.path().join("input");
    std::fs::write(&file, "from a file").unwrap();
    let at_file = format!("@{}", file.display());
    let ran = run(&mut command(&["run", "echo", "a word", &at_file, "-"]), b"from standard input").ok();
    assert_eq!(ran.text(), "a word\nfrom a file\nfrom standard input\n");
}

#[test]
fn json_tells_everything_about_each_job() {
    let ran = run_offload(&["run", "--json", "primes", "100", "x"]);
    let documents = ran.json_lines();
    let good = &documents[0];
    assert_eq!(good["outcome"], "ok");
    assert_eq!(good["task"], "primes");
    assert_eq!(good["output"], json!({"count": 25, "largest": 97}));
    assert_eq!(good["attempts"], 1);
    assert_eq!(good["job"].as_str().map(str::len), Some(26));
    let receipt = &good["receipt"];
    let names = ["queued_us", "run_us", "returned_us", "worker_pid", "slot", "incarnation"];
    assert!(names.iter().all(|name| receipt[name].is_u64()), "{receipt}");
    assert_eq!(receipt["input_bytes"], 3);
    let bad = &documents[1];
    assert_eq!(bad["outcome"], "app_error");
    assert_eq!(bad["error"]["code"], "app_error");
    assert_eq!(bad["error"]["signal"], Value::Null);
    assert_eq!(ran.code, 1);
}

#[test]
fn the_exit_code_is_that_of_the_first_failure_and_the_others_run_all_the_same() {
    let ran = run_offload(&["run", "--timeout", "1s", "sleep", "1", "3600000", "2"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert_eq!(ran.text().lines().filter(|line| *line == "null").count(), 2);
    assert!(ran.stderr.contains("timeout: ran longer than 1 s"), "{}", ran.stderr);
    assert!(ran.took < Duration::from_secs(30));
}

#[test]
fn more_inputs_than_may_wait_are_no_problem() {
    let inputs: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let mut words = vec!["run", "echo"];
    words.extend(inputs.iter().map(String::as_str));
    let ran = run_offload(&words).ok();
    assert!(ran.text().lines().eq(inputs.iter()), "in their order");
}

#[test]
fn the_number_of_workers_can_be_chosen_and_is_never_exceeded() {
    // Long enough that the last worker is there before the others have done all of them.
    let ran = run_offload(&[&["run", "--workers", "3", "--json", "sleep"][..], &["500"; 6]].concat()).ok();
    let mut pids: Vec<_> = ran.json_lines().iter().map(|job| job["receipt"]["worker_pid"].as_u64()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 3, "six jobs of 500 ms on three workers");
}

/// There are no more workers than inputs, so fewer can be kept for short work than was said.
#[test]
fn one_input_needs_no_slots_for_short_work_whoever_asks_for_them() {
    let words = ["run", "--workers", "4", "echo", "x"];
    let ran = run(command(&words).env("OFFLOAD_SHORT_SLOTS", "3"), b"").ok();
    assert_eq!(ran.text().trim_end(), "x");
}
