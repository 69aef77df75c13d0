//! Where `map` keeps its results: its folder and its job log are no other file, and what is somebody else's stays that.

use super::map_kept::files_in;
use std::path::Path;
use std::process::Command;
use tests::harness::{Ran, private_folder, run};

/// Runs `offload` with these words of a shell in a folder.
fn offload(folder: &Path, words: &str) -> Ran {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("\"$0\" {words}")]).arg(tests::harness::offload()).current_dir(folder);
    run(&mut shell, b"")
}

#[test]
fn a_map_goes_on_in_its_own_folder_and_takes_no_file_of_another_map_for_its_output() {
    let folder = private_folder();
    let map = |words: &str| offload(folder.path(), &format!("map sha256 {words}"));
    std::fs::write(folder.path().join("list"), "a\nb\n").unwrap();
    std::fs::write(folder.path().join("others"), "c\nd\n").unwrap();
    let calm = map("list --output-dir own --joblog log").ok();
    let files = files_in(&folder.path().join("own"));
    map("others --output-dir theirs").ok();
    let refused = map("list --output-dir theirs --joblog log --resume").code(2);
    let said = "its outputs are in own/ (--output-dir own/ goes on with it); name another log";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
    assert!(map("list --joblog log --resume").code(2).stderr.contains(said));

    map("others --output-dir own").ok();
    let resumed = map("list --output-dir own/ --joblog log --resume").ok();
    assert_eq!(files_in(&folder.path().join("own")), files);
    let named =
        |ran: &Ran| ran.json_lines().iter().map(|line| line["output_file"].clone()).collect::<Vec<_>>();
    assert_eq!(named(&resumed), named(&calm));
    let again = map("list --output-dir own --joblog log --resume").ok();
    assert_eq!(again.stdout, resumed.stdout, "nothing has run any more");
}

/// Two that write to one file tear each other's lines.
#[test]
fn the_job_log_is_no_other_file_of_its_own_command() {
    for (words, said) in [
        (
            "map echo --range 1-300 --joblog x > x",
            "x is standard output of this command, and cannot be the job log",
        ),
        ("map echo --range 1-300 --joblog x >> x", "x is standard output of this command"),
        ("map echo --range 1-300 --joblog /dev/stdout > x", "/dev/stdout is standard output of this command"),
        ("map echo --range 1-300 --joblog x 2> x", "x is standard error of this command"),
        ("map echo --range 1-300 --joblog x --resume > x", "x is standard output of this command"),
        ("map echo --range 1-300 --joblog x --retry-failed > x", "x is standard output of this command"),
        (
            "map echo --range 1-300 --joblog log > log.results",
            "log.results is standard output of this command, and cannot be the results of the job log",
        ),
        ("map echo --range 1-300 --joblog link > x", "link is standard output of this command"),
        ("map echo --range 1-300 --joblog one", "one.results is the job log of this command"),
        ("map echo empty --joblog empty", "empty is the list of this command"),
        ("map echo --joblog empty < empty", "empty is the list of this command"),
        (
            "map echo empty --joblog log >> empty",
            "empty is standard output of this command, and cannot be the list",
        ),
        ("map echo < lines >> lines", "standard input is standard output of this command"),
    ] {
        let folder = private_folder();
        let inside = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("x", inside("link")).unwrap();
        std::os::unix::fs::symlink("one", inside("one.results")).unwrap();
        std::fs::write(inside("empty"), "").unwrap();
        std::fs::write(inside("lines"), "a\nb\n").unwrap();
        let ran = offload(folder.path(), words).code(2);
        let written =
            ["x", "one", "log", "log.results", "empty"].map(|name| std::fs::read_to_string(inside(name)));
        let written: String = written.into_iter().map(Result::unwrap_or_default).collect();
        let heard = ran.stderr + &written;
        assert!(heard.contains(said), "{words}: {heard}");
        assert!(!heard.contains("\"index\""), "{words}: something has run: {heard}");
        assert!(!inside("log").exists(), "{words}: nothing is made");
        assert_eq!(std::fs::read_to_string(inside("lines")).unwrap(), "a\nb\n", "{words}");
    }
    // What is no regular file may have several uses, and so may standard output and standard error.
    let folder = private_folder();
    offload(folder.path(), "map echo --range 1-2 --joblog log > both 2>&1").ok();
    offload(folder.path(), "map echo --joblog other < /dev/null > /dev/null 2>&1").ok();
}
