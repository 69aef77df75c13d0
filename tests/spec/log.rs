//! The log: every line has a time and a level, and a crash loop is reported in few lines.

use rustix::process::Signal;
use serde_json::Value;
use tests::harness::{Daemon, program, run, until};

fn faulty(arguments: &[&str]) -> Daemon {
    let worker = format!("{} boot:nothing", program("faultworker").display());
    Daemon::start(&[&["--workers", "2", "--worker", &worker], arguments].concat())
}

/// The level of a line, if it begins with a time and a level.
fn level(line: &str) -> Option<&str> {
    let (time, rest) = line.split_once(' ')?;
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let level = rest.split(' ').next()?;
    (shape == "0000-00-00T00:00:00.000Z" && ["error", "warn", "info"].contains(&level)).then_some(level)
}

#[test]
fn every_line_has_a_time_and_a_level() {
    let mut daemon = faulty(&["-v"]);
    daemon.submit(&["act", "exit7"]);
    daemon.submit(&["act", "print"]);
    daemon.signal(Signal::HUP);
    daemon.run(&["reload"]).ok();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let lines = daemon.stderr.whole();
    assert!(lines.len() > 10, "{lines:#?}");
    for line in &lines {
        assert!(level(line).is_some(), "{line}");
    }
}

#[test]
fn in_json_every_line_is_a_document_with_both() {
    let mut daemon = faulty(&["-v", "--log-format", "json"]);
    daemon.submit(&["act", "exit7"]);
    daemon.signal(Signal::TERM);
    daemon.wait();
    for line in daemon.stderr.whole() {
        let document: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["time", "level", "message"].iter().all(|key| document[*key].is_string()), "{line}");
    }
}

/// What it prints is dropped thousands of lines at a time, and that is told like everything else that is left out.
#[test]
fn a_worker_that_prints_without_end_is_told_of_in_few_lines() {
    let mut serve =
        tests::harness::command(&["serve", "--fail-fast", "--hello-timeout", "1s", "--worker", "yes"]);
    let folder = tests::harness::private_folder();
    let ran = run(serve.arg("--socket").arg(folder.path().join("o.sock")), b"").code(4);
    let about = ran.stderr.lines().filter(|line| line.contains("like this") || line.contains("are left out"));
    assert!(about.clone().count() >= 1, "{}", ran.stderr);
    let once_a_second = ran.took.as_secs() as usize + 3;
    assert!(about.count() <= once_a_second && !ran.stderr.contains("lines dropped"), "{}", ran.stderr);
}

/// The number before these words.
fn number_before(line: &str, words: &str) -> Option<u64> {
    line.split_once(words)?.0.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn a_loop_of_crashes_is_told_in_few_lines_and_every_crash_is_counted() {
    const CRASHES: u64 = 300;
    let mut daemon = faulty(&[]);
    let lines = "exit7\n".repeat(CRASHES as usize);
    run(
        &mut daemon.command(&["map", "act", "--attempts", "1", "--max-failures", "1000000"]),
        lines.as_bytes(),
    );
    // The last job has ended when its worker has, and another worker is started after that.
    let deaths = || daemon.status()["workers"]["restarts"].as_u64().unwrap();
    until("all workers that have ended are replaced", || (deaths() >= CRASHES).then_some(()));
    daemon.signal(Signal::TERM);
    daemon.wait();
    let said = daemon.stderr.whole();
    let of_kind = said.iter().filter(|line| line.contains(" ended with exit code 7"));
    let written = of_kind.clone().count() as u64;
    let left_out: u64 = said
        .iter()
        .filter_map(|line| match line.contains(" ended with exit code 7") {
            true => number_before(line, " more like this)"),
            false if line.contains(" workers that ended: ") => number_before(line, " more like this"),
            false => None,
        })
        .sum();
    assert!(left_out > 0 && written < CRASHES / 2, "{written} lines for {CRASHES} crashes");
    assert_eq!(written + left_out, CRASHES, "{said:#?}");
}
