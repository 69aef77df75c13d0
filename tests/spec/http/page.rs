//! The page for browsers, and what a browser makes of it.

use std::process::Command;
use tests::harness::{program, workspace};
use tests::http::HttpDaemon;

#[test]
fn there_is_a_page_only_if_it_is_asked_for() {
    let without = HttpDaemon::start(&["--workers", "1"]);
    assert_eq!(without.ask("GET", "/", &[], b"").problem().0, 404);
    assert_eq!(without.ask("GET", "/", &[("Authorization", "Bearer wrong")], b"").problem().0, 401);
    let with = HttpDaemon::start(&["--workers", "1", "--http-page"]);
    let page = with.ask("GET", "/", &[("Authorization", "Bearer wrong")], b"");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(with.ask("GET", "/v1/status", &[("Authorization", "Bearer wrong")], b"").problem().0, 401);
    assert_eq!(with.ask("POST", "/", &[], b"").problem().0, 405);
    for field in [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
        assert_eq!(with.ask("GET", "/", &[field], b"").problem().0, 403, "{field:?}");
    }
}

#[test]
fn the_page_may_run_one_script_and_nothing_may_frame_it() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-page"]);
    let page = http.ask("GET", "/", &[], b"");
    let policy = page.field("content-security-policy").expect("a policy");
    for rule in ["default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("script-src 'self'"), "{policy}");
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.field("cache-control"), Some("no-store"));
}

/// Runs a script of `tests/browser` with a supervisor, which is well at the end.
fn in_a_browser(script: &str, http: &HttpDaemon, more: &[&str]) {
    run_in_a_browser(script, http, more);
    assert_eq!(http.daemon.status()["ledger"]["balanced"], true);
}

/// Runs a script of `tests/browser` with a supervisor.
fn run_in_a_browser(script: &str, http: &HttpDaemon, more: &[&str]) {
    let mut python = Command::new("python3");
    python.arg(workspace().join("tests/browser").join(script)).arg(&http.address).arg(&http.token).args(more);
    let output = python.output().expect("python3 can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_browser_shows_the_supervisor_live_at_two_widths_and_in_the_dark() {
    let http = HttpDaemon::start(&["--workers", "2", "--http-page", "--allow-faults"]);
    in_a_browser("page.py", &http, &[]);
}

#[test]
fn a_browser_calls_a_task_follows_its_progress_and_shows_the_picture_that_it_returns() {
    let http = HttpDaemon::start(&["--workers", "2", "--http-page"]);
    in_a_browser("picture.py", &http, &[]);
}

#[test]
fn a_browser_that_is_not_told_says_why_or_since_when_and_of_tokens_what_is_wrong_with_them() {
    let http = HttpDaemon::start(&["--workers", "2", "--http-page"]);
    run_in_a_browser("silence.py", &http, &[&http.daemon.pid().to_string()]);
}

#[test]
fn a_browser_shows_all_jobs_that_a_worker_ran_together_when_it_ended() {
    let worker = program("batchworker").display().to_string();
    let http = HttpDaemon::start(&["--workers", "1", "--worker", &worker, "--http-page"]);
    let submit = |task: &str, input: &str| {
        http.daemon.run(&["submit", "--detach", "--client", "one", task, input]).ok().text().trim().to_owned()
    };
    let busy = submit("lone", "3600000");
    http.daemon.worker_running("lone");
    let jobs = ["x", "crash", "x"].map(|input| submit("tile", input));
    http.daemon.run(&["cancel", &busy]).ok();
    jobs.iter().for_each(|job| drop(http.daemon.run(&["wait", job])));
    in_a_browser("batch.py", &http, &jobs.each_ref().map(String::as_str));
}
