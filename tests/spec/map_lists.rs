//! What `map` takes as inputs, and in which form it prints the outputs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::harness::{Daemon, command, private_folder, run, run_offload, workspace};

/// All regular files below a folder, in one order.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(files_below(&entry.path())),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files.sort();
    files
}

fn list_of(files: &[PathBuf], end: u8) -> Vec<u8> {
    files.iter().flat_map(|file| [file.as_os_str().as_bytes(), &[end]].concat()).collect()
}

#[test]
fn a_program_over_a_tree_of_sources_prints_what_it_prints_without_us() {
    let files = files_below(&workspace().join("supervisor"));
    assert!(files.len() > 100, "{}", files.len());
    let expected = run(Command::new("sha256sum").args(&files), b"").ok().stdout;
    let map = ["map", "--exec", "sha256sum {}", "--files", "--raw"];
    assert!(run(&mut command(&map), &list_of(&files, b'\n')).ok().stdout == expected);

    let ran = run(&mut command(&["map", "--exec", "sha256sum", "--files"]), &list_of(&files, b'\n')).ok();
    let expected = String::from_utf8(expected).unwrap();
    for (line, expected) in ran.json_lines().iter().zip(expected.lines()) {
        let (hash, name) = expected.split_once("  ").unwrap();
        assert_eq!(line["file"], name);
        assert_eq!(line["output"], format!("{hash}  -\n"));
    }
    assert_eq!(ran.json_lines().len(), files.len());
}

#[test]
fn names_with_any_character_are_told_apart_by_zero_bytes() {
    let folder = private_folder();
    let names: [&[u8]; 4] = [b"a b", b"line\nend", b"-n", b"not\xffutf8"];
    for name in names {
        std::fs::write(folder.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let list: Vec<u8> = names.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect();
    for map in [&["map", "echo", "--files", "-0"][..], &["map", "--exec", "cat {}", "--files", "--null"]] {
        let mut map = command(&[map, &["--raw"]].concat());
        let ran = run(map.current_dir(folder.path()), &list).ok();
        assert_eq!(ran.stdout, names.concat());
    }
    let mut map = command(&["map", "sha256", "--files", "-0"]);
    let lines = run(map.current_dir(folder.path()), &list).ok().json_lines();
    assert_eq!(lines[1]["file"], "line\nend");
    assert_eq!((&lines[3]["file_base64"], &lines[3]["file"]), (&"bm90/3V0Zjg=".into(), &().into()));
}

#[test]
fn a_range_needs_no_list_here_and_in_a_supervisor() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let expected: String = (7..=300).map(|number| number.to_string()).collect();
    for mut map in [
        command(&["map", "--exec", "printf %s {}", "--range", "7-300", "--raw"]),
        daemon.command(&["map", "echo", "--range", "7-300", "--raw"]),
    ] {
        assert_eq!(run(&mut map, b"").ok().text(), expected);
    }
    assert_eq!(run_offload(&["map", "echo", "--range", "5-5"]).ok().json_lines().len(), 1);
}

#[test]
fn a_range_that_is_none_is_refused_before_anything_runs() {
    for (words, said) in [
        (&["--range", "9-1"][..], "the range is empty: 9 comes after 1"),
        (&["--range", "x"], "such as 1-100"),
        (&["--range", "1-2", "list"], "with --range there is no list"),
        (&["--range", "1-2", "--files"], "cannot be used with"),
    ] {
        let ran = run_offload(&[&["map", "echo"], words].concat()).code(2);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn raw_outputs_follow_one_another_and_failures_are_told_beside_them() {
    let folder = private_folder();
    std::fs::write(folder.path().join("good"), b"\0\xff").unwrap();
    let mut map = command(&["map", "echo", "--files", "--raw"]);
    let ran = run(map.current_dir(folder.path()), b"good\nmissing\ngood\nmissing\nmissing\n").code(1);
    assert_eq!(ran.stdout, b"\0\xff\0\xff", "nothing is added");
    assert!(ran.stderr.contains("input 2 (missing): io_error: cannot read missing"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the same for 2 more inputs"), "{}", ran.stderr);
}
