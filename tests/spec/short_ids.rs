//! Verbs with several jobs, and jobs that are named by a part of their ids.

use serde_json::Value;
use tests::harness::{Daemon, program};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    daemon.run(&[&["submit", "--detach"], arguments].concat()).ok().text().trim().to_owned()
}

/// The last characters of an id.
fn end(id: &str) -> &str {
    &id[id.len() - 4..]
}

fn members<'a>(lines: &'a [Value], name: &str) -> Vec<&'a str> {
    lines.iter().map(|line| line[name].as_str().unwrap_or_default()).collect()
}

#[test]
fn results_of_several_jobs_come_in_the_order_in_which_they_are_named_and_the_highest_exit_code_counts() {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    let daemon = Daemon::start(&["--workers", "2", "--worker", "builtin", "--worker", &worker]);
    let slow = detach(&daemon, &["sleep", "50"]);
    let failed = detach(&daemon, &["primes", "none"]);
    let crashed = detach(&daemon, &["--attempts", "1", "act", "exit7"]);
    let good = detach(&daemon, &["echo", "one"]);

    let waited = daemon.run(&["wait", &slow, &crashed, &failed, &good]).code(125);
    assert_eq!(waited.text(), "null\none\n");
    for (job, outcome) in [(&crashed, "worker_crashed"), (&failed, "app_error")] {
        assert!(waited.stderr.contains(&format!("{job}: {outcome}: ")), "{}", waited.stderr);
    }
    let lines = daemon.run(&["result", "--json", &good, &failed, &crashed, &slow]).code(125).json_lines();
    assert_eq!(members(&lines, "job"), [&*good, &*failed, &*crashed, &*slow]);
    assert_eq!(members(&lines, "outcome"), ["ok", "app_error", "worker_crashed", "ok"]);

    let explained = daemon.run(&["explain", "--json", &crashed, &good]).ok().json_lines();
    assert_eq!(members(&explained, "state"), ["worker_crashed", "ok"]);
    let text = daemon.run(&["explain", &good, &failed]).ok().text();
    assert!(
        text.contains(&format!("{good}: ok")) && text.contains(&format!("{failed}: app_error")),
        "{text}"
    );
}

#[test]
fn a_job_that_nobody_knows_keeps_the_others_from_nothing() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let jobs = [(); 3].map(|()| detach(&daemon, &["sleep", FOR_EVER]));
    let lines = daemon.run(&["cancel", "--json", &jobs[0], "nothing", &jobs[2]]).code(5).json_lines();
    assert_eq!(members(&lines, "job"), [&*jobs[0], "nothing", &*jobs[2]]);
    assert_eq!(lines[1]["error"]["code"], "no_such_job");
    let states = daemon.run(&["explain", "--json", &jobs[0], &jobs[1], &jobs[2]]).ok().json_lines();
    assert_eq!(states[0]["state"], "cancelled");
    assert!(["queued", "running"].contains(&members(&states, "state")[1]), "{states:?}");
    assert_eq!(states[2]["state"], "cancelled");
    // Named twice, it is one job.
    assert_eq!(daemon.run(&["cancel", &jobs[1], &jobs[1]]).ok().text().lines().count(), 1);
}

#[test]
fn a_job_is_named_by_the_end_of_its_id_or_by_so_much_of_its_start_as_no_other_job_has() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let jobs: Vec<String> = ["one", "two"].map(|text| detach(&daemon, &["echo", text])).to_vec();
    assert_eq!(daemon.run(&["wait", end(&jobs[1]), &end(&jobs[0]).to_lowercase()]).ok().text(), "two\none\n");
    let shared = &jobs[0][..25];
    let refused = daemon.run(&["cancel", end(&jobs[0]), shared]).code(2);
    assert!(
        jobs.iter().all(|job| refused.stderr.contains(&format!("{job} (echo, ok)"))),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.text(), "", "nothing was done");
    let document = daemon.run(&["result", "--json", shared]).code(2).json();
    assert_eq!(document["error"]["code"], "usage");
    for unknown in ["ZZZZ", "", "é", "nothing"] {
        daemon.run(&["result", unknown]).code(5);
    }
    let rest: Vec<String> = (0..31).map(|_| detach(&daemon, &["echo", "x"])).collect();
    let last = rest.last().unwrap();
    assert_eq!(
        daemon.run(&["wait", &last[..25]]).code(2).text(),
        "",
        "the one before has the same 25 characters"
    );
    let many = daemon.run(&["explain", &jobs[0][..10]]).code(2);
    assert!(many.stderr.contains("and others") && many.stderr.contains(last.as_str()), "{}", many.stderr);
}

#[test]
fn one_file_takes_the_output_of_one_job() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let (one, two) = (detach(&daemon, &["echo", "one"]), detach(&daemon, &["echo", "two"]));
    let file = daemon.folder().join("output");
    for verb in ["wait", "result"] {
        let refused = daemon.run(&[verb, "--output", file.to_str().unwrap(), &one, &two]).code(2);
        assert!(refused.stderr.contains("--output takes the output of one job"), "{}", refused.stderr);
        assert!(!file.exists());
    }
    daemon.run(&["wait", "--output", file.to_str().unwrap(), end(&two)]).ok();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "two\n");
}
