//! What the program does with SIGCHLD is its own affair: the library leaves it alone, and does not depend on it.

use super::config;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Finished, Job};
use rustix::process::Signal;
use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tests::chaos::process::is_stopped;
use tests::harness::{PATIENCE, signal, until};

const SIGCHLD_BIT: u64 = 1 << 16;
const ALONE: &str = "OFFLOAD_TEST_SIGCHLD";

/// Runs `body` as the test of this name in processes of their own that ignore SIGCHLD, block it, or do nothing about it.
fn whatever_becomes_of_sigchld(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let before =
        ["", "$SIG{CHLD} = 'IGNORE';", "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGCHLD));"];
    for before in before {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("{before} exec @ARGV or die")]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("signals::{name}"), "--nocapture"]);
        let output = command.env(ALONE, before).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{before}: {output:?}");
    }
}

/// Whether this process blocks, ignores and catches SIGCHLD.
fn what_becomes_of_sigchld() -> [bool; 3] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    ["SigBlk:", "SigIgn:", "SigCgt:"].map(|key| {
        let mask = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & SIGCHLD_BIT != 0
    })
}

/// If the kernel collects the children of this process, it does so still.
fn the_own_children_end_as_ever(ignores: bool) {
    let mut child = Command::new("true").spawn().unwrap();
    let is_zombie = |stat: String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z"));
    until("the end of a child", || match std::fs::read_to_string(format!("/proc/{}/stat", child.id())) {
        Ok(stat) => (!ignores && is_zombie(stat)).then_some(()),
        Err(_) => ignores.then_some(()),
    });
    assert_eq!(child.wait().is_err(), ignores);
}

fn run(event_loop: &mut EventLoop, pool: &ComputePool, job: Job) -> Finished {
    let finished = Rc::new(Cell::new(None));
    let told = Rc::clone(&finished);
    pool.submit(job, move |end, _| told.set(Some(end)));
    let patience = event_loop.set_timeout(PATIENCE, |cx| cx.stop());
    event_loop.unref(patience);
    event_loop.run().unwrap();
    event_loop.clear(patience);
    finished.take().expect("the job ends in time")
}

#[test]
fn the_library_leaves_sigchld_as_it_is_and_workers_end_as_ever() {
    whatever_becomes_of_sigchld("the_library_leaves_sigchld_as_it_is_and_workers_end_as_ever", || {
        let before = what_becomes_of_sigchld();
        let [_, ignores, catches] = before;
        assert!(!catches);
        the_own_children_end_as_ever(ignores);
        let mut event_loop = EventLoop::new().unwrap();
        let mut config = config(2);
        config.core.max_jobs_per_worker = Some(2);
        let pool = ComputePool::start(config, &event_loop).unwrap();
        for _ in 0..10 {
            let finished = run(&mut event_loop, &pool, Job::new("echo").input("x").attempts(1));
            assert_eq!(finished.report.outcome, OutcomeCode::Ok, "workers are replaced, and no job pays");
        }
        assert_eq!(what_becomes_of_sigchld(), before);
        the_own_children_end_as_ever(ignores);
        let crash = run(&mut event_loop, &pool, super::fault("segv"));
        assert_eq!(crash.report.outcome, OutcomeCode::WorkerCrashed);
        let error = crash.into_output().unwrap_err();
        let expected = if ignores { "unknown exit" } else { "SIGSEGV" };
        assert!(error.contains(expected), "{error}");
        drop(pool);
        drop(event_loop);
        assert_eq!(what_becomes_of_sigchld(), before);
        the_own_children_end_as_ever(ignores);
    });
}

#[test]
fn a_worker_that_is_stopped_in_a_job_is_noticed_whatever_becomes_of_sigchld() {
    whatever_becomes_of_sigchld(
        "a_worker_that_is_stopped_in_a_job_is_noticed_whatever_becomes_of_sigchld",
        || {
            let mut event_loop = EventLoop::new().unwrap();
            let pool = ComputePool::start(config(1), &event_loop).unwrap();
            let looking = pool.clone();
            let timer = event_loop.set_interval(Duration::from_millis(10), move |_| {
                let workers = looking.workers();
                let running = workers.iter().find(|worker| worker.task.as_deref() == Some("sleep"));
                running.and_then(|worker| worker.pid).into_iter().for_each(|pid| signal(pid, Signal::STOP));
            });
            event_loop.unref(timer);
            let job = Job::new("sleep").input("3600000").attempts(1).timeout(Duration::from_secs(3600));
            let finished = run(&mut event_loop, &pool, job);
            assert_eq!(finished.report.outcome, OutcomeCode::Timeout);
            let error = finished.into_output().unwrap_err();
            assert!(error.contains("was stopped for"), "{error}");
        },
    );
}

#[test]
fn a_worker_that_was_stopped_while_nothing_was_under_way_is_given_no_job() {
    whatever_becomes_of_sigchld(
        "a_worker_that_was_stopped_while_nothing_was_under_way_is_given_no_job",
        || {
            let mut event_loop = EventLoop::new().unwrap();
            let mut config = config(1);
            config.core.spares = 0;
            let pool = ComputePool::start(config, &event_loop).unwrap();
            let first = run(&mut event_loop, &pool, Job::new("echo").input("x"));
            let pid = first.report.receipt.worker_pid;
            // The loop does not run: nobody looks.
            signal(pid, Signal::STOP);
            until("it is stopped", || is_stopped(pid).then_some(()));
            let next = run(&mut event_loop, &pool, Job::new("echo").input("x").attempts(1));
            assert_eq!(next.report.outcome, OutcomeCode::Ok);
            assert!(next.report.receipt.worker_pid != pid);
        },
    );
}
