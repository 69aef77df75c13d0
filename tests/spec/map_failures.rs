//! `map` and `run` where jobs fail: retries, halts, and what is said of it on a terminal.

use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use tests::harness::{
    Daemon, PATIENCE, Ran, Terminal, command, private_folder, run, run_offload, signal, until, wait_for_end,
};

/// A program that fails so often for each input, as a file counts, and then prints it.
fn write_flaky(folder: &Path, failures: u32) {
    let script = format!(
        "echo >> tries.$1; test $(wc -l < tries.$1) -gt {failures} || {{ echo not yet >&2; exit 9; }}; echo done $1"
    );
    std::fs::write(folder.join("flaky.sh"), script).unwrap();
}

#[test]
fn an_error_is_tried_again_here_and_in_a_supervisor_and_each_attempt_is_in_the_result() {
    let (folder, daemon) =
        (private_folder(), Daemon::start(&["--workers", "2", "--exec-task", "flaky -- sh flaky.sh {}"]));
    let flaky = "sh flaky.sh {}";
    write_flaky(folder.path(), 2);
    let mut map = command(&["map", "--exec", flaky, "--range", "1-3", "--retry", "2", "--backoff", "10ms"]);
    let lines = run(map.current_dir(folder.path()), b"").ok().json_lines();
    for line in &lines {
        assert_eq!((&line["outcome"], &line["attempts"]), (&"ok".into(), &3.into()), "{line}");
        let earlier = line["earlier_attempts"].as_array().unwrap();
        assert_eq!(earlier.len(), 2);
        assert!(
            earlier
                .iter()
                .all(|attempt| attempt["outcome"] == "app_error" && attempt["error"]["exit_code"] == 9)
        );
        assert_ne!(earlier[0]["job"], earlier[1]["job"]);
    }
    assert_eq!(lines.len(), 3);

    let mut run_it = command(&["run", "--json", "--exec", flaky, "4", "--retry", "1", "--backoff", "0s"]);
    let line = run(run_it.current_dir(folder.path()), b"").code(1).json_lines().remove(0);
    assert_eq!((&line["outcome"], &line["attempts"]), (&"app_error".into(), &2.into()), "{line}");
    assert_eq!(line["earlier_attempts"].as_array().map(Vec::len), Some(1));

    // Its tasks fail for good, and others are not tried again.
    let mut map = daemon.command(&["map", "primes", "--retry", "2", "--backoff", "1ms"]);
    let lines = run(&mut map, b"x\n10\n").code(1).json_lines();
    assert_eq!((&lines[0]["attempts"], &lines[1]["attempts"]), (&3.into(), &1.into()));
    assert_eq!(daemon.status()["jobs"]["app_error"], 3);
}

#[test]
fn a_map_whose_supervisor_is_gone_waits_neither_for_its_list_nor_for_a_retry() {
    for (task, line, retry) in [("echo", "a\n", "0"), ("primes", "x\n", "5")] {
        let mut daemon = Daemon::start(&["--workers", "1"]);
        let mut map = daemon.command(&["map", task, "--retry", retry, "--backoff", "1h"]);
        map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut map = map.spawn().unwrap();
        // As long as it is there, the list has no end.
        let mut list = map.stdin.take().unwrap();
        list.write_all(line.as_bytes()).unwrap();
        until("the first job to end", || {
            let jobs = &daemon.status()["jobs"];
            (jobs["ok"] == 1 || jobs["app_error"] == 1).then_some(())
        });
        daemon.run(&["stop"]).ok();
        daemon.wait();
        assert!(wait_for_end(map.id(), PATIENCE), "{task}: it waits for its list");
        drop(list);
        let ended = map.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(125), "{task}: {said}");
        assert!(said.contains("no more lines were read"), "{task}: {said}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        let outcome = if task == "echo" { "ok" } else { "app_error" };
        assert!(
            printed.lines().count() == 1 && printed.contains(&format!("\"outcome\":\"{outcome}\"")),
            "{printed}"
        );
    }
}

#[test]
fn what_waits_for_its_next_attempt_is_told_when_the_map_is_interrupted() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut map = daemon.command(&["map", "primes", "--range", "1-1", "--retry", "5", "--backoff", "1h"]);
    map.args(["--content-type", "text/plain"]);
    let mut wrong = daemon.command(&["map", "primes", "list", "--retry", "5", "--backoff", "1h"]);
    std::fs::write(daemon.folder().join("list"), "x\n").unwrap();
    wrong.current_dir(daemon.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let wrong = wrong.spawn().unwrap();
    until("the first attempt to fail", || (daemon.status()["jobs"]["app_error"] == 1).then_some(()));
    signal(wrong.id(), Signal::INT);
    let ended = wrong.wait_with_output().unwrap().stdout;
    assert!(String::from_utf8(ended).unwrap().contains("\"outcome\":\"app_error\""));
    run(&mut map, b"").ok();
}

fn indices(ran: &Ran) -> Vec<(u64, String)> {
    let of = |line: &serde_json::Value| {
        (line["index"].as_u64().unwrap(), line["outcome"].as_str().unwrap().to_owned())
    };
    ran.json_lines().iter().map(of).collect()
}

#[test]
fn a_halt_lets_what_runs_end_or_cancels_it_and_prints_what_has_ended() {
    let folder = private_folder();
    // The first one ends when the second has failed, the third never.
    let script = "sh -c 'case {} in 1) until test -e failed; do sleep 0.01; done;; 2) touch failed; exit 1;; *) sleep 3600;; esac'";
    let map = |halt: &str, range: &str| {
        let words = ["map", "--workers", "2", "--exec", script, "--range", range, "--halt", halt];
        run(command(&words).current_dir(folder.path()), b"").code(1)
    };
    let ran = map("soon,fail=1", "1-2");
    assert_eq!(indices(&ran), [(0, "ok".to_owned()), (1, "app_error".to_owned())]);
    std::fs::remove_file(folder.path().join("failed")).unwrap();
    let ran = map("now,fail=1", "2-9");
    let found = indices(&ran);
    assert_eq!(found[0], (0, "app_error".to_owned()));
    assert!(found[1..].iter().all(|(_, outcome)| outcome == "cancelled"), "{found:?}");
    assert!(ran.stderr.contains("halted after 1 failed job"), "{}", ran.stderr);
    for wrong in ["now", "soon,fail=0", "later,fail=1", "now,fail=x"] {
        let ran = run_offload(&["map", "echo", "--halt", wrong]).code(2);
        assert!(ran.stderr.contains("such as now,fail=1"), "{}", ran.stderr);
    }
}

/// How many jobs have begun, as each of them has written down.
fn begun(folder: &Path) -> usize {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("begun.")).count()
}

#[test]
fn after_a_halt_soon_no_job_begins_however_many_were_read() {
    let script = "sh -c 'touch begun.{}; until test -e go; do sleep 0.01; done; exit 1'";
    let (folder, other) = (private_folder(), private_folder());
    let task = format!("fails dir={} -- {script}", other.path().display());
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", &task]);
    let list = ["map", "--range", "1-200", "--raw", "--halt", "soon,fail=1"];
    let mut here = command(&[&list[..], &["--workers", "2", "--exec", script]].concat());
    here.current_dir(folder.path());
    let there = daemon.command(&[&list[..], &["fails"]].concat());
    for (mut map, folder) in [(here, folder.path()), (there, other.path())] {
        let map = map.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("a job to begin", || (begun(folder) > 0).then_some(()));
        std::fs::write(folder.join("go"), "").unwrap();
        let said = String::from_utf8(map.wait_with_output().unwrap().stderr).unwrap();
        assert!(said.contains("halted after 1 failed job"), "{said}");
        // No more than there are workers; a supervisor may keep one of these for other programs.
        assert!(begun(folder) <= 2, "{said}");
    }
}

#[test]
fn every_job_that_has_run_has_a_line_and_is_in_the_log_also_if_a_retry_of_it_was_to_come() {
    let folder = private_folder();
    let words =
        "map --range 1-100 --workers 2 --retry 2 --backoff 20ms --halt soon,fail=2 --joblog log --exec";
    let words: Vec<&str> = words.split(' ').chain(["sh -c 'echo $0 >> ran; exit 3' {}"]).collect();
    let ran = run(command(&words).current_dir(folder.path()), b"").code(1);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    // The numbers count from 1, and the indices from 0.
    let began: BTreeSet<u64> = read("ran").lines().map(|line| line.parse::<u64>().unwrap() - 1).collect();
    let printed: BTreeSet<u64> = indices(&ran).into_iter().map(|(index, _)| index).collect();
    assert_eq!(printed, began);
    let index_of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["index"].as_u64();
    let logged: Option<BTreeSet<u64>> = read("log").lines().map(index_of).collect();
    assert_eq!(logged, Some(began.clone()));
    let left = 100 - began.len();
    assert!(ran.stderr.contains(&format!("not done: {left} job")), "{}", ran.stderr);
}

#[test]
fn a_failed_job_that_halts_leaves_the_rest_of_a_long_list_unread() {
    let ran = run(&mut command(&["map", "primes", "--halt", "soon,fail=3"]), &b"x\n".repeat(100_000)).code(1);
    assert!(ran.json_lines().len() < 100_000 && ran.json_lines().len() >= 3);
    assert!(ran.stderr.contains("the rest of the list not read"), "{}", ran.stderr);
}

#[test]
fn the_bar_says_all_there_is_to_know_in_its_columns_and_without_colour() {
    let folder = private_folder();
    std::fs::write(folder.path().join("list"), format!("x\n{}3600000\n", "0\n".repeat(2000))).unwrap();
    for (columns, has_bar) in [(80, true), (40, false)] {
        let terminal = Terminal::open_with(columns);
        let mut map = command(&["map", "--workers", "2", "sleep", "list"]);
        map.current_dir(folder.path()).env("NO_COLOR", "1").env("TERM", "xterm");
        map.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.side());
        let mut map = map.spawn().unwrap();
        drop(terminal.side());
        let drawn = terminal.lines();
        // The list is longer than what is read ahead of the slow job.
        let line = drawn.find(|line| line.contains(" of 2002 done, 1 failed, "), PATIENCE);
        signal(map.id(), Signal::INT);
        map.wait().unwrap();
        let line = line.unwrap_or_else(|| panic!("{:?}", drawn.all()));
        let shown = line.replace("\u{1b}[2K", "").replace("\u{1b}[1B", "").replace("\u{1b}[1A", "");
        assert!(!shown.contains("\u{1b}["), "{shown:?}");
        assert_eq!(shown.contains(" %  "), has_bar, "{shown:?}");
        assert!(shown.trim_end().chars().count() <= columns.into(), "{shown:?}");
    }
}

#[test]
fn what_is_piped_in_is_the_input_if_none_is_named() {
    let daemon = Daemon::start(&["--workers", "1"]);
    assert_eq!(run(&mut command(&["run", "echo"]), b"piped").ok().text(), "piped\n");
    assert_eq!(run(&mut command(&["run", "--exec", "cat"]), b"piped").ok().text(), "piped\n");
    assert_eq!(run(&mut command(&["run", "echo", "named"]), b"piped").ok().text(), "named\n");
    assert_eq!(run(&mut daemon.command(&["submit", "echo"]), b"piped").ok().text(), "piped\n");
    let mut from_nothing = daemon.command(&["submit", "echo"]);
    let nothing = from_nothing.stdin(Stdio::null()).output().unwrap();
    assert_eq!(nothing.stdout, b"\n");
}

#[test]
fn an_input_that_nobody_named_and_that_does_not_end_is_said_to_be_waited_for() {
    let mut waiting = command(&["run", "echo"]);
    let mut waiting =
        waiting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = tests::harness::Lines::collect(waiting.stderr.take().unwrap());
    assert!(said.find(|line| line.contains("say < /dev/null"), PATIENCE).is_some(), "{:?}", said.all());
    drop(waiting.stdin.take());
    assert_eq!(waiting.wait_with_output().unwrap().stdout, b"\n");
}
