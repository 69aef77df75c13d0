//! `offload drain`: it waits as long as the jobs take, and reports the jobs that it cancelled.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::harness::{Daemon, PATIENCE, until};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

fn detach(daemon: &Daemon, millis: &str) -> String {
    let id = daemon.run(&["submit", "--detach", "sleep", millis]).ok().text().trim().to_owned();
    daemon.worker_running("sleep");
    id
}

fn last_line(daemon: &Daemon) -> String {
    daemon
        .stderr
        .find(|line| line.contains(" error ended: "), PATIENCE)
        .unwrap_or_else(|| panic!("no last line: {:#?}", daemon.stderr.all()))
}

#[test]
fn a_drain_without_a_limit_waits_longer_than_the_drain_timeout() {
    let mut daemon = Daemon::start(&["--workers", "1", "--drain-timeout", "1ms"]);
    detach(&daemon, "5000");
    let drained = daemon.run(&["drain"]).ok();
    assert!(drained.stderr.contains("drained") && !drained.stderr.contains("cancelled"), "{drained:?}");
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_drain_that_is_cut_short_says_how_many_jobs_it_has_cancelled_and_ends_with_1() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    detach(&daemon, FOR_EVER);
    daemon.run(&["submit", "--detach", "sleep", FOR_EVER]).ok();
    let drained = daemon.run(&["drain", "--timeout", "10ms"]).code(1);
    assert!(drained.stderr.contains("2 jobs were not done in time and cancelled"), "{drained:?}");
    assert_eq!(daemon.wait(), 1);
    assert!(last_line(&daemon).ends_with("cancelled because they were not done in time: 2"));
}

#[test]
fn it_says_so_in_json_too() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    detach(&daemon, FOR_EVER);
    let drained = daemon.run(&["drain", "--json", "--timeout", "10ms"]).code(1).json();
    assert_eq!(drained, json!({ "state": "stopped", "cancelled": 1, "uncollected": 0 }));
    assert_eq!(daemon.wait(), 1);

    let mut idle = Daemon::start(&["--workers", "1"]);
    let drained: Value = idle.run(&["drain", "--json", "--timeout", "10s"]).ok().json();
    assert_eq!(drained["cancelled"], 0);
    assert_eq!(idle.wait(), 0);
}

#[test]
fn results_that_nobody_has_collected_are_counted_when_they_are_lost() {
    for as_json in [false, true] {
        let mut daemon = Daemon::start(&["--workers", "1"]);
        let detach = || daemon.run(&["submit", "--detach", "echo", "x"]).ok().text().trim().to_owned();
        let jobs = [detach(), detach(), detach()];
        daemon.run(&["wait", &jobs[2]]).ok();
        let drained = daemon.run(&["drain", if as_json { "--json" } else { "--verbose" }]).ok();
        match as_json {
            true => assert_eq!(drained.json()["uncollected"], 2),
            false => {
                let expected = "2 kept results that nobody had collected were lost";
                assert!(drained.stderr.contains(expected), "{}", drained.stderr);
            }
        }
        assert_eq!(daemon.wait(), 0);
        let said = daemon.stderr.whole();
        assert!(said.iter().any(|line| line.ends_with("nobody had collected: 2")), "{said:#?}");
    }
}

/// What is kept for a key is kept also when it has been collected; only what was not is lost.
#[test]
fn the_result_of_a_key_counts_as_lost_if_its_submitter_was_not_given_it() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["submit", "--idempotency-key", "taken", "echo", "x"]).ok();
    let mut gone = daemon.command(&["submit", "--idempotency-key", "left", "sleep", "3000"]).spawn().unwrap();
    daemon.worker_running("sleep");
    gone.kill().unwrap();
    gone.wait().unwrap();
    let drained = daemon.run(&["drain", "--json"]).ok().json();
    assert_eq!(drained, json!({ "state": "stopped", "cancelled": 0, "uncollected": 1 }));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_signal_gives_the_jobs_the_drain_timeout_and_the_exit_code_says_if_that_was_too_short() {
    let mut daemon = Daemon::start(&["--workers", "1", "--drain-timeout", "10ms"]);
    detach(&daemon, FOR_EVER);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), 1);
    assert!(last_line(&daemon).ends_with("cancelled because they were not done in time: 1"));
}

#[test]
fn a_signal_limits_a_drain_that_has_no_limit_and_a_stop_ends_it_at_once() {
    for is_signalled in [true, false] {
        let mut daemon = Daemon::start(&["--workers", "1", "--drain-timeout", "10ms"]);
        detach(&daemon, FOR_EVER);
        let mut drain = daemon.command(&["drain"]).spawn().unwrap();
        until("draining", || (daemon.status()["state"] == "draining").then_some(()));
        match is_signalled {
            true => daemon.signal(Signal::TERM),
            false => drop(daemon.run(&["stop"]).ok()),
        }
        assert_eq!(drain.wait().unwrap().code(), Some(1), "whoever waits is told that a job was cancelled");
        assert_eq!(daemon.wait(), i32::from(is_signalled));
    }
}

#[test]
fn the_help_says_what_the_limit_is() {
    let help = tests::harness::run_offload(&["drain", "--help"]).ok().text();
    assert!(help.contains("--timeout") && help.contains("as long as the jobs take"), "{help}");
}
