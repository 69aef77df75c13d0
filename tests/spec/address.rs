//! What happens when the socket or its lock file is removed, renamed or replaced.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use tests::harness::{Daemon, PATIENCE, command, run_offload, until};

fn lock_of(daemon: &Daemon) -> PathBuf {
    daemon.folder().join("o.sock.lock")
}

fn serves(daemon: &Daemon) {
    until("the socket", || daemon.socket.exists().then_some(()));
    until("an answer", || (daemon.run(&["submit", "echo", "x"]).code == 0).then_some(()));
}

fn start() -> Daemon {
    Daemon::start(&["--workers", "1"])
}

/// What another one says that wants the same socket.
fn rival(daemon: &Daemon) -> String {
    let socket = daemon.socket.to_str().unwrap();
    run_offload(&["serve", "--workers", "1", "--socket", socket]).code(75).stderr
}

#[test]
fn a_socket_that_is_removed_is_there_again_and_jobs_go_on() {
    let daemon = start();
    let before = daemon.run(&["submit", "--detach", "sleep", "1500"]).ok().text();
    std::fs::remove_file(&daemon.socket).unwrap();
    serves(&daemon);
    daemon.stderr.find(|line| line.contains("it is there again"), PATIENCE).expect("a line about it");
    daemon.run(&["wait", before.trim()]).ok();
    assert!(rival(&daemon).contains(&format!("another supervisor (pid {}) owns", daemon.pid())));
}

#[test]
fn a_socket_of_somebody_else_in_its_place_is_replaced() {
    let daemon = start();
    let usurper = daemon.folder().join("other");
    let _listener = UnixListener::bind(&usurper).unwrap();
    std::fs::rename(&usurper, &daemon.socket).unwrap();
    serves(&daemon);
}

#[test]
fn a_lock_that_is_removed_is_taken_again_so_that_there_is_no_second_supervisor() {
    let daemon = start();
    std::fs::remove_file(lock_of(&daemon)).unwrap();
    until("the lock", || lock_of(&daemon).exists().then_some(()));
    serves(&daemon);
    assert!(rival(&daemon).contains(&format!("pid {}", daemon.pid())));
}

#[test]
fn a_directory_that_is_removed_or_moved_is_there_again() {
    let daemon = start();
    for is_moved in [false, true] {
        let aside = daemon.folder().with_extension("moved");
        match is_moved {
            true => std::fs::rename(daemon.folder(), &aside).unwrap(),
            false => std::fs::remove_dir_all(daemon.folder()).unwrap(),
        }
        serves(&daemon);
        assert!(rival(&daemon).contains(&format!("pid {}", daemon.pid())));
        let _ = std::fs::remove_dir_all(aside); // where there is one
    }
}

#[test]
fn a_supervisor_that_lost_its_socket_to_another_one_ends_and_says_so() {
    let mut daemon = start();
    // The rival is there before the loss is noticed: this one stands still meanwhile.
    daemon.signal(rustix::process::Signal::STOP);
    std::fs::remove_file(lock_of(&daemon)).unwrap();
    let socket = daemon.socket.to_str().unwrap().to_owned();
    let mut rival = command(&["serve", "--workers", "1", "--socket", &socket]).spawn().unwrap();
    until("the rival", || {
        let ran = run_offload(&["--socket", &socket, "status", "--json"]);
        (ran.code == 0 && ran.json()["pid"] == rival.id()).then_some(())
    });
    daemon.signal(rustix::process::Signal::CONT);
    assert_eq!(daemon.wait(), 75);
    let line = daemon.stderr.find(|line| line.contains("another supervisor"), PATIENCE).unwrap();
    assert!(line.contains(&format!("pid {}", rival.id())), "{line}");
    run_offload(&["--socket", &socket, "stop"]).ok();
    rival.wait().unwrap();
}

#[test]
fn status_and_serve_say_the_same_of_a_supervisor_that_cannot_be_reached() {
    let daemon = start();
    daemon.signal(rustix::process::Signal::STOP);
    std::fs::remove_file(&daemon.socket).unwrap();
    let status = daemon.run(&["status"]).code(3).stderr;
    let serve = rival(&daemon);
    for said in [&status, &serve] {
        let pid = format!("(pid {})", daemon.pid());
        assert!(said.contains(&pid) && said.contains("does not listen there now"), "{said}");
    }
    daemon.signal(rustix::process::Signal::CONT);
    serves(&daemon);
}
