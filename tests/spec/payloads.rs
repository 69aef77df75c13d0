//! Large inputs and outputs: they arrive unchanged, and do not delay other clients.

use sha2::{Digest, Sha256};
use std::process::{Command, Stdio};
use tests::harness::{Daemon, private_folder, run, run_offload};

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Bytes without a pattern, the same at each call.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn payloads_of_every_size_come_back_as_they_were() {
    let daemon = Daemon::start(&["--workers", "2"]);
    for length in [0, 1, 32 << 10, (32 << 10) + 1, 64 << 10, 1 << 20, 50 << 20] {
        let bytes = noise(length);
        let ran = run(&mut daemon.command(&["submit", "echo", "-"]), &bytes).ok();
        assert!(
            hex(&ran.stdout) == hex(&bytes) || ran.stdout.strip_suffix(b"\n") == Some(&bytes),
            "{length} bytes"
        );
    }
}

#[test]
fn a_text_of_50_megabytes_is_counted() {
    let folder = private_folder();
    let file = folder.path().join("text");
    let line = "The quick brown fox jumps over the lazy dog, the end.\n";
    let lines = (50 << 20) / line.len();
    std::fs::write(&file, line.repeat(lines)).unwrap();
    let ran = run_offload(&["run", "wordcount", &format!("@{}", file.display())]).ok();
    let counted = ran.json();
    assert_eq!(counted["lines"], lines);
    assert_eq!(counted["words"], 11 * lines);
    assert_eq!(counted["top"][0], serde_json::json!(["the", 3 * lines]));
}

#[test]
fn the_systems_gunzip_reads_the_output_of_the_task_gzip() {
    let text = "all work and no play makes jack a dull boy\n".repeat(10_000);
    let folder = private_folder();
    let file = folder.path().join("text");
    std::fs::write(&file, &text).unwrap();
    let zipped = run_offload(&["run", "gzip", &format!("@{}", file.display())]).ok().stdout;
    assert!(zipped.len() < text.len() / 10);
    let ran = run(Command::new("gunzip").arg("-c").stderr(Stdio::null()), &zipped).ok();
    assert_eq!(ran.text(), text);
}

#[test]
fn a_pattern_that_never_ends_is_cut_by_the_timeout() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let text = format!("{}\n", "/".repeat(100));
    let input =
        |engine: &str| serde_json::json!({"pattern": "(/.+)+$", "text": text, "engine": engine}).to_string();
    let linear = daemon.submit(&["regex", &input("linear")]);
    assert_eq!(linear["outcome"], "ok", "{linear}");
    let backtracking = daemon.submit(&["--timeout", "300ms", "regex", &input("backtracking")]);
    assert_eq!(backtracking["outcome"], "timeout", "{backtracking}");
    daemon.run(&["submit", "echo", "next"]).ok();
}
