//! An idle supervisor: how often it wakes, and whether it looks for answers before it goes to sleep.

use offload_event_loop::{EventLoop, Lingering};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::workers::Program;
use offload_supervisor::{ComputePool, Job, PoolConfig, default_workers};
use std::time::{Duration, Instant};
use tests::harness::{Daemon, offload, until};

/// How often each thread of a process has gone to sleep so far, by the name of the thread. It does so once for each
/// time that it was woken, however busy the machine is.
fn sleeps(pid: u32) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    tasks
        .filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let value =
                |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned());
            Some((value("Name:")?, value("voluntary_ctxt_switches:")?.parse().ok()?))
        })
        .collect()
}

fn total(sleeps: &[(String, u64)]) -> u64 {
    sleeps.iter().map(|(_, count)| count).sum()
}

#[test]
fn an_idle_supervisor_wakes_at_most_twice_a_second_also_with_fifty_idle_clients() {
    const WINDOW: Duration = Duration::from_secs(5);
    for clients in [0, 50] {
        let daemon = Daemon::start(&["--workers", "2"]);
        daemon.wait_until_whole();
        daemon.run(&["submit", "echo", "x"]).ok();
        let _clients: Vec<_> = (0..clients).map(|_| daemon.client()).collect();
        // What follows from that is over when two looks, a second apart, show the same but for a timer or two.
        until("quiet", || {
            let (before, next) = (total(&sleeps(daemon.pid())), Instant::now() + Duration::from_secs(1));
            until("a second", || (Instant::now() >= next).then_some(()));
            (total(&sleeps(daemon.pid())) <= before + 2).then_some(())
        });
        let (before, start) = (sleeps(daemon.pid()), Instant::now());
        until("some seconds", || (start.elapsed() >= WINDOW).then_some(()));
        let after = sleeps(daemon.pid());
        let (woken, seconds) = (total(&after) - total(&before), start.elapsed().as_secs_f64());
        println!("{clients} clients: woken {woken} times in {seconds:.1} s");
        assert!(woken as f64 <= 2.0 * seconds, "woken {woken} times in {seconds} s: {before:?} {after:?}");
    }
}

/// What came of looking for answers while jobs went through a pool, one at a time.
fn lingering(linger: bool) -> Lingering {
    let mut event_loop = EventLoop::new().unwrap();
    let worker = Program::command(vec![offload().display().to_string(), "worker".to_owned()]);
    let mut config = PoolConfig { linger, ..PoolConfig::with(worker) };
    config.core.workers = default_workers();
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let (own, handle) = (pool.clone(), event_loop.handle());
    event_loop.spawn(async move {
        own.call(Job::new("echo").input("first")).await;
        handle.reset_metrics();
        for _ in 0..100 {
            assert_eq!(own.call(Job::new("echo").input("x")).await.report.outcome, OutcomeCode::Ok);
        }
        handle.stop();
    });
    event_loop.run().unwrap();
    event_loop.metrics().lingering
}

#[test]
fn a_pool_looks_for_answers_while_jobs_come_one_at_a_time_unless_it_is_told_not_to() {
    assert_eq!(lingering(false), Lingering::default());
    if default_workers() < 2 {
        return println!("the rest is not tested: this process may use one core, and there nobody lingers");
    }
    let Lingering { looks, found } = lingering(true);
    assert!(looks > 0 && found <= looks, "{found} of {looks}");
}
