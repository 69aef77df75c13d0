//! `offload doctor`: each line has a verdict and says what to do, and what does not work makes it exit with 1.

use serde_json::Value;
use std::fs::{Permissions, create_dir, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tests::harness::{Ran, command, offload, private_folder, run};

const CHECKS: [&str; 13] = [
    "config",
    "kernel",
    "cores",
    "memory",
    "overcommit",
    "processes",
    "files",
    "clock",
    "suspend",
    "core dumps",
    "strays",
    "user",
    "socket",
];

/// It runs with a socket in this folder.
fn doctor(folder: &std::path::Path, words: &[&str]) -> Ran {
    let mut doctor = command(&[&["doctor"], words].concat());
    run(doctor.env("OFFLOAD_SOCKET", folder.join("o.sock")), b"")
}

fn check(document: &Value, name: &str) -> Value {
    let checks = document["checks"].as_array().expect("a list");
    checks
        .iter()
        .find(|check| check["check"] == name)
        .unwrap_or_else(|| panic!("no {name}: {document}"))
        .clone()
}

#[test]
fn all_is_checked_and_each_finding_has_a_verdict() {
    let folder = private_folder();
    let document = doctor(folder.path(), &["--json"]).json();
    let names: Vec<&str> =
        document["checks"].as_array().unwrap().iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(names, CHECKS);
    for name in CHECKS {
        let check = check(&document, name);
        let is_fine = check["verdict"] == "ok";
        assert_eq!(check["advice"].is_null(), is_fine, "{check}");
        assert!(!check["says"].as_str().unwrap().is_empty(), "{check}");
    }
    let ran = doctor(folder.path(), &[]);
    let findings = ran
        .text()
        .lines()
        .filter(|line| ["ok ", "warn", "fail"].iter().any(|word| line.starts_with(word)))
        .count();
    assert_eq!(findings, CHECKS.len(), "{}", ran.text());
    assert!(ran.text().lines().last().unwrap().contains(" warning"), "{}", ran.text());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it changes nothing");
}

#[test]
fn what_does_not_work_is_a_failure_with_exit_code_1() {
    let folder = private_folder();
    let open = folder.path().join("open");
    create_dir(&open).unwrap();
    set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let document = doctor(&open, &["--json"]).code(1).json();
    let socket = check(&document, "socket");
    assert_eq!((&document["verdict"], &socket["verdict"]), (&"fail".into(), &"fail".into()));
    assert!(socket["says"].as_str().unwrap().contains("must be 0700"), "{socket}");

    let file = folder.path().join("offload.toml");
    write(&file, "[[pool]]\nworkers = 0\n").unwrap();
    let document = doctor(folder.path(), &["--json", "--config", file.to_str().unwrap()]).code(1).json();
    assert!(check(&document, "config")["says"].as_str().unwrap().contains("offload.toml:2"), "{document}");

    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 40; exec \"$0\" doctor --json"]).arg(offload());
    shell.env("OFFLOAD_SOCKET", folder.path().join("o.sock")).env("OFFLOAD_CONFIG", "/dev/null");
    let files = check(&run(&mut shell, b"").code(1).json(), "files");
    assert!(files["advice"].as_str().unwrap().contains("ulimit -n"), "{files}");
}

#[test]
fn more_workers_than_cores_are_odd_and_no_failure() {
    let folder = private_folder();
    let document = doctor(folder.path(), &["--json", "--workers", "256"]).json();
    let cores = check(&document, "cores");
    assert_eq!(cores["verdict"], "warn");
    assert!(cores["advice"].as_str().unwrap().starts_with("say --workers "), "{cores}");
}
