//! The examples do what their first lines say, and are small.

use std::process::Command;
use tests::harness::{Daemon, program, run, workspace};

fn example(name: &str) -> tests::harness::Ran {
    run(&mut Command::new(program(name)), b"").ok()
}

#[test]
fn hello_offload() {
    let text = example("hello_offload").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "three jobs are submitted, and the loop is free for other things");
    for expected in ["78498", "148933", "216816"] {
        assert!(lines[1..].iter().any(|line| line.contains(expected)), "{text}");
    }
}

#[test]
fn async_offload() {
    assert_eq!(example("async_offload").text(), "average: 1000000.5\n");
}

#[test]
fn own_task() {
    let worker = program("own_task");
    let daemon = Daemon::start(&["--workers", "1", "--worker", worker.to_str().unwrap()]);
    assert_eq!(daemon.run(&["submit", "shout", "hello"]).ok().text(), "HELLO\n");
    assert_eq!(daemon.submit(&["mix", r#"{"red": 0.5, "blue": 1.0}"#])["output"]["purple"], 0.75);
    let ran = daemon.run(&["submit", "mix", r#"{"red": 0.5, "green": 1.0}"#]).code(1);
    assert!(ran.stderr.contains("green") && ran.stderr.contains("line 1"), "{}", ran.stderr);
}

#[test]
fn survive_a_crash() {
    let text = example("survive_a_crash").text();
    assert!(text.contains("killing worker process"), "{text}");
    assert!(text.contains("the victim's job: ok after 2 attempts"), "{text}");
    assert!(text.contains("another job: ok after 1 attempt"), "{text}");
}

#[test]
fn phases() {
    let text = example("phases").text();
    // Whether the timeout of the main script comes before the poll or at the end depends on the moment.
    let order: Vec<_> = text.lines().filter(|line| !line.starts_with("timeout 0")).collect();
    assert_eq!(order.len() + 1, text.lines().count(), "{text}");
    let expected = [
        "main script: first line",
        "main script: last line",
        "tick  ",
        "tick of the tick",
        "microtask",
        "future  ",
        "future, after yielding",
        "I/O callback",
        "I/O: tick",
        "I/O: microtask",
        "immediate",
        "I/O: immediate",
        "close",
        "I/O: timeout 0",
    ];
    assert_eq!(order.len(), expected.len(), "{text}");
    for (line, what) in order.iter().zip(expected) {
        assert!(line.starts_with(what), "`{what}` was expected instead of `{line}`");
    }
}

#[test]
fn async_average() {
    let text = example("async_average").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    let ways = ["in one go", "in one step an immediate", "within a budget of 1 ms", "by a worker process"];
    for (line, way) in lines[1..].iter().zip(ways) {
        assert!(line.starts_with(way) && line.contains(" 500000.5 "), "{text}");
    }
}

#[test]
fn each_is_under_80_lines_and_the_worker_in_python_under_60() {
    for entry in std::fs::read_dir(workspace().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let limit = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => 80,
            Some("py") => 60,
            _ => continue,
        };
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < limit, "{} has {lines} lines", path.display());
    }
}
