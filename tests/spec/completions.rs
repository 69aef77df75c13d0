//! `offload completions`: what bash offers while somebody types, asked with the script that is printed for it.

use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use tests::harness::{Daemon, offload, run, run_offload, signal, until};

/// Does what bash does when the key for completions is pressed at the end of these words, and prints what it would offer.
const PRESS: &str = r#"
source <(offload completions bash) || exit 1
[[ $(complete -p offload) =~ '-F '([^ ]+) ]] || exit 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
"${BASH_REMATCH[1]}" offload "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// What is offered after these words, of which the last one is being typed; nothing is printed besides.
#[track_caller]
fn offered(socket: &Path, typed: &[&str]) -> BTreeSet<String> {
    let folder = offload().parent().expect("it is in a folder").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [folder].into_iter().chain(std::env::split_paths(&path));
    let path: OsString = std::env::join_paths(folders).expect("folders without colons");
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", PRESS, "bash", "offload"]).args(typed);
    bash.env("PATH", path).env("OFFLOAD_SOCKET", socket).env("OFFLOAD_CONFIG", "/dev/null");
    let ran = run(&mut bash, b"").ok();
    assert_eq!(ran.stderr, "", "{typed:?}");
    ran.text().lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// These are offered. The program gives up early if the machine is slow, so it may be asked again.
#[track_caller]
fn are_offered(socket: &Path, typed: &[&str], names: &[&str]) {
    until(&format!("{names:?} for {typed:?}"), || (offered(socket, typed) == set(names)).then_some(()));
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn verbs_flags_and_tasks_are_offered_without_a_supervisor_and_what_is_hidden_is_not() {
    let nobody = Path::new("/nonexistent/socket");
    assert_eq!(offered(nobody, &["sta"]), set(&["status"]));
    assert_eq!(offered(nobody, &["work"]), set(&["worker", "workers"]));
    for hidden in ["exec-w", "jsonl", "http-w", "worker-", "bench-"] {
        assert_eq!(offered(nobody, &[hidden]), set(&[]), "{hidden}");
    }
    assert_eq!(offered(nobody, &["submit", "--det"]), set(&["--detach"]));
    assert_eq!(offered(nobody, &["run", "primes"]), set(&["primes", "primes.batch"]));
    assert_eq!(offered(nobody, &["wait", "0"]), set(&[]), "nobody knows a job");
    assert_eq!(offered(nobody, &["completions", "z"]), set(&["zsh"]));
}

#[test]
fn tasks_jobs_and_the_socket_are_those_of_the_supervisor_that_the_line_names() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let submit = |input: [&str; 2]| {
        daemon.run(&["submit", "--detach", input[0], input[1]]).ok().text().trim().to_owned()
    };
    let ended = submit(["echo", "x"]);
    daemon.run(&["wait", &ended]).ok();
    let open = submit(["sleep", "600000"]);
    let nobody = Path::new("/nonexistent/socket");
    let socket = daemon.socket.to_str().expect("a plain path");

    are_offered(&daemon.socket, &["wait", "0"], &[&open, &ended]);
    are_offered(&daemon.socket, &["cancel", "0"], &[&open]);
    are_offered(&daemon.socket, &["explain", &open], &[&open]);
    are_offered(nobody, &["--socket", socket, "cancel", "0"], &[&open]);
    assert_eq!(offered(nobody, &["wait", "0"]), set(&[]));
    are_offered(&daemon.socket, &["submit", "wordc"], &["wordcount"]);
    let begun = &socket[..socket.len() - 1];
    until("its socket", || {
        offered(&daemon.socket, &["status", "--socket", begun]).contains(socket).then_some(())
    });

    signal(daemon.pid(), Signal::STOP);
    assert_eq!(offered(&daemon.socket, &["cancel", "0"]), set(&[]), "nobody is kept waiting");
    are_offered(&daemon.socket, &["run", "primes"], &["primes", "primes.batch"]);
    signal(daemon.pid(), Signal::CONT);
    are_offered(&daemon.socket, &["cancel", "0"], &[&open]);
}

#[test]
fn each_shell_has_a_script_that_asks_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run_offload(&["completions", shell]).ok().text();
        assert!(script.contains("OFFLOAD_COMPLETE") && !script.contains("worker-exec"), "{shell}: {script}");
    }
    let mut unknown = Command::new(offload());
    unknown.args(["--", "offload", "sta"]).env("OFFLOAD_COMPLETE", "tcsh");
    let ran = run(&mut unknown, b"");
    assert!(ran.code != 0 && ran.stderr.is_empty() && ran.text().is_empty(), "{}", ran.stderr);
}
