//! `offload serve`: one main process, a bounded number of workers.

use offload_protocol::messages::ToSupervisor;
use offload_supervisor::client::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use tests::harness::{Daemon, Gate, PATIENCE, children_of, command, descriptors_of, run, until};

/// Only of a variable that is nearly one of ours: others of this prefix may be anybody's.
#[test]
fn a_variable_that_is_nearly_one_of_a_setting_is_told_once() {
    let with = |words: &[&str]| {
        let mut command = command(words);
        command.env("OFFLOAD_WOKERS", "4").env("OFFLOAD_OF_SOMEBODY_ELSE", "4");
        command
    };
    let warning = "the variable OFFLOAD_WOKERS is unknown and sets nothing; did you mean OFFLOAD_WORKERS?";
    for words in [&["config", "check", "/dev/null"][..], &["config", "show"]] {
        let ran = run(&mut with(words), b"").ok();
        assert_eq!(ran.stderr, format!("offload: {warning}\n"), "{words:?}");
    }
    assert_eq!(run(&mut with(&["--quiet", "config", "show"]), b"").ok().stderr, "");
    let mut daemon = Daemon::launch_changed(&["--workers", "1"], &mut |mut command| {
        command.env("OFFLOAD_WOKERS", "4").env("OFFLOAD_OF_SOMEBODY_ELSE", "4");
        command
    });
    assert!(
        daemon.stderr.find(|line| line.contains(warning), PATIENCE).is_some(),
        "{:?}",
        daemon.stderr.all()
    );
    daemon.run(&["drain"]).ok();
    assert_eq!(daemon.wait(), 0);
    let told = daemon.stderr.all().iter().filter(|line| line.contains("OFFLOAD_")).count();
    assert_eq!(told, 1, "{:?}", daemon.stderr.all());
}

#[test]
fn the_ready_line_says_where_and_with_how_many_workers() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let line = daemon.stdout.find(|line| line.contains("ready"), PATIENCE).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["socket"], daemon.socket.to_str().unwrap());
    assert_eq!(ready["workers"], 2);
    assert_eq!(ready["pid"], daemon.pid());
}

#[test]
fn by_default_there_are_as_many_workers_as_cores_that_the_process_may_use() {
    let daemon = Daemon::start(&[]);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(daemon.status()["workers"]["configured"], cores);
    daemon.wait_until_whole();
    assert_eq!(children_of(daemon.pid()).len(), cores + 1, "workers and one spare");
}

#[test]
fn only_the_owner_can_reach_the_socket() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&daemon.socket), 0o600);
    assert_eq!(mode(daemon.folder()), 0o700);
}

/// A client that has asked for the end of this job, and the ticket of that.
fn waiting_for(daemon: &Daemon, job: &str) -> (Client, u64) {
    let mut client = daemon.client();
    let ticket = client.new_ticket();
    client.send(&ToSupervisor::Wait { ticket, job }, &bytes::Bytes::new()).unwrap();
    (client, ticket)
}

#[test]
fn a_signal_drains_it_and_the_socket_is_gone() {
    for which in [Signal::TERM, Signal::INT] {
        let gate = Gate::closed();
        let mut daemon =
            Daemon::start(&["--workers", "2", "--drain-timeout", "1m", "--exec-task", &gate.task()]);
        let id = daemon.run(&["submit", "--detach", "gate"]).ok().text().trim().to_owned();
        let (mut waiting, ticket) = waiting_for(&daemon, &id);
        daemon.worker_running("gate");
        daemon.signal(which);
        daemon.stderr.find(|line| line.contains("draining"), PATIENCE).expect("the signal is seen");
        gate.open();
        assert_eq!(daemon.wait(), 0);
        let answer = format!("{:?}", waiting.answer_to(ticket).unwrap());
        assert!(answer.contains("Ok"), "the job was finished first: {answer}");
        assert!(!daemon.socket.exists());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok();
    daemon.worker_running("sleep");
    daemon.signal(Signal::TERM);
    daemon.stderr.find(|line| line.contains("draining"), PATIENCE).expect("the first signal is seen");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn drain_waits_for_the_jobs_and_refuses_new_ones() {
    let gate = Gate::closed();
    let mut daemon = Daemon::start(&["--workers", "2", "--exec-task", &gate.task()]);
    let job = daemon.run(&["submit", "--detach", "gate"]).ok().text();
    let (mut waiting, ticket) = waiting_for(&daemon, job.trim());
    let mut drain = daemon.command(&["drain"]).spawn().unwrap();
    until("draining", || (daemon.status()["state"] == "draining").then_some(()));
    daemon.run(&["submit", "echo", "x"]).code(4);
    gate.open();
    let answer = format!("{:?}", waiting.answer_to(ticket).unwrap());
    assert!(answer.contains("Ok"), "the job was finished first: {answer}");
    assert!(drain.wait().unwrap().success());
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn stop_cancels_what_is_there_and_tells_whoever_waits() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    let mut waiting = daemon.command(&["submit", "sleep", "3600000"]);
    let waiting = std::thread::spawn(move || tests::harness::run(&mut waiting, b""));
    daemon.worker_running("sleep");
    daemon.run(&["stop"]).ok();
    waiting.join().unwrap().code(126);
    assert_eq!(daemon.wait(), 0);
    assert!(children_of(daemon.pid()).is_empty());
}

#[test]
fn a_hangup_reads_the_limits_again_and_a_bad_file_changes_nothing() {
    let folder = tests::harness::private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, "[supervisor]\nmax_jobs = 7\n").unwrap();
    let daemon = Daemon::start(&["--workers", "1", "--config", file.to_str().unwrap()]);
    let max_jobs = || daemon.status()["queue"]["max_jobs"].as_u64();
    assert_eq!(max_jobs(), Some(7));
    std::fs::write(&file, "[supervisor]\nmax_jobs = 9\n").unwrap();
    daemon.signal(Signal::HUP);
    until("the new limit", || (max_jobs() == Some(9)).then_some(()));
    std::fs::write(&file, "[supervisor]\nmax_jobs = 'many'\n").unwrap();
    daemon.signal(Signal::HUP);
    daemon.stderr.find(|line| line.contains("old configuration stays"), PATIENCE).expect("a line about it");
    assert_eq!(max_jobs(), Some(9));
}

#[test]
fn descriptors_and_children_are_back_where_they_were_after_a_thousand_jobs_and_clients() {
    let daemon = Daemon::start(&["--workers", "2"]);
    daemon.wait_until_whole();
    let (descriptors, children) = (descriptors_of(daemon.pid()), children_of(daemon.pid()).len());
    let lines = "x\n".repeat(1000);
    tests::harness::run(&mut daemon.command(&["map", "echo"]), lines.as_bytes()).ok();
    for _ in 0..50 {
        drop(daemon.client());
    }
    // Fewer descriptors are no matter: one of its own may be gone by now.
    until("everything to be closed", || {
        let is_closed = descriptors_of(daemon.pid()) <= descriptors;
        (is_closed && children_of(daemon.pid()).len() == children).then_some(())
    });
}
