//! Ctrl-C while jobs run, and a pool that is dropped before its jobs have ended.

use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Job, Level, PoolConfig, Program};
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::rc::Rc;
use tests::harness::{
    Daemon, PATIENCE, children_of, command, descriptors_of, offload, private_folder, signal, until,
    wait_for_end, write_executable,
};

#[test]
fn an_interrupted_run_ends_its_workers_and_then_itself_by_the_signal() {
    let mut run = command(&["run", "sleep", "3600000", "3600000"]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let workers = until("two workers", || Some(children_of(child.id())).filter(|workers| workers.len() >= 2));
    signal(child.id(), Signal::INT);
    assert!(wait_for_end(child.id(), PATIENCE), "it goes on");
    assert_eq!(child.wait().unwrap().signal(), Some(2), "a shell shows that as 130");
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}

#[test]
fn an_interrupted_run_says_what_was_not_done() {
    for flags in [&[][..], &["--json"]] {
        let mut run = command(&[&["run"], flags, &["sleep", "1", "3600000"]].concat());
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
        lines.next().expect("the output of the first job").unwrap();
        signal(run.id(), Signal::INT);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let ended = run.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), Some(2));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("not done: 1 job cancelled"), "{said}");
        if flags.is_empty() {
            assert!(rest.is_empty(), "{rest:?}");
            continue;
        }
        let [job, end] = &*rest else { panic!("{rest:?}") };
        assert!(job.contains(r#""index":1,"#) && job.contains(r#""outcome":"cancelled""#), "{job}");
        assert!(end.contains(r#""message":"interrupted by signal 2 (SIGINT)""#), "{end}");
    }
}

#[test]
fn whatever_runs_jobs_ends_by_the_signal_that_it_was_sent() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let (sleep, list) = (["sleep", "3600000"], daemon.folder().join("list"));
    std::fs::write(&list, "3600000\n").unwrap();
    let list = list.to_str().unwrap();
    let verbs = [&["submit", sleep[0], sleep[1]][..], &["map", "sleep", list], &["wait", "ID"]];
    for which in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::IO] {
        for words in verbs {
            let id = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
            daemon.worker_running("sleep");
            let words: Vec<_> = words.iter().map(|word| if *word == "ID" { &*id } else { word }).collect();
            let accepted = daemon.status()["jobs"]["accepted"].as_u64();
            let mut verb = daemon.command(&words);
            let mut verb = verb.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until("the verb to be connected", || match words[0] {
                "wait" => (descriptors_of(verb.id()) > 3).then_some(()),
                _ => (daemon.status()["jobs"]["accepted"].as_u64() > accepted).then_some(()),
            });
            signal(verb.id(), which);
            assert!(wait_for_end(verb.id(), PATIENCE), "{words:?} goes on");
            assert_eq!(verb.wait().unwrap().signal(), Some(which.as_raw()), "{words:?}");
            daemon.run(&["cancel", &id]).ok();
            daemon.run(&["wait", &id]).code(126);
        }
    }
}

/// As a closed terminal, Ctrl-\\ and others do. The helper is in a session of its own: only an end in good order ends it.
#[test]
fn a_run_that_is_ended_by_any_signal_leaves_no_helper_behind() {
    let folder = private_folder();
    let worker = folder.path().join("worker");
    // It has an environment of its own.
    let helper = "setsid -f sh -c 'echo $$ >> \"$0\"; exec sleep 600' \"$1\" <&- >&- 2>&-";
    let script = format!("#!/bin/sh\n{helper}\nexec {} worker\n", offload().display());
    write_executable(&worker, script.as_bytes());
    for which in [Signal::HUP, Signal::QUIT, Signal::ALARM, Signal::XCPU, Signal::USR2] {
        let helpers = folder.path().join(format!("helpers-{}", which.as_raw()));
        let words = format!("{} {}", worker.display(), helpers.display());
        let mut run = command(&["run", "sleep", "3600000", "--worker", &words]);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let helper: u32 = until("the helper", || {
            let said = std::fs::read_to_string(&helpers).ok()?;
            said.strip_suffix('\n')?.lines().next()?.parse().ok()
        });
        signal(run.id(), which);
        let is_over = wait_for_end(run.id(), PATIENCE);
        let is_left = is_over && !wait_for_end(helper, PATIENCE);
        signal(helper, Signal::KILL);
        assert!(is_over && !is_left, "{which:?}: helper {helper} lives on");
        assert_eq!(run.wait().unwrap().signal(), Some(which.as_raw()));
    }
}

/// By `nohup`, or a script that has put it into the background.
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let mut run = Command::new("sh");
    run.args(["-c", "trap '' HUP INT; exec \"$0\" run echo -"]).arg(offload()).env_remove("OFFLOAD_SOCKET");
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a worker", || Some(children_of(run.id())).filter(|workers| !workers.is_empty()));
    for which in [Signal::HUP, Signal::INT] {
        signal(run.id(), which);
    }
    drop(run.stdin.take());
    let ended = run.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), &b"\n"[..]));
}

#[test]
fn a_supervisor_ends_in_good_order_by_every_signal_that_would_end_it() {
    for which in [Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::XCPU] {
        let mut daemon = Daemon::start(&["--workers", "1"]);
        daemon.signal(which);
        assert_eq!(daemon.wait(), 0, "{which:?}");
        let said = daemon.stderr.whole();
        assert!(said.iter().any(|line| line.contains(" info draining")), "{said:#?}");
    }
}

#[test]
fn ctrl_c_ends_the_shell_loop_around_a_run() {
    let mut bash = Command::new("bash");
    bash.args(["-c", "for i in 1 2 3; do \"$0\" run sleep 3600000; done; echo survived"]).arg(offload());
    bash.env_remove("OFFLOAD_SOCKET").process_group(0).stdin(Stdio::null());
    let Ok(bash) = bash.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        return println!("skipped: there is no bash");
    };
    until("a worker of the first run", || {
        let runs = children_of(bash.id());
        runs.iter().any(|run| !children_of(*run).is_empty()).then_some(())
    });
    // As a terminal does: to everybody in the foreground.
    kill_process_group(Pid::from_child(&bash), Signal::INT).unwrap();
    let is_over = wait_for_end(bash.id(), PATIENCE);
    let _ = kill_process_group(Pid::from_child(&bash), Signal::KILL); // what is left if it is not
    let ended = bash.wait_with_output().unwrap();
    assert!(is_over, "the loop goes on");
    assert_eq!((ended.status.signal(), &*ended.stdout), (Some(2), &b""[..]));
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
fn jobs_of_a_dropped_pool_are_reported_as_cancelled() {
    let mut event_loop = EventLoop::new().unwrap();
    let words = vec![offload().to_str().unwrap().to_owned(), "worker".to_owned()];
    let mut config = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    config.core.workers = 1;
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
