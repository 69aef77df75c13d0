//! What is attached to jobs: labels, by which they are found, and metadata; and what tasks say of themselves.

use tests::harness::Daemon;

#[test]
fn jobs_are_found_cancelled_and_waited_for_by_their_label() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let submit = |label: &str, ms: &str| {
        daemon.run(&["submit", "--detach", "--label", label, "sleep", ms]).ok().text().trim().to_owned()
    };
    let (first, second) = (submit("batch=1", "600000"), submit("batch=1", "600000"));
    let awaited = submit("other", "1");
    let jobs = daemon.run(&["jobs", "--json", "--label", "batch=1"]).ok().json();
    let ids: Vec<&str> = jobs.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);
    assert_eq!(jobs[0]["labels"][0], "batch=1");
    assert_eq!(daemon.run(&["explain", "--json", &awaited]).ok().json()["labels"][0], "other");
    daemon.run(&["cancel", "--label", "batch=1"]).ok();
    for job in daemon.run(&["jobs", "--json", "--label", "batch=1"]).ok().json().as_array().unwrap() {
        assert_eq!(job["state"], "cancelled");
    }
    assert_eq!(daemon.run(&["wait", &awaited]).ok().text(), "null\n", "it had another label");
}

#[test]
fn what_is_attached_to_a_job_is_in_its_report_and_what_is_no_tag_is_refused() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let report = daemon.submit(&["--label", "nightly", "--meta", "tenant=blue", "echo", "x"]);
    assert_eq!((&report["labels"][0], &report["metadata"]["tenant"]), (&"nightly".into(), &"blue".into()));
    for wrong in [["--label", "two words"], ["--meta", "Tenant=blue"], ["--meta", "tenant"]] {
        daemon.run(&["submit", wrong[0], wrong[1], "echo", "x"]).code(2);
    }
}

#[test]
fn a_running_supervisor_shows_what_the_tasks_of_its_workers_take() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let tasks = daemon.run(&["tasks", "sha256", "--json"]).ok().json();
    assert_eq!((&tasks[0]["name"], &tasks[0]["example"]), (&"sha256".into(), &"abc".into()));
    assert_eq!(tasks[0]["accepts"][0], "*/*");
    daemon.run(&["tasks", "nothing"]).code(4);
}
