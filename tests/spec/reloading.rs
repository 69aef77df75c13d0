//! `offload reload` and SIGHUP: both do the same, one reload at a time, and report which settings had no effect.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tests::harness::{Daemon, PATIENCE, private_folder, until, workspace};

fn configured(text: &str, arguments: &[&str]) -> (Daemon, PathBuf, TempDir) {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(&[&["--config", file.to_str().unwrap()], arguments].concat());
    (daemon, file, folder)
}

fn pids(daemon: &Daemon) -> Vec<Value> {
    daemon.workers().into_iter().map(|worker| worker["pid"].clone()).collect()
}

fn max_jobs(daemon: &Daemon) -> Value {
    daemon.status()["queue"]["max_jobs"].clone()
}

#[test]
fn a_hangup_and_a_reload_do_the_same_limits_apply_and_all_workers_are_new() {
    let (daemon, file, _folder) = configured("[supervisor]\nmax_jobs = 7\n", &["--workers", "1"]);
    for (max, is_signal) in [(8, true), (9, false)] {
        daemon.wait_until_whole();
        let before = pids(&daemon);
        std::fs::write(&file, format!("[supervisor]\nmax_jobs = {max}\n")).unwrap();
        match is_signal {
            true => daemon.signal(Signal::HUP),
            false => assert_eq!(daemon.run(&["reload"]).ok().text(), "reloaded\n"),
        }
        until("new workers", || {
            let now = pids(&daemon);
            (!now.is_empty() && now.iter().all(|pid| !pid.is_null() && !before.contains(pid))).then_some(())
        });
        assert_eq!(max_jobs(&daemon), max);
    }
}

#[test]
fn settings_that_were_changed_in_vain_are_named() {
    let (daemon, file, _folder) = configured("[io]\nthreads = 2\n", &["--workers", "1"]);
    let text = "[supervisor]\nsocket = '/tmp/else.sock'\nmax_jobs = 9\n[io]\nthreads = 3\n\
                [[pool]]\nworkers = 5\naffinity = true\n";
    std::fs::write(&file, text).unwrap();
    let ran = daemon.run(&["reload"]).ok();
    for part in [
        "io.threads = 3 is ignored, 2 stays in effect: it needs a restart",
        "pool.affinity = true is ignored, false stays in effect: it needs a restart",
        "supervisor.socket = /tmp/else.sock is ignored",
        "pool.workers = 5 is ignored, 1 stays in effect: a flag says otherwise",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        let logged = daemon.stderr.find(|line| line.contains(part), PATIENCE);
        assert!(logged.is_some(), "{part}: {:#?}", daemon.stderr.all());
    }
    assert_eq!(max_jobs(&daemon), 9, "the others apply");
    let ignored = daemon.run(&["reload", "--json"]).ok().json()["ignored"].clone();
    let settings: Vec<_> = ignored.as_array().unwrap().iter().map(|one| one["setting"].clone()).collect();
    assert_eq!(settings, ["pool.affinity", "io.threads", "supervisor.socket", "pool.workers"], "{ignored}");
}

/// A file that keeps whoever reads it waiting for ever.
fn make_pipe(path: &Path) {
    std::fs::remove_file(path).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_pipe_as_configuration_file_is_refused_and_holds_up_nobody() {
    let (daemon, file, _folder) = configured("[io]\nthreads = 1\n", &["--workers", "1"]);
    make_pipe(&file);
    for _ in 0..4 {
        daemon.signal(Signal::HUP);
        let ran = daemon.run(&["reload"]).code(4);
        assert!(ran.stderr.contains("no regular file"), "{}", ran.stderr);
    }
    let io_pool = daemon.status()["io_pool"].clone();
    assert_eq!((&io_pool["busy"], &io_pool["stuck"]), (&0.into(), &0.into()), "{io_pool}");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "[supervisor]\nmax_jobs = 9\n").unwrap();
    daemon.run(&["reload"]).ok();
    assert_eq!(max_jobs(&daemon), 9);
}

#[test]
fn many_reloads_at_once_are_few_and_everybody_is_answered() {
    const ASKERS: usize = 12;
    let (daemon, file, _folder) = configured("[supervisor]\nmax_jobs = 7\n", &["--workers", "2"]);
    daemon.wait_until_whole();
    // A job keeps the first reload from ending before the others are asked for.
    let job = daemon.run(&["submit", "--detach", "sleep", "5000"]).ok().text();
    daemon.worker_running("sleep");
    std::fs::write(&file, "[supervisor]\nmax_jobs = 9\n").unwrap();
    let askers: Vec<_> = (0..ASKERS)
        .map(|_| daemon.command(&["reload"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        .collect();
    for _ in 0..100 {
        daemon.signal(Signal::HUP);
    }
    for mut asker in askers {
        assert_eq!(asker.wait().unwrap().code(), Some(0));
    }
    daemon.run(&["wait", job.trim()]).ok();
    assert_eq!(max_jobs(&daemon), 9);
    daemon.wait_until_whole();
    let restarts = daemon.status()["workers"]["restarts"].as_u64().unwrap();
    assert!(restarts <= 30, "{restarts} workers were started for {ASKERS} reloads and 100 signals");
}

/// The worker in Python, whose task `reverse` may not be run twice, with another body of that task.
fn write_worker(file: &Path, body: &str) {
    let example = std::fs::read_to_string(workspace().join("examples/worker.py")).unwrap();
    let honest = "lambda data: data[::-1], True";
    assert!(example.contains(honest), "the example has changed");
    std::fs::write(file, example.replace(honest, &format!("lambda data: {body}, False"))).unwrap();
}

fn in_python(arguments: &[&str]) -> (Daemon, PathBuf, TempDir) {
    let folder = private_folder();
    let file = folder.path().join("my.py");
    write_worker(&file, "data[::-1]");
    let worker = format!("python3 {}", file.display());
    let daemon = Daemon::start(&[&["--worker", &worker], arguments].concat());
    daemon.wait_until_whole();
    (daemon, file, folder)
}

#[test]
fn without_a_spare_a_version_that_does_not_start_leaves_the_only_worker_alone() {
    for workers in ["1", "2"] {
        let (daemon, file, _folder) = in_python(&["--workers", workers, "--spares", "0"]);
        let before = pids(&daemon);
        std::fs::write(&file, "oops(").unwrap();
        let ran = daemon.run(&["reload"]).code(4);
        assert!(
            ran.stderr.contains("unavailable: the old workers stay, because the new version of `python3 ")
                && ran.stderr.contains("SyntaxError"),
            "{}",
            ran.stderr
        );
        assert_eq!(pids(&daemon), before);
        assert_eq!(daemon.run(&["submit", "reverse", "abc"]).ok().text(), "cba");
        assert_eq!(daemon.status()["state"], "running");
    }
}

#[test]
fn a_version_that_ends_with_its_first_job_costs_one_job_and_no_worker() {
    let (daemon, file, _folder) = in_python(&["--workers", "1"]);
    let before = pids(&daemon);
    write_worker(&file, "__import__('os')._exit(7)");
    let mut reload =
        daemon.command(&["reload"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let outcome = || daemon.run(&["submit", "--json", "reverse", "abc"]).json()["outcome"].clone();
    let mut lost = 0;
    while reload.try_wait().unwrap().is_none() {
        lost += usize::from(outcome() != "ok");
    }
    let said = std::io::read_to_string(reload.stderr.take().unwrap()).unwrap();
    assert_eq!(reload.wait().unwrap().code(), Some(4), "{said}");
    assert!(said.contains(" does not work: its worker ended with exit code 7"), "{said}");
    assert_eq!((lost, pids(&daemon)), (1, before));
    for _ in 0..20 {
        assert_eq!(outcome(), "ok");
    }
    assert_eq!(daemon.status()["workers"]["restarts"], 0, "nothing else was started");
}
