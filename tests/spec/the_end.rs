//! Ctrl-C in the middle of things.

use rustix::process::Signal;
use std::process::Stdio;
use tests::harness::{PATIENCE, children_of, command, signal, until, wait_for_end};

#[test]
fn an_interrupted_run_ends_its_workers_and_exits_with_130() {
    let mut run = command(&["run", "sleep", "3600000", "3600000"]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let workers = until("two workers", || Some(children_of(child.id())).filter(|workers| workers.len() >= 2));
    signal(child.id(), Signal::INT);
    assert!(wait_for_end(child.id(), PATIENCE), "it goes on");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}

#[test]
fn workers_of_a_run_that_is_killed_end_too() {
    let mut run = command(&["run", "sleep", "3600000"]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let workers = until("a worker", || Some(children_of(child.id())).filter(|workers| !workers.is_empty()));
    child.kill().unwrap();
    child.wait().unwrap();
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}
