//! `offload map`: one job a line, answers in the order of the lines.

use rustix::process::Signal;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use tests::harness::{Daemon, command, private_folder, run, signal, until, workspace};

#[test]
fn lines_come_out_in_the_order_in_which_they_went_in_with_their_index() {
    let input: String = (0..500).rev().map(|number| format!("{number}\n")).collect();
    let ran = run(&mut command(&["map", "primes"]), input.as_bytes()).ok();
    let lines = ran.json_lines();
    assert_eq!(lines.len(), 500);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["index"], index);
        assert_eq!(line["outcome"], "ok");
    }
    assert_eq!(lines[0]["output"]["largest"], 499);
}

/// Every file of the sources, hashed here by another implementation and there by the task.
#[test]
fn files_are_hashed_as_sha256sum_does() {
    let mut list = String::new();
    let mut expected = Vec::new();
    for folder in ["protocol/src", "worker/src", "supervisor/src/core", "tests/spec"] {
        for entry in std::fs::read_dir(workspace().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                writeln!(list, "{}", path.display()).unwrap();
                let digest = Sha256::digest(std::fs::read(&path).unwrap());
                expected.push(digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")));
            }
        }
    }
    let folder = private_folder();
    let file = folder.path().join("list");
    std::fs::write(&file, list).unwrap();
    let ran = run(&mut command(&["map", "sha256", "--files", file.to_str().unwrap()]), b"").ok();
    let hashes: Vec<_> =
        ran.json_lines().iter().map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert!(expected.len() > 20);
    assert_eq!(hashes, expected);
}

#[test]
fn some_failures_make_the_exit_code_1_and_too_many_end_it() {
    let ran = run(&mut command(&["map", "primes"]), b"10\nx\n20\n").code(1);
    let outcomes: Vec<_> = ran.json_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "app_error", "ok"]);
    let bad: String = "x\n".repeat(5000);
    let ran = run(&mut command(&["map", "primes", "--max-failures", "3"]), bad.as_bytes()).code(1);
    assert!(ran.json_lines().len() < 5000);
}

#[test]
fn a_file_that_is_not_there_fails_alone() {
    let ran = run(&mut command(&["map", "sha256", "--files"]), b"/no/such/file\n/etc/passwd\n").code(1);
    let lines = ran.json_lines();
    assert_eq!(lines[0]["outcome"], "io_error");
    assert!(lines[0]["error"]["message"].as_str().unwrap().contains("No such file"), "{}", lines[0]);
    assert_eq!(lines[1]["outcome"], "ok");
}

#[test]
fn a_small_queue_slows_it_down_and_fails_nothing() {
    let daemon = Daemon::start(&["--workers", "1", "--max-jobs", "3"]);
    let lines: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    let ran = run(&mut daemon.command(&["map", "primes"]), lines.as_bytes()).ok();
    assert_eq!(ran.json_lines().len(), 3000);
}

#[test]
fn an_interrupt_cancels_its_jobs_in_the_supervisor_too() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let folder = private_folder();
    let list = folder.path().join("list");
    std::fs::write(&list, "3600000\n3600000\n").unwrap();
    let mut map = daemon.command(&["map", "sleep", list.to_str().unwrap()]).spawn().unwrap();
    daemon.worker_running("sleep");
    signal(map.id(), Signal::INT);
    assert_eq!(map.wait().unwrap().code(), Some(130));
    until("both to be cancelled", || (daemon.status()["jobs"]["cancelled"] == 2).then_some(()));
}

#[test]
fn a_supervisor_that_runs_does_the_work_if_it_is_named() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let ran = run(&mut daemon.command(&["map", "echo"]), b"a\nb\nc\n").ok();
    assert_eq!(ran.json_lines().len(), 3);
    assert_eq!(daemon.status()["jobs"]["ok"], 3);
}
