//! `tests/all` itself, with programs in place of cargo and the tests.

use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::harness::{PATIENCE, signal, until, wait_for_end, workspace, write_executable};

/// A cargo that builds nothing: it says that three test programs, and the one that they test, are in its own folder.
const CARGO_THAT_BUILDS: &str = r#"#!/bin/sh
folder=$(dirname "$0")
case "$*" in
build*--message-format*)
  mkdir -p "$folder/tests"
  for name in spec live_bytes fine offload; do
    is_test=true
    [ "$name" != offload ] || is_test=false
    echo '{"reason":"compiler-artifact","executable":"'$folder/$name'","manifest_path":"'$folder/tests/Cargo.toml'",' \
      '"target":{"name":"'$name'","kind":["bin"]},"profile":{"test":'$is_test'}}'
  done ;;
"#;

/// Two of these programs fail, one of them without a word.
const SPEC_THAT_FAILS: &str = r#"#!/bin/sh
cat <<'END'
running 4 tests
test run::slow has been running for over 60 seconds
test run::slow ... ok
test run::one ... FAILED
test run::fine ... ok
test run::two ... FAILED

failures:

---- run::one stdout ----
    a line of its own output
thread 'run::one' panicked

failures:
    run::one
    run::two

test result: FAILED. 0 passed; 2 failed
END
exit 101
"#;
const FAILS_WITHOUT_A_WORD: &str = "#!/bin/sh\nkill -9 $$\n";
const FINE: &str = "#!/bin/sh\necho 'test result: ok. 1 passed; 0 failed'\n";

/// `tests/all` with another cargo, and with these as the test programs. They lie in this folder.
fn all_tests(folder: &Path, cargo: &str, spec: &str, live_bytes: &str) -> Command {
    // It looks whether the others are there, and would install them.
    let others =
        ["cc", "gunzip", "sleep", "setsid", "perl", "chromium", "node", "npm"].map(|name| (name, FINE));
    let ours = [("cargo", cargo), ("spec", spec), ("live_bytes", live_bytes), ("fine", FINE)];
    for (name, script) in others.into_iter().chain(ours) {
        write_executable(&folder.join(name), script.as_bytes());
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(workspace().join("tests/all"));
    command.env("PATH", path).env("CARGO_TARGET_DIR", folder);
    // There is no program that could be asked anything.
    for name in ["OFFLOAD_SCHEMATHESIS", "OFFLOAD_NODE", "OFFLOAD_HTTP_APPS", "OFFLOAD_PYTHON"] {
        command.env(name, "true");
    }
    command
}

/// All that it says, and its exit code.
fn all_that_is_said(cargo: &str, spec: &str, live_bytes: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let ran = all_tests(folder.path(), cargo, spec, live_bytes).output().unwrap();
    (String::from_utf8(ran.stdout).unwrap(), ran.status.code())
}

/// The end of what it says, from the last heading on, and its exit code.
fn all_tests_with(cargo: &str, spec: &str, live_bytes: &str) -> (String, Option<i32>) {
    let (said, code) = all_that_is_said(cargo, spec, live_bytes);
    (said.rsplit_once("\n== ").map_or("", |(_, end)| end).to_owned(), code)
}

#[test]
fn what_runs_beside_the_suite_ends_with_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = format!("{CARGO_THAT_BUILDS}run*) echo '{FOUND}' ;;\nesac\n");
    let (endless, numbers) = (folder.path().join("endless"), folder.path().join("numbers"));
    let script = format!(
        "#!/bin/sh\n/bin/sleep 3600 &\necho $$ $! >{0}.new\nmv {0}.new {0}\nwait\n",
        numbers.display()
    );
    write_executable(&endless, script.as_bytes());
    let mut command = all_tests(folder.path(), &cargo, FINE, FINE);
    let mut all =
        command.env("OFFLOAD_NODE", endless).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = until("the package for Node is tested", || std::fs::read_to_string(&numbers).ok());
    signal(all.id(), Signal::TERM);
    assert!(wait_for_end(all.id(), PATIENCE), "the script");
    assert!(!all.wait().unwrap().success());
    for pid in begun.split_whitespace().map(|pid| pid.parse().unwrap()) {
        assert!(wait_for_end(pid, PATIENCE), "{begun}: {pid}");
    }
}

#[test]
fn what_does_not_end_is_ended_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = format!("{CARGO_THAT_BUILDS}run*) echo '{FOUND}' ;;\nesac\n");
    let (endless, for_node) = ("#!/bin/sh\nexec /bin/sleep 3600\n", folder.path().join("endless"));
    // It takes its time to say where it was.
    let with_last_words =
        "#!/bin/sh\ntrap '/bin/sleep 1; echo its last words; exit 1' TERM\n/bin/sleep 3600 & wait\n";
    write_executable(&for_node, with_last_words.as_bytes());
    let mut command = all_tests(folder.path(), &cargo, endless, FINE);
    let ran = command.env("OFFLOAD_NODE", for_node).env("OFFLOAD_TESTS_LONGEST", "10").output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    // On a busy machine others may take as long.
    for line in
        ["  tests/spec: did not end in 10 s", "the package for Node: did not end in 10 s", "its last words"]
    {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    assert_eq!(ran.status.code(), Some(1));
}

#[test]
fn all_failures_of_a_run_are_told_at_its_end() {
    let cargo = format!("{CARGO_THAT_BUILDS}fmt* | run*) exit 1 ;;\nesac\n");
    let (end, code) = all_tests_with(&cargo, SPEC_THAT_FAILS, FAILS_WITHOUT_A_WORD);
    let expected = "failed\n\
        format\n\
        the command of the README\n\
        tests\n  \
          tests/spec: run::one\n  \
          tests/spec: run::two\n  \
          tests/live_bytes: ended without a word, killed by signal 9\n\
        a mistake, which the simulator must find\n";
    assert_eq!((end.as_str(), code), (expected, Some(1)));
}

#[test]
fn what_passed_does_not_hide_what_a_failed_test_has_said() {
    let cargo = format!("{CARGO_THAT_BUILDS}run*) echo '{FOUND}' ;;\nesac\n");
    let (said, _) = all_that_is_said(&cargo, SPEC_THAT_FAILS, FINE);
    for told in ["test run::one ... FAILED", "thread 'run::one' panicked"] {
        assert!(said.lines().any(|line| line == told), "{told}: {said}");
    }
    assert!(!said.contains("run::fine") && !said.contains("run::slow"), "{said}");
}

#[test]
fn tests_of_the_documentation_that_fail_are_told_too() {
    let cargo =
        format!("{CARGO_THAT_BUILDS}run*) echo '{FOUND}' ;;\n\"test --quiet --doc\"*) exit 101 ;;\nesac\n");
    let (end, code) = all_tests_with(&cargo, FINE, FINE);
    assert_eq!((end.as_str(), code), ("failed\ntests of the documentation\n", Some(1)));
}

#[test]
fn without_a_build_nothing_is_tested_and_that_is_a_failure() {
    let (end, code) = all_tests_with("#!/bin/sh\n[ \"$1\" != build ]\n", FINE, FINE);
    assert_eq!((end.as_str(), code), ("failed\nbuild of the program\nbuild of the tests\n", Some(1)));
}

#[test]
fn without_the_program_nothing_is_tested_either() {
    let cargo =
        CARGO_THAT_BUILDS.replacen("case", "case \"$*\" in *'-p offload --bins'*) exit 101 ;; esac\ncase", 1);
    let (said, code) = all_that_is_said(&format!("{cargo}esac\n"), FINE, FINE);
    assert!(said.contains("\n== build of the tests\n") && !said.contains("\n== tests\n"), "{said}");
    assert!(said.ends_with("\n== failed\nbuild of the program\n") && code == Some(1), "{said}");
}

#[test]
fn a_build_without_tests_is_a_failure() {
    let cargo = format!("#!/bin/sh\n[ \"$1\" != run ] || echo '{FOUND}'\n");
    assert_eq!(all_tests_with(&cargo, FINE, FINE), ("failed\ntests\n".to_owned(), Some(1)));
}

/// What the command of the README says, and the simulator when it has found a mistake.
const FOUND: &str = r#"{"count":78498} {"count":148933} {"count":216816}
seed 0 breaks O1"#;

#[test]
fn a_run_without_a_failure_says_so() {
    let cargo = format!("{CARGO_THAT_BUILDS}run*) echo '{FOUND}' ;;\nesac\n");
    let (end, code) = all_tests_with(&cargo, FINE, FINE);
    assert_eq!((end.as_str(), code), ("all tests passed\n", Some(0)));
}
