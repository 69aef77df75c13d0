//! What is attached to jobs: labels, by which they are found, and metadata; and what tasks say of themselves.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::harness::{Daemon, private_folder, run_offload, workspace};

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

/// Some of them may have ended before anybody waits: their results are kept, so they count too.
#[test]
fn whoever_waits_for_a_label_gets_all_results_and_the_exit_code_of_the_first_failure() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let submit = |task: &str, input: &str| {
        daemon.run(&["submit", "--detach", "--label", "batch=1", task, input]).ok().text().trim().to_owned()
    };
    let (first, failed) = (submit("echo", "one"), submit("primes", "none"));
    daemon.run(&["wait", &first]).ok();
    submit("sleep", "50");
    let waited = daemon.run(&["wait", "--label", "batch=1"]).code(1);
    assert_eq!(waited.text(), "one\nnull\n");
    assert!(waited.stderr.contains(&format!("{failed}: app_error: ")), "{}", waited.stderr);
    daemon.run(&["cancel", "--label", "batch=1"]).ok();
    for verb in ["wait", "cancel"] {
        let none = daemon.run(&[verb, "--label", "unknown"]).code(5);
        assert!(none.stderr.contains("no job with the label unknown is known"), "{}", none.stderr);
    }
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

#[test]
fn what_a_worker_program_offers_is_shown_without_a_supervisor() {
    let example = format!("python3 {}", workspace().join("examples/worker.py").display());
    let tasks = run_offload(&["tasks", "--json", "--worker", &example, "--worker", "builtin"]).ok().json();
    let names: Vec<&str> =
        tasks.as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"py.sum") && names.contains(&"primes"), "{names:?}");
    let shown = run_offload(&["tasks", "py.sum", "--worker", &example]).ok();
    assert!(
        shown.text().contains("adds up an array of numbers") && shown.text().contains("[1, 2]"),
        "{shown:?}"
    );
    let none = run_offload(&["tasks", "--worker", "/bin/true"]).code(4);
    assert!(none.stderr.contains("unavailable"), "{}", none.stderr);
}

/// Where an input is not text, the example is in base64.
#[test]
fn every_example_of_a_built_in_task_works_as_it_is_shown() {
    let folder = private_folder();
    for task in run_offload(&["tasks", "--json", "--worker", "builtin"]).ok().json().as_array().unwrap() {
        let text = task["example"].as_str().map(|text| text.as_bytes().to_vec());
        let binary = || STANDARD.decode(task["example_base64"].as_str().unwrap()).unwrap();
        let file = folder.path().join("example");
        std::fs::write(&file, text.unwrap_or_else(binary)).unwrap();
        run_offload(&["run", task["name"].as_str().unwrap(), &format!("@{}", file.display())]).ok();
    }
}
