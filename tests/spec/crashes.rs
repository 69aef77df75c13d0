//! Workers die in many ways. The job gets its outcome, other jobs get their results, and the slot gets another worker.

use offload_protocol::messages::ToClient;
use offload_protocol::nouns::OutcomeCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::canary;
use tests::harness::{Daemon, PATIENCE, children_of, program, run, signal, until, wait_for_end, workspace};

/// 64 good jobs beside whatever happens in `meanwhile`.
fn with_good_jobs_beside<T>(daemon: &Daemon, meanwhile: impl FnOnce() -> T) -> T {
    let lines: String = (0..64).map(|number| format!("{}\n", 1000 + number)).collect();
    let mut map = daemon.command(&["map", "average"]);
    let good = std::thread::spawn(move || run(&mut map, lines.as_bytes()));
    let result = meanwhile();
    let lines = good.join().unwrap().ok().json_lines();
    assert_eq!(lines.len(), 64);
    for (index, line) in lines.iter().enumerate() {
        let n = 1000.0 + index as f64;
        assert_eq!(line["output"].as_f64(), Some((n + 1.0) / 2.0), "{line}");
    }
    result
}

/// What `fault` does, with which outcome, cause and exit code.
const FAULTS: [(&str, &str, &str, i32); 10] = [
    ("panic", "panic", "panic", 1),
    ("abort", "poison", "worker_crashed", 125),
    ("segv", "poison", "worker_crashed", 125),
    ("exit", "poison", "worker_crashed", 125),
    ("kill", "poison", "worker_crashed", 125),
    ("stack", "poison", "worker_crashed", 125),
    ("garbage", "poison", "worker_protocol", 125),
    ("close", "poison", "worker_crashed", 125),
    ("hang", "timeout", "timeout", 124),
    ("leak", "ok", "", 0),
];

#[test]
fn every_fault_has_exactly_its_outcome_and_64_good_jobs_do_not_notice() {
    let daemon = Daemon::start(&["--workers", "2", "--allow-faults"]);
    for (act, outcome, cause, code) in FAULTS {
        let input = json!({ "act": act }).to_string();
        let limit = if outcome == "timeout" { "300ms" } else { "60s" };
        let ran = with_good_jobs_beside(&daemon, || {
            daemon.run(&["submit", "--json", "--timeout", limit, "fault", &input])
        });
        let job = ran.json();
        assert_eq!((ran.code, job["outcome"].as_str()), (code, Some(outcome)), "{act}: {ran:?}");
        assert_eq!(job["error"]["code"].as_str().unwrap_or(""), cause, "{act}: {ran:?}");
        daemon.wait_until_whole();
    }
    assert_eq!(daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn the_signal_and_the_exit_code_are_told_to_programs_and_to_people() {
    let daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
    let job = daemon.submit(&["fault", r#"{"act":"segv"}"#]);
    assert_eq!((&job["error"]["signal"], &job["error"]["exit_code"]), (&json!(11), &Value::Null));
    assert_eq!(job["attempts"], 3);
    let ran = daemon.run(&["submit", "fault", r#"{"act":"segv"}"#]).code(125);
    assert!(ran.stderr.contains("worker_crashed: signal 11 (SIGSEGV) in attempt 3 of 3"), "{}", ran.stderr);
    let job = daemon.submit(&["--attempts", "1", "fault", r#"{"act":"exit"}"#]);
    assert_eq!((&job["error"]["signal"], &job["error"]["exit_code"]), (&Value::Null, &json!(0)));
    assert_eq!(job["outcome"], "worker_crashed", "exit code 0 is no success");
}

#[test]
fn a_fault_in_the_first_attempt_only_is_survived() {
    let daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
    for act in ["abort", "segv", "exit", "kill", "stack", "garbage", "close"] {
        let input = json!({ "act": act, "on_attempt": 1 }).to_string();
        let job = daemon.submit(&["fault", &input]);
        assert_eq!(
            (job["outcome"].as_str(), job["attempts"].as_u64()),
            (Some("ok"), Some(2)),
            "{act}: {job}"
        );
    }
}

#[test]
fn an_idempotent_job_survives_the_kill_of_its_worker_and_the_slot_is_ready_again_at_once() {
    let daemon = Daemon::start(&["--workers", "2"]);
    daemon.wait_until_whole();
    let mut sleeper = daemon.command(&["submit", "--json", "sleep", "3000"]);
    let sleeper = std::thread::spawn(move || run(&mut sleeper, b""));
    let victim = daemon.worker_running("sleep");
    signal(victim["pid"].as_u64().unwrap() as u32, Signal::KILL);
    let job = sleeper.join().unwrap().ok().json();
    assert_eq!((job["outcome"].as_str(), job["attempts"].as_u64()), (Some("ok"), Some(2)), "{job}");
    daemon.wait_until_whole();
    let slot = &daemon.workers()[victim["slot"].as_u64().unwrap() as usize];
    assert_eq!(slot["last_exit"], "signal 9 (SIGKILL)");
    assert!(slot["incarnation"].as_u64() > victim["incarnation"].as_u64());
}

fn faulty(arguments: &[&str]) -> Daemon {
    let worker = format!("{} {}", program("faultworker").display(), arguments.join(" "));
    Daemon::start(&["--workers", "2", "--worker", worker.trim_end()])
}

#[test]
fn a_job_that_must_not_run_twice_is_answered_with_the_signal_that_ended_it() {
    let daemon = faulty(&[]);
    let ran = daemon.run(&["submit", "--json", "charge", "kill"]).code(125);
    let job = ran.json();
    assert_eq!((&job["outcome"], &job["attempts"]), (&json!("worker_crashed"), &json!(1)));
    assert_eq!(job["error"]["signal"], 9);
    assert_eq!(job["error"]["message"], "signal 9 (SIGKILL) in attempt 1 of 1");
}

#[test]
fn a_worker_that_breaks_the_protocol_is_killed_and_not_one_byte_of_it_reaches_the_client() {
    let daemon = faulty(&[]);
    for act in ["garbage", "hugelength", "wrongjob"] {
        let job = daemon.submit(&["charge", act]);
        assert_eq!(job["outcome"], "worker_protocol", "{act}: {job}");
        assert_eq!(job["output"], Value::Null);
    }
    let first_answer = daemon.submit(&["charge", "double"]);
    assert_eq!(first_answer["outcome"], "ok", "the first of two answers counts, once: {first_answer}");
    daemon.wait_until_whole();
    let counts = daemon.status()["jobs"].clone();
    assert_eq!((&counts["worker_protocol"], &counts["ok"]), (&json!(3), &json!(1)));
}

#[test]
fn a_task_that_panics_or_fails_says_so_and_its_text_cannot_act_on_a_terminal() {
    let daemon = faulty(&[]);
    let ran = daemon.run(&["submit", "charge", "error"]).code(1);
    assert!(ran.stderr.contains("app_error: as\\nordered"), "{:?}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    let ran = daemon.run(&["submit", "charge", "panic"]).code(1);
    assert!(ran.stderr.contains("panic: ") && ran.stderr.contains("as ordered"), "{:?}", ran.stderr);
}

#[test]
fn what_workers_print_is_tagged_and_escaped_and_never_becomes_a_result() {
    let daemon = faulty(&[]);
    let job = daemon.submit(&["act", "print"]);
    assert_eq!(job["outcome"], "ok");
    let line = daemon.stderr.find(|line| line.contains("plain"), PATIENCE).expect("the line");
    assert!(line.contains("[slot ") && line.contains("pid "), "{line}");
    assert!(!line.contains(['\u{1b}', '\r', '\u{7}']), "{line:?}");
    assert_eq!(
        daemon.submit(&["act", "flood"])["outcome"],
        "ok",
        "a flood ends, slowly, and blocks nobody else"
    );
}

#[test]
fn a_worker_that_ignores_sigterm_is_killed_when_its_grace_is_over() {
    let daemon = faulty(&[]);
    let job = daemon.submit(&["--timeout", "200ms", "act", "ignore_term"]);
    assert_eq!(job["outcome"], "timeout", "{job}");
    let pid = job["receipt"]["worker_pid"].as_u64().unwrap() as u32;
    assert!(wait_for_end(pid, PATIENCE), "process {pid} lives on");
    daemon.wait_until_whole();
}

#[test]
fn a_grandchild_that_keeps_the_channel_open_cannot_hide_the_death_of_its_parent() {
    let daemon = faulty(&[]);
    let job = daemon.submit(&["charge", "grandchild"]);
    assert_eq!(job["outcome"], "worker_crashed", "{job}");
    let line = daemon.stderr.find(|line| line.contains("grandchild "), PATIENCE).expect("its pid");
    let grandchild = line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(wait_for_end(grandchild, PATIENCE), "the rest of the process group is swept");
}

#[test]
fn no_worker_outlives_a_supervisor_that_is_killed() {
    let python = format!("python3 {}", workspace().join("examples/worker.py").display());
    let mut daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker", &python]);
    daemon.wait_until_whole();
    daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok();
    daemon.worker_running("sleep");
    let workers = children_of(daemon.pid());
    assert!(workers.len() >= 2, "{workers:?}");
    daemon.signal(Signal::KILL);
    daemon.wait();
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}

#[test]
fn no_zombie_is_left_of_any_worker() {
    let daemon = Daemon::start(&["--workers", "2", "--allow-faults"]);
    for _ in 0..20 {
        daemon.submit(&["--attempts", "1", "fault", r#"{"act":"kill"}"#]);
    }
    daemon.wait_until_whole();
    until("exactly slots and spare", || (children_of(daemon.pid()).len() == 3).then_some(()));
}

#[test]
fn a_job_that_must_not_be_run_twice_is_not_given_out_again_after_a_worker_has_peeked_at_it_and_begun() {
    let worker = format!("{} tray:peek", program("faultworker").display());
    let daemon =
        Daemon::start(&["--workers", "1", "--spares", "0", "--backoff-min", "10ms", "--worker", &worker]);
    let mut client = daemon.client();
    let mut unknown = 0;
    // It takes some jobs until it is known how short they are, and that one can lie in a tray.
    until("it has begun jobs that it left there", || {
        let tickets: Vec<u64> = (0..20)
            .map(|number| client.submit("canary.slow", &canary::input(1, number).into()).unwrap())
            .collect();
        for ticket in tickets {
            let report = loop {
                if let (ToClient::Finished { report, .. }, _) = client.answer_to(ticket).unwrap() {
                    break report;
                }
            };
            match report.outcome {
                OutcomeCode::Ok => {}
                OutcomeCode::Indeterminate => unknown += 1,
                other => panic!("{other:?}: {report:?}"),
            }
        }
        (unknown >= 3).then_some(())
    });
}
