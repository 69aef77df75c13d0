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
