//! Workers that do not start: starts are tried again with growing pauses, and no client waits for ever.

use std::time::{Duration, Instant};
use tests::harness::{Daemon, command, program, run, run_offload, until};

fn serve_with(worker: &str) -> Daemon {
    Daemon::launch(&["--workers", "2", "--worker", worker])
}

fn faultworker(arguments: &str) -> String {
    format!("{} {arguments}", program("faultworker").display())
}

#[test]
fn a_worker_that_dies_at_start_up_again_and_again_makes_jobs_unavailable_with_what_it_printed_last() {
    let daemon = serve_with(&faultworker("boot:exit1"));
    let ran = daemon.run(&["submit", "act", "nothing"]).code(4);
    assert!(ran.stderr.contains("unavailable"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("exit code 1") && ran.stderr.contains("faultworker: boot:exit1"),
        "{}",
        ran.stderr
    );
    let status = daemon.status();
    assert_eq!(status["state"], "degraded");
    assert!(status["reason"].as_str().unwrap().contains("exit code 1"), "{status}");
}

#[test]
fn a_worker_that_does_not_start_is_tried_again_with_growing_pauses() {
    let folder = tests::harness::private_folder();
    let count = folder.path().join("starts");
    let started = Instant::now();
    let daemon = serve_with(&faultworker(&format!("counted:{} boot:exit1", count.display())));
    daemon.run(&["submit", "act", "nothing"]).code(4);
    let starts = std::fs::read_to_string(&count).unwrap().lines().count();
    let seconds = started.elapsed().as_secs() as usize;
    assert!(starts <= 2 + 5 + seconds, "{starts} starts in {seconds} s");
}

#[test]
fn a_worker_that_says_that_it_is_pointless_is_started_once_a_slot() {
    let folder = tests::harness::private_folder();
    let count = folder.path().join("starts");
    let daemon = serve_with(&faultworker(&format!("counted:{} boot:exit64", count.display())));
    daemon.run(&["submit", "act", "nothing"]).code(4);
    let starts = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
    until("both slots to have tried", || (starts() == 2).then_some(()));
    for _ in 0..5 {
        daemon.run(&["submit", "act", "nothing"]).code(4);
    }
    assert_eq!(starts(), 2);
}

#[test]
fn a_program_that_is_none_of_ours_is_refused_with_the_reason() {
    for (worker, reason) in [
        (faultworker("boot:badversion"), "protocol 9.0, this supervisor 3.0: start it under a newer offload"),
        (
            faultworker("boot:oldversion"),
            "protocol 2.1, this supervisor 3.0: rebuild the worker with offload-worker 0.4",
        ),
        ("/no/such/program".to_owned(), "No such file"),
        ("/etc/passwd".to_owned(), "denied"),
    ] {
        let daemon = serve_with(&worker);
        let ran = daemon.run(&["submit", "act", "nothing"]).code(4);
        assert!(ran.stderr.contains("unavailable") && ran.stderr.contains(reason), "{}", ran.stderr);
    }
}

#[test]
fn garbage_instead_of_a_hello_is_no_reason_to_hang_either() {
    let daemon = serve_with(&faultworker("boot:garbage"));
    let ran = daemon.run(&["submit", "--deadline", "20s", "act", "nothing"]);
    assert_eq!(ran.code, 4, "{ran:?}");
}

#[test]
fn run_starts_nothing_if_its_program_is_not_there() {
    let ran = run_offload(&["run", "--worker", "/no/such/program", "act", "x"]).code(2);
    assert_eq!(
        ran.stderr,
        "offload: --worker: cannot start `/no/such/program`: No such file or directory (os error 2)\n"
    );
}

/// Without the rule it is started five times, and each time waited for.
#[test]
fn run_waits_once_for_a_program_that_is_no_worker_and_says_what_is_wrong() {
    let mut cat = command(&["run", "--worker", "/bin/cat", "any.task", "x", "y"]);
    let ran = run(cat.env("OFFLOAD_HELLO_TIMEOUT", "500ms"), b"").code(4);
    assert_eq!(ran.stderr.matches("(1 failed start in a row").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("2 failed starts"), "{}", ran.stderr);
    let said: Vec<_> = ran.stderr.lines().filter(|line| line.contains("unavailable")).collect();
    assert_eq!(said.len(), 2, "one for each job: {}", ran.stderr);
    for words in [
        "did not say hello within 500 ms",
        "the protocol of workers",
        "examples/worker.py",
        "--exec",
        "--worker-jsonl",
    ] {
        assert!(said.iter().all(|line| line.contains(words)), "{said:?}");
    }
    let ran = run_offload(&["run", "--worker", "/bin/true", "any.task", "x"]).code(4);
    assert!(ran.stderr.contains("exit code 0 (1 failed start in a row"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("5 failed starts"), "{}", ran.stderr);
    let folder = tests::harness::private_folder();
    let count = folder.path().join("starts");
    let silent = faultworker(&format!("counted:{} boot:silent", count.display()));
    let mut map = command(&["map", "--workers", "1", "--worker", &silent, "act"]);
    let ran = run(map.env("OFFLOAD_HELLO_TIMEOUT", "500ms"), b"x\ny\n").code(1);
    assert!(ran.json_lines().iter().all(|line| line["outcome"] == "unavailable"), "{}", ran.text());
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1);
}

#[test]
fn run_has_a_worker_for_each_program_however_few_the_inputs() {
    let worker = format!("python3 {}", tests::harness::workspace().join("examples/worker.py").display());
    let ran = run_offload(&["run", "--worker", &worker, "--worker", "builtin", "primes", "100"]).ok();
    assert_eq!(ran.json()["count"], 25);
    let ran =
        run_offload(&["run", "--workers", "1", "--worker", &worker, "--worker", "builtin", "echo"]).code(2);
    assert!(ran.stderr.contains("--workers: 1 is too few for 2 worker programs"), "{}", ran.stderr);
}

#[test]
fn a_restart_storm_costs_next_to_nothing() {
    let daemon = serve_with(&faultworker("boot:exit1"));
    daemon.run(&["submit", "act", "nothing"]).code(4);
    let before = daemon.status()["event_loop"]["iterations"].as_u64().unwrap();
    let next = Instant::now() + Duration::from_secs(2);
    until("two seconds", || (Instant::now() >= next).then_some(()));
    let turns = daemon.status()["event_loop"]["iterations"].as_u64().unwrap() - before;
    assert!(turns < 500, "the loop went around {turns} times in 2 s");
}

#[test]
fn a_worker_in_plain_python_serves_jobs_beside_the_built_in_one() {
    let worker = format!("python3 {}", tests::harness::workspace().join("examples/worker.py").display());
    let daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker", &worker]);
    assert_eq!(daemon.run(&["submit", "reverse", "abc"]).ok().stdout, b"cba");
    assert_eq!(daemon.submit(&["py.sum", "[1, 2, 39]"])["output"], 42);
    let error = daemon.submit(&["py.sum", "[1, "]);
    assert_eq!(error["outcome"], "app_error");
    assert_eq!(daemon.submit(&["primes", "100"])["output"]["count"], 25);
    let large = "x".repeat(1 << 20);
    let ran = tests::harness::run(&mut daemon.command(&["submit", "reverse", "-"]), large.as_bytes()).ok();
    assert_eq!(ran.stdout, large.as_bytes());
}
