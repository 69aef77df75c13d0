//! Ctrl-C in the middle of things, and a pool that goes before its jobs.

use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Job, Level, PoolConfig, Program};
use rustix::process::Signal;
use std::cell::RefCell;
use std::process::Stdio;
use std::rc::Rc;
use tests::harness::{PATIENCE, children_of, command, offload, signal, until, wait_for_end};

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

#[test]
fn who_awaits_a_job_of_a_pool_that_is_dropped_is_told_so() {
    let mut event_loop = EventLoop::new().unwrap();
    let words = vec![offload().to_str().unwrap().to_owned(), "worker".to_owned()];
    let config = PoolConfig { workers: 1, log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let told = Rc::new(RefCell::new(Vec::new()));
    for task in ["sleep", "echo"] {
        let told = Rc::clone(&told);
        let input = if task == "sleep" { "60000" } else { "x" };
        pool.submit(Job::new(task).input(input), move |finished, _| told.borrow_mut().push(finished.report));
    }
    drop(pool);
    assert!(told.borrow().is_empty(), "never from within");
    assert!(!event_loop.run().unwrap());
    let told: Vec<_> = told.take().into_iter().map(|report| (report.task, report.outcome)).collect();
    let cancelled = |task: &str| (task.to_owned(), OutcomeCode::Cancelled);
    assert_eq!(told, [cancelled("sleep"), cancelled("echo")]);
}
