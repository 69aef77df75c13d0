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

#[test]
fn an_output_whose_name_is_taken_by_a_folder_costs_no_other_job_its_file() {
    let folder = private_folder();
    std::fs::create_dir_all(folder.path().join("out/b")).unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    for name in ["a", "b", "c", "d"] {
        std::fs::write(folder.path().join("in").join(name), name).unwrap();
    }
    std::fs::write(folder.path().join("list"), "in/a\nin/b\nin/c\nin/d\n").unwrap();
    let map = |words: &str| {
        offload(
            folder.path(),
            &format!("map echo list --files --output-dir out --workers 1 --joblog log {words}"),
        )
    };
    let ran = map("").code(1);
    let outcomes =
        |ran: &Ran| ran.json_lines().iter().map(|line| line["outcome"].clone()).collect::<Vec<_>>();
    assert_eq!(outcomes(&ran), ["ok", "bad_request", "ok", "ok"]);
    let said = ran.json_lines()[1]["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(said, "its output would take the place of the folder out/b: name another --output-dir");
    assert_eq!(std::fs::read_to_string(folder.path().join("out/d")).unwrap(), "d");
    assert_eq!(outcomes(&map("--resume").code(1)), ["ok", "bad_request", "ok", "ok"]);

    std::fs::remove_dir(folder.path().join("out/b")).unwrap();
    assert_eq!(outcomes(&map("--resume").ok()), ["ok"; 4]);
    assert_eq!(std::fs::read_to_string(folder.path().join("out/b")).unwrap(), "b");
}

#[test]
fn a_job_whose_output_had_no_place_is_retried() {
    let folder = private_folder();
    std::fs::create_dir_all(folder.path().join("out/1")).unwrap();
    let map = |words: &str| {
        offload(folder.path(), &format!("map echo --range 7-9 --output-dir out --joblog log {words}"))
    };
    assert_eq!(map("").code(1).json_lines()[1]["outcome"], "bad_request");
    std::fs::remove_dir(folder.path().join("out/1")).unwrap();
    assert_eq!(map("--retry-failed").ok().json_lines().len(), 3);
    assert_eq!(std::fs::read_to_string(folder.path().join("out/1")).unwrap(), "8");
}

/// It is not there before the job has run.
#[test]
fn an_output_whose_name_becomes_that_of_a_folder_fails_alone() {
    let folder = private_folder();
    std::fs::write(folder.path().join("list"), "mkdir out/0\ntrue\ntrue\n").unwrap();
    let ran = offload(folder.path(), "map --exec \"sh -c '{} && echo done'\" list --output-dir out").code(1);
    let lines = ran.json_lines();
    assert_eq!(lines[0]["outcome"], "bad_request", "{}", lines[0]);
    let said = lines[0]["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("cannot write to out/0: Is a directory"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("out/2")).unwrap(), "done\n");
}

#[test]
fn no_file_of_somebody_else_is_removed_from_the_folder_of_the_outputs() {
    let folder = private_folder();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(out.join(".offload-1")).unwrap();
    for name in [".offload-7", ".offload-0", ".offload-unfinished-0"] {
        std::fs::write(out.join(name), "mine").unwrap();
    }
    std::fs::write(folder.path().join("list"), "x\ny\n").unwrap();
    offload(folder.path(), "map echo list --output-dir out").ok();
    std::fs::remove_dir(out.join(".offload-1")).unwrap();
    let left = files_in(&out);
    let names: Vec<_> = left.keys().map(String::as_str).collect();
    assert_eq!(names, [".offload-0", ".offload-7", ".offload-unfinished-0", "0", "1"]);
    assert_eq!(left[".offload-7"], b"mine");
}
