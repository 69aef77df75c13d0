//! An idle supervisor: how often it wakes.

use std::time::{Duration, Instant};
use tests::harness::{Daemon, until};

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
