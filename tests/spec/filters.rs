//! Lists of jobs with filters.

use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use tests::harness::{Daemon, PATIENCE, program, signal, until, wait_for_end};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    daemon.run(&[&["submit", "--detach"], arguments].concat()).ok().text().trim().to_owned()
}

/// The jobs that `jobs` lists with these flags.
fn listed(daemon: &Daemon, flags: &[&str]) -> Vec<String> {
    let jobs = daemon.run(&[&["jobs", "--json"], flags].concat()).ok().json();
    jobs.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn jobs_are_listed_by_how_they_ended_by_task_by_client_and_by_label() {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    let daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker", &worker]);
    let good = detach(&daemon, &["--client", "web", "echo", "x"]);
    let failed = detach(&daemon, &["--client", "web", "--label", "batch=1", "primes", "none"]);
    let crashed = detach(&daemon, &["--attempts", "1", "--label", "batch=1", "act", "exit7"]);
    daemon.run(&["wait", &good, &failed, &crashed]).code(125);
    let running = detach(&daemon, &["--client", "cron", "sleep", FOR_EVER]);
    daemon.worker_running("sleep");
    let queued = detach(&daemon, &["--client", "web", "sleep", FOR_EVER]);

    assert_eq!(listed(&daemon, &["--outcome", "ok"]), [&*good]);
    assert_eq!(listed(&daemon, &["--outcome", "worker_crashed"]), [&*crashed]);
    assert_eq!(listed(&daemon, &["--outcome", "running"]), [&*running]);
    assert_eq!(listed(&daemon, &["--outcome", "queued"]), [&*queued]);
    assert_eq!(listed(&daemon, &["--task", "sleep"]), [&*queued, &*running]);
    assert_eq!(listed(&daemon, &["--client", "web"]), [&*queued, &*failed, &*good]);
    assert_eq!(listed(&daemon, &["--client", "web", "--limit", "2"]), [&*queued, &*failed]);
    assert_eq!(listed(&daemon, &["--label", "batch=1"]), [&*crashed, &*failed]);
    assert_eq!(
        listed(&daemon, &["--label", "batch=1", "--outcome", "app_error", "--since", "1h"]),
        [&*failed]
    );
    assert_eq!(listed(&daemon, &["--client", "nobody"]), [""; 0]);
    let refused = daemon.run(&["jobs", "--outcome", "worker_crash"]).code(2);
    assert!(refused.stderr.contains("did you mean worker_crashed?"), "{}", refused.stderr);
}

/// The time of a job is that of its acceptance, also after its end.
#[test]
fn jobs_that_were_accepted_earlier_are_left_out() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let old = detach(&daemon, &["echo", "old"]);
    daemon.run(&["wait", &old]).ok();
    let running = detach(&daemon, &["sleep", FOR_EVER]);
    until("the first jobs to be older than a second", || {
        listed(&daemon, &["--since", "1s"]).is_empty().then_some(())
    });
    let young = detach(&daemon, &["echo", "young"]);
    let within = listed(&daemon, &["--since", "1h"]);
    assert_eq!(within, [&*young, &*running, &*old]);
    assert_eq!(listed(&daemon, &["--since", "1h", "--task", "echo"]), [&*young, &*old]);
}

/// One that is rarely there among thousands of others, which a crowd keeps submitting.
#[test]
fn a_job_is_found_among_thousands_of_others_without_holding_anybody_up() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let rare = detach(&daemon, &["--client", "rare", "sleep", "1"]);
    daemon.run(&["wait", &rare]).ok();
    let inputs = "x\n".repeat(6000);
    let mut map = daemon.command(&["map", "--socket", daemon.socket.to_str().unwrap(), "echo", "-"]);
    tests::harness::run(&mut map, inputs.as_bytes()).ok();
    assert_eq!(listed(&daemon, &["--task", "sleep"]), [&*rare]);
    assert_eq!(listed(&daemon, &["--client", "rare", "--outcome", "ok"]), [&*rare]);
    assert_eq!(listed(&daemon, &["--client", "rare", "--outcome", "timeout"]), [""; 0]);
    assert_eq!(listed(&daemon, &["--outcome", "ok", "--limit", "5000"]).len(), 5000);
}

#[test]
fn a_list_that_is_watched_is_shown_again_when_it_has_changed() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let job = detach(&daemon, &["sleep", FOR_EVER]);
    daemon.worker_running("sleep");
    let mut command = daemon.command(&["jobs", "--watch", "--json", "--task", "sleep"]);
    let mut watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()[0]["state"], "running");
    daemon.run(&["cancel", &job]).ok();
    assert_eq!(next()[0]["state"], "cancelled", "nothing was shown in between");
    signal(watch.id(), Signal::INT);
    assert!(!watch.wait().unwrap().success());
}

/// Nothing happens any more in this supervisor, so there is nothing to print.
#[test]
fn what_waits_for_more_to_print_ends_when_its_reader_leaves() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let job = detach(&daemon, &["echo", "x"]);
    daemon.run(&["wait", &job]).ok();
    for (words, prints) in [(&["jobs", "--watch"][..], true), (&["logs", "--follow"], false)] {
        let mut command = daemon.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watch = command.spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        if prints {
            assert!(lines.next().unwrap().unwrap().starts_with("JOB"));
        }
        drop(lines);
        assert!(wait_for_end(watch.id(), PATIENCE), "{words:?} goes on");
        let ended = watch.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(74), Vec::new()), "{words:?}");
    }
}
